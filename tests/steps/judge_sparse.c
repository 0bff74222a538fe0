// The sparse gradient: in every step every rank applies, to each row of an embedding's table, the
// mean of all ranks' gradients of it, and sends rows, not the table. The steps are read by
// sparse_steps.c, and the rows are judged in sparse_rows.c; here it is the other layers, the
// weights, and the bytes.

#include "sparse_steps.h"
#include "diagnoses/judge_sparse.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define START   "all ranks begin with the same weights"
#define OTHERS  "every rank applies the mean of all ranks' gradients to the other layers"
#define WEIGHTS "all ranks have the same weights after every step"
#define BYTES   "the bytes that a rank sends grow with the rows that were used, not with the table"

// What a rank may send in a step beside rows: the other layers' gradients, counts, ...
#define OTHER_BYTES 32768

// The ranks whose number is not that of rank 0.
static RankSet that_differ(const Run *run, const double values[], double allowed)
{
    RankSet ranks = 0;
    for (int r = 1; r < run->ranks; r++)
        if (!(fabs(values[r] - values[0]) <= allowed))
            ranks |= 1u << r;
    return ranks;
}

static char *evidence_of_weights(const Run *run, const SparseStep *step, int number, RankSet ranks)
{
    char *evidence =
        format_text("before step %d %s from rank 0 in the fingerprint of the weights:", number,
                    rank_count(ranks) == 1 ? "a rank differs" : "ranks differ");
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d: %.6f", r, step->weights[r]);
    return evidence;
}

// Of the steps from `from` up to `to`.
static bool judge_weights(const Runs *runs, const AllSparseSteps *all, int from, int to,
                          const char *property, const Diagnosis *diagnosis, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const SparseSteps *steps = &all->items[i];
        for (int s = from; s < to && s < steps->count; s++) {
            const SparseStep *step = &steps->items[s];
            RankSet ranks = that_differ(steps->run, step->weights, 1e-4);
            if (!ranks)
                continue;
            return report_failure(
                report, property, diagnosis,
                evidence_in(runs, steps->run, evidence_of_weights(steps->run, step, s + 1, ranks)));
        }
    }
    return report_ok(report, property);
}

static bool judge_others(const Runs *runs, const AllSparseSteps *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        for (int s = 0; s < all->items[i].count; s++) {
            const Run *run = all->items[i].run;
            const SparseStep *step = &all->items[i].items[s];
            double sum = 0, most = 0;
            for (int r = 0; r < run->ranks; r++) {
                sum += step->others_computed[r];
                most = fmax(most, fabs(step->others_computed[r]));
            }
            for (int r = 0; r < run->ranks; r++) {
                if (fabs(step->others_applied[r] - sum / run->ranks) <= 1e-4 * most)
                    continue;
                return report_failure_in(report, runs, run, OTHERS, &d_other_layers_not_averaged,
                                         "in step %d rank %d applied %.6f, and the "
                                         "mean is %.6f, as fingerprints",
                                         s + 1, r, step->others_applied[r], sum / run->ranks);
            }
        }
    return report_ok(report, OTHERS);
}

// What all ranks' rows and their numbers take together.
static double bytes_of_rows(const SparseSteps *steps, const SparseStep *step)
{
    int named = 0;
    for (int r = 0; r < steps->run->ranks; r++)
        named += step->named[r];
    return named * 4.0 * (steps->dimension + 1);
}

static bool judge_bytes(const Runs *runs, const AllSparseSteps *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        for (int s = 0; s < all->items[i].count; s++) {
            const SparseSteps *steps = &all->items[i];
            const SparseStep *step = &steps->items[s];
            double of_table = 4.0 * steps->dimension * steps->table_rows;
            double of_rows = bytes_of_rows(steps, step);
            // Even who passes all rows on to each of the others, with numbers of 8 bytes.
            double most = 2 * steps->run->ranks * of_rows + OTHER_BYTES;
            for (int r = 0; r < steps->run->ranks; r++) {
                double bytes = step->bytes[r];
                if (bytes <= most)
                    continue;
                return report_failure_in(report, runs, steps->run, BYTES,
                                         bytes >= of_table ? &d_sent_the_table : &d_sent_too_much,
                                         "in step %d rank %d sent %.0f bytes; all ranks' rows "
                                         "together are %.0f bytes, the table is %.0f",
                                         s + 1, r, bytes, of_rows, of_table);
            }
        }
    return report_ok(report, BYTES);
}

static bool some_step_in_each(const Runs *runs, const AllSparseSteps *all, Report *report)
{
    for (int i = 0; i < all->count; i++)
        if (all->items[i].count == 0) {
            report_failure_in(report, runs, all->items[i].run, ROWS, &d_nothing_trained,
                              "some rank made no update");
            return false;
        }
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    AllSparseSteps all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = sparse_steps(&runs->items[i]);
    if (some_step_in_each(runs, &all, report) &&
        judge_weights(runs, &all, 0, 1, START, &d_not_broadcast, report) &&
        judge_sparse_rows(runs, &all, report) && judge_others(runs, &all, report) &&
        judge_weights(runs, &all, 1, INT32_MAX, WEIGHTS, &d_weights_differ, report))
        judge_bytes(runs, &all, report);
    for (int i = 0; i < runs->count; i++)
        sparse_steps_free(&all.items[i]);
    free(all.items);
}

JUDGE("sparse", judge)
