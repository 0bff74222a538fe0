// two_ways: the workers of a row have parts of the two wide layers and the same images, those of a
// column the same part and other images. Together they compute what the undivided network computes,
// which one worker alone has; sums of activations stay in a row, gradients in a column.

#include "divided.h"
#include "end.h"
#include "grid.h"
#include "hypotheses.h"
#include "diagnoses/judge_two_ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/layout.h"
#include "base/memory.h"

#define TRAINED "each batch leads to an update on every worker"
#define DIVIDED "each worker has as many units as a row's workers must have"
#define IMAGES  "each worker computes as many images of a batch as its row must"
#define GRID                                                                                       \
    "the workers with the same images have all parts of the layers, those with the same part all " \
    "images"
#define START   "the rows compute together what the undivided network computes"
#define UPDATES "after each update, too"
#define MEANS   "a column's workers average their gradients before the update"
#define GROUPS                                                                                     \
    "activations are added up among a row's workers alone, gradients averaged among a column's"
#define HOSTS "where a row's workers share a host, their sums do not leave it"

// ---- What the workers have, and what becomes of it.

static const GridUpdate *grid_of_cell(Cell cell)
{
    return cell.row->of;
}

// In all updates of all runs. The first hypothesis is what should be. NULL: it is; `other` where nothing explains it.
static const Diagnosis *wrong_numbers(const Runs *runs, GridNumber number, const Hypothesis *table,
                                      const Diagnosis *other)
{
    Rows rows = {0};
    GridUpdate *grids = NULL;
    int count = 0;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (GridUpdate grid = grid_of(runs, run); grid_next(&grid);) {
            grids = enlarge(grids, (size_t)count + 1, sizeof *grids);
            grids[count++] = grid;
        }
    for (int g = 0; g < count; g++) {
        Row row = grid_row(&grids[g], number);
        rows_add(&rows, &row);
    }
    const Diagnosis *found = explains_rows(table, &rows) ? NULL : other;
    const Diagnosis *known = found ? diagnosis_of_rows(table + 1, &rows) : NULL;
    free(rows.items);
    free(grids);
    return known ? known : found;
}

// ---- How many of what.

FORMULA(number_of_rows, grid_of_cell(cell)->rows)
FORMULA(number_of_columns, grid_of_cell(cell)->columns)

// Shown is by what a number is divided.
static const Hypothesis of_units[] = {
    {.of = number_of_columns},
    {.of = constant_one, .diagnosis = &d_not_divided},
    {.of = constant_one, .diagnosis = &d_divided_by_all, .by_ranks = -1},
    {.of = number_of_rows, .diagnosis = &d_divided_by_rows},
    {.of = constant_one, .diagnosis = &d_divided_by_local_size, .by_local_size = -1},
    {0}};
static const Hypothesis of_images[] = {
    {.of = number_of_rows},
    {.of = constant_one, .diagnosis = &d_all_images},
    {.of = constant_one, .diagnosis = &d_images_by_rank, .by_ranks = -1},
    {.of = number_of_columns, .diagnosis = &d_images_by_columns},
    {0}};

static int images_of_batch(const GridUpdate *grid)
{
    return (int)run_flag(grid->run, "--batch-size ");
}

static const Diagnosis *wrong_units(const Runs *runs)
{
    const Diagnosis *wrong = wrong_numbers(runs, UNIT_PARTS, of_units, &d_units_wrong);
    bool swapped = wrong == &d_divided_by_rows &&
                   wrong_numbers(runs, IMAGE_PARTS, of_images, wrong) == &d_images_by_columns;
    return swapped ? &d_rows_and_columns_exchanged : wrong;
}

static Fault units_fault(const void *item)
{
    const GridUpdate *grid = item;
    for (int r = 0; r < grid->run->ranks; r++) {
        if (grid->of[r].numbers[UNIT_PARTS].after == grid->columns)
            continue;
        char *own = units_text(trained_model(grid->run, r));
        char *all = units_text(undivided_model(grid->one));
        Fault fault = fault_with(
            wrong_units(grid->runs),
            "rank %d has dense layers of %s units, and must have %d%s\nthe undivided network has %s",
            r, own, atoi(all) / grid->columns, all + strcspn(all, ","), all);
        free(own);
        free(all);
        return fault;
    }
    return NO_FAULT;
}

