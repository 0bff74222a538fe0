// The trainer's command line. One table lists the flags; reading them, checking them and --help all
// work from it, so a new flag is a new row. The device layer checks whether a device supports a
// setting (bf16 on a CPU, for example).

#include "run/args.h"

#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/setting.h"
#include "base/format.h"
#include "run/hooks.h"

// Versions of clang-format lay out a macro's braces differently.
// clang-format off
#define DEFAULT_ARGS                                                                               \
    {.log_dir = "./logs", .batch_size = 32, .val_batch_size = 32, .epochs = 40, .base_lr = 0.01f,  \
     .wd = 0.000005f, .clip_norm = 1, .target_accuracy = 0.85f, .patience = 2, .width = 10, .max_count = 1 << 22, \
     .shuffle_buffer = 60000, .micro_batches = 4, .stages = 4, .blocks = 16, .columns = 2}
#define DEFAULT_SETTINGS {.loader_threads = 4, .augment = true, .shuffle = true}
// clang-format on

static Args args = DEFAULT_ARGS;
static Settings process = DEFAULT_SETTINGS;

// The source of the flags, as the beginning of a message: "" is the command line.
static const char *origin = "";

typedef struct {
    const char *name;    // without its dashes
    const char *value;   // how --help shows its value, choices with | between; NULL: it has none
    const char *meaning; // its line in --help, which adds the default of a number or a text

    // The flag's effect: one of these is set.
    int *count; // takes a whole number from 1, or 0, to `largest`
    bool from_zero;
    int largest;
    float *real; // takes a number from `least` to `most`, which `range` says in words
    float least, most;
    const char *range;
    uint64_t *seed;
    const char **text;
    void (*choose)(int position); // takes one of the choices, counted from 0
    bool *turns_on, *turns_off;
    void (*show)(void); // prints something that makes the program exit
} Flag;

static void choose_data(int position)
{
    args.data = (DataKind)((int)DATA_FASHION_MNIST + position);
}

static void choose_precision(int position)
{
    process.precision = (Precision)((int)PRECISION_FP32 + position);
}

static void choose_progress(int position)
{
    process.progress = (Progress)((int)PROGRESS_AUTO + position);
}

static void choose_device(int position)
{
    process.device = (DeviceKind)((int)DEVICE_CPU + position);
}

static void show_help(void);
static void show_version(void);

