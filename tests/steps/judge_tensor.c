// Tensor: each worker has a part of the two wide layers, and every batch has the loss that the
// undivided network has, which one worker alone computes.

#include "divided.h"
#include "grid.h"
#include "diagnoses/judge_tensor.h"

#include <math.h>
#include <stdlib.h>

#define DIVIDED "each worker has an equal part of the wide layers"
#define START   "the workers' parts are together the undivided weights, and so is what they compute"
#define TRAINED "the divided model is the one that is trained"
#define VALUES  "no more values are added up than the layers have"
#define UPDATES "after each update, too, they compute what the undivided network computes"

static const Hypothesis by_size = {.of = constant_one, .by_ranks = -1};
static const Hypothesis of_units[] = {
    {.of = constant_one, .diagnosis = &d_not_divided},
    {.of = constant_one, .diagnosis = &d_divided_by_local_size, .by_local_size = -1},
    {0}};

static bool judge_divided(const Runs *runs, const Run *one, Report *report)
{
    Rows rows = {0};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Row row = {.run = run, .ranks = run->ranks};
        for (int r = 0; r < run->ranks; r++)
            row.shown[r] = parts_of_units(run, r, one);
        rows_add(&rows, &row);
    }
    const Row *wrong = first_unexplained(&by_size, &rows);
    const Diagnosis *diagnosis = diagnosis_of_rows(of_units, &rows);
    char *evidence = NULL;
    for (int r = 0; wrong && !evidence; r++) {
        if (wrong->shown[r] == wrong->ranks)
            continue;
        char *text = units_text(trained_model(wrong->run, r));
        char *expected = units_text(undivided_model(one));
        evidence =
            format_text("rank %d of %d has dense layers of %s units\nthe undivided network has %s",
                        r, wrong->ranks, text, expected);
        evidence = evidence_in(runs, wrong->run, evidence);
        free(text);
        free(expected);
    }
    free(rows.items);
    return report_property(report, DIVIDED, diagnosis ? diagnosis : &d_units_wrong, evidence);
}

// ---- The losses.

// The first rank whose loss of batch n is not the undivided network's, or -1.
static int first_other_loss(const Run *run, const Run *one, int n)
{
    double expected = loss_of(one, 0, n);
    for (int r = 0; r < run->ranks; r++)
        if (!(fabs(loss_of(run, r, n) - expected) <= TOLERANCE * expected))
            return r;
    return -1;
}

// ---- What the custom layers of an update did.

static GridUpdate update_of(const Runs *runs, const Run *run, int number)
{
    GridUpdate update = grid_of(runs, run);
    while (update.number < number && grid_next(&update))
        continue;
    return update;
}

static bool all_exchange(const GridUpdate *update, GridNumber number)
{
    for (int r = 0; r < update->run->ranks; r++)
        if (!update->of[r].numbers[number].exchanged)
            return false;
    return true;
}

static const Hypothesis sum = {.of = sum_of_own}, mean = {.of = sum_of_own, .by_ranks = 1};

static bool have_equal_parts(const Row *row)
{
    for (int r = 1; r < row->ranks; r++)
        if (row->own[r] != row->own[0])
            return false;
    return true;
}

static const Diagnosis *wrong_start(const GridUpdate *update)
{
    Row row = grid_row(update, OUTPUT);
    if (all_exchange(update, INPUT))
        return &d_inputs_added;
    if (!all_exchange(update, OUTPUT))
        return &d_outputs_not_added;
    if (have_equal_parts(&row))
        return &d_same_part_on_all;
    if (explains_row(&mean, &row))
        return &d_outputs_averaged;
    if (!explains_row(&sum, &row))
        return &d_outputs_not_the_sum;
    return relu_before_sum(update->run) ? &d_summed_after_relu : &d_parts_wrong;
}

static const Diagnosis *wrong_update(const GridUpdate *update)
{
    Row row = grid_row(update, INPUT_GRADIENT);
    if (other_optimizer(update->run, update->one))
        return &d_optimizer_changed;
    if (all_exchange(update, OUTPUT_GRADIENT))
        return &d_output_gradient_added;
    if (!all_exchange(update, INPUT_GRADIENT))
        return &d_input_gradient_not_added;
    if (explains_row(&sum, &row))
        return ranks_that_called(update->run, "hvd_distributed_optimizer") ? &d_gradients_averaged
                                                                           : &d_updates_differ;
    return explains_row(&mean, &row) ? &d_input_gradient_averaged : &d_input_gradient_not_the_sum;
}

static bool judge_losses(const Runs *runs, const Run *one, bool start, Report *report)
{
    const char *property = start ? START : UPDATES;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int n = start ? 0 : 1; run != one && trained_batch(&one->traces.of[0], n); n++) {
            int r = first_other_loss(run, one, n);
            if (r >= 0) {
                GridUpdate update = update_of(runs, run, start ? 1 : n);
                return report_failure_in(report, runs, run, property,
                                         start ? wrong_start(&update) : wrong_update(&update),
                                         "the loss of batch %d is %.6f on rank %d of %d\nthe "
                                         "undivided network's is %.6f",
                                         n + 1, loss_of(run, r, n), r, run->ranks,
                                         loss_of(one, 0, n));
            }
            if (start)
                break;
        }
    return report_ok(report, property);
}

// Right losses, of a model that is not divided.
static Fault trained_fault(const void *item)
{
    const GridUpdate *update = item;
    for (int r = 0; update->run->ranks > 1 && r < update->run->ranks; r++)
        if (!update->of[r].numbers[OUTPUT].there)
            return fault_with(&d_divided_not_trained,
                              "rank %d of %d: batch %d goes through no custom layer", r,
                              update->run->ranks, update->number);
    return NO_FAULT;
}

// An all-reduce of more values than the function gets reads and writes memory behind them. It may
// be one of doubles.
static Fault beyond_fault(const void *item)
{
    const GridUpdate *update = item;
    for (int r = 0; r < update->run->ranks; r++) {
        const GridWorker *worker = &update->of[r];
        double values =
            (double)worker->images * (input_length(update->run) + output_length(update->run));
        if (worker->in_layers.all_reduced > sizeof(double) * values)
            return fault_with(&d_beyond_the_values,
                              "rank %d of %d: batch %d has %d images\nits custom layers have %.0f "
                              "floats, and %.0f bytes are added up",
                              r, update->run->ranks, update->number, worker->images, values,
                              worker->in_layers.all_reduced);
    }
    return NO_FAULT;
}

static const ItemProperty of_updates[] = {
    {TRAINED, trained_fault, NULL}, {VALUES, beyond_fault, TRAINED}, {0}};

static void judge(const Runs *runs, Report *report)
{
    const Run *one = undivided_run(runs);
    const int before = report->count;
    if (none_computed(runs, DIVIDED, report) || !one || !judge_divided(runs, one, report))
        return;
    if (runs->count == 1) // nothing is divided among one
        report_take_back(report, before);
    else if (judge_losses(runs, one, true, report) && judge_losses(runs, one, false, report))
        judge_items(runs, each_grid_update, of_updates, report);
}

JUDGE("tensor", judge)
