// The sparse gradient: in every step every rank applies, to each row of an embedding's table, the
// mean of what all ranks computed for it, and hands over rows, not the table. What counts are the
// fingerprints of each row as a rank computed it and as the update found it, and the bytes that a
// rank gave to MPI in between; which calls moved them is no matter.

#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define START   "all ranks begin with the same weights"
#define OTHERS  "every rank applies the mean of all ranks' gradients to the other layers"
#define ROWS    "every rank applies, to each row of the table, the mean of all ranks' gradients"
#define WEIGHTS "all ranks have the same weights after every step"
#define BYTES   "what a rank hands over follows the rows that were used, not the table"

// Of the largest fingerprint of the step.
#define TOLERANCE 1e-5

// What a rank may hand over in a step beside rows: the other layers' gradients, counts, ...
#define OTHER_BYTES 32768

// One step. The rows are those that some rank named or changed, in ascending order; of row i
// computed[r][i] is what rank r computed for it, place[r][i] where it stood among that rank's rows
// (-1: it did not name it), applied[r][i] what its update found.
typedef struct {
    int rows;
    int *number, *place[MAX_RANKS];
    double *computed[MAX_RANKS], *applied[MAX_RANKS];
    int named[MAX_RANKS];                                         // rows by each rank
    double others_computed[MAX_RANKS], others_applied[MAX_RANKS]; // all but the table
    double weights[MAX_RANKS];                                    // before the step
    double bytes[MAX_RANKS]; // handed over from the gradient to the next one
    double allowed;
} Step;

typedef struct {
    const Run *run;
    Step *items;
    int count;
    int dimension, table_rows;
} Steps;

typedef struct {
    Steps *items;
    int count;
} AllSteps;

// ---- Reading the traces.

// The last event of that name before place `before`, or -1.
static int find_before(const Events *events, const char *name, int before)
{
    for (int i = before - 1; i >= 0; i--)
        if (strcmp(event_text(events->items[i], "event"), name) == 0)
            return i;
    return -1;
}

static double bytes_between(const Events *events, int from, int to)
{
    double bytes = 0;
    for (int i = from; i < to; i++)
        bytes += event_bytes(events->items[i]);
    return bytes;
}

// Where one step of a rank stands in its trace.
typedef struct {
    int computed, gradient, applied, apply, end;
} Moments;