static Fault images_fault(const void *item)
{
    const GridUpdate *grid = item;
    for (int r = 0; r < grid->run->ranks; r++)
        if (grid->of[r].images * grid->rows != images_of_batch(grid))
            return fault_with(
                wrong_numbers(grid->runs, IMAGE_PARTS, of_images, &d_images_wrong),
                "rank %d computes %d images of batch %d, and must compute %d of its %d", r,
                grid->of[r].images, grid->number, images_of_batch(grid) / grid->rows,
                images_of_batch(grid));
    return NO_FAULT;
}

// ---- The grid.

static char *sets_text(const RankSet sets[], int ranks)
{
    char *text = NULL;
    RankSet told = 0;
    for (int r = 0; r < ranks; r++) {
        if (!has_rank(told, r))
            text_add(&text, "%s%s", text ? "; " : "", rank_names(sets[r]).text);
        told |= sets[r];
    }
    return text;
}

static const Diagnosis *wrong_grid(const GridUpdate *grid)
{
    int ranks = grid->run->ranks;
    RankSet all = all_ranks(ranks);
    bool swapped = true, twice = false, right = true;
    for (int r = 0; r < ranks; r++) {
        swapped = swapped && grid->row[r] == grid->column[r];
        twice = twice || rank_count(grid->row[r] & grid->column[r]) > 1;
        right = right && rank_count(grid->row[r]) == grid->columns;
    }
    if (right && !twice)
        return NULL;
    if (grid->row[0] == all && grid->rows > 1)
        return &d_same_images;
    if (grid->column[0] == all && grid->columns > 1)
        return &d_same_part;
    if (swapped && ranks > 1)
        return &d_images_of_columns;
    return right ? &d_part_twice : &d_images_not_of_rows;
}

static Fault grid_fault(const void *item)
{
    const GridUpdate *grid = item;
    for (int r = 0; r < grid->run->ranks; r++)
        if (!grid->of[r].numbers[INPUT].there || !grid->of[r].numbers[OUTPUT].there)
            return fault_with(&d_nothing_added_up_no_layer,
                              "rank %d has no custom layer %s the wide layers in update %d", r,
                              grid->of[r].numbers[INPUT].there ? "behind" : "before", grid->number);
    const Diagnosis *wrong = grid->number == 1 ? wrong_grid(grid) : NULL;
    if (!wrong)
        return NO_FAULT;
    char *rows = sets_text(grid->row, grid->run->ranks);
    char *columns = sets_text(grid->column, grid->run->ranks);
    Fault fault = fault_with(wrong, "the same images: %s\nthe same part: %s", rows, columns);
    free(rows);
    free(columns);
    return fault;
}

// ---- Sums and means.

static double sum_among(Cell cell, RankSet ranks)
{
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += has_rank(ranks, r) ? cell.row->own[r] : 0;
    return sum;
}

FORMULA(sum_in_row, sum_among(cell, grid_of_cell(cell)->row[cell.rank]))
FORMULA(sum_in_column, sum_among(cell, grid_of_cell(cell)->column[cell.rank]))
FORMULA(mean_in_row, sum_in_row(cell) / grid_of_cell(cell)->columns)
FORMULA(mean_in_column, sum_in_column(cell) / grid_of_cell(cell)->rows)

static double own_of_first_in_column(Cell cell)
{
    const RankSet column = grid_of_cell(cell)->column[cell.rank];
    return sum_among(cell, column & (~column + 1));
}

FORMULA(sum_in_column_by_columns, sum_in_column(cell) / grid_of_cell(cell)->columns)

static const Hypothesis of_outputs[] = {{.of = sum_in_row},
                                        {.of = own_number, .diagnosis = &d_nothing_added_up},
                                        {.of = sum_of_own, .diagnosis = &d_added_up_over_all},
                                        {.of = sum_in_column, .diagnosis = &d_added_up_in_columns},
                                        {.of = mean_in_row, .diagnosis = &d_averaged_in_rows},
                                        {0}};
