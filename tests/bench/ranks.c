// Where ranks lose time: the same training step by one rank and by as many as there are cores (or
// eight), with ever more between them; and the parts of an epoch.

#include "bench.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/format.h"
#include "run/device.h"

enum { MAX_RANKS = 8 };

// From a rank alone to ranks of one job.
enum { ALONE, APART, IN_STEP, TOGETHER, KINDS };

// ---- Steps.

static void print_steps(const Runner runners[KINDS], int ranks, int rounds)
{
    static const char *const names[KINDS] = {"1 rank, alone", "each for itself", "all in step",
                                             "hvdlab"};
    static const char *const costs[KINDS] = {"", "what they share: memory, caches, the clock",
                                             "waiting for the slowest in each step",
                                             "averaging the gradients"};
    printf("  %-30s %10s %8s %11s %10s\n", "", "ms a step", "spread", "efficiency", "costs");
    double before = 1;
    for (int i = 0; i < KINDS; i++) {
        const Runner *r = &runners[i];
        double efficiency = speed_ratio(r, &runners[ALONE], rounds);
        char *name =
            i == ALONE ? format_text("%s", names[i]) : format_text("%d ranks, %s", ranks, names[i]);
        printf("  %-30s %10.1f %6.0f %% %9.1f %%", name, 1e3 * median(r->seconds, rounds),
               100 * spread(r->seconds, rounds), 100 * efficiency);
        if (i != ALONE)
            printf(" %8.1f %%  %s", 100 * (before - efficiency), costs[i]);
        printf("\n");
        free(name);
        before = efficiency;
    }
}

static void time_steps(const Workload *w, int ranks, int cores, int rounds, double round_time)
{
    static const char *const what[KINDS] = {"hvdlab", "apart", "in-step", "hvdlab"};
    Runner runners[KINDS] = {{0}};
    for (int i = 0; i < KINDS; i++)
        runner_start_ranks(&runners[i], what[i], i == ALONE ? 1 : ranks, cores, w);
    time_in_turns(runners, KINDS, rounds, round_time);
    print_steps(runners, ranks, rounds);
    for (int i = 0; i < KINDS; i++)
        runner_stop(&runners[i]);
}

// ---- Epochs.

static double whole_epoch(const double parts[EPOCH_PARTS])
{
    double seconds = 0;
    for (int i = 0; i <= EPOCH_OTHERS; i++)
        seconds += parts[i];
    return seconds;
}

static void print_epochs(double parts[2][EPOCH_PARTS], int ranks)
{
    static const char *const names[EPOCH_PARTS] = {"steps",
                                                   "waiting for images",
                                                   "validation",
                                                   "waiting for the slowest at its end",
                                                   "threads that prepare images",
                                                   "the same, with nothing to do"};
    double one = whole_epoch(parts[0]), all = whole_epoch(parts[1]);
    char *many = format_text("%d ranks", ranks);
    printf("  %-38s %10s %10s %10s\n", "", "1 rank", many, "costs");
    free(many);
    printf("  %-38s %7.0f ms %7.0f ms %8.1f %%\n", "an epoch", 1e3 * one, 1e3 * all,
           100 * (all - one) / all);
    for (int i = 0; i <= EPOCH_OTHERS; i++)
        printf("    %-36s %7.0f ms %7.0f ms %8.1f %%\n", names[i], 1e3 * parts[0][i],
               1e3 * parts[1][i], 100 * (parts[1][i] - parts[0][i]) / all);
    printf("  %-38s %7.1f ms %7.1f ms   of a core, in an epoch of each rank\n",
           names[EPOCH_LOADING], 1e3 * parts[0][EPOCH_LOADING], 1e3 * parts[1][EPOCH_LOADING]);
    printf("  %-38s %7.1f ms %7.1f ms   in a second\n", names[EPOCH_IDLE],
           1e3 * parts[0][EPOCH_IDLE], 1e3 * parts[1][EPOCH_IDLE]);
}

// What came before the rounds is left out.
static void time_epochs(const Workload *w, int ranks, int cores, int rounds, double round_time)
{
    Runner both[2] = {{0}};
    double parts[2][EPOCH_PARTS];
    for (int i = 0; i < 2; i++) {
        runner_start_ranks(&both[i], "epochs", i == 0 ? 1 : ranks, cores, w);
        runner_parts(&both[i], parts[i]);
    }
    time_in_turns(both, 2, rounds, round_time);
    for (int i = 0; i < 2; i++)
        runner_parts(&both[i], parts[i]);
    print_epochs(parts, ranks);
    for (int i = 0; i < 2; i++)
        runner_stop(&both[i]);
}

void bench_ranks(const Workload *workload, int rounds, double round_time)
{
    int cores = device_threads(), ranks = cores < MAX_RANKS ? cores : MAX_RANKS;
    if (ranks == 1)
        die("--ranks: there is one core; it takes two to see what ranks lose");
    Workload w = *workload;
    w.device = DEVICE_CPU;
    w.precision = device_precision();
    print_workload(&w);
    printf(", %s, each rank on one of %d cores; medians of %d rounds.\n"
           "The efficiency is the images/s of the ranks beside as many times one rank's.\n\n",
           precision_names[w.precision], cores, rounds);
    time_steps(&w, ranks, cores, rounds, round_time);
    printf("\nEpochs of %d steps and %d of validation, %d threads of each rank preparing images; "
           "means. What is more\nthan one rank's costs that share of the ranks' epoch.\n\n",
           EPOCH_STEPS, EPOCH_VALIDATION_STEPS, settings()->loader_threads);
    fflush(stdout);
    time_epochs(&w, ranks, cores, rounds, round_time);
}
