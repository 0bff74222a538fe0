// Wrap: a distributed optimizer of the program's own. The run "plain" leaves a checkpoint of the
// plain optimizer, from which the others go on with the wrapped one. The optimizer is SGD with
// momentum: an update v = m v - lr g; w += v is linear, so that the fingerprints of weights and
// gradients follow the same formula, and show whether v went on.

#include "end.h"
#include "mean.h"
#include "rates.h"
#include "diagnoses/judge_wrap.h"

#include <math.h>
#include <string.h>

#define NAMED    "the wrapper's name is \"Distributed\" and that of the optimizer that it wraps"
#define INSIDE   "each update is made by the optimizer inside, once"
#define GOES_ON  "the optimizer inside goes on with the checkpoint's momenta, and keeps them"
#define RATE     "the learning rate of the schedule reaches the optimizer inside"
#define LEFT_OUT "only what has a gradient is sent"

// Biases of convolutions before a batch norm, in the exercise's network.
enum { WITHOUT_GRADIENT = 16 + 32 + 64 };

// ---- The name.

static Fault name_fault(const Run *run)
{
    const char *name = event_text(event_nth(&run->traces.of[0], "compile", 0), "optimizer");
    if (!run->plan.after || strcmp(name, "DistributedSGD") == 0)
        return NO_FAULT;
    return fault_with(strcmp(name, "SGD") ? &d_name_wrong : &d_plain_name,
                      "the name of the optimizer inside is \"SGD\"\n"
                      "that of the optimizer that compile() gets is \"%s\"",
                      name);
}

// ---- The updates. One is what lies between a gradient and the end of its step.

typedef struct {
    const Run *run;
    int number;         // of the step, from 0
    const cJSON *step;  // its end
    const cJSON *apply; // the last update that the optimizer inside made; NULL: none
    int applied;        // how often it did
    double change;      // of the weights
    double before;      // the change by the update before; 0: there was none
} WrappedUpdate;

// The one after event `*at`, which moves to its end; false: there is none.
static bool next_update(const Run *run, int rank, int *at, WrappedUpdate *update)
{
    const Events *events = &run->traces.of[rank];
    int gradient = event_find(events, "gradient", *at + 1);
    int end = event_find(events, "step", gradient);
    if (end < 0)
        return false;
    int number = *at < 0 ? 0 : update->number + 1;
    *update = (WrappedUpdate){.run = run, .number = number, .step = events->items[end]};
    update->change =
        event_number(update->step, "arena") - event_number(events->items[gradient], "arena");
    for (int i = gradient; i < end; i++)
        if (event_is(events->items[i], "apply")) {
            update->applied++;
            update->apply = events->items[i];
        }
    *at = end;
    return true;
}

// The last change of the run whose checkpoint this one goes on from; 0: there is none.
static double change_before(const Runs *runs, const Run *run)
{
    const Run *earlier = run->plan.after ? run_named(runs, run->plan.after) : NULL;
    WrappedUpdate last = {0};
    for (int at = -1; earlier && next_update(earlier, 0, &at, &last);)
        continue;
    return last.change;
}

static Fault each_update(const Runs *runs, const Run *run, ItemFault fault)
{
    for (int r = 0; r < run->ranks; r++) {
        WrappedUpdate update = {0};
        double before = change_before(runs, run);
        for (int at = -1; next_update(run, r, &at, &update); before = update.change) {
            update.before = before;
            Fault found = (*fault)(&update);
            if (found.diagnosis)
                return fault_at(found, "rank %d, step %.0f of epoch %.0f: ", r,
                                event_number(update.step, "step") + 1,
                                event_number(update.step, "epoch") + 1);
        }
    }
    return NO_FAULT;
}

static Fault inside_fault(const void *item)
{
    const WrappedUpdate *update = item;
    if (update->applied == 1)
        return NO_FAULT;
    if (update->applied > 1)
        return fault_with(&d_applied_again, "the optimizer inside updates %d times",
                          update->applied);
    bool stay = update->change == 0;
    return fault_with(some_but_not_all(&update->run->traces, "apply") ? &d_updated_by_some
                      : stay                                          ? &d_no_update
                                                                      : &d_updates_itself,
                      "the optimizer inside does not update; the weights %s",
                      stay ? "stay the same" : "change");
}