static const Flag flags[] = {
    {"log-dir", "DIR", "where the root writes TensorBoard logs", .text = &args.log_dir},
    {"checkpoint-dir", "DIR", "where a program that saves checkpoints puts them (default: nowhere)",
     .text = &args.checkpoint_dir},
    {"resume", NULL, "go on from the latest of them", .turns_on = &args.resume},
    {"batch-size", "N", "training images per step and worker", .count = &args.batch_size,
     .largest = INT_MAX},
    {"val-batch-size", "N", "validation images per step and worker", .count = &args.val_batch_size,
     .largest = INT_MAX},
    {"epochs", "N", "epochs to train", .count = &args.epochs, .largest = INT_MAX},
    {"base-lr", "RATE", "learning rate for a single device", .real = &args.base_lr, .least = 0,
     .most = FLT_MAX, .range = "a finite number of at least 0"},
    {"wd", "X", "weight decay: L2 penalty on the kernels", .real = &args.wd, .least = 0,
     .most = FLT_MAX, .range = "a finite number of at least 0"},
    {"clip-norm", "X", "limit for the norm of all gradients together", .real = &args.clip_norm,
     .least = FLT_TRUE_MIN, .most = FLT_MAX, .range = "a finite number above 0"},
    {"target-accuracy", "A", "stop when validation accuracy stays above this",
     .real = &args.target_accuracy, .least = 0, .most = 1, .range = "a number from 0 to 1"},
    {"patience", "EPOCHS", "for so many epochs in a row", .real = &args.patience,
     .least = FLT_TRUE_MIN, .most = FLT_MAX, .range = "a finite number above 0"},
    {"width", "K", "width of the Wide ResNet 16-K, at most 64", .count = &args.width,
     .largest = 64},
    {"data", "fashion_mnist|synthetic", "the data set (default: fashion_mnist)",
     .choose = choose_data},
    {"data-dir", "DIR", "its folder (default: that of the Debian package, then data/)",
     .text = &args.data_dir},
    {"images", "N", "cut each data set to its first N images (default: all)", .count = &args.images,
     .largest = INT_MAX},
    {"max-count", "N", "floats in the largest array of a sweep, at most 2^28",
     .count = &args.max_count, .largest = 1 << 28},
    {"no-augment", NULL, "leave the training images as they are", .turns_off = &process.augment},
    {"no-shuffle", NULL, "keep the images in the files' order", .turns_off = &process.shuffle},
    {"shuffle-buffer", "N", "images among which a pipeline draws the next one",
     .count = &args.shuffle_buffer, .largest = INT_MAX},
    {"slow-reader", "MS", "milliseconds to read a batch of images, as from a slow disk",
     .real = &process.slow_reader, .least = 0, .most = 60000, .range = "a number from 0 to 60000"},
    {"micro-batches", "M", "parts of a batch that pass through the parts of a model",
     .count = &args.micro_batches, .largest = INT_MAX},
    {"stages", "N", "parts of a model, one behind the other, at most 16", .count = &args.stages,
     .largest = 16},
    {"blocks", "N", "blocks of a model that is computed block by block, at most 1000",
     .count = &args.blocks, .largest = 1000},
    {"columns", "N", "columns of a grid of workers", .count = &args.columns, .largest = INT_MAX},
    {"staleness", "N", "a worker that is more than N updates ahead waits (parameter servers)",
     .count = &args.staleness, .from_zero = true, .largest = INT_MAX},
    {"pace", "MS", "milliseconds that a batch takes at least to be computed", .real = &process.pace,
     .least = 0, .most = 60000, .range = "a number from 0 to 60000"},
    {"loader-threads", "N", "threads that prepare images, at most 64",
     .count = &process.loader_threads, .largest = 64},
    {"device", "cpu|gpu", "where to compute (default: a GPU if one is visible)",
     .choose = choose_device},
    {"precision", "fp32|tf32|bf16", "arithmetic (default: the device's; fp32 on a CPU)",
     .choose = choose_precision},
    {"deterministic", NULL, "the same bits in every run, on a GPU too",
     .turns_on = &process.deterministic},
    {"seed", "N", "repeat the same random numbers (default: new ones in every process)",
     .seed = &process.seed},
    {"progress", "auto|bar|plain", "how to show progress (default: auto, a bar on a terminal)",
     .choose = choose_progress},
    {"show-ranks", NULL, "show a table of the ranks after each epoch",
     .turns_on = &process.show_ranks},
    {"show-memory", NULL, "show the memory of each rank's model after each epoch",
     .turns_on = &process.show_memory},
    {"help", NULL, "show this help and exit", .show = show_help},
    {"version", NULL, "show the version and exit", .show = show_version},
};

enum { FLAG_COUNT = sizeof flags / sizeof flags[0] };

static void reset_to_defaults(void)
{
    args = (Args)DEFAULT_ARGS;
    process = (Settings)DEFAULT_SETTINGS;
}

// The shortest decimal number, without an exponent, that reads back as `value`.
static void print_real(float value)
{
    char text[64];
    int decimals = 0;
    do
        print_number(text, sizeof text, "%.*f", decimals++, (double)value);
    while (read_float(text, NULL) != value && decimals < 50);
    fputs(text, stdout);
}

