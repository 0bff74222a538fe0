// A lab's lab.conf, as the graders read it.

#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "steps/lab.h"
#include "steps/words.h"

static char folder[] = "/tmp/fuzz_lab.XXXXXX";

static void remove_folder(void)
{
    unlink("labs/fuzz/lab.conf");
    rmdir("labs/fuzz");
    rmdir("labs");
    rmdir(folder);
}

// Labs are looked for below the folder that a program works in.
static void prepare(void)
{
    FUZZ_CHECK(mkdtemp(folder) && chdir(folder) == 0);
    FUZZ_CHECK(mkdir("labs", 0777) == 0 && mkdir("labs/fuzz", 0777) == 0);
    FUZZ_CHECK(symlink(fuzz_file(0, "", 0), "labs/fuzz/lab.conf") == 0);
    atexit(remove_folder);
}

static void read_labs(void *unused)
{
    (void)unused;
    Exercises exercises = exercises_read();
    for (int i = 0; i < exercises.count; i++) {
        const Exercise *exercise = &exercises.items[i];
        FUZZ_CHECK(*exercise->name && *exercise->file);
        FUZZ_CHECK(exercise_named(&exercises, exercise->name) == exercise);
        for (int h = 0; h < exercise->holds.count; h++)
            FUZZ_CHECK(exercise_named(&exercises, exercise->holds.items[h]));
        for (int r = 0; r < exercise->run_count; r++) {
            const RunPlan *run = &exercise->runs[r];
            FUZZ_CHECK(*run->name && run->flags && run->ranks >= 1 && run->ranks <= MAX_RANKS);
            FUZZ_CHECK(run->devices >= 0 && !(run->devices && run->layout));
            FUZZ_CHECK(run->servers >= 0 && run->ranks + run->servers <= MAX_RANKS);
            FUZZ_CHECK(same_plan(run, run));
        }
        free(exercise_title(exercise->name));
    }
    exercises_free(&exercises);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool prepared;
    if (!prepared)
        prepare();
    prepared = true;
    fuzz_file(0, bytes, size);
    fuzz_call(read_labs, NULL, FREES_ALL);
    return 0;
}
