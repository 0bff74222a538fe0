// The command line: each line of the input is a word of it, and what follows an empty line is the
// value of HVDLAB_FLAGS.

#include "fuzz.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "run/args.h"

enum { MAX_WORDS = 64 };

extern char **environ;

typedef struct {
    char *words[MAX_WORDS + 2];
    int count;
} CommandLine;

// What args.h and --help promise of flags that were accepted.
static void parse(void *command_line)
{
    CommandLine *line = command_line;
    Args args = parse_args(line->count, line->words);
    FUZZ_CHECK(args.batch_size >= 1 && args.val_batch_size >= 1 && args.epochs >= 1);
    FUZZ_CHECK(isfinite(args.base_lr) && args.base_lr >= 0);
    FUZZ_CHECK(isfinite(args.wd) && args.wd >= 0);
    FUZZ_CHECK(args.target_accuracy >= 0 && args.target_accuracy <= 1);
    FUZZ_CHECK(isfinite(args.patience) && args.patience > 0);
    FUZZ_CHECK(args.width >= 1 && args.width <= 64 && args.images >= 0);
    FUZZ_CHECK(*args.log_dir && (!args.data_dir || *args.data_dir));
    FUZZ_CHECK(args.data == DATA_FASHION_MNIST || args.data == DATA_SYNTHETIC);
    FUZZ_CHECK(settings()->loader_threads >= 1 && settings()->loader_threads <= 64);
    FUZZ_CHECK(settings()->precision <= PRECISION_BF16 && settings()->device <= DEVICE_GPU);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char variable[] = "HVDLAB_FLAGS=";
    char *text = malloc(size + 1), *flags = NULL;
    FUZZ_CHECK(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    char *after = strstr(text, "\n\n");
    if (after) {
        *after = '\0';
        flags = malloc(strlen(after + 2) + sizeof variable);
        FUZZ_CHECK(flags);
        strcpy(flags, variable);
        strcat(flags, after + 2);
    }
    CommandLine line = {.words = {"fuzz_args"}, .count = 1};
    for (char *word = text; word && line.count < MAX_WORDS;) {
        line.words[line.count++] = strsep(&word, "\n");
    }
    char *variables[] = {flags, NULL}, **others = environ;
    environ = variables;
    fuzz_call(parse, &line, KEEPS_SOME); // the words of HVDLAB_FLAGS stay: arguments point to them
    environ = others;
    free(flags);
    free(text);
    return 0;
}