static void print_default(const Flag *flag)
{
    bool has_one = (flag->count && (*flag->count || flag->from_zero)) || flag->real ||
                   (flag->text && *flag->text);
    if (!has_one)
        return;
    fputs(" (default: ", stdout);
    if (flag->count)
        printf("%d", *flag->count);
    else if (flag->real)
        print_real(*flag->real);
    else
        fputs(*flag->text, stdout);
    putchar(')');
}

static void show_help(void)
{
    reset_to_defaults(); // flags that stood before --help may have changed what is shown
    printf("Usage: %s [FLAG]...\n\nFlags:\n", program_name());
    for (const Flag *flag = flags; flag < flags + FLAG_COUNT; flag++) {
        char *left = format_text("--%s %s", flag->name, flag->value ? flag->value : "");
        printf("  %-31s %s", left, flag->meaning);
        print_default(flag);
        putchar('\n');
        free(left);
    }
    puts("\nEnvironment variables:");
    settings_print();
}

static void show_version(void)
{
    puts("hvdlab " HVDLAB_VERSION);
}

_Noreturn static void refuse(const Flag *flag, const char *value, const char *allowed)
{
    die("%s--%s must be %s, not '%s'", origin, flag->name, allowed, value);
}

static int read_count(const Flag *flag, const char *value)
{
    uint64_t number = 0;
    int least = flag->from_zero ? 0 : 1;
    if (!read_whole_number(value, (uint64_t)flag->largest, &number) || (int)number < least)
        refuse(flag, value, format_text("a whole number from %d to %d", least, flag->largest));
    return (int)number;
}

static uint64_t read_seed(const Flag *flag, const char *value)
{
    uint64_t number = 0;
    if (!read_whole_number(value, UINT64_MAX, &number))
        refuse(flag, value, format_text("a whole number from 0 to %" PRIu64, UINT64_MAX));
    return number;
}

// Only decimal numbers: read_float would also take white space in front, "nan", "inf" and "0x1p3".
static float read_real(const Flag *flag, const char *value)
{
    char *end;
    float number = read_float(value, &end);
    bool decimal =
        *value != '\0' && *end == '\0' && value[strspn(value, "0123456789+-.eE")] == '\0';
    if (!decimal || number < flag->least || number > flag->most)
        refuse(flag, value, flag->range);
    return number;
}

static const char *read_text(const Flag *flag, const char *value)
{
    if (*value == '\0')
        refuse(flag, value, "a name");
    return value;
}

static int read_choice(const Flag *flag, const char *value)
{
    const char *choice = flag->value;
    for (int position = 0;; position++) {
        size_t length = strcspn(choice, "|");
        if (strlen(value) == length && strncmp(choice, value, length) == 0)
            return position;
        if (choice[length] == '\0')
            refuse(flag, value, format_text("one of %s", flag->value));
        choice += length + 1;
    }
}

static void apply(const Flag *flag, const char *value)
{
    if (flag->count)
        *flag->count = read_count(flag, value);
    if (flag->real)
        *flag->real = read_real(flag, value);
    if (flag->text)
        *flag->text = read_text(flag, value);
    if (flag->choose)
        flag->choose(read_choice(flag, value));
    if (flag->turns_on)
        *flag->turns_on = true;
    if (flag->turns_off)
        *flag->turns_off = false;
    if (flag->seed) {
        *flag->seed = read_seed(flag, value);
        process.seeded = true;
    }
    if (flag->show) {
        if (launcher_rank() == 0) // once, not once per rank
            flag->show();
        exit(EXIT_SUCCESS);
    }
}

// getopt_long names a flag by a number; from here up none can be mistaken for a character.
enum { FIRST_FLAG = 256 };

static void list_for_getopt(struct option options[FLAG_COUNT + 1])
{
    for (int i = 0; i < FLAG_COUNT; i++)
        options[i] = (struct option){
            .name = flags[i].name,
            .has_arg = flags[i].value ? required_argument : no_argument,
            .val = FIRST_FLAG + i,
        };
    options[FLAG_COUNT] = (struct option){0};
}