static const Hypothesis of_input_gradients[] = {{.of = sum_in_row}, {0}};
static const Hypothesis unchanged[] = {{.of = own_number}, {0}};
static const Hypothesis of_gradients[] = {
    {.of = mean_in_column},
    {.of = own_number, .diagnosis = &d_gradients_not_averaged},
    {.of = sum_in_column, .diagnosis = &d_gradients_summed},
    {.of = sum_of_own, .diagnosis = &d_gradients_of_all, .by_ranks = 1},
    {.of = mean_in_row, .diagnosis = &d_gradients_of_rows},
    {.of = sum_in_column, .diagnosis = &d_divided_by_size, .by_ranks = 1},
    {.of = sum_in_column_by_columns, .diagnosis = &d_divided_by_columns},
    {.of = own_of_first_in_column, .diagnosis = &d_gradients_of_one},
    {0}};

// ---- The losses.

static const Diagnosis *wrong_start(const GridUpdate *grid)
{
    const Diagnosis *wrong = wrong_numbers(grid->runs, INPUT, unchanged, &d_inputs_added);
    if (!wrong)
        wrong = wrong_numbers(grid->runs, OUTPUT, of_outputs, &d_outputs_wrong);
    if (!wrong && relu_before_sum(grid->run))
        return &d_summed_after_relu;
    if (wrong == &d_added_up_in_columns &&
        wrong_numbers(grid->runs, GRADIENT, of_gradients, wrong) == &d_gradients_of_rows)
        return &d_rows_and_columns_exchanged_sums;
    return wrong ? wrong : &d_parts_wrong;
}

static const Diagnosis *wrong_update(const GridUpdate *grid)
{
    if (other_optimizer(grid->run, grid->one))
        return &d_optimizer_changed;
    const Diagnosis *wrong =
        wrong_numbers(grid->runs, OUTPUT_GRADIENT, unchanged, &d_output_gradient_added);
    if (!wrong)
        wrong =
            wrong_numbers(grid->runs, INPUT_GRADIENT, of_input_gradients, &d_input_gradient_wrong);
    if (!wrong)
        wrong = wrong_numbers(grid->runs, GRADIENT, of_gradients, &d_gradients_wrong);
    return wrong ? wrong : &d_updates_differ;
}

// As many images on each rank.
static Fault loss_fault(const GridUpdate *grid, const Diagnosis *(*wrong)(const GridUpdate *))
{
    double loss = 0, expected = loss_of(grid->one, 0, grid->number - 1);
    for (int r = 0; r < grid->run->ranks; r++)
        loss += grid->of[r].loss / grid->of[r].images / grid->run->ranks;
    if (fabs(loss - expected) <= TOLERANCE * expected)
        return NO_FAULT;
    return fault_with((*wrong)(grid),
                      "the loss of batch %d is %.6f\nthe undivided network's is %.6f", grid->number,
                      loss, expected);
}

static Fault start_fault(const void *item)
{
    const GridUpdate *grid = item;
    return grid->number == 1 ? loss_fault(grid, wrong_start) : NO_FAULT;
}

// The gradients of a rank's model, parameters->length: its units are whole lines of an arena. NAN: not known.
static double gradients_of(const GridUpdate *grid, int rank)
{
    char *own = units_text(trained_model(grid->run, rank)),
         *all = units_text(undivided_model(grid->one));
    const double of_a_unit = input_length(grid->run) + 1 + output_length(grid->run);
    const double others = (atoi(all) - atoi(own)) * of_a_unit;
    free(own);
    free(all);
    return event_number(event_last(&grid->run->traces.of[rank], "broadcast"), "weights") - others;
}

// The first rank that applies something else than the mean of its column; -1: none.
static int first_unlike_mean(const GridUpdate *grid)
{
    Row row = grid_row(grid, GRADIENT);
    for (int r = 0; r < row.ranks; r++)
        if (fabs(row.shown[r] - hypothesis_value(of_gradients, &row, r)) > row.allowed)
            return r;
    return -1;
}

