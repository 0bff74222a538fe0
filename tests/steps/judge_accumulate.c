// Accumulate: one update from several batches of every worker. What counts are the fingerprints of
// the gradient of each batch and of what became of the weights, the number of batches between two
// updates, and the bytes that a rank hands over meanwhile; which calls add and move is no matter.

#include "end.h"
#include "drawn.h"
#include "mean.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define START   "all ranks have the same weights before every update"
#define BATCHES "an update is from as many batches of every rank as it should be"
#define MEAN    "every rank applies the mean of the gradients of all batches of all ranks"
#define ONCE    "the ranks exchange gradients once in an update"

// Images of an update, those of all ranks together, where batches allow it: as the page has it.
#define UPDATE 256

// Of the largest gradient of the update. Single precision leaves few digits of a change of weights,
// and rounding alone moves their fingerprint.
#define TOLERANCE         1e-4
#define WEIGHTS_TOLERANCE 1e-3
#define WEIGHTS_ROUNDING  3e-6

// What a rank may hand over beside gradients: numbers that ranks compare.
#define OTHER_BYTES 4096

// One update of one rank: from its first gradient to what lies before the next one's.
typedef struct {
    double *gradients; // of each batch
    int count;
    int taken;          // batches from the trainer, computed or not
    bool applied;       // the optimizer was called
    double raw;         // the gradient that it got; of several calls the sum
    double by_rate;     // the same, times its learning rate, over that of the command line
    double weights;     // before it
    double early, late; // bytes handed over before the last gradient, and after it
    double effective;   // what the weights have changed by, as a gradient at that rate
    double allowed;     // by how much it may be off
} Update;

typedef struct {
    const Run *run;
    Update *of[MAX_RANKS];
    int made[MAX_RANKS], count; // by each rank; by all of them
    int passes, steps, epochs;  // as the page has them
    double rate, bytes;         // of the command line; of all gradients
    bool by_weights;            // these have changed otherwise than by the optimizer
} Updates;

typedef struct {
    Updates *items;
    int count;
} AllUpdates;

// ---- Reading the traces.

static double bytes_of(const cJSON *event)
{
    const char *name = event_text(event, "event");
    bool collective = strcmp(name, "collective_begin") == 0 &&
                      strncmp(event_text(event, "function"), "MPI_", 4) == 0;
    bool sent = strcmp(name, "message_begin") == 0 && event_number(event, "to") >= 0;
    return collective || sent ? event_number(event, "bytes") : 0;
}

static bool is_training_batch(const cJSON *event)
{
    return strcmp(event_text(event, "event"), "images") == 0 &&
           strcmp(event_text(event, "split"), "train") == 0;
}

// A gradient begins an update where there was one since the gradient before, or the weights have
// changed in another way.
static bool begins_update(const Update *last, const cJSON *gradient)
{
    return !last || last->applied || last->weights != event_number(gradient, "arena");
}

static void add_gradient(Update *update, const cJSON *gradient)
{
    update->gradients =
        enlarge(update->gradients, (size_t)update->count + 1, sizeof *update->gradients);
    update->gradients[update->count++] = event_number(gradient, "value");
    update->weights = event_number(gradient, "arena");
    update->early += update->late;
    update->late = 0;
}

static void add_apply(Update *update, const cJSON *apply, double rate)
{
    update->applied = true;
    update->raw += event_number(apply, "value");
    update->by_rate += event_number(apply, "value") * event_number(apply, "learning_rate") / rate;
}

static void read_rank(Updates *updates, int rank)
{
    const Events *events = &updates->run->traces.of[rank];
    Update *items = allocate((size_t)event_count(events, "gradient") + 1, sizeof *items);
    Update *last = NULL;
    int count = 0, taken = 0;
    for (int i = 0; i < events->count; i++) {
        const cJSON *event = events->items[i];
        const char *name = event_text(event, "event");
        taken += is_training_batch(event);
        if (strcmp(name, "gradient") == 0) {
            if (begins_update(last, event))
                last = &items[count++];
            add_gradient(last, event);
            last->taken += taken;
            taken = 0;
        }
        if (last && strcmp(name, "apply") == 0)
            add_apply(last, event, updates->rate);
        if (last)
            last->late += bytes_of(event);
    }
    updates->of[rank] = items;
    updates->made[rank] = count;
}