// How many flags begin with what was typed (dashes included).
static int flags_that_begin_with(const char *typed, int length)
{
    int count = 0;
    for (int i = 0; i < FLAG_COUNT; i++)
        count += length >= 2 && strncmp(typed, "--", 2) == 0 &&
                 strncmp(typed + 2, flags[i].name, (size_t)length - 2) == 0;
    return count;
}

// Reports a word for which getopt_long returned '?' or ':'.
_Noreturn static void refuse_word(int answer, const char *word)
{
    int length = (int)strcspn(word, "="); // the flag as it was typed, without its value
    if (answer == ':')
        die("%s%.*s lacks its value", origin, length, word);
    if (optopt >= FIRST_FLAG)
        die("%s%.*s takes no value", origin, length, word);
    if (flags_that_begin_with(word, length) > 1)
        die("%sflag %.*s can mean several flags; --help lists them", origin, length, word);
    die("%sunknown flag %.*s; --help lists them", origin, length, word);
}

static void read_flags(int argc, char **argv)
{
    struct option options[FLAG_COUNT + 1];
    list_for_getopt(options);
    optind = 0; // begin again: glibc keeps its place between calls
    for (;;) {
        int at = optind > 0 ? optind : 1;
        // '+': stop at a word that is no flag. ':': stay silent, answer ':' if a value is lacking.
        int answer = getopt_long(argc, argv, "+:", options, NULL);
        if (answer == -1)
            break;
        if (answer < FIRST_FLAG)
            refuse_word(answer, argv[at]);
        // A flag where another flag's value should be: that value was forgotten.
        bool value_is_next_word = optarg && optarg == argv[at + 1];
        if (value_is_next_word && strncmp(optarg, "--", 2) == 0)
            refuse_word(':', argv[at]);
        apply(&flags[answer - FIRST_FLAG], optarg);
    }
    if (optind < argc)
        die("%s'%s' is no flag; --help lists them", origin, argv[optind]);
}

static void read_environment(void)
{
    static char *copy; // never freed: the arguments may point into it
    const char *text = setting_text(HVDLAB_FLAGS);
    if (!text)
        return;
    copy = format_text("%s", text);
    char **words = allocate(strlen(text) / 2 + 3, sizeof *words);
    int count = 0;
    words[count++] = program_invocation_short_name;
    char *rest = NULL;
    for (char *word = strtok_r(copy, " \t\n\v\f\r", &rest); word;
         word = strtok_r(NULL, " \t\n\v\f\r", &rest))
        words[count++] = word;
    origin = "in HVDLAB_FLAGS: ";
    read_flags(count, words);
    origin = "";
    free(words);
}

void (*args_read)(void);

// Whether a checkpoint folder was given, and whether the program has used checkpoints.
static struct {
    bool given, used;
} checkpoint_dir;

void checkpoint_dir_is_used(void)
{
    checkpoint_dir.used = true;
}

void args_end(int status)
{
    if (status == EXIT_SUCCESS && checkpoint_dir.given && !checkpoint_dir.used)
        warn_on_root("--checkpoint-dir did nothing: this program has neither saved nor restored "
                     "a checkpoint");
}

void args_forget(void)
{
    checkpoint_dir.given = false;
}

Args parse_args(int argc, char **argv)
{
    reset_to_defaults();
    read_flags(argc, argv);
    read_environment();
    if (args.checkpoint_dir && setting_count(HVDLAB_RESUME))
        args.resume = true;
    if (args.resume && !args.checkpoint_dir)
        die("--resume needs --checkpoint-dir, the folder to go on from");
    checkpoint_dir.given = args.checkpoint_dir != NULL;
    int seed = setting_count(HVDLAB_SEED);
    if (process.seeded)
        seed_process(process.seed);
    else if (seed > 0)
        seed_process((uint64_t)seed);
    args_read();
    return args;
}

Settings *settings(void)
{
    return &process;
}