static Moments moments_of(const Events *events, int from)
{
    Moments moments = {.apply = event_find(events, "apply", from)};
    moments.applied = find_before(events, "table_apply", moments.apply);
    moments.gradient = find_before(events, "gradient", moments.applied);
    moments.computed = find_before(events, "table_gradient", moments.gradient);
    moments.end = event_find(events, "table_gradient", moments.apply);
    if (moments.end < 0)
        moments.end = events->count;
    if (moments.apply < 0 || moments.computed < from)
        moments.computed = -1;
    return moments;
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int row_count(const cJSON *event)
{
    const char *text = event_text(event, "rows");
    int count = *text != '\0';
    for (; *text; text++)
        count += *text == ',';
    return count;
}

static void add_numbers(const cJSON *event, Step *step)
{
    char *at = (char *)(uintptr_t)event_text(event, "rows");
    for (int i = row_count(event); i > 0; i--, at++)
        step->number[step->rows++] = (int)strtol(at, &at, 10);
}

static int index_of(const Step *step, int number)
{
    const int *found =
        bsearch(&number, step->number, (size_t)step->rows, sizeof number, compare_ints);
    CHECK(found);
    return (int)(found - step->number);
}

// The fingerprints of an event's rows, each in its place; returns their sum.
static double read_values(const cJSON *event, const Step *step, double *values, int *place)
{
    char *row = (char *)(uintptr_t)event_text(event, "rows");
    char *value = (char *)(uintptr_t)event_text(event, "values");
    double sum = 0;
    for (int i = 0, count = row_count(event); i < count; i++, row++, value++) {
        int index = index_of(step, (int)strtol(row, &row, 10));
        values[index] = strtod(value, &value);
        sum += values[index];
        if (place)
            place[index] = i;
    }
    return sum;
}

static void read_rank(Step *step, int rank, const Events *events, Moments at)
{
    size_t rows = (size_t)step->rows;
    const cJSON *computed = events->items[at.computed], *applied = events->items[at.applied];
    const cJSON *gradient = events->items[at.gradient], *apply = events->items[at.apply];
    step->computed[rank] = allocate(rows, sizeof(double));
    step->applied[rank] = allocate(rows, sizeof(double));
    step->place[rank] = allocate(rows, sizeof(int));
    for (size_t i = 0; i < rows; i++)
        step->place[rank][i] = -1;
    double own = read_values(computed, step, step->computed[rank], step->place[rank]);
    double used = read_values(applied, step, step->applied[rank], NULL);
    step->named[rank] = row_count(computed);
    step->others_computed[rank] = event_number(gradient, "value") - own;
    step->others_applied[rank] = event_number(apply, "value") - used;
    step->weights[rank] = event_number(gradient, "arena");
    step->bytes[rank] = bytes_between(events, at.gradient, at.end);
    for (size_t i = 0; i < rows; i++)
        step->allowed = fmax(step->allowed, TOLERANCE * fabs(step->computed[rank][i]));
}

// The union of the rows that any rank named or changed.
static void read_rows(Step *step, const Run *run, const Moments at[])
{
    size_t most = 0;
    for (int r = 0; r < run->ranks; r++)
        most += (size_t)row_count(run->traces.of[r].items[at[r].computed]) +
                (size_t)row_count(run->traces.of[r].items[at[r].applied]);
    step->number = allocate(most, sizeof *step->number);
    for (int r = 0; r < run->ranks; r++) {
        add_numbers(run->traces.of[r].items[at[r].computed], step);
        add_numbers(run->traces.of[r].items[at[r].applied], step);
    }
    qsort(step->number, (size_t)step->rows, sizeof *step->number, compare_ints);
    int different = 0;
    for (int i = 0; i < step->rows; i++)
        if (i == 0 || step->number[i] != step->number[different - 1])
            step->number[different++] = step->number[i];
    step->rows = different;
}

// As many steps as all ranks made.
static Steps read_steps(const Run *run)
{
    Steps steps = {.run = run};
    int most = event_count(&run->traces.of[0], "apply"), from[MAX_RANKS] = {0};
    steps.items = allocate((size_t)most, sizeof *steps.items);
    for (; steps.count < most; steps.count++) {
        Step *step = &steps.items[steps.count];
        Moments at[MAX_RANKS];
        for (int r = 0; r < run->ranks; r++) {
            at[r] = moments_of(&run->traces.of[r], from[r]);
            if (at[r].computed < 0)
                return steps;
            from[r] = at[r].apply + 1;
        }
        read_rows(step, run, at);
        for (int r = 0; r < run->ranks; r++)
            read_rank(step, r, &run->traces.of[r], at[r]);
        const cJSON *table = run->traces.of[0].items[at[0].computed];
        steps.dimension = (int)event_number(table, "dimension");
        steps.table_rows = (int)event_number(table, "table_rows");
    }
    return steps;
}

static void free_steps(Steps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        free(steps->items[i].number);
        for (int r = 0; r < steps->run->ranks; r++) {
            free(steps->items[i].place[r]);
            free(steps->items[i].computed[r]);
            free(steps->items[i].applied[r]);
        }
    }
    free(steps->items);
}

// ---- What a rank may have applied to a row, given what all computed.

// Of row `row` in step `step`; `number` is of use to some.
typedef bool (*Explanation)(const Steps *steps, int step, int rank, int row, int number);

static bool is(const Step *step, int rank, int row, double value)
{
    return fabs(step->applied[rank][row] - value) <= step->allowed;
}

static double sum_of(const Steps *steps, int step, int row)
{
    double sum = 0;
    for (int r = 0; r < steps->run->ranks; r++)
        sum += steps->items[step].computed[r][row];
    return sum;
}

static double mean_of(const Steps *steps, int step, int row)
{
    return sum_of(steps, step, row) / steps->run->ranks;
}

static bool mean(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, mean_of(steps, step, row));
}

static bool nothing(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, 0);
}

static bool its_own(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const Step *s = &steps->items[step];
    return is(s, rank, row, s->computed[rank][row]);
}