static double largest(const Updates *updates, int u)
{
    double most = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        for (int p = 0; p < updates->of[r][u].count; p++)
            most = fmax(most, fabs(updates->of[r][u].gradients[p]));
    return most;
}

// What the change of a rank's weights tells; not a number after the last update of all.
static double gradient_by_weights(const Updates *updates, int rank, int u)
{
    const Update *items = updates->of[rank];
    if (u + 1 >= updates->made[rank])
        return NAN;
    return (items[u].weights - items[u + 1].weights) / updates->rate;
}

static double tolerance_of_weights(const Updates *updates, int u)
{
    return WEIGHTS_TOLERANCE * largest(updates, u) + WEIGHTS_ROUNDING / updates->rate;
}

// True where some weights have changed by something else than what the optimizer got.
static bool weights_tell_otherwise(const Updates *updates)
{
    for (int u = 0; u < updates->count; u++)
        for (int r = 0; r < updates->run->ranks; r++) {
            double off = updates->of[r][u].by_rate - gradient_by_weights(updates, r, u);
            if (fabs(off) > tolerance_of_weights(updates, u))
                return true;
        }
    return false;
}

// What the optimizer got, unless the weights tell otherwise.
static void find_effective(Updates *updates)
{
    updates->by_weights = weights_tell_otherwise(updates);
    for (int u = 0; u < updates->count; u++)
        for (int r = 0; r < updates->run->ranks; r++) {
            Update *update = &updates->of[r][u];
            update->effective =
                updates->by_weights ? gradient_by_weights(updates, r, u) : update->by_rate;
            update->allowed = updates->by_weights ? tolerance_of_weights(updates, u)
                                                  : TOLERANCE * largest(updates, u);
        }
}

static Updates read_updates(const Run *run)
{
    Updates updates = {.run = run, .count = INT32_MAX};
    int together = (int)run_flag(run, "--batch-size ") * run->ranks;
    updates.passes = together < UPDATE ? UPDATE / together : 1;
    updates.steps = (int)run_flag(run, "--images ") / together;
    updates.epochs = (int)run_flag(run, "--epochs ");
    updates.rate = isnan(run_flag(run, "--base-lr ")) ? 0.01 : run_flag(run, "--base-lr ");
    updates.bytes = 4 * event_number(event_nth(&run->traces.of[0], "broadcast", 0), "weights");
    for (int r = 0; r < run->ranks; r++) {
        read_rank(&updates, r);
        updates.count = updates.made[r] < updates.count ? updates.made[r] : updates.count;
    }
    find_effective(&updates);
    return updates;
}

static void free_updates(Updates *updates)
{
    for (int r = 0; r < updates->run->ranks; r++) {
        for (int u = 0; u < updates->made[r]; u++)
            free(updates->of[r][u].gradients);
        free(updates->of[r]);
    }
}

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

static const Diagnosis never = {
    "no-update", "no gradient reaches the weights: apply_gradients() updates them.", NULL};
static const Diagnosis one_by_one = {
    "update-in-every-batch",
    "an update is made after every batch. Gradients are to be computed, and added up, for all "
    "batches of an update, and only then applied.",
    NULL};
static const Diagnosis large = {
    "one-large-batch",
    "one gradient is computed where there should be several: several batches are made one, which "
    "needs the memory that this exercise does without.",
    NULL};
static const Diagnosis left_out = {
    "batches-left-out", "gradients are computed of fewer batches than an epoch has.", NULL};
static const Diagnosis carried = {
    "rest-carried-over",
    "where the batches of an epoch don't make whole updates, the last update of the epoch is from "
    "fewer of them; here they are carried over into the next epoch.",
    NULL};
static const Diagnosis other_number = {
    "updates-wrong", "between two updates there is another number of batches than `passes` says.",
    NULL};

static const Diagnosis *wrong_number(const Updates *updates, int rank)
{
    int all = updates->steps * updates->epochs;
    if (!any_applied(updates, rank))
        return &never;
    if (total(updates, rank, false) < all)
        return total(updates, rank, true) > total(updates, rank, false) &&
                       all_from(updates, rank, 1)
                   ? &large
                   : &left_out;
    if (all_from(updates, rank, 1))
        return &one_by_one;
    if (updates->epochs > 1 && all_from(updates, rank, updates->passes))
        return &carried;
    return &other_number;
}