// Adds what a rank of this update exchanged before it applied something else than the mean.
static Fault exchange_fault(const GridUpdate *grid, int r, Fault fault)
{
    const Exchange *exchange = &grid->of[r].gradients;
    const RankSet column = grid->column[r], others = exchange->ranks & ~(1u << r);
    const double gradients = gradients_of(grid, r);
    text_add(&fault.evidence, "\nin update %d rank %d exchanges ", grid->number, r);
    if (!others)
        text_add(&fault.evidence, "no gradients between compute_gradients() and apply_gradients()");
    else if (!exchange->otherwise && gradients > 0)
        text_add(&fault.evidence, "%.0f of %.0f gradients with %s by %s",
                 exchange->all_reduced / sizeof(float), gradients, rank_names(others).text,
                 called_function(exchange->call));
    else
        text_add(&fault.evidence, "gradients with %s by %s", rank_names(others).text,
                 called_function(exchange->call));
    text_add(&fault.evidence, "\nthe same part: %s", rank_names(column).text);
    if (fault.diagnosis != &d_gradients_wrong)
        return fault;
    if (others & ~column)
        fault.diagnosis = &d_gradients_wrong_other_workers;
    else if (column & ~(others | 1u << r))
        fault.diagnosis = &d_gradients_wrong_not_all_workers;
    else if (others && !exchange->otherwise && exchange->all_reduced / sizeof(float) < gradients)
        fault.diagnosis = &d_gradients_wrong_not_all_gradients;
    return fault;
}

static Fault update_fault(const void *item)
{
    const GridUpdate *now = item;
    Fault fault = loss_fault(now, wrong_update);
    if (fault.diagnosis != &d_gradients_wrong && fault.diagnosis != &d_gradients_not_averaged &&
        fault.diagnosis != &d_gradients_of_one)
        return fault;
    for (GridUpdate grid = grid_of(now->runs, now->run); grid_next(&grid);) {
        int rank = first_unlike_mean(&grid);
        if (rank >= 0)
            return exchange_fault(&grid, rank, fault);
    }
    return fault;
}

// Losses do not show it: by plain SGD the mean of the weights after the update is the same.
static Fault means_fault(const void *item)
{
    const GridUpdate *grid = item;
    Row row = grid_row(grid, GRADIENT);
    if (explains_row(of_gradients, &row) || !explains_row(unchanged, &row))
        return NO_FAULT;
    return fault_with(&d_weights_averaged,
                      "update %d: %s have the same part, and each applies its own gradients",
                      grid->number, rank_names(grid->column[0]).text);
}

// ---- Groups.

static Fault group_fault(int rank, const Exchange *exchange, RankSet group,
                         const Diagnosis *diagnosis, const char *what, const char *whose)
{
    if (!(exchange->ranks & ~group))
        return NO_FAULT;
    return fault_with(diagnosis, "rank %d exchanges %s with %s by %s\nits %s: %s", rank, what,
                      rank_names(exchange->ranks & ~(1u << rank)).text,
                      called_function(exchange->call), whose, rank_names(group).text);
}

static Fault groups_fault(const void *item)
{
    const GridUpdate *grid = item;
    Fault fault = NO_FAULT;
    for (int r = 0; r < grid->run->ranks && !fault.diagnosis; r++) {
        fault = group_fault(r, &grid->of[r].in_layers, grid->row[r], &d_sums_beyond_row,
                            "activations", "row");
        if (!fault.diagnosis)
            fault = group_fault(r, &grid->of[r].gradients, grid->column[r],
                                &d_gradients_beyond_column, "gradients", "column");
    }
    return fault;
}

// ---- Hosts.

static int hosts_of(const Run *run, RankSet ranks)
{
    return rank_count(first_on_hosts(run, ranks));
}