static bool its_own_divided(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const Step *s = &steps->items[step];
    return is(s, rank, row, s->computed[rank][row] / steps->run->ranks);
}

static bool total(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, sum_of(steps, step, row));
}

static bool mean_of_mean(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row, mean_of(steps, step, row) / steps->run->ranks);
}

static bool total_over_number(const Steps *steps, int step, int rank, int row, int number)
{
    return is(&steps->items[step], rank, row, sum_of(steps, step, row) / number);
}

static bool total_over_local_size(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    return is(&steps->items[step], rank, row,
              sum_of(steps, step, row) / run_local_size(steps->run, rank));
}

static int contributors(const Steps *steps, int step, int row)
{
    int count = 0;
    for (int r = 0; r < steps->run->ranks; r++)
        count += steps->items[step].place[r][row] >= 0;
    return count;
}

static bool total_over_contributors(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    int count = contributors(steps, step, row);
    return is(&steps->items[step], rank, row, count ? sum_of(steps, step, row) / count : 0);
}

static bool of_one_rank(const Steps *steps, int step, int rank, int row, int number)
{
    const Step *s = &steps->items[step];
    double value = number < steps->run->ranks ? s->computed[number][row] : s->computed[0][row];
    return is(s, rank, row, value) || is(s, rank, row, value / steps->run->ranks);
}

// 0 where this rank's batch did not name the row.
static bool only_own_rows(const Steps *steps, int step, int rank, int row, int number)
{
    if (steps->items[step].place[rank][row] < 0)
        return nothing(steps, step, rank, row, number);
    return mean(steps, step, rank, row, number) || total(steps, step, rank, row, number);
}

static bool all_but_own(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const Step *s = &steps->items[step];
    double others = sum_of(steps, step, row) - s->computed[rank][row];
    return is(s, rank, row, others) || is(s, rank, row, others / steps->run->ranks);
}

// What one of those brought who named the row, whether or not it is divided.
static bool of_some_rank(const Steps *steps, int step, int rank, int row, int number)
{
    const Step *s = &steps->items[step];
    if (contributors(steps, step, row) == 0)
        return nothing(steps, step, rank, row, number);
    for (int r = 0; r < steps->run->ranks; r++)
        if (s->place[r][row] >= 0 && (is(s, rank, row, s->computed[r][row]) ||
                                      is(s, rank, row, s->computed[r][row] / steps->run->ranks)))
            return true;
    return false;
}

// The mean of the first pairs of all that were gathered: as many as there would be if every rank
// had brought as many as this one. (Where there are fewer, anything may follow them.)
static bool first_pairs(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    const Step *s = &steps->items[step];
    int ranks = steps->run->ranks, pairs = s->named[rank] * ranks, before = 0;
    double sum = 0;
    for (int r = 0; r < ranks; r++) {
        if (s->place[r][row] >= 0 && before + s->place[r][row] < pairs)
            sum += s->computed[r][row];
        before += s->named[r];
    }
    return before < pairs || is(s, rank, row, sum / ranks) || is(s, rank, row, sum);
}

// The means of this step and of all before it.
static bool added_to_earlier(const Steps *steps, int step, int rank, int row, int number)
{
    (void)number;
    double sum = 0;
    for (int earlier = 0; earlier <= step; earlier++) {
        const Step *s = &steps->items[earlier];
        const int *found = bsearch(&steps->items[step].number[row], s->number, (size_t)s->rows,
                                   sizeof *s->number, compare_ints);
        if (found)
            sum += mean_of(steps, earlier, (int)(found - s->number));
    }
    return is(&steps->items[step], rank, row, sum);
}

// A row in which the explanation fails.
typedef struct {
    int step, rank, row; // step -1: there is none
} Spot;

static Spot first_unexplained(const Steps *steps, Explanation explanation, int number)
{
    for (int step = 0; step < steps->count; step++)
        for (int row = 0; row < steps->items[step].rows; row++)
            for (int rank = 0; rank < steps->run->ranks; rank++)
                if (!explanation(steps, step, rank, row, number))
                    return (Spot){step, rank, row};
    return (Spot){.step = -1};
}