static bool judge_numbers(const Runs *runs, const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int r = 0; r < updates->run->ranks; r++) {
            if (first_other_number(updates, r) < 0 && any_applied(updates, r))
                continue;
            char *evidence = format_text("rank %d computed %d gradients, for updates from ", r,
                                         total(updates, r, false));
            add_numbers(&evidence, updates, r, batches_at);
            text_add(&evidence, " batches\nthey should be from ");
            add_numbers(&evidence, updates, r, expected_number);
            text_add(&evidence,
                     "\n%d ranks with batches of %.0f images: %d batches an epoch, %d "
                     "an update",
                     updates->run->ranks, run_flag(updates->run, "--batch-size "), updates->steps,
                     updates->passes);
            report_failure(report, BATCHES, wrong_number(updates, r),
                           evidence_in(runs, updates->run, evidence));
            return false;
        }
    }
    report_ok(report, BATCHES);
    return true;
}

// ---- What a rank may have applied, given what all computed.

static double own_sum(const Updates *updates, int rank, int u)
{
    const Update *update = &updates->of[rank][u];
    double sum = 0;
    for (int p = 0; p < update->count; p++)
        sum += update->gradients[p];
    return sum;
}

static double sum_of_all(const Updates *updates, int u)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += own_sum(updates, r, u);
    return sum;
}

// Of what each rank computed in pass `pass` of update u.
static double mean_of_pass(const Updates *updates, int u, int pass)
{
    double sum = 0;
    for (int r = 0; r < updates->run->ranks; r++)
        sum += updates->of[r][u].gradients[pass];
    return sum / updates->run->ranks;
}

static int batches_of(const Updates *updates, int u)
{
    return updates->of[0][u].count;
}

// By rank `rank`, in update u; `number` is of use to some.
typedef double (*Formula)(const Updates *updates, int rank, int u, int number);

static double mean(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / updates->run->ranks / batches_of(updates, u);
}

static double own_last(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return updates->of[rank][u].gradients[batches_of(updates, u) - 1];
}

static double mean_of_last(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return mean_of_pass(updates, u, batches_of(updates, u) - 1);
}

static double mean_of_first(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return mean_of_pass(updates, u, 0);
}

// All that they have so far is divided by 1 where there is one batch in an update.
static double without_pass(const Updates *updates, int u, int pass, bool fewer)
{
    int count = batches_of(updates, u);
    double sum = sum_of_all(updates, u) / updates->run->ranks - mean_of_pass(updates, u, pass);
    return fewer && count > 1 ? sum / (count - 1) : sum / count;
}

static double without_first(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return without_pass(updates, u, 0, number == 1);
}

static double without_last(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return without_pass(updates, u, batches_of(updates, u) - 1, number == 1);
}

static double own_mean(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return own_sum(updates, rank, u) / batches_of(updates, u);
}

static double own_total(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return own_sum(updates, rank, u);
}

static double own_mean_divided(const Updates *updates, int rank, int u, int number)
{
    return own_mean(updates, rank, u, number) / updates->run->ranks;
}

static double over_ranks(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / updates->run->ranks;
}

static double over_batches(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / batches_of(updates, u);
}

static double over_nothing(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u);
}

static double over_ranks_twice(const Updates *updates, int rank, int u, int number)
{
    return mean(updates, rank, u, number) / updates->run->ranks;
}

static double over_batches_twice(const Updates *updates, int rank, int u, int number)
{
    return mean(updates, rank, u, number) / batches_of(updates, u);
}

static double over_most_batches(const Updates *updates, int rank, int u, int number)
{
    (void)rank, (void)number;
    return sum_of_all(updates, u) / updates->run->ranks / updates->passes;
}

static double over_number_of_batches(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return sum_of_all(updates, u) / updates->run->ranks / number;
}

static double over_number_of_ranks(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return sum_of_all(updates, u) / batches_of(updates, u) / number;
}

static double over_local_size(const Updates *updates, int rank, int u, int number)
{
    (void)number;
    return sum_of_all(updates, u) / batches_of(updates, u) / run_local_size(updates->run, rank);
}

