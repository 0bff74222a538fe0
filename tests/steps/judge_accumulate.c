// Accumulate: one update from several batches of every worker. The updates are read by
// accumulated.c, and whether they are by the mean is judged in accumulated_mean.c.

#include "accumulated.h"
#include "drawn.h"
#include "end.h"
#include "mean.h"
#include "diagnoses/judge_accumulate.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define START   "all ranks have the same weights before every update"
#define BATCHES "an update is from as many batches of every rank as it should be"
#define ONCE    "the ranks exchange gradients once in an update"

// ---- How many batches an update is from.

// Of update u of a run, from 0; 0 where there should be none.
static int expected_batches(const Updates *updates, int u)
{
    int whole = (updates->steps + updates->passes - 1) / updates->passes;
    int last = updates->steps - (whole - 1) * updates->passes;
    if (u >= whole * updates->epochs)
        return 0;
    return u % whole == whole - 1 ? last : updates->passes;
}

static int batches_at(const Updates *updates, int rank, int u)
{
    return u < updates->made[rank] ? updates->of[rank][u].count : 0;
}

// The first update that is from another number of batches, or -1.
static int first_other_number(const Updates *updates, int rank)
{
    for (int u = 0; u < updates->made[rank] || expected_batches(updates, u) > 0; u++)
        if (batches_at(updates, rank, u) != expected_batches(updates, u))
            return u;
    return -1;
}

// "6, 6, 2", at most a dozen.
typedef int (*Number)(const Updates *updates, int rank, int u);

static void add_numbers(char **text, const Updates *updates, int rank, Number number)
{
    int u = 0;
    for (; u < 12 && number(updates, rank, u) > 0; u++)
        text_add(text, "%s%d", u ? ", " : "", number(updates, rank, u));
    text_add(text, number(updates, rank, u) > 0 ? ", ..." : u == 0 ? "none" : "");
}

static int expected_number(const Updates *updates, int rank, int u)
{
    (void)rank;
    return expected_batches(updates, u);
}

static int total(const Updates *updates, int rank, bool taken)
{
    int sum = 0;
    for (int u = 0; u < updates->made[rank]; u++)
        sum += taken ? updates->of[rank][u].taken : updates->of[rank][u].count;
    return sum;
}

// True where all updates are from that many batches each; of the last one, fewer will do.
static bool all_from(const Updates *updates, int rank, int batches)
{
    for (int u = 0; u < updates->made[rank]; u++)
        if (updates->of[rank][u].count != batches &&
            !(u == updates->made[rank] - 1 && updates->of[rank][u].count < batches))
            return false;
    return updates->made[rank] > 0;
}

static bool any_applied(const Updates *updates, int rank)
{
    bool applied = updates->made[rank] > 1; // the weights have changed
    for (int u = 0; u < updates->made[rank]; u++)
        applied = applied || updates->of[rank][u].applied;
    return applied;
}

static bool computes_larger_batches(const Updates *updates, int rank)
{
    const Events *events = &updates->run->traces.of[rank];
    EACH (at, events, "answers")
        if (event_int(events->items[at], "training") &&
            event_number(events->items[at], "images") > run_flag(updates->run, "--batch-size "))
            return true;
    return false;
}

static const Diagnosis *wrong_number(const Updates *updates, int rank)
{
    int all = updates->steps * updates->epochs;
    if (!any_applied(updates, rank))
        return &d_no_update;
    if (total(updates, rank, false) < all)
        return computes_larger_batches(updates, rank) ? &d_one_large_batch : &d_batches_left_out;
    if (first_other_number(updates, rank) < 0)
        return &d_same_batch_again;
    if (all_from(updates, rank, 1))
        return &d_update_in_every_batch;
    if (updates->epochs > 1 && all_from(updates, rank, updates->passes))
        return &d_rest_carried_over;
    return &d_updates_wrong;
}