// One rank alone can't tell one from another.
static bool explains(const AllSteps *all, Explanation explanation, int number)
{
    for (int i = 0; i < all->count; i++)
        if (all->items[i].run->ranks > 1 &&
            first_unexplained(&all->items[i], explanation, number).step >= 0)
            return false;
    return true;
}

static bool some_number_explains(const AllSteps *all, Explanation explanation, int from, int to)
{
    for (int number = from; number <= to; number++)
        if (explains(all, explanation, number))
            return true;
    return false;
}

// ---- Diagnoses of rows.

static const Diagnosis not_exchanged = {
    "not-exchanged",
    "every rank applies the rows of its own gradient, as they are; those of the others don't reach "
    "it, or what was added up is not put in the gradient's place (model_write_gradient).",
    NULL};
static const Diagnosis no_update = {"no-update",
                                    "the table's gradient is zero in all rows when it is applied. "
                                    "Often model_write_gradient() comes "
                                    "before the rows are added up, or whole numbers have made "
                                    "zeros of them: 1 / hvd_size(), an array "
                                    "of int.",
                                    NULL};
static const Diagnosis divided_only = {
    "divided-but-not-summed",
    "every rank divides the rows of its own gradient by the number of workers; those of the others "
    "don't reach it, or what was added up is not put in the gradient's place.",
    NULL};
static const Diagnosis not_averaged = {
    "not-averaged", "the rows are added up, but not divided by the number of workers.", NULL};
static const Diagnosis averaged_twice = {
    "averaged-twice", "the sums are divided by the number of workers twice.", NULL};
static const Diagnosis fixed = {"number-of-workers-fixed",
                                "the sums are divided by the same number on any number of "
                                "workers: one that stands in the program.",
                                NULL};
static const Diagnosis by_local_size = {
    "divided-by-local-size",
    "the sums over all workers are divided by hvd_local_size(), the workers of one machine.", NULL};
static const Diagnosis by_contributors = {
    "divided-by-contributors",
    "each row is divided by the number of those workers that named it. The dense all-reduce "
    "divides "
    "by the number of all: who did not name a row has a gradient of zero there.",
    NULL};
static const Diagnosis of_one = {
    "gradients-of-one-rank",
    "all ranks apply the rows that one of them computed. A broadcast adds nothing up.", NULL};
static const Diagnosis own_only = {"own-rows-only",
                                   "a rank changes the rows that its own batch named, and leaves "
                                   "out those that only others named. "
                                   "All ranks need the rows of all.",
                                   NULL};
static const Diagnosis own_missing = {
    "own-rows-missing", "a rank applies what the others computed, without its own part.", NULL};
static const Diagnosis overwritten = {
    "rows-overwritten",
    "where several ranks named a row, what one of them computed is applied, and not the sum: often "
    "this means = instead of +=.",
    NULL};
static const Diagnosis counts_equal = {
    "counts-assumed-equal",
    "a rank uses as many of the gathered rows as there would be if all had brought as many as it "
    "did itself. The numbers differ: hvd_allgather says how many there are in all.",
    NULL};
static const Diagnosis earlier_added = {
    "earlier-steps-added",
    "the rows of earlier steps are still in the sum. The table begins with zeros in each step.",
    NULL};
static const Diagnosis others_changed = {
    "other-rows-changed",
    "a row has a gradient that no rank named: often a number and a row that do not belong "
    "together.",
    NULL};
static const Diagnosis wrong = {
    "rows-wrong",
    "this is not the mean, and nothing that this check knows explains all steps: not each rank's "
    "own rows, the sum, one rank's part of it.",
    NULL};

// True where the runs have different numbers of ranks, not counting one rank alone.
static bool sizes_differ(const AllSteps *all)
{
    int one = 0;
    for (int i = 0; i < all->count; i++) {
        int ranks = all->items[i].run->ranks;
        if (ranks > 1 && one > 1 && ranks != one)
            return true;
        one = ranks > 1 ? ranks : one;
    }
    return false;
}