static double mean_of_machine(const Updates *updates, int rank, int u, int number)
{
    const Run *run = updates->run;
    double sum = 0;
    for (int r = 0; r < run->ranks; r++)
        sum += run_node(run, r) == run_node(run, rank) ? own_mean(updates, r, u, number) : 0;
    return sum / run_local_size(run, rank);
}

static double of_one_rank(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    return own_mean(updates, number < updates->run->ranks ? number : 0, u, 0);
}

static double mean_on_the_root(const Updates *updates, int rank, int u, int number)
{
    return rank == 0 ? mean(updates, rank, u, number) : own_mean(updates, rank, u, number);
}

// What the update before has left is in it, too.
static double on_top(const Updates *updates, int rank, int u, int number)
{
    return mean(updates, rank, u, number) + (u > 0 ? updates->of[rank][u - 1].effective : 0);
}

// As on_top; the sum is emptied, or made anew, with each epoch.
static double on_top_in_epoch(const Updates *updates, int rank, int u, int number)
{
    int updates_an_epoch = (updates->steps + updates->passes - 1) / updates->passes;
    return u % updates_an_epoch ? on_top(updates, rank, u, number) : mean(updates, rank, u, number);
}

// The batches' own sums go on growing, and the exchange changes nothing of them.
static double all_so_far(const Updates *updates, int rank, int u, int number)
{
    double sum = 0;
    for (int i = 0; i <= u; i++)
        sum += sum_of_all(updates, i) / updates->run->ranks;
    (void)rank, (void)number;
    return sum / batches_of(updates, u);
}

// mean = (mean + gradient) / 2, in every pass; the first one is taken whole, or halved as well.
static double halved(const Updates *updates, int rank, int u, int number)
{
    (void)rank;
    double value = number ? mean_of_pass(updates, u, 0) : 0;
    for (int p = number ? 1 : 0; p < batches_of(updates, u); p++)
        value = (value + mean_of_pass(updates, u, p)) / 2;
    return value;
}

static double nothing(const Updates *updates, int rank, int u, int number)
{
    (void)updates, (void)rank, (void)u, (void)number;
    return 0;
}

static bool is_finite(const Updates *updates, int u)
{
    for (int r = 0; r < updates->run->ranks; r++)
        if (!isfinite(own_sum(updates, r, u) + updates->of[r][u].effective))
            return false;
    return true;
}

static bool explains_update(const Updates *updates, int u, Formula formula, int number)
{
    for (int r = 0; r < updates->run->ranks; r++) {
        const Update *update = &updates->of[r][u];
        bool unknown = updates->by_weights && u + 1 >= updates->made[r];
        double off = update->effective - formula(updates, r, u, number);
        if (!unknown && !(fabs(off) <= update->allowed))
            return false;
    }
    return true;
}

// The first update that the formula does not explain, or -1; after the first one only up to where
// numbers are no longer finite.
static int first_unexplained(const Updates *updates, Formula formula, int number)
{
    for (int u = 0; u < updates->count && (u == 0 || is_finite(updates, u)); u++)
        if (!explains_update(updates, u, formula, number))
            return u;
    return -1;
}

static bool explains(const AllUpdates *all, Formula formula, int number)
{
    for (int i = 0; i < all->count; i++)
        if (first_unexplained(&all->items[i], formula, number) >= 0)
            return false;
    return true;
}

// ---- Diagnoses.

static const Diagnosis nothing_added = {
    "nothing-accumulated",
    "every rank applies the gradient of its own last batch. compute_gradients() overwrites what "
    "the batch before has left, and nothing of the other workers reaches the weights.",
    NULL};
static const Diagnosis not_written = {
    "mean-not-written",
    "something is exchanged, but every rank applies what compute_gradients() has left of its own "
    "last batch. apply_gradients() takes the gradients that model_write_gradients() has put there.",
    NULL};
static const Diagnosis last_only = {
    "last-batch-only",
    "the workers apply the mean of their last batches' gradients: compute_gradients() overwrites "
    "what the batch before has left, so the gradients of the others are lost.",
    NULL};
static const Diagnosis first_only = {
    "first-batch-only",
    "the workers apply the mean of their first batches' gradients; those of the others are not in "
    "it.",
    NULL};
