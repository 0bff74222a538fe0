// What common/run/args.h promises: every flag, its default, its range, and one clear line for each
// mistake on the command line.

#include <string.h>

#include "run/args.h"
#include "child.h"
#include "base/rng.h"

enum { MAX_WORDS = 32 };

// Parses a command line that is written as one string, with spaces between the words.
static Args parse(const char *line)
{
    static char copy[1024];
    static char program[] = "trainer";
    char *words[MAX_WORDS + 1] = {program};
    int count = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && count < MAX_WORDS; word = strtok(NULL, " "))
        words[count++] = word;
    return parse_args(count, words);
}

static void parse_in_child(const void *line)
{
    parse(line);
}

static void parse_words(const void *words)
{
    char *const *argv = words;
    int count = 0;
    while (argv[count])
        count++;
    parse_args(count, (char **)argv);
}

static void check_default_settings(void)
{
    ck_assert_int_eq(settings()->precision, PRECISION_DEFAULT);
    ck_assert_int_eq(settings()->device, DEVICE_AUTO);
    ck_assert_int_eq(settings()->progress, PROGRESS_AUTO);
    ck_assert_int_eq(settings()->loader_threads, 4);
    ck_assert_float_eq(settings()->slow_reader, 0);
    ck_assert(settings()->augment);
    ck_assert(settings()->shuffle);
    ck_assert(!settings()->deterministic);
    ck_assert(!settings()->show_ranks);
    ck_assert(!settings()->seeded);
}

START_TEST(settings_are_the_defaults_before_parsing)
{
    check_default_settings();
}
END_TEST

START_TEST(no_flags_give_the_defaults)
{
    Args args = parse("");
    ck_assert_str_eq(args.log_dir, "./logs");
    ck_assert_int_eq(args.batch_size, 32);
    ck_assert_int_eq(args.val_batch_size, 32);
    ck_assert_int_eq(args.epochs, 40);
    ck_assert_float_eq(args.base_lr, 0.01f);
    ck_assert_float_eq(args.wd, 0.000005f);
    ck_assert_float_eq(args.clip_norm, 1);
    ck_assert_float_eq(args.target_accuracy, 0.85f);
    ck_assert_float_eq(args.patience, 2);
    ck_assert_int_eq(args.width, 10);
    ck_assert_int_eq(args.data, DATA_FASHION_MNIST);
    ck_assert_ptr_null(args.data_dir);
    ck_assert_int_eq(args.images, 0);
    ck_assert_int_eq(args.max_count, 4194304);
    ck_assert_int_eq(args.shuffle_buffer, 60000);
    ck_assert_int_eq(args.micro_batches, 4);
    ck_assert_int_eq(args.stages, 4);
    ck_assert_int_eq(args.columns, 2);
    ck_assert_int_eq(args.staleness, 0);
    check_default_settings();
}
END_TEST

START_TEST(every_flag_of_the_lab_is_read)
{
    Args args = parse(
        "--log-dir /tmp/x --batch-size 512 --val-batch-size 64 --epochs 3 "
        "--base-lr 0.1 --wd 1e-4 --target-accuracy 0.9 --patience 2.5 --width 1 --clip-norm 0.5 "
        "--data synthetic --data-dir /data --images 600 --max-count 10007");
    ck_assert_str_eq(args.log_dir, "/tmp/x");
    ck_assert_int_eq(args.batch_size, 512);
    ck_assert_int_eq(args.val_batch_size, 64);
    ck_assert_int_eq(args.epochs, 3);
    ck_assert_float_eq(args.base_lr, 0.1f);
    ck_assert_float_eq(args.wd, 1e-4f);
    ck_assert_float_eq(args.clip_norm, 0.5f);
    ck_assert_float_eq(args.target_accuracy, 0.9f);
    ck_assert_float_eq(args.patience, 2.5f);
    ck_assert_int_eq(args.width, 1);
    ck_assert_int_eq(args.data, DATA_SYNTHETIC);
    ck_assert_str_eq(args.data_dir, "/data");
    ck_assert_int_eq(args.images, 600);
    ck_assert_int_eq(args.max_count, 10007);
    check_default_settings();
}
END_TEST