// NULL: nothing explains all steps.
static const Diagnosis *known_mistake(const AllSteps *all)
{
    static const struct {
        Explanation explanation;
        const Diagnosis *diagnosis;
    } known[] = {
        {its_own, &not_exchanged},
        {nothing, &no_update},
        {its_own_divided, &divided_only},
        {total, &not_averaged},
        {mean_of_mean, &averaged_twice},
        {total_over_local_size, &by_local_size},
        {total_over_contributors, &by_contributors},
        {only_own_rows, &own_only},
        {all_but_own, &own_missing},
        {of_some_rank, &overwritten},
        {first_pairs, &counts_equal},
        {added_to_earlier, &earlier_added},
    };
    if (sizes_differ(all) && some_number_explains(all, total_over_number, 2, MAX_RANKS))
        return &fixed;
    if (some_number_explains(all, of_one_rank, 0, MAX_RANKS - 1))
        return &of_one;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].explanation, 0))
            return known[i].diagnosis;
    return NULL;
}

static char *evidence_of_row(const Steps *steps, Spot spot)
{
    const Step *step = &steps->items[spot.step];
    char *evidence = format_text("in step %d, row %d of the table, as fingerprints:", spot.step + 1,
                                 step->number[spot.row]);
    for (int r = 0; r < steps->run->ranks; r++) {
        if (step->place[r][spot.row] < 0)
            text_add(&evidence, "\nrank %d: did not name it,   applied %12.8f", r,
                     step->applied[r][spot.row]);
        else
            text_add(&evidence, "\nrank %d: computed %12.8f, applied %12.8f", r,
                     step->computed[r][spot.row], step->applied[r][spot.row]);
    }
    text_add(&evidence, "\nmean: %35.8f", mean_of(steps, spot.step, spot.row));
    return evidence;
}

// ---- The properties.

// The ranks whose number is not that of rank 0.
static RankSet that_differ(const Run *run, const double values[], double allowed)
{
    RankSet ranks = 0;
    for (int r = 1; r < run->ranks; r++)
        if (!(fabs(values[r] - values[0]) <= allowed))
            ranks |= 1u << r;
    return ranks;
}

static char *evidence_of_weights(const Run *run, const Step *step, int number, RankSet ranks)
{
    char *evidence =
        format_text("before step %d %s from rank 0 in the fingerprint of the weights:", number,
                    rank_count(ranks) == 1 ? "a rank differs" : "ranks differ");
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d: %.6f", r, step->weights[r]);
    return evidence;
}

// Of the steps from `from` up to `to`.
static bool judge_weights(const Runs *runs, const AllSteps *all, int from, int to,
                          const char *property, const Diagnosis *diagnosis, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Steps *steps = &all->items[i];
        for (int s = from; s < to && s < steps->count; s++) {
            const Step *step = &steps->items[s];
            RankSet ranks = that_differ(steps->run, step->weights, 1e-4);
            if (!ranks)
                continue;
            report_failure(
                report, property, diagnosis,
                evidence_in(runs, steps->run, evidence_of_weights(steps->run, step, s + 1, ranks)));
            return false;
        }
    }
    report_ok(report, property);
    return true;
}

static bool judge_others(const Runs *runs, const AllSteps *all, Report *report)
{
    static const Diagnosis not_mean = {
        "other-layers-not-averaged",
        "the dense layers' gradients are not the mean. The page averages them with average(): "
        "between compute_gradients() and apply_gradients(), for every variable but the table.",
        NULL};
    for (int i = 0; i < all->count; i++)
        for (int s = 0; s < all->items[i].count; s++) {
            const Run *run = all->items[i].run;
            const Step *step = &all->items[i].items[s];
            double sum = 0, most = 0;
            for (int r = 0; r < run->ranks; r++) {
                sum += step->others_computed[r];
                most = fmax(most, fabs(step->others_computed[r]));
            }
            for (int r = 0; r < run->ranks; r++) {
                if (fabs(step->others_applied[r] - sum / run->ranks) <= 1e-4 * most)
                    continue;
                report_failure(
                    report, OTHERS, &not_mean,
                    evidence_in(runs, run,
                                format_text("in step %d rank %d applied %.6f, and the "
                                            "mean is %.6f, as fingerprints",
                                            s + 1, r, step->others_applied[r], sum / run->ranks)));
                return false;
            }
        }
    report_ok(report, OTHERS);
    return true;
}