static const Diagnosis first_lost = {
    "first-batch-lost", "the gradients of the first batch of an update are not in it.", NULL};
static const Diagnosis last_lost = {
    "last-batch-lost",
    "the gradients of the last batch of an update are not in it. Often the sum is read before that "
    "batch is computed.",
    NULL};
static const Diagnosis not_exchanged = {
    "gradients-not-averaged",
    "every rank adds up its own batches' gradients and applies that: nothing of the other workers "
    "reaches its weights.",
    NULL};
static const Diagnosis divided_only = {
    "divided-but-not-summed",
    "every rank divides its own mean by the number of workers; nothing of the others is in it.",
    NULL};
static const Diagnosis not_by_batches = {
    "not-divided-by-passes",
    "the gradients of an update's batches are added up, but not divided by their number: the same "
    "as a learning rate that many times as high.",
    NULL};
static const Diagnosis not_by_ranks = {
    "not-divided-by-workers",
    "the workers' gradients are added up, but not divided by their number: the same as a learning "
    "rate that many times as high.",
    NULL};
static const Diagnosis not_divided = {
    "gradients-summed",
    "the gradients of all batches are added up, but divided neither by the number of batches nor "
    "by that of workers.",
    NULL};
static const Diagnosis by_ranks_twice = {
    "averaged-twice",
    "the gradients are divided by the number of workers twice: an average is already divided.",
    NULL};
static const Diagnosis by_batches_twice = {
    "divided-by-passes-twice", "the gradients are divided by the number of batches twice.", NULL};
static const Diagnosis by_most = {
    "divided-by-full-update",
    "the last update of an epoch is from fewer batches, and yet divided by the number that the "
    "others are from. `passes` says how many batches this update has.",
    NULL};
static const Diagnosis fixed_batches = {
    "number-of-batches-fixed",
    "the sum is divided by the same number in all runs, however many batches an update is from.",
    NULL};
static const Diagnosis fixed_ranks = {
    "number-of-workers-fixed",
    "the sum is divided by the same number on any number of workers: hvd_size() is right on all.",
    NULL};
static const Diagnosis by_local_size = {
    "divided-by-local-size",
    "the sum over all workers is divided by hvd_local_size(), the workers of one machine.", NULL};
static const Diagnosis within_machine = {
    "averaged-within-machine", "the gradients are averaged among the ranks of one machine only.",
    NULL};
static const Diagnosis one_ranks = {
    "gradients-of-one-rank",
    "all ranks apply the gradients of one of them, and the work of the others is lost.", NULL};
static const Diagnosis root_only = {
    "averaged-on-the-root-only",
    "the root applies the mean, and every other rank that of its own batches.", NULL};
static const Diagnosis not_emptied = {
    "sum-not-emptied",
    "the first update is right, and in each later one the gradients of those before are in it, "
    "too: the sum has to begin with zeros in every update.",
    NULL};
static const Diagnosis uneven = {
    "batches-weighed-unevenly",
    "the last batch counts for one half, the one before it for a quarter, and so on: that is what "
    "mean = (mean + gradient) / 2 makes of more than two. All batches count alike.",
    NULL};
static const Diagnosis zero = {
    "no-update",
    "gradients that are all zero reach the optimizer. Often this is a division of whole numbers: "
    "in C 1 / passes is 0 where passes is 2 or more.",
    NULL};
static const Diagnosis other_rate = {
    "learning-rate-changed",
    "the gradient is the mean, but it is applied with another learning rate than --base-lr. An "
    "update is from as many images on any number of workers, so the rate can stay.",
    NULL};
static const Diagnosis some_updates = {
    "in-some-updates",
    "some updates are the mean, and others (the one above is the first) are not, and no single "
    "mistake that this check knows explains those. Often each update does not begin with a sum of "
    "zeros, or 1 / passes is a division of whole numbers, which is 0 from two passes on.",
    NULL};
static const Diagnosis wrong = {
    "gradients-wrong",
    "this is not the mean of all these gradients, and nothing that this check knows explains it "
    "in all updates: neither the last batch's, nor a sum that is not divided, nor each rank's own.",
    NULL};