START_TEST(every_flag_of_the_process_is_read)
{
    parse("--precision tf32 --device gpu --progress plain --loader-threads 64 --no-augment "
          "--no-shuffle --deterministic --show-ranks --seed 18446744073709551615 "
          "--slow-reader 2.5");
    ck_assert_float_eq(settings()->slow_reader, 2.5f);
    ck_assert_int_eq(settings()->precision, PRECISION_TF32);
    ck_assert_int_eq(settings()->device, DEVICE_GPU);
    ck_assert_int_eq(settings()->progress, PROGRESS_PLAIN);
    ck_assert_int_eq(settings()->loader_threads, 64);
    ck_assert(!settings()->augment);
    ck_assert(!settings()->shuffle);
    ck_assert(settings()->deterministic);
    ck_assert(settings()->show_ranks);
    ck_assert(settings()->seeded);
    ck_assert_uint_eq(settings()->seed, UINT64_MAX);
}
END_TEST

START_TEST(every_choice_is_understood)
{
    parse("--precision fp32 --device cpu --progress auto");
    ck_assert_int_eq(settings()->precision, PRECISION_FP32);
    ck_assert_int_eq(settings()->device, DEVICE_CPU);
    ck_assert_int_eq(settings()->progress, PROGRESS_AUTO);
    ck_assert_int_eq(parse("--precision bf16 --progress bar --data fashion_mnist").data,
                     DATA_FASHION_MNIST);
    ck_assert_int_eq(settings()->precision, PRECISION_BF16);
    ck_assert_int_eq(settings()->progress, PROGRESS_BAR);
}
END_TEST

START_TEST(the_ends_of_every_range_belong_to_it)
{
    Args args = parse("--batch-size 1 --val-batch-size 2147483647 --epochs 1 --base-lr 0 --wd 0 "
                      "--target-accuracy 0 --patience 0.001 --width 64 --images 1 "
                      "--max-count 268435456 --loader-threads 1 --seed 0");
    ck_assert_int_eq(args.val_batch_size, 2147483647);
    ck_assert_float_eq(args.base_lr, 0);
    ck_assert_float_eq(args.wd, 0);
    ck_assert_float_eq(args.target_accuracy, 0);
    ck_assert_int_eq(args.width, 64);
    ck_assert_int_eq(args.max_count, 268435456);
    ck_assert(settings()->seeded);
    ck_assert_float_eq(parse("--target-accuracy 1").target_accuracy, 1);
    ck_assert_int_eq(parse("--shuffle-buffer 2147483647").shuffle_buffer, 2147483647);
    ck_assert_int_eq(parse("--micro-batches 2147483647").micro_batches, 2147483647);
    ck_assert_int_eq(parse("--stages 16").stages, 16);
    ck_assert_int_eq(parse("--columns 3").columns, 3);
    ck_assert_int_eq(parse("--staleness 2147483647").staleness, 2147483647);
    ck_assert_int_eq(parse("--staleness 3 --staleness 0").staleness, 0);
    parse("--slow-reader 60000 --pace 60000");
    ck_assert_float_eq(settings()->pace, 60000);
    ck_assert_float_eq(settings()->slow_reader, 60000);
}
END_TEST

START_TEST(a_value_may_follow_an_equals_sign)
{
    ck_assert_int_eq(parse("--epochs=7").epochs, 7);
}
END_TEST

START_TEST(an_unambiguous_beginning_is_enough)
{
    ck_assert_int_eq(parse("--ep 7").epochs, 7);
}
END_TEST

START_TEST(the_last_of_two_wins)
{
    ck_assert_int_eq(parse("--epochs 7 --epochs 8").epochs, 8);
}
END_TEST

START_TEST(each_call_begins_again)
{
    parse("--epochs 7 --no-augment --seed 1");
    ck_assert_int_eq(parse("--wd 0").epochs, 40);
    check_default_settings();
}
END_TEST

