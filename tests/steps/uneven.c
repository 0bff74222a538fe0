// Reads the updates, and judges what is applied: which of the known formulas tells what it is, and
// the mistake that it stands for. uneven.h says what is promised.

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
    for (int i = 0; i < events->count; i++) {
        const cJSON *event = events->items[i];
        const char *name = event_text(event, "event");
        if (strcmp(name, "images") == 0)
            fresh = true;
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

// ---- What is applied.

static int working(const UnevenUpdates *updates, int at)
{
    int count = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        count += updates->of[r][at].works;
    return count;
}

static RankSet who_works(const UnevenUpdates *updates, int at)
{
    RankSet set = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        set |= updates->of[r][at].works ? 1u << r : 0;
    return set;
}

// What a rank may have applied, given what all computed. (`rank` is of use to some.)
typedef double (*Formula)(const UnevenUpdates *updates, int at, int rank);

static double total(const UnevenUpdates *updates, int at, int rank)
{
    (void)rank;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][at].works ? updates->of[r][at].own : 0;
    return sum;
}

static double total_with_old(const UnevenUpdates *updates, int at, int rank)
{
    (void)rank;
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][at].own;
    return sum;
}

static double mean(const UnevenUpdates *updates, int at, int rank)
{
    return total(updates, at, rank) / working(updates, at);
}

static double over_all(const UnevenUpdates *updates, int at, int rank)
{
    return total(updates, at, rank) / updates->run->ranks;
}

static double old_over_all(const UnevenUpdates *updates, int at, int rank)
{
    return total_with_old(updates, at, rank) / updates->run->ranks;
}

static double old_over_working(const UnevenUpdates *updates, int at, int rank)
{
    return total_with_old(updates, at, rank) / working(updates, at);
}

// A rank without batches contributes the gradient that it applied last.
static double total_with_applied(const UnevenUpdates *updates, int at, int rank)
{
    double sum = total(updates, at, rank);
    for (int r = 0; at > 0 && r < updates->run->ranks; r++)
        sum += updates->of[r][at].works ? 0 : updates->of[r][at - 1].applied;
    return sum;
}

static double applied_over_all(const UnevenUpdates *updates, int at, int rank)
{
    return total_with_applied(updates, at, rank) / updates->run->ranks;
}

static double applied_over_working(const UnevenUpdates *updates, int at, int rank)
{
    return total_with_applied(updates, at, rank) / working(updates, at);
}

static double averaged_twice(const UnevenUpdates *updates, int at, int rank)
{
    return mean(updates, at, rank) / updates->run->ranks;
}

static double its_own(const UnevenUpdates *updates, int at, int rank)
{
    const UnevenUpdate *own = &updates->of[rank][at];
    return own->works ? own->own : 0;
}

// The last one that works exchanges nothing.
static double last_alone(const UnevenUpdates *updates, int at, int rank)
{
    return working(updates, at) > 1 ? mean(updates, at, rank) : its_own(updates, at, rank);
}

static double by_images(const UnevenUpdates *updates, int at, int rank)
{
    (void)rank;
    double sum = 0, images = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        if (updates->of[r][at].works) {
            sum += updates->of[r][at].own * updates->of[r][at].images;
            images += updates->of[r][at].images;
        }
    return sum / images;
}

static bool explains_update(const UnevenUpdates *updates, int at, Formula formula)
{
    double largest = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        largest = fmax(largest, fabs(updates->of[r][at].own));
    for (int r = 0; r < updates->run->ranks; r++) {
        double off = updates->of[r][at].applied - formula(updates, at, r);
        if (!(fabs(off) <= TOLERANCE * largest))
            return false;
    }
    return true;
}

// The first update that the formula does not explain, or -1.
static int first_unexplained(const UnevenUpdates *updates, Formula formula)
{
    for (int at = 0; at < updates->count[0]; at++)
        if (!explains_update(updates, at, formula))
            return at;
    return -1;
}

static bool explains(const Runs *runs, const UnevenUpdates all[], Formula formula)
{
    for (int i = 0; i < runs->count; i++)
        if (first_unexplained(&all[i], formula) >= 0)
            return false;
    return true;
}

static const Diagnosis *wrong_mean(const Runs *runs, const UnevenUpdates all[])
{
    static const struct {
        Formula formula;
        const Diagnosis *diagnosis;
    } known[] = {{its_own, &d_gradients_not_averaged}, {over_all, &d_divided_by_size},
                 {total, &d_gradients_summed},         {old_over_all, &d_old_gradients},
                 {old_over_working, &d_old_gradients}, {total_with_old, &d_old_gradients},
                 {applied_over_all, &d_old_gradients}, {applied_over_working, &d_old_gradients},
                 {averaged_twice, &d_averaged_twice},  {last_alone, &d_last_one_alone},
                 {by_images, &d_weighted_by_images}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(runs, all, known[i].formula))
            return known[i].diagnosis;
    return &d_gradients_wrong;
}

static char *mean_evidence(const UnevenUpdates *updates, int at)
{
    char *evidence = format_text("update %d, as fingerprints; %s still %s", at + 1,
                                 rank_names(who_works(updates, at)).text,
                                 working(updates, at) == 1 ? "works" : "work");
    for (int r = 0; r < updates->run->ranks; r++) {
        const UnevenUpdate *own = &updates->of[r][at];
        if (own->works)
            text_add(&evidence, "\nrank %d: computed %9.5f, applied %9.5f", r, own->own,
                     own->applied);
        else
            text_add(&evidence, "\nrank %d: has run out,      applied %9.5f", r, own->applied);
    }
    text_add(&evidence, "\nmean of those that work:    %9.5f", mean(updates, at, 0));
    return evidence;
}

bool judge_mean_of_working(const Runs *runs, const UnevenUpdates all[], Report *report)
{
    for (int i = 0; i < runs->count; i++) {
        int at = first_unexplained(&all[i], mean);
        if (at < 0)
            continue;
        return report_failure(report, MEAN, wrong_mean(runs, all),
                              evidence_in(runs, &runs->items[i], mean_evidence(&all[i], at)));
    }
    return report_ok(report, MEAN);
}