static const struct {
    Formula formula;
    int number;
    const Diagnosis *diagnosis;
} known[] = {
    {own_last, 0, &nothing_added},
    {mean_of_last, 0, &last_only},
    {mean_of_first, 0, &first_only},
    {own_mean, 0, &not_exchanged},
    {own_total, 0, &not_exchanged},
    {own_mean_divided, 0, &divided_only},
    {over_ranks, 0, &not_by_batches},
    {over_batches, 0, &not_by_ranks},
    {over_nothing, 0, &not_divided},
    {over_ranks_twice, 0, &by_ranks_twice},
    {over_batches_twice, 0, &by_batches_twice},
    {over_most_batches, 0, &by_most},
    {over_local_size, 0, &by_local_size},
    {mean_of_machine, 0, &within_machine},
    {mean_on_the_root, 0, &root_only},
    {on_top, 0, &not_emptied},
    {on_top_in_epoch, 0, &not_emptied},
    {all_so_far, 0, &not_emptied},
    {without_first, 0, &first_lost},
    {without_first, 1, &first_lost},
    {without_last, 0, &last_lost},
    {without_last, 1, &last_lost},
    {halved, 0, &uneven},
    {halved, 1, &uneven},
    {nothing, 0, &zero},
};

// With a number that stands in the program.
static const struct {
    Formula formula;
    int from;
    const Diagnosis *diagnosis;
} numbered[] = {
    {of_one_rank, 0, &one_ranks},
    {over_number_of_ranks, 2, &fixed_ranks},
    {over_number_of_batches, 2, &fixed_batches},
};

// True where the mean reached the optimizer, whatever its learning rate made of it.
static bool only_the_rate_differs(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int u = 0; u < updates->count && is_finite(updates, u); u++)
            for (int r = 0; r < updates->run->ranks; r++) {
                const Update *update = &updates->of[r][u];
                if (!update->applied || !(fabs(update->raw - mean(updates, r, u, 0)) <=
                                          TOLERANCE * largest(updates, u)))
                    return false;
            }
    }
    return true;
}

static bool some_are_the_mean(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (explains_update(&all->items[i], u, mean, 0))
                return true;
    return false;
}

static bool something_is_exchanged(const AllUpdates *all)
{
    for (int i = 0; i < all->count; i++)
        for (int u = 0; u < all->items[i].count; u++)
            if (all->items[i].of[0][u].early + all->items[i].of[0][u].late > OTHER_BYTES)
                return true;
    return false;
}

static const Diagnosis *wrong_gradient(const AllUpdates *all)
{
    if (explains(all, own_last, 0) && something_is_exchanged(all))
        return &not_written;
    if (only_the_rate_differs(all))
        return &other_rate;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].formula, known[i].number))
            return known[i].diagnosis;
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
        for (int number = numbered[i].from; number < MAX_RANKS; number++)
            if (explains(all, numbered[i].formula, number))
                return numbered[i].diagnosis;
    return some_are_the_mean(all) ? &some_updates : &wrong;
}

static char *evidence_of(const Updates *updates, int u)
{
    const Run *run = updates->run;
    char *evidence = format_text("in update %d, as fingerprints:", u + 1);
    for (int r = 0; r < run->ranks; r++) {
        const Update *update = &updates->of[r][u];
        text_add(&evidence, "\nrank %d: computed", r);
        for (int p = 0; p < update->count && p < 8; p++)
            text_add(&evidence, " %.6g", update->gradients[p]);
        text_add(&evidence, "%s, applied %.6g", update->count > 8 ? " ..." : "", update->raw);
        if (fabs(update->effective - update->raw) > update->allowed)
            text_add(&evidence, ", changed the weights as %.6g would", update->effective);
    }
    text_add(&evidence, "\nmean of all: %.6g", mean(updates, 0, u, 0));
    return evidence;
}

static bool judge_gradients(const Runs *runs, const AllUpdates *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        int u = first_unexplained(&all->items[i], mean, 0);
        if (u < 0)
            continue;
        report_failure(report, MEAN, wrong_gradient(all),
                       evidence_in(runs, all->items[i].run, evidence_of(&all->items[i], u)));
        return false;
    }
    report_ok(report, MEAN);
    return true;
}

// ---- The weights, and what is exchanged.

