// The contestant's side of the race: hvdlab, on one rank or under mpirun on several, or the
// convolutions alone.

#include "serve.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sys/device.h"
#include "hvd/hvd.h"
#include "observe.h"
#include "race.h"
#include "base/util.h"
#include "work.h"

static double peak_rss_mib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return (double)kib / 1024;
}

// Waits for a message from the root without taking a core: others race meanwhile.
static int broadcast_quietly(int value)
{
    MPI_Request request;
    MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;)
        usleep(500);
    return value;
}

// Reads what to do next. How many steps that takes is the same on every rank; 0: the race is over.
// On several ranks there is nothing to do but to run.
static int next_task(char word[16])
{
    int steps = 0;
    strcpy(word, "run");
    if (launcher_rank() == 0 && scanf("%15s %d", word, &steps) != 2)
        steps = 0;
    return launched() ? broadcast_quietly(steps) : steps;
}

static void run_steps(Work *work, int steps)
{
    for (int i = 0; i < steps; i++)
        work_run(work);
    work_finish(work);
}

static void answer_profile(Work *work, int steps)
{
    Taken taken[WORK_KINDS];
    observe(OBSERVE_TIMES);
    run_steps(work, steps);
    observed_times(steps, taken);
    observe(OBSERVE_NOTHING);
    for (int kind = 0; kind < WORK_KINDS; kind++)
        printf("%.9g %.9g\n", taken[kind].calls, taken[kind].seconds);
}

static void answer_rates(void)
{
    Rates rates = measured_rates();
    printf("%.9g %.9g\n", rates.flops, rates.bytes);
}

static void answer_run(Work *work, int steps)
{
    double begin = seconds_now();
    run_steps(work, steps);
    if (launcher_rank() == 0)
        printf("%.6f %.0f\n", seconds_now() - begin, peak_rss_mib());
}

// Its operations are observed while they are prepared, so that they can be profiled.
static Work *prepare(const char *contestant, const Subject *subject)
{
    if (strcmp(contestant, "hvdlab") != 0)
        return convolutions_only(subject);
    observe(OBSERVE_OPERATIONS);
    Work *work = training_step(subject);
    work_run(work);
    observe(OBSERVE_NOTHING);
    return work;
}

// The record will say that this is what was raced.
static void take_device(const Subject *subject)
{
    settings()->device = subject->device;
    settings()->precision = subject->precision;
    if (launched()) {
        hvd_init();
        device_use(hvd_local_rank());
    }
    CHECK(device_is_gpu() == (subject->device == DEVICE_GPU));
    CHECK(device_precision() == subject->precision);
}

int serve(const char *contestant, const Subject *subject)
{
    take_device(subject);
    static Work *work; // until the process ends
    work = prepare(contestant, subject);
    run_steps(work, WARM_UP_STEPS);
    if (launcher_rank() == 0)
        printf("ready\n");
    fflush(stdout);
    char word[16];
    for (int steps; (steps = next_task(word)) > 0;) {
        if (strcmp(word, "profile") == 0)
            answer_profile(work, steps);
        else if (strcmp(word, "rates") == 0)
            answer_rates();
        else
            answer_run(work, steps);
        fflush(stdout);
    }
    return 0;
}