// As mpirun deals them: each `columns` consecutive ranks are on one host.
static bool rows_fit_hosts(const GridUpdate *grid)
{
    for (int r = 0; r < grid->run->ranks; r++)
        if (!same_host(grid->run, r, r / grid->columns * grid->columns))
            return false;
    return true;
}

static Fault hosts_fault(const void *item)
{
    const GridUpdate *grid = item;
    for (int r = 0; rows_fit_hosts(grid) && r < grid->run->ranks; r++)
        if (hosts_of(grid->run, grid->of[r].in_layers.ranks) > 1)
            return fault_with(&d_rows_between_hosts,
                              "%d workers are on each host\nrank %d, on %s, adds "
                              "activations up among %s, of %d hosts",
                              run_local_size(grid->run, r), r,
                              node_name(run_node(grid->run, r)).text,
                              rank_names(grid->of[r].in_layers.ranks).text,
                              hosts_of(grid->run, grid->of[r].in_layers.ranks));
    return NO_FAULT;
}

// Bytes that all ranks' all-reduces need: between hosts, H of a group, 2 (H - 1) times the values;
// within them as much for each rank but a host's first.
static void add_bytes(const Run *run, const Exchange *exchange, double *within, double *between)
{
    double ranks = rank_count(exchange->ranks), hosts = hosts_of(run, exchange->ranks);
    if (ranks < 2)
        return;
    *within += 2 * (ranks - hosts) * exchange->all_reduced / ranks;
    *between += 2 * (hosts - 1) * exchange->all_reduced / ranks;
}

static void note_bytes(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        GridUpdate grid = grid_of(runs, run);
        if (run->ranks == 1 || !grid_next(&grid))
            continue;
        double sums[2] = {0}, means[2] = {0};
        bool others = false;
        for (int r = 0; r < run->ranks; r++) {
            const GridWorker *worker = &grid.of[r];
            add_bytes(run, &worker->in_layers, &sums[0], &sums[1]);
            add_bytes(run, &worker->gradients, &means[0], &means[1]);
            others = others || worker->in_layers.otherwise || worker->gradients.otherwise;
        }
        if (!others)
            report_note(
                report,
                "%d x %d workers on %d host%s, an update of %d images, in MB within hosts + "
                "between them: activations %.2f + %.2f, gradients %.2f + %.2f",
                grid.rows, grid.columns, run_nodes(run), run_nodes(run) == 1 ? "" : "s",
                images_of_batch(&grid), sums[0] / 1e6, sums[1] / 1e6, means[0] / 1e6,
                means[1] / 1e6);
    }
}

// ---- All.

static Fault trained_fault(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        int updates = event_count(&run->traces.of[r], "apply"), batches = 0;
        while (trained_batch(&run->traces.of[r], batches))
            batches++;
        if (updates != batches)
            return fault_with(&d_updates_missing,
                              "rank %d computes %d batches and makes %d updates", r, batches,
                              updates);
    }
    return NO_FAULT;
}

static const ItemProperty of_grid[] = {
    {DIVIDED, units_fault, NULL},  {IMAGES, images_fault, DIVIDED}, {GRID, grid_fault, IMAGES},
    {START, start_fault, GRID},    {UPDATES, update_fault, START},  {MEANS, means_fault, UPDATES},
    {GROUPS, groups_fault, MEANS}, {HOSTS, hosts_fault, GROUPS},    {0}};

static void judge_grids(const Runs *runs, Report *report)
{
    if (none_computed(runs, TRAINED, report) ||
        !judge_property(runs, TRAINED, trained_fault, report))
        return;
    if (judge_items(runs, each_grid_update, of_grid, report))
        note_bytes(runs, report);
}

// The first run, one worker alone, has all units and all images: what holds there says nothing of several.
static void judge(const Runs *runs, Report *report)
{
    const int before = report->count;
    judge_grids(runs, report);
    if (runs->count == 1)
        report_take_back(report, before);
}

JUDGE("two_ways", judge)
OWN_ENDS("two_ways", EXPLAINED({"_part: part ", &d_part_not_there},
                               {"not divided into equal parts", &d_units_wrong},
                               {"slice_of_batch: ", &d_slice_not_there}))
