// What it takes to save a model: a checkpoint beside a plain write of as many bytes, and a step in
// which one is saved beside one in which none is. They take turns, so that a change of the disk's
// speed strikes all.

#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "hvd/checkpoint.h"

enum { PLAIN, SAVED, STEP, STEP_AND_SAVED, KINDS };

// Writes the bytes to a new file, and waits until they are on the disk.
static void write_plainly(const char *path, const char *bytes, size_t count)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    size_t done = 0;
    for (ssize_t now; file >= 0 && done < count; done += (size_t)now)
        if ((now = write(file, bytes + done, count - done)) <= 0)
            break;
    if (file < 0 || done < count || fsync(file) != 0 || close(file) != 0)
        die("%s: %s", path, strerror(errno));
}

static size_t size_of(const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0)
        die("%s: %s", path, strerror(errno));
    return (size_t)file.st_size;
}

static void save(const Training *training, const char *folder)
{
    if (!save_checkpoint(training, folder, "saved"))
        exit(1);
}

// What is not there has to be made again each time, as in a training.
static void remove_files(const char *folder)
{
    static const char *const names[] = {"saved.safetensors", "saved.rank-0.safetensors", "plain"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = format_text("%s/%s", folder, names[i]);
        unlink(path);
        free(path);
    }
    sync();
}

void bench_saving(const Workload *workload, const char *folder)
{
    double seconds[KINDS][MAX_ROUNDS];
    static Steps *steps; // until the process ends
    steps = prepare_training(workload);
    Training training = {.model = steps_model(steps)};
    char *main_file = format_text("%s/saved.safetensors", folder);
    char *plain_file = format_text("%s/plain", folder);
    run_steps(steps, 1);
    save(&training, folder);
    size_t count = size_of(main_file);
    char *bytes = allocate(count, 1);
    memset(bytes, 1, count);
    for (int round = 0; round < MAX_ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            remove_files(folder);
            double begin = seconds_now();
            if (kind == STEP || kind == STEP_AND_SAVED)
                run_steps(steps, 1);
            if (kind == PLAIN)
                write_plainly(plain_file, bytes, count);
            if (kind == SAVED || kind == STEP_AND_SAVED)
                save(&training, folder);
            seconds[kind][round] = 1000 * (seconds_now() - begin);
        }
    double ms[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        ms[kind] = median(seconds[kind], MAX_ROUNDS);
    printf("| | ms |\n| --- | --- |\n");
    printf("| %.1f MB, written plainly, and synced | %.0f |\n", (double)count / 1e6, ms[PLAIN]);
    printf("| the same as a checkpoint | %.0f (%.2f times) |\n", ms[SAVED], ms[SAVED] / ms[PLAIN]);
    printf("| a step, batch %d | %.0f |\n", workload->batch, ms[STEP]);
    printf("| a step and a checkpoint | %.0f (%.0f more) |\n", ms[STEP_AND_SAVED],
           ms[STEP_AND_SAVED] - ms[STEP]);
    remove_files(folder);
    free(bytes);
    free(main_file);
    free(plain_file);
}