static bool judge_weights(const Runs *runs, const AllUpdates *all, Report *report)
{
    static const Diagnosis start = {
        "start-differs",
        "the ranks begin with different weights: the page calls hvd_broadcast_model() before the "
        "first update.",
        NULL};
    static const Diagnosis apart = {
        "weights-differ",
        "the ranks applied the same gradients, and yet their weights have come apart.", NULL};
    const double allowed = 1e-4;
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            for (int r = 1; r < updates->run->ranks; r++) {
                double root = updates->of[0][u].weights, own = updates->of[r][u].weights;
                if (!isfinite(root) || fabs(root - own) <= allowed * (u > 0) * fabs(root))
                    continue;
                report_failure(report, START, u > 0 ? &apart : &start,
                               evidence_in(runs, updates->run,
                                           format_text("before update %d, as fingerprints:\n"
                                                       "rank 0: %.9g\nrank %d: %.9g",
                                                       u + 1, root, r, own)));
                return false;
            }
    }
    report_ok(report, START);
    return true;
}

static void judge_exchange(const Runs *runs, const AllUpdates *all, Report *report)
{
    static const Diagnosis every = {
        "exchanged-in-every-batch",
        "the ranks exchange something of the size of gradients before the update's last batch is "
        "computed. The mean of the workers' sums is the same, and needs one exchange.",
        NULL};
    static const Diagnosis too_much = {
        "exchanged-too-much",
        "after its last batch a rank hands over as much as the gradients of all the update's "
        "batches. Often each of them is sent by itself: added up, they are as long as one.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Updates *updates = &all->items[i];
        for (int u = 0; u < updates->count; u++)
            for (int r = 0; r < updates->run->ranks; r++) {
                const Update *update = &updates->of[r][u];
                bool early = update->early > OTHER_BYTES;
                // Who adds up in double precision, and by two calls, hands over four times as much.
                bool much = update->count > 4 && update->late >= update->count * updates->bytes;
                if (!early && !much)
                    continue;
                report_failure(
                    report, ONCE, early ? &every : &too_much,
                    evidence_in(runs, updates->run,
                                format_text("in update %d, from %d batches, rank %d handed over "
                                            "%.0f bytes before it had the gradients of the last "
                                            "one, and %.0f after that; all gradients together are "
                                            "%.0f bytes",
                                            u + 1, update->count, r, update->early, update->late,
                                            updates->bytes)));
                return;
            }
    }
    report_ok(report, ONCE);
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
                report_note(report, "what the optimizer got is not the mean, though the weights "
                                    "change as if it were: so it is with plain SGD alone");
                return;
            }
}

static bool none_computed(const Runs *runs, Report *report)
{
    static const Diagnosis none = {"nothing-trained", "no gradients are computed on some rank.",
                                   NULL};
    for (int i = 0; i < runs->count; i++)
        for (int r = 0; r < runs->items[i].ranks; r++)
            if (event_count(&runs->items[i].traces.of[r], "gradient") == 0) {
                report_failure(
                    report, BATCHES, &none,
                    evidence_in(runs, &runs->items[i], format_text("rank %d computed none", r)));
                return true;
            }
    return false;
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, report))
        return;
    AllUpdates all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = read_updates(&runs->items[i]);
    if (judge_drawn_images(runs, OWN_BATCHES, report) && judge_numbers(runs, &all, report) &&
        judge_gradients(runs, &all, report) && judge_weights(runs, &all, report))
        judge_exchange(runs, &all, report);
    if (report_passed(report))
        remark(&all, report);
    for (int i = 0; i < runs->count; i++)
        free_updates(&all.items[i]);
    free(all.items);
}

static const Explanation explanations[] = {
    {"model_read_gradients: there are no gradients",
     {"read-too-early",
      "model_read_gradients() gives what compute_gradients() has computed: it comes after it.",
      NULL}},
    {"apply_gradients: there are no gradients",
     {"applied-too-often",
      "apply_gradients() is called again without new gradients: once for an update, after the mean "
      "was written.",
      NULL}},
    {"has no weights before compile",
     {"broadcast-too-early",
      "compile() draws the weights; before it there is nothing to broadcast.", NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("accumulate", judge)
ENDS("accumulate", &ends)
