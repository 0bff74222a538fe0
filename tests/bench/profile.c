// Tables of the kinds of work in a training step.

#include "profile.h"

#include <stdio.h>
#include "nn/model.h"
#include "record.h"
#include "work.h"

// The operations are those of a model that is compiled and never run: no memory for its images.
void subject_demand(const Subject *subject, Demand demand[WORK_KINDS])
{
    const Op *const *ops;
    int before = observed_operations(&ops);
    observe(OBSERVE_OPERATIONS);
    Model *model = subject_model(subject);
    observe(OBSERVE_NOTHING);
    int count = observed_operations(&ops) - before;
    count_demand(ops + before, count, subject->batch, subject->precision, demand);
    model_free(model);
}

double floor_seconds(Demand demand, Rates rates)
{
    double arithmetic = demand.flops / rates.flops, bytes = demand.bytes / rates.bytes;
    return arithmetic > bytes ? arithmetic : bytes;
}

static void add_row(cJSON *results, const Subject *subject, int kind, Taken taken, Demand demand)
{
    cJSON *row = add_result(results, "kind_of_work", "hvdlab", subject);
    cJSON_AddStringToObject(row, "kind", work_name(kind));
    cJSON_AddNumberToObject(row, "calls", taken.calls);
    cJSON_AddNumberToObject(row, "milliseconds", 1e3 * taken.seconds);
    cJSON_AddNumberToObject(row, "gflop", 1e-9 * demand.flops);
    cJSON_AddNumberToObject(row, "megabytes", 1e-6 * demand.bytes);
}

// A floor of 0: not known.
static void print_row(const char *name, Taken taken, double share, Demand demand, double floor)
{
    printf("    %-22s %6.0f %10.3f %6.1f %% %12.3f %12.3f", name, taken.calls, 1e3 * taken.seconds,
           100 * share, 1e-9 * demand.flops, 1e-6 * demand.bytes);
    if (floor > 0)
        printf(" %10.3f", 1e3 * floor);
    printf("\n");
}

void profile_step(cJSON *results, const Subject *subject, Contestant *hvdlab, int steps,
                  const Demand demand[WORK_KINDS], Rates rates)
{
    Taken taken[WORK_KINDS], all = {0, 0};
    contestant_profile(hvdlab, steps, taken);
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        all.calls += taken[kind].calls;
        all.seconds += taken[kind].seconds;
    }
    printf("    %-22s %6s %10s %8s %12s %12s%s\n", "in a step of hvdlab's", "calls", "ms", "share",
           "Gflop", "MB", rates.flops > 0 ? "   floor ms" : "");
    double floors = 0;
    for (int kind = 0; kind < WORK_KINDS; kind++) {
        if (taken[kind].calls <= 0)
            continue;
        double floor = rates.flops > 0 ? floor_seconds(demand[kind], rates) : 0;
        print_row(work_name(kind), taken[kind], taken[kind].seconds / all.seconds, demand[kind],
                  floor);
        add_row(results, subject, kind, taken[kind], demand[kind]);
        floors += floor;
    }
    print_row("all of these", all, 1, total_demand(demand), floors);
}