START_TEST(the_environment_wins)
{
    setenv("HVDLAB_FLAGS", "  --epochs 1\t--no-shuffle\n--log-dir here ", 1);
    Args args = parse("--epochs 7 --width 2 --log-dir there");
    ck_assert_int_eq(args.epochs, 1);
    ck_assert_int_eq(args.width, 2);
    ck_assert_str_eq(args.log_dir, "here");
    ck_assert(!settings()->shuffle);
}
END_TEST

START_TEST(an_empty_environment_changes_nothing)
{
    setenv("HVDLAB_FLAGS", " \t", 1);
    ck_assert_int_eq(parse("--epochs 7").epochs, 7);
}
END_TEST

START_TEST(a_job_that_is_started_again_goes_on)
{
    checkpoint_dir_is_used(); // and nothing is said of it
    setenv("HVDLAB_RESUME", "1", 1);
    ck_assert(parse("--checkpoint-dir here").resume);
    ck_assert(!parse("").resume); // and is no fault
    setenv("HVDLAB_RESUME", "", 1);
    ck_assert(!parse("--checkpoint-dir here").resume);
    setenv("HVDLAB_RESUME", "yes", 1);
    Outcome outcome = run_in_child(parse_in_child, "--checkpoint-dir here");
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_msg(strstr(outcome.err, "HVDLAB_RESUME"), "it says: %s", outcome.err);
}
END_TEST

static void use_the_folder(const void *line)
{
    parse(line);
    checkpoint_dir_is_used();
}

START_TEST(a_folder_for_checkpoints_that_nobody_uses_is_said)
{
    const char *line = "--epochs 2 --checkpoint-dir here";
    Outcome outcome = run_in_child(parse_in_child, line);
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_msg(strstr(outcome.err, "warning: --checkpoint-dir"), "it says: %s", outcome.err);
    ck_assert_str_eq(run_in_child(use_the_folder, line).err, "");
    ck_assert_str_eq(run_in_child(parse_in_child, "--epochs 2").err, "");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    ck_assert_str_eq(run_in_child(parse_in_child, line).err, ""); // the root has said it
}
END_TEST

START_TEST(seed_seeds_the_process)
{
    parse("--seed 42");
    Rng parsed = rng_stream(RNG_WEIGHTS, 0);
    seed_process(42);
    Rng seeded = rng_stream(RNG_WEIGHTS, 0);
    ck_assert_uint_eq(rng_next(&parsed), rng_next(&seeded));
}
END_TEST

START_TEST(help_shows_every_flag_and_default)
{
    static const char *const lines[] = {"--log-dir",
                                        "(default: ./logs)",
                                        "--batch-size",
                                        "(default: 32)",
                                        "--epochs",
                                        "(default: 40)",
                                        "--val-batch-size",
                                        "--base-lr",
                                        "--wd",
                                        "--clip-norm",
                                        "(default: 0.01)",
                                        "(default: 0.000005)",
                                        "--target-accuracy",
                                        "--patience",
                                        "(default: 0.85)",
                                        "(default: 2)",
                                        "--width",
                                        "--data ",
                                        "(default: 10)",
                                        "--data-dir",
                                        "--images",
                                        "--max-count",
                                        "(default: 4194304)",
                                        "--shuffle-buffer",
                                        "(default: 60000)",
                                        "--slow-reader",
                                        "--micro-batches",
                                        "--stages",
                                        "--columns",
                                        "--staleness",
                                        "--pace",
                                        "--precision",
                                        "--seed",
                                        "--loader-threads",
                                        "(default: 4)",
                                        "--no-augment",
                                        "--no-shuffle",
                                        "--progress",
                                        "--device",
                                        "--deterministic",
                                        "--show-ranks",
                                        "--help",
                                        "--version",
                                        "HVDLAB_FLAGS",
                                        "HVDLAB_RESUME=1"};
    Outcome outcome = run_in_child(parse_in_child, "--epochs 7 --help");
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_str_eq(outcome.err, "");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ck_assert_msg(strstr(outcome.out, lines[i]), "--help does not show %s", lines[i]);
}
END_TEST

