// Reads the updates, and judges what is applied: which of the known formulas tells what it is, and
// the mistake that it stands for. uneven.h says what is promised.

#include "hypotheses.h"
#include "uneven.h"
#include "diagnoses/uneven.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"

#define MEAN "each update applies the mean of the gradients of the ranks that still have batches"

// Of the largest gradient of the update.
#define TOLERANCE 1e-4

static void read_updates_of(UnevenUpdates *updates, int rank)
{
    const Events *events = &updates->run->traces.of[rank];
    bool fresh = false; // a batch was taken, and no gradient computed from it
    UnevenUpdate next = {.weights = NAN};
    EACH_EVENT (event, events) {
        const char *name = event_text(event, "event");
        if (strcmp(name, "images") == 0)
            fresh = true;
        updates->again[rank] += strcmp(name, "gradient") == 0 && !fresh;
        if (strcmp(name, "gradient") == 0 && fresh) {
            next.works = true;
            next.own = event_number(event, "value");
            next.weights = event_number(event, "arena");
            fresh = false;
        }
        if (strcmp(name, "answers") == 0 && next.works && event_number(event, "training") > 0)
            next.images = event_number(event, "images");
        if (strcmp(name, "apply") != 0)
            continue;
        next.applied = event_number(event, "value");
        int count = updates->count[rank]++;
        updates->of[rank] = enlarge(updates->of[rank], (size_t)count + 1, sizeof(UnevenUpdate));
        updates->of[rank][count] = next;
        next.works = false; // own stays: what a rank would send that sends its last one again
        next.weights = NAN;
    }
}

UnevenUpdates uneven_updates(const Run *run)
{
    UnevenUpdates updates = {.run = run};
    for (int r = 0; r < run->ranks; r++)
        read_updates_of(&updates, r);
    return updates;
}

void uneven_updates_free(UnevenUpdates *updates)
{
    for (int r = 0; r < updates->run->ranks; r++)
        free(updates->of[r]);
}

// ---- What is applied. Rows are updates; Row.batches counts the ranks that still have one, and what a
// rank without has of its own is its last gradient.

static const UnevenUpdate *update_of(const Row *row, int rank)
{
    const UnevenUpdates *updates = row->of;
    return &updates->of[rank][row->at];
}

static RankSet who_works(const Row *row)
{
    RankSet set = 0;
    for (int r = 0; r < row->ranks; r++)
        set |= update_of(row, r)->works ? 1u << r : 0;
    return set;
}

static double sum_of_working(Cell cell)
{
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += update_of(cell.row, r)->works ? cell.row->own[r] : 0;
    return sum;
}

// A rank without batches contributes the gradient that it applied last.
static double sum_with_applied(Cell cell)
{
    double sum = sum_of_working(cell);
    for (int r = 0; cell.row->at > 0 && r < cell.row->ranks; r++) {
        const UnevenUpdate *update = update_of(cell.row, r);
        sum += update->works ? 0 : update[-1].applied;
    }
    return sum;
}

FORMULA(own_of_working, update_of(cell.row, cell.rank)->works ? own_number(cell) : 0)

// The last one that works exchanges nothing.
static double last_alone(Cell cell)
{
    int working = cell.row->batches;
    return working > 1 ? sum_of_working(cell) / working : own_of_working(cell);
}

static double by_images(Cell cell)
{
    double sum = 0, images = 0;
    for (int r = 0; r < cell.row->ranks; r++) {
        const UnevenUpdate *update = update_of(cell.row, r);
        sum += update->works ? update->own * update->images : 0;
        images += update->works ? update->images : 0;
    }
    return sum / images;
}

// Divided by the number of ranks that still have a batch in the next step of the epoch; after the last
// step, not divided.
static double over_next_step(Cell cell)
{
    const UnevenUpdates *updates = cell.row->of;
    Row next = *cell.row;
    int working = ++next.at < updates->count[0] ? rank_count(who_works(&next)) : 0;
    bool goes_on = working > 0 && working <= cell.row->batches; // in the same epoch
    return sum_of_working(cell) / (goes_on ? working : 1);
}

static const Hypothesis right = {sum_of_working, NULL, .by_batches = 1};

static const Hypothesis known[] = {
    {own_of_working, &d_gradients_not_averaged, .by_ranks = 0},
    {sum_of_working, &d_divided_by_size, .by_ranks = 1},
    {sum_of_working, &d_gradients_summed, .by_ranks = 0},
    {sum_of_own, &d_old_gradients, .by_ranks = 1},
    {sum_of_own, &d_old_gradients, .by_batches = 1},
    {sum_of_own, &d_old_gradients, .by_ranks = 0},
    {sum_with_applied, &d_old_gradients, .by_ranks = 1},
    {sum_with_applied, &d_old_gradients, .by_batches = 1},
    {sum_of_working, &d_averaged_twice, .by_ranks = 1, .by_batches = 1},
    {last_alone, &d_last_one_alone, .by_ranks = 0},
    {by_images, &d_weighted_by_images, .by_ranks = 0},
    {over_next_step, &d_divided_by_next_step, .by_ranks = 0},
    {0},
};

static void add_updates(Rows *rows, const UnevenUpdates *updates)
{
    for (int u = 0; u < updates->count[0]; u++) {
        Row row = {.run = updates->run, .of = updates, .at = u, .ranks = updates->run->ranks};
        row.batches = rank_count(who_works(&row));
        for (int r = 0; r < row.ranks; r++) {
            row.own[r] = updates->of[r][u].own;
            row.shown[r] = updates->of[r][u].applied;
        }
        row.allowed = TOLERANCE * largest_own(&row);
        rows_add(rows, &row);
    }
}

static char *mean_evidence(const Row *row)
{
    char *evidence =
        format_text("update %d, as fingerprints; %s still %s", row->at + 1,
                    rank_names(who_works(row)).text, row->batches == 1 ? "works" : "work");
    for (int r = 0; r < row->ranks; r++)
        if (update_of(row, r)->works)
            text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, row->own[r],
                     row->shown[r]);
        else
            text_add(&evidence, "\nrank %d: has run out,      applied %9.5f", r, row->shown[r]);
    text_add(&evidence, "\nmean of those that work:    %9.5f", hypothesis_value(&right, row, 0));
    return evidence;
}

bool judge_mean_of_working(const Runs *runs, Report *report)
{
    UnevenUpdates *all = allocate((size_t)runs->count, sizeof *all);
    Rows rows = {NULL, 0};
    for (int i = 0; i < runs->count; i++) {
        all[i] = uneven_updates(&runs->items[i]);
        add_updates(&rows, &all[i]);
    }
    const Row *wrong = first_unexplained(&right, &rows);
    const Diagnosis *diagnosis = diagnosis_of_rows(known, &rows);
    report_property(report, MEAN, diagnosis ? diagnosis : &d_gradients_wrong,
                    wrong ? evidence_in(runs, wrong->run, mean_evidence(wrong)) : NULL);
    for (int i = 0; i < runs->count; i++)
        uneven_updates_free(&all[i]);
    free(all);
    free(rows.items);
    return !wrong;
}