// A row that no rank named and some rank changed; else the one that is given.
static Spot most_telling(const Steps *steps, Spot spot)
{
    for (int step = 0; step < steps->count; step++)
        for (int row = 0; row < steps->items[step].rows; row++)
            for (int rank = 0; rank < steps->run->ranks; rank++)
                if (contributors(steps, step, row) == 0 && !nothing(steps, step, rank, row, 0))
                    return (Spot){step, rank, row};
    return spot;
}

static bool judge_rows(const Runs *runs, const AllSteps *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Steps *steps = &all->items[i];
        Spot spot = first_unexplained(steps, mean, 0);
        if (spot.step < 0)
            continue;
        const Diagnosis *diagnosis = known_mistake(all);
        if (!diagnosis) {
            spot = most_telling(steps, spot);
            diagnosis = contributors(steps, spot.step, spot.row) == 0 ? &others_changed : &wrong;
        }
        report_failure(report, ROWS, diagnosis,
                       evidence_in(runs, steps->run, evidence_of_row(steps, spot)));
        return false;
    }
    report_ok(report, ROWS);
    return true;
}

// What all ranks' rows and their numbers take together.
static double bytes_of_rows(const Steps *steps, const Step *step)
{
    int named = 0;
    for (int r = 0; r < steps->run->ranks; r++)
        named += step->named[r];
    return named * 4.0 * (steps->dimension + 1);
}

static void judge_bytes(const Runs *runs, const AllSteps *all, Report *report)
{
    static const Diagnosis table = {
        "sent-the-table",
        "a rank hands over as many bytes as the whole table has. Rows that no batch named are zero "
        "on all ranks, and need not travel.",
        NULL};
    static const Diagnosis too_much = {
        "sent-too-much",
        "a rank hands over much more than the rows that were used. Often something travels that is "
        "as long as the table: a flag or a number for each row.",
        NULL};
    for (int i = 0; i < all->count; i++)
        for (int s = 0; s < all->items[i].count; s++) {
            const Steps *steps = &all->items[i];
            const Step *step = &steps->items[s];
            double of_table = 4.0 * steps->dimension * steps->table_rows;
            double of_rows = bytes_of_rows(steps, step);
            // Even who passes all rows on to each of the others, with numbers of 8 bytes.
            double most = 2 * steps->run->ranks * of_rows + OTHER_BYTES;
            for (int r = 0; r < steps->run->ranks; r++) {
                double bytes = step->bytes[r];
                if (bytes <= most)
                    continue;
                report_failure(report, BYTES, bytes >= of_table ? &table : &too_much,
                               evidence_in(runs, steps->run,
                                           format_text("in step %d rank %d handed over %.0f bytes; "
                                                       "all ranks' rows together are %.0f bytes, "
                                                       "the table is %.0f",
                                                       s + 1, r, bytes, of_rows, of_table)));
                return;
            }
        }
    report_ok(report, BYTES);
}

static bool some_step_in_each(const Runs *runs, const AllSteps *all, Report *report)
{
    static const Diagnosis none = {
        "nothing-trained",
        "a step is compute_gradients(), the exchange, apply_gradients(), as the page has it.",
        NULL};
    for (int i = 0; i < all->count; i++)
        if (all->items[i].count == 0) {
            report_failure(
                report, ROWS, &none,
                evidence_in(runs, all->items[i].run, format_text("some rank made no update")));
            return false;
        }
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    static const Diagnosis start = {
        "not-broadcast",
        "the ranks begin with different weights: the page calls hvd_broadcast_model() before the "
        "first step.",
        NULL};
    static const Diagnosis differ = {
        "weights-differ",
        "the ranks applied the same gradients, and yet their weights have come apart.", NULL};
    AllSteps all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = read_steps(&runs->items[i]);
    if (some_step_in_each(runs, &all, report) &&
        judge_weights(runs, &all, 0, 1, START, &start, report) && judge_rows(runs, &all, report) &&
        judge_others(runs, &all, report) &&
        judge_weights(runs, &all, 1, INT32_MAX, WEIGHTS, &differ, report))
        judge_bytes(runs, &all, report);
    for (int i = 0; i < runs->count; i++)
        free_steps(&all.items[i]);
    free(all.items);
}

JUDGE("sparse", judge)