START_TEST(version_is_one_line)
{
    Outcome outcome = run_in_child(parse_in_child, "--version");
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_str_eq(outcome.out, "hvdlab " HVDLAB_VERSION "\n");
}
END_TEST

START_TEST(only_the_root_rank_shows_help)
{
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    Outcome outcome = run_in_child(parse_in_child, "--help");
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_str_eq(outcome.out, "");
}
END_TEST

static void check_refusal(const char *line, const Outcome *outcome, const char *message)
{
    char expected[512];
    snprintf(expected, sizeof expected, "test_args: %s\n", message);
    ck_assert_msg(outcome->status == 2, "'%s': status %d", line, outcome->status);
    ck_assert_msg(strcmp(outcome->err, expected) == 0, "'%s' says: %s", line, outcome->err);
}

#define WHOLE      "a whole number from 1 to 2147483647"
#define AT_LEAST_0 "a finite number of at least 0"

typedef struct {
    const char *line, *message;
} Refusal;

static const Refusal bad_values[] = {
    {"--batch-size 0", "--batch-size must be " WHOLE ", not '0'"},
    {"--batch-size -1", "--batch-size must be " WHOLE ", not '-1'"},
    {"--batch-size 32x", "--batch-size must be " WHOLE ", not '32x'"},
    {"--batch-size 3.5", "--batch-size must be " WHOLE ", not '3.5'"},
    {"--batch-size 0x10", "--batch-size must be " WHOLE ", not '0x10'"},
    {"--batch-size=", "--batch-size must be " WHOLE ", not ''"},
    {"--val-batch-size 0", "--val-batch-size must be " WHOLE ", not '0'"},
    {"--epochs 0", "--epochs must be " WHOLE ", not '0'"},
    {"--epochs 2147483648", "--epochs must be " WHOLE ", not '2147483648'"},
    {"--epochs 99999999999999999999", "--epochs must be " WHOLE ", not '99999999999999999999'"},
    {"--ep 0", "--epochs must be " WHOLE ", not '0'"},
    {"--images 0", "--images must be " WHOLE ", not '0'"},
    {"--max-count 0", "--max-count must be a whole number from 1 to 268435456, not '0'"},
    {"--max-count 268435457",
     "--max-count must be a whole number from 1 to 268435456, not '268435457'"},
    {"--shuffle-buffer 0", "--shuffle-buffer must be " WHOLE ", not '0'"},
    {"--staleness -1", "--staleness must be a whole number from 0 to 2147483647, not '-1'"},
    {"--micro-batches 0", "--micro-batches must be " WHOLE ", not '0'"},
    {"--columns 0", "--columns must be " WHOLE ", not '0'"},
    {"--stages 17", "--stages must be a whole number from 1 to 16, not '17'"},
    {"--pace -1", "--pace must be a number from 0 to 60000, not '-1'"},
    {"--pace 60001", "--pace must be a number from 0 to 60000, not '60001'"},
    {"--slow-reader -1", "--slow-reader must be a number from 0 to 60000, not '-1'"},
    {"--slow-reader 60001", "--slow-reader must be a number from 0 to 60000, not '60001'"},
    {"--slow-reader nan", "--slow-reader must be a number from 0 to 60000, not 'nan'"},
    {"--width 0", "--width must be a whole number from 1 to 64, not '0'"},
    {"--width 65", "--width must be a whole number from 1 to 64, not '65'"},
    {"--loader-threads 0", "--loader-threads must be a whole number from 1 to 64, not '0'"},
    {"--loader-threads 65", "--loader-threads must be a whole number from 1 to 64, not '65'"},
    {"--base-lr -0.1", "--base-lr must be " AT_LEAST_0 ", not '-0.1'"},
    {"--base-lr nan", "--base-lr must be " AT_LEAST_0 ", not 'nan'"},
    {"--base-lr inf", "--base-lr must be " AT_LEAST_0 ", not 'inf'"},
    {"--base-lr 1e39", "--base-lr must be " AT_LEAST_0 ", not '1e39'"},
    {"--base-lr 0.1f", "--base-lr must be " AT_LEAST_0 ", not '0.1f'"},
    {"--base-lr 0x1p3", "--base-lr must be " AT_LEAST_0 ", not '0x1p3'"},
    {"--base-lr e", "--base-lr must be " AT_LEAST_0 ", not 'e'"},
    {"--base-lr=", "--base-lr must be " AT_LEAST_0 ", not ''"},
    {"--wd -1", "--wd must be " AT_LEAST_0 ", not '-1'"},
    {"--wd infinity", "--wd must be " AT_LEAST_0 ", not 'infinity'"},
    {"--target-accuracy 1.01", "--target-accuracy must be a number from 0 to 1, not '1.01'"},
    {"--target-accuracy -0.1", "--target-accuracy must be a number from 0 to 1, not '-0.1'"},
    {"--target-accuracy nan", "--target-accuracy must be a number from 0 to 1, not 'nan'"},
    {"--patience 0", "--patience must be a finite number above 0, not '0'"},
    {"--patience inf", "--patience must be a finite number above 0, not 'inf'"},
    {"--patience 1e-50", "--patience must be a finite number above 0, not '1e-50'"},
    {"--data mnist", "--data must be one of fashion_mnist|synthetic, not 'mnist'"},
    {"--precision fp16", "--precision must be one of fp32|tf32|bf16, not 'fp16'"},
    {"--precision fp", "--precision must be one of fp32|tf32|bf16, not 'fp'"},
    {"--progress none", "--progress must be one of auto|bar|plain, not 'none'"},
    {"--device cpu|gpu", "--device must be one of cpu|gpu, not 'cpu|gpu'"},
    {"--device=", "--device must be one of cpu|gpu, not ''"},
    {"--seed -1", "--seed must be a whole number from 0 to 18446744073709551615, not '-1'"},
    {"--seed 18446744073709551616", "--seed must be a whole number from 0 to "
                                    "18446744073709551615, not '18446744073709551616'"},
    {"--seed x", "--seed must be a whole number from 0 to 18446744073709551615, not 'x'"},
    {"--log-dir=", "--log-dir must be a name, not ''"},
    {"--data-dir=", "--data-dir must be a name, not ''"},
};

