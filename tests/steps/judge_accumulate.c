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

#define START   "all ranks have the same weights before the first update"
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

// "6, 6, 2", at most a dozen: of a rank's updates, or, of rank -1, what they should be from.
static void add_numbers(char **text, const Updates *updates, int rank)
{
    for (int u = 0;; u++) {
        int number = rank < 0 ? expected_batches(updates, u) : batches_at(updates, rank, u);
        if (number == 0 || u == 12) {
            text_add(text, number > 0 ? ", ..." : u == 0 ? "none" : "");
            return;
        }
        text_add(text, "%s%d", u ? ", " : "", number);
    }
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

static Fault numbers_fault(const Updates *updates, int rank)
{
    int taken = total(updates, rank, true), computed = total(updates, rank, false);
    if (first_other_number(updates, rank) < 0 && any_applied(updates, rank) && taken >= computed)
        return NO_FAULT;
    char *evidence =
        format_text("rank %d took %d batches and computed %d gradients, for updates from ", rank,
                    taken, computed);
    add_numbers(&evidence, updates, rank);
    text_add(&evidence, " batches\nthey should be from ");
    add_numbers(&evidence, updates, -1);
    text_add(&evidence, "\n%d ranks with batches of %.0f images: %d batches an epoch, %d an update",
             updates->run->ranks, run_flag(updates->run, "--batch-size "), updates->steps,
             updates->passes);
    return (Fault){wrong_number(updates, rank), evidence};
}

static bool judge_numbers(const Runs *runs, const Updates all[], Report *report)
{
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++)
            if (!report_fault(report, runs, all[i].run, BATCHES, numbers_fault(&all[i], r)))
                return false;
    return report_ok(report, BATCHES);
}

// ---- The start, and what is exchanged.

static Fault start_fault(Cell cell)
{
    double root = accumulated_update((Cell){cell.row, 0, 0})->weights;
    double own = accumulated_update(cell)->weights;
    if (cell.row->at > 0 || !isfinite(root) || own == root)
        return NO_FAULT;
    return fault_with(&d_start_differs,
                      "before update 1, as fingerprints:\nrank 0: %.9g\nrank %d: %.9g", root,
                      cell.rank, own);
}

static Fault exchange_fault(Cell cell)
{
    const Update *update = accumulated_update(cell);
    double bytes = ((const Updates *)cell.row->of)->bytes;
    bool early = update->early > OTHER_BYTES;
    // A sum in double precision and by two calls sends four times as much.
    bool much = update->count > 4 && update->late >= update->count * bytes;
    if (!early && !much && update->whole < 2)
        return NO_FAULT;
    return fault_with(early  ? &d_exchanged_in_every_batch
                      : much ? &d_exchanged_too_much
                             : &d_exchanged_twice,
                      "in update %d, from %d batches, rank %d sent %.0f bytes before it had the "
                      "gradients of the last one, and %.0f after that; all gradients together are "
                      "%.0f bytes",
                      cell.row->at + 1, update->count, cell.rank, update->early, update->late,
                      bytes);
}

// Whether the weights changed as the optimizer would change them.
static bool optimizer_got_the_mean(const Row *row)
{
    for (int r = 0; r < row->ranks; r++) {
        const Update *update = accumulated_update((Cell){row, r, 0});
        if (update->applied && fabs(update->raw - update->effective) > update->allowed)
            return false;
    }
    return true;
}

// A right answer with a caveat.
static void remark(const Rows *rows, Report *report)
{
    const Row *row = rows->items, *end = row + rows->count;
    while (row < end && optimizer_got_the_mean(row))
        row++;
    if (row < end)
        report_note(report, "the optimizer did not get the mean, but the weights change as if it "
                            "had: this is right with plain SGD only");
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, BATCHES, report))
        return;
    Updates *all = allocate((size_t)runs->count, sizeof *all);
    Rows rows = {NULL, 0};
    for (int i = 0; i < runs->count; i++) {
        all[i] = accumulated_updates(&runs->items[i]);
        accumulated_add(&rows, &all[i]);
    }
    if (judge_drawn_images(runs, OWN_BATCHES, report) && judge_numbers(runs, all, report) &&
        judge_accumulated_mean(runs, &rows, report) &&
        judge_cells(runs, &rows, START, start_fault, report))
        judge_cells(runs, &rows, ONCE, exchange_fault, report);
    if (report_passed(report))
        remark(&rows, report);
    for (int i = 0; i < runs->count; i++)
        accumulated_updates_free(&all[i]);
    free(all);
    free(rows.items);
}

JUDGE("accumulate", judge)
OWN_ENDS("accumulate",
         EXPLAINED({"model_read_gradients: there are no gradients", &d_read_too_early},
                   {"apply_gradients: there are no gradients", &d_applied_too_often},
                   {"has no weights before compile", &d_broadcast_too_early}))