static bool judge_numbers(const Runs *runs, const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int r = 0; r < updates->run->ranks; r++) {
            int taken = total(updates, r, true), computed = total(updates, r, false);
            if (first_other_number(updates, r) < 0 && any_applied(updates, r) && taken >= computed)
                continue;
            char *evidence =
                format_text("rank %d took %d batches and computed %d gradients, for updates from ",
                            r, taken, computed);
            add_numbers(&evidence, updates, r, batches_at);
            text_add(&evidence, " batches\nthey should be from ");
            add_numbers(&evidence, updates, r, expected_number);
            text_add(&evidence,
                     "\n%d ranks with batches of %.0f images: %d batches an epoch, %d "
                     "an update",
                     updates->run->ranks, run_flag(updates->run, "--batch-size "), updates->steps,
                     updates->passes);
            return report_failure(report, BATCHES, wrong_number(updates, r),
                                  evidence_in(runs, updates->run, evidence));
        }
    }
    return report_ok(report, BATCHES);
}

// ---- The weights, and what is exchanged.

static bool judge_weights(const Runs *runs, const AllUpdates *all, Report *report)
{
    const double allowed = 1e-4;
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            for (int r = 1; r < updates->run->ranks; r++) {
                double root = updates->of[0][u].weights, own = updates->of[r][u].weights;
                if (!isfinite(root) || fabs(root - own) <= allowed * (u > 0) * fabs(root))
                    continue;
                return report_failure_in(report, runs, updates->run, START,
                                         u > 0 ? &d_weights_differ : &d_start_differs,
                                         "before update %d, as fingerprints:\n"
                                         "rank 0: %.9g\nrank %d: %.9g",
                                         u + 1, root, r, own);
            }
    }
    return report_ok(report, START);
}

static bool judge_exchange(const Runs *runs, const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            for (int r = 0; r < updates->run->ranks; r++) {
                const Update *update = &updates->of[r][u];
                bool early = update->early > OTHER_BYTES;
                // A sum in double precision and by two calls sends four times as much.
                bool much = update->count > 4 && update->late >= update->count * updates->bytes;
                if (!early && !much && update->whole < 2)
                    continue;
                return report_failure_in(
                    report, runs, updates->run, ONCE,
                    early  ? &d_exchanged_in_every_batch
                    : much ? &d_exchanged_too_much
                           : &d_exchanged_twice,
                    "in update %d, from %d batches, rank %d sent %.0f bytes before "
                    "it had the gradients of the last one, and %.0f after that; "
                    "all gradients together are %.0f bytes",
                    u + 1, update->count, r, update->early, update->late, updates->bytes);
            }
    }
    return report_ok(report, ONCE);
}

// A right answer with a caveat: the optimizer got something else than the mean.
static void remark(const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            for (int r = 0; r < all->items[i].run->ranks; r++) {
                const Update *update = &all->items[i].of[r][u];
                if (!update->applied || fabs(update->raw - update->effective) <= update->allowed)
                    continue;
                report_note(report, "the optimizer did not get the mean, but the weights change as "
                                    "if it had: this is right with plain SGD only");
                return;
            }
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, BATCHES, report))
        return;
    AllUpdates all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = accumulated_updates(&runs->items[i]);
    if (judge_drawn_images(runs, OWN_BATCHES, report) && judge_numbers(runs, &all, report) &&
        judge_accumulated_mean(runs, &all, report) && judge_weights(runs, &all, report))
        judge_exchange(runs, &all, report);
    if (report_passed(report))
        remark(&all, report);
    for (int i = 0; i < runs->count; i++)
        accumulated_updates_free(&all.items[i]);
    free(all.items);
}

JUDGE("accumulate", judge)
OWN_ENDS("accumulate",
         EXPLAINED({"model_read_gradients: there are no gradients", &d_read_too_early},
                   {"apply_gradients: there are no gradients", &d_applied_too_often},
                   {"has no weights before compile", &d_broadcast_too_early}))