// Against the rate that halved() in the program gives the epoch.
static Fault rate_fault(const void *item)
{
    const WrappedUpdate *update = item;
    double rate = event_number(update->apply, "learning_rate"),
           set = run_flag(update->run, "--base-lr ") / pow(2, event_number(update->step, "epoch"));
    if (same_rate(rate, set))
        return NO_FAULT;
    return fault_with(&d_rate_not_passed_on,
                      "the optimizer inside updates with a learning rate of %g\n"
                      "the schedule has set %g",
                      rate, set);
}

static Fault momenta_fault(const void *item)
{
    const WrappedUpdate *update = item;
    double momentum = event_number(update->apply, "momentum");
    double kept = update->before != 0 ? momentum * update->before : 0;
    double fresh =
        -event_number(update->apply, "learning_rate") * event_number(update->apply, "value");
    double allowed = 2e-3 * (fabs(kept) + fabs(fresh)) + 2e-6;
    if (fabs(update->change - (kept + fresh)) <= allowed)
        return NO_FAULT;
    bool zeros = update->number == 0 && fabs(update->change - fresh) <= allowed;
    return fault_with(zeros ? &d_state_lost : &d_state_not_kept,
                      "the weights change by %.6f, as a fingerprint\n"
                      "by the gradient they would change by       %.6f\n"
                      "by the momenta of the update before it, by %.6f",
                      update->change, fresh, kept);
}

// ---- What is sent.

// Whether all ranks add something up by this call; the metrics of an epoch do not count.
static bool adds_up(const Run *run, const cJSON *event)
{
    const char *function = event_text(event, "function");
    if (!event_is(event, "collective_begin") || event_has(event, "name", "metrics"))
        return false;
    return strcmp(function, "two_levels") == 0 || // hvd_allreduce between hosts
           ((strcmp(function, "MPI_Allreduce") == 0 || strcmp(function, "MPI_Iallreduce") == 0) &&
            event_ranks(event, "ranks") == all_ranks(run->ranks));
}

// Floats that all ranks add up between the event `*at` and the next update, to which it moves.
static double floats_added_up(const Run *run, int *at)
{
    const Events *events = &run->traces.of[0];
    double bytes = 0;
    int end = event_find(events, "apply", *at + 1);
    for (int i = *at + 1; i < end; i++)
        bytes += adds_up(run, events->items[i]) ? event_bytes(events->items[i]) : 0;
    *at = end;
    return bytes / sizeof(float);
}

// Other ways than an all-reduce send parts several times, or in another order: nothing is said of
// them.
static Fault sent_fault(const Run *run)
{
    const Events *events = &run->traces.of[0];
    double arena = event_number(event_nth(events, "broadcast", 0), "weights");
    int at = event_find(events, "train_begin", 0);
    while (run->ranks > 1 && at >= 0) {
        double floats = floats_added_up(run, &at);
        if (floats > arena - WITHOUT_GRADIENT && floats <= arena) // more: sent otherwise
            return fault_with(&d_without_gradient_sent,
                              "for one update %.0f values are added up; the arena has %.0f,\n"
                              "%d of them biases without a gradient",
                              floats, arena, (int)WITHOUT_GRADIENT);
    }
    return NO_FAULT;
}

static const ItemProperty inside[] = {{INSIDE, inside_fault, NULL}, {0}},
                          of_updates[] = {
                              {GOES_ON, momenta_fault, NULL}, {RATE, rate_fault, NULL}, {0}};

// In some run the optimizer was wrapped.
static bool any_is_wrapped(const Runs *runs)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->plan.after)
            return true;
    return false;
}

// Only of updates that are the mean's is it said what else they are.
static void judge(const Runs *runs, Report *report)
{
    if (!any_is_wrapped(runs) || nothing_trained(runs, MEAN_APPLIED, report))
        return;
    if (judge_items(runs, each_update, inside, report)) {
        judge_mean(runs, report);
        if (report_passed(report)) {
            judge_items(runs, each_update, of_updates, report);
            judge_property(runs, LEFT_OUT, sent_fault, report);
        }
    }
    judge_property(runs, NAMED, name_fault, report);
    judge_silence(runs, report);
}

// ---- What compile() and restoring the checkpoint refuse.

JUDGE("wrap", judge)
OWN_ENDS("wrap", EXPLAINED({"an optimizer has no name", &d_no_name},
                           {"another optimizer: it was saved with", &d_inner_missing},
                           {"another optimizer:", &d_another_inside}))
