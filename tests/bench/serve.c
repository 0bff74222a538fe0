// The contestant's side of the race: hvdlab, on one rank or under mpirun on several, or the
// convolutions alone.

#include "serve.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "device.h"
#include "hvd.h"
#include "race.h"
#include "util.h"

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

// How many steps to run next, the same on every rank; 0: the race is over.
static int next_steps(void)
{
    int steps = 0;
    if (launcher_rank() == 0 && scanf(" run %d", &steps) != 1)
        steps = 0;
    return launched() ? broadcast_quietly(steps) : steps;
}

int serve(const char *contestant, Subject subject)
{
    if (launched()) {
        hvd_init();
        device_use(hvd_local_rank());
    }
    bool whole = strcmp(contestant, "hvdlab") == 0;
    Work *work = whole ? training_step(subject) : convolutions_only(subject);
    for (int i = 0; i < WARM_UP_STEPS; i++)
        work_run(work);
    work_finish(work);
    bool root = launcher_rank() == 0;
    if (root)
        printf("ready\n");
    fflush(stdout);
    for (int steps; (steps = next_steps()) > 0;) {
        double begin = seconds_now();
        for (int i = 0; i < steps; i++)
            work_run(work);
        work_finish(work);
        if (root)
            printf("%.6f %.0f\n", seconds_now() - begin, peak_rss_mib());
        fflush(stdout);
    }
    return 0;
}
