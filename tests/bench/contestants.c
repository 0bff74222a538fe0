// The contestants' command lines, and what is said of them afterwards.

#include "contestants.h"

#include <stdio.h>
#include <unistd.h>
#include "sys/device.h"
#include "record.h"
#include "base/util.h"

// A subject as words of a command line.
typedef struct {
    char width[16], batch[16];
    const char *device, *precision;
} Words;

static Words words_of(const Subject *s)
{
    Words words = {.device = device_names[s->device], .precision = precision_names[s->precision]};
    snprintf(words.width, sizeof words.width, "%d", s->width);
    snprintf(words.batch, sizeof words.batch, "%d", s->batch);
    return words;
}

const char *own_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    path[length] = '\0';
    return path;
}

bool start_contestant(Contestant *c, const char *name, const char *python, const Subject *s,
                      const char *const *environment)
{
    Words w = words_of(s);
    char threads[16];
    snprintf(threads, sizeof threads, "%d", device_threads());
    if (python) {
        const char *command[] = {
            python,   "tests/bench/peer.py", name, s->model, w.width, w.batch, threads,
            w.device, w.precision,           NULL};
        return contestant_start(c, name, command, environment);
    }
    const char *command[] = {"/proc/self/exe", "--serve", name,        s->model, w.width,
                             w.batch,          w.device,  w.precision, NULL};
    return contestant_start(c, name, command, environment);
}

bool start_ranks(Contestant *c, int ranks, int devices, const Subject *s)
{
    Words w = words_of(s);
    char count[16], device_count[16];
    snprintf(count, sizeof count, "%d", ranks);
    snprintf(device_count, sizeof device_count, "%d", devices);
    const char *command[] = {"common/scripts/mpi.sh",
                             "run",
                             count,
                             own_path(),
                             "--serve",
                             "hvdlab",
                             s->model,
                             w.width,
                             w.batch,
                             w.device,
                             w.precision,
                             NULL};
    const char *environment[] = {"HVDLAB_DEVICES", device_count, NULL};
    return contestant_start(c, "hvdlab", command, environment);
}

void report_race(cJSON *results, const Subject *s, const Contestant *contestants, int count,
                 int rounds)
{
    for (int i = 0; i < count; i++) {
        const Contestant *c = &contestants[i];
        double step = median(c->seconds, rounds);
        printf("  %-22s %10.1f %9.1f %8.0f", c->name, s->batch / step, 1e3 * step, c->peak_rss_mib);
        if (i > 0)
            printf("   %5.2f x", speed_ratio(&contestants[0], c, rounds));
        printf("\n");
        add_training_step(results, s, c, device_threads(), 1, s->batch / step);
    }
}