START_TEST(a_bad_value_is_refused)
{
    const Refusal *refusal = &bad_values[_i];
    Outcome outcome = run_in_child(parse_in_child, refusal->line);
    check_refusal(refusal->line, &outcome, refusal->message);
}
END_TEST

static const Refusal bad_words[] = {
    {"--foo", "unknown flag --foo; --help lists them"},
    {"--foo=3", "unknown flag --foo; --help lists them"},
    {"--epochs 3 --epoch5 2", "unknown flag --epoch5; --help lists them"},
    {"-x", "unknown flag -x; --help lists them"},
    {"-epochs 3", "unknown flag -epochs; --help lists them"},
    {"--da synthetic", "flag --da can mean several flags; --help lists them"},
    {"--d=3", "flag --d can mean several flags; --help lists them"},
    {"--epochs", "--epochs lacks its value"},
    {"--wd 0 --log-dir", "--log-dir lacks its value"},
    {"--log-dir --epochs 3", "--log-dir lacks its value"},
    {"--no-augment=1", "--no-augment takes no value"},
    {"stray", "'stray' is no flag; --help lists them"},
    {"--no-augment true --epochs 3", "'true' is no flag; --help lists them"},
    {"stray --foo", "'stray' is no flag; --help lists them"},
    {"-- stray", "'stray' is no flag; --help lists them"},
    {"-", "'-' is no flag; --help lists them"},
};

START_TEST(a_bad_word_is_refused)
{
    const Refusal *refusal = &bad_words[_i];
    Outcome outcome = run_in_child(parse_in_child, refusal->line);
    check_refusal(refusal->line, &outcome, refusal->message);
}
END_TEST

START_TEST(white_space_inside_a_value_is_refused)
{
    static char *const words[] = {"trainer", "--epochs", " 3", NULL};
    Outcome outcome = run_in_child(parse_words, words);
    check_refusal("--epochs ' 3'", &outcome, "--epochs must be " WHOLE ", not ' 3'");
    static char *const reals[] = {"trainer", "--wd", "\n1", NULL};
    outcome = run_in_child(parse_words, reals);
    check_refusal("--wd '\\n1'", &outcome, "--wd must be " AT_LEAST_0 ", not '?1'");
}
END_TEST

START_TEST(a_name_may_hold_spaces)
{
    char *words[] = {"trainer", "--log-dir", "my logs", NULL};
    ck_assert_str_eq(parse_args(3, words).log_dir, "my logs");
}
END_TEST

START_TEST(a_fault_in_the_environment_says_so)
{
    setenv("HVDLAB_FLAGS", "--epochs 0", 1);
    Outcome outcome = run_in_child(parse_in_child, "");
    check_refusal("HVDLAB_FLAGS", &outcome, "in HVDLAB_FLAGS: --epochs must be " WHOLE ", not '0'");
    setenv("HVDLAB_FLAGS", "--epochs 1 --foo", 1);
    outcome = run_in_child(parse_in_child, "");
    check_refusal("HVDLAB_FLAGS", &outcome,
                  "in HVDLAB_FLAGS: unknown flag --foo; --help lists them");
}
END_TEST

START_TEST(a_fault_on_the_command_line_does_not_blame_the_environment)
{
    setenv("HVDLAB_FLAGS", "--epochs 1", 1);
    parse("--epochs 2");
    Outcome outcome = run_in_child(parse_in_child, "--foo");
    check_refusal("--foo", &outcome, "unknown flag --foo; --help lists them");
}
END_TEST

int main(void)
{
    unsetenv("HVDLAB_FLAGS");
    unsetenv("HVDLAB_RESUME");
    unsetenv("OMPI_COMM_WORLD_RANK");
    Suite *suite = suite_create("args");

    TCase *values = tcase_create("values");
    tcase_add_test(values, settings_are_the_defaults_before_parsing);
    tcase_add_test(values, no_flags_give_the_defaults);
    tcase_add_test(values, every_flag_of_the_lab_is_read);
    tcase_add_test(values, every_flag_of_the_process_is_read);
    tcase_add_test(values, every_choice_is_understood);
    tcase_add_test(values, the_ends_of_every_range_belong_to_it);
    tcase_add_test(values, a_value_may_follow_an_equals_sign);
    tcase_add_test(values, an_unambiguous_beginning_is_enough);
    tcase_add_test(values, a_name_may_hold_spaces);
    tcase_add_test(values, the_last_of_two_wins);
    tcase_add_test(values, each_call_begins_again);
    tcase_add_test(values, the_environment_wins);
    tcase_add_test(values, an_empty_environment_changes_nothing);
    tcase_add_test(values, a_job_that_is_started_again_goes_on);
    tcase_add_test(values, a_folder_for_checkpoints_that_nobody_uses_is_said);
    tcase_add_test(values, seed_seeds_the_process);
    suite_add_tcase(suite, values);

    TCase *shown = tcase_create("help and version");
    tcase_add_test(shown, help_shows_every_flag_and_default);
    tcase_add_test(shown, version_is_one_line);
    tcase_add_test(shown, only_the_root_rank_shows_help);
    suite_add_tcase(suite, shown);

    TCase *refused = tcase_create("refusals");
    tcase_add_loop_test(refused, a_bad_value_is_refused, 0,
                        (int)(sizeof bad_values / sizeof bad_values[0]));
    tcase_add_loop_test(refused, a_bad_word_is_refused, 0,
                        (int)(sizeof bad_words / sizeof bad_words[0]));
    tcase_add_test(refused, white_space_inside_a_value_is_refused);
    tcase_add_test(refused, a_fault_in_the_environment_says_so);
    tcase_add_test(refused, a_fault_on_the_command_line_does_not_blame_the_environment);
    suite_add_tcase(suite, refused);

    return run_suite(suite);
}
