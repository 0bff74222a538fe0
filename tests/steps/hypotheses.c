// Tries hypotheses; hypotheses.h says what is promised.

#include "hypotheses.h"

#include <math.h>
#include <stdlib.h>
#include "base/memory.h"

void rows_add(Rows *rows, const Row *row)
{
    rows->items = enlarge(rows->items, (size_t)rows->count + 1, sizeof *rows->items);
    rows->items[rows->count++] = *row;
}

Row row_of_rank(const Run *run, int rank, double shown)
{
    Row row = {.run = run, .ranks = run->ranks, .unknown = all_ranks(run->ranks) & ~(1u << rank)};
    row.shown[rank] = shown;
    return row;
}

int rank_of_row(const Row *row)
{
    int rank = 0;
    while (has_rank(row->unknown, rank))
        rank++;
    return rank;
}

Rows rows_of_ranks(const Runs *runs, int (*shown)(const Run *run, int rank))
{
    Rows rows = {NULL, 0};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Row row = {.run = run, .ranks = run->ranks};
        for (int r = 0; r < run->ranks; r++)
            row.shown[r] = shown(run, r);
        rows_add(&rows, &row);
    }
    return rows;
}

SHARED_FORMULA(own_number, cell.row->own[cell.rank])

double sum_of_own(Cell cell)
{
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += cell.row->own[r];
    return sum;
}

double sum_of_machine(Cell cell)
{
    const Row *row = cell.row;
    double sum = 0;
    for (int r = 0; r < row->ranks; r++)
        sum += run_node(row->run, r) == run_node(row->run, cell.rank) ? row->own[r] : 0;
    return sum;
}

SHARED_FORMULA(own_of_number, cell.row->own[cell.number < cell.row->ranks ? cell.number : 0])
SHARED_FORMULA(mean_on_the_root,
               cell.rank == 0 ? sum_of_own(cell) / cell.row->ranks : own_number(cell))

RankSet ranks_alike(const Row *row, int rank)
{
    RankSet alike = 0;
    for (int r = 0; r < row->ranks; r++)
        if (fabs(row->shown[r] - row->shown[rank]) <= row->allowed)
            alike |= 1u << r;
    return alike;
}

double mean_of_those_alike(Cell cell)
{
    RankSet alike = ranks_alike(cell.row, cell.rank);
    double sum = 0;
    for (int r = 0; r < cell.row->ranks; r++)
        sum += has_rank(alike, r) ? cell.row->own[r] : 0;
    return sum / rank_count(alike);
}

SHARED_FORMULA(constant_zero, 0)
SHARED_FORMULA(constant_one, 1)
SHARED_FORMULA(its_rank, cell.rank)
SHARED_FORMULA(rank_by_number, cell.rank / cell.number)
SHARED_FORMULA(rank_modulo_number, cell.rank % cell.number)
SHARED_FORMULA(rank_modulo_local_size, cell.rank % run_local_size(cell.row->run, cell.rank))
SHARED_FORMULA(rank_by_nodes, cell.rank / run_nodes(cell.row->run))
SHARED_FORMULA(rank_modulo_nodes, cell.rank % run_nodes(cell.row->run))

double largest_own(const Row *row)
{
    double largest = 0;
    for (int r = 0; r < row->ranks; r++)
        largest = fmax(largest, fabs(row->own[r]));
    return largest;
}

bool row_is_finite(const Row *row)
{
    double sum = 0;
    for (int r = 0; r < row->ranks; r++)
        sum += row->own[r] + row->shown[r];
    return isfinite(sum);
}

static double value(const Hypothesis *hypothesis, Cell cell)
{
    const Row *row = cell.row;
    double divisor = pow(row->ranks, hypothesis->by_ranks) *
                     pow(row->batches, hypothesis->by_batches) *
                     pow(cell.number, hypothesis->by_number);
    if (hypothesis->by_local_size)
        divisor *= pow(run_local_size(row->run, cell.rank), hypothesis->by_local_size);
    return hypothesis->of(cell) / divisor;
}

double hypothesis_value(const Hypothesis *hypothesis, const Row *row, int rank)
{
    return value(hypothesis, (Cell){row, rank, hypothesis->from});
}

static bool explains(const Hypothesis *hypothesis, const Row *row, int number)
{
    for (int r = 0; r < row->ranks; r++) {
        if (has_rank(row->unknown, r))
            continue;
        double right = value(hypothesis, (Cell){row, r, number});
        if (!(fabs(row->shown[r] - right) <= row->allowed + row->relative * fabs(right)))
            return false;
    }
    return true;
}

static const Row *unexplained(const Hypothesis *hypothesis, const Rows *rows, int number)
{
    EACH_ROW (row, rows)
        if (!explains(hypothesis, row, number))
            return row;
    return NULL;
}

const Row *first_unexplained(const Hypothesis *hypothesis, const Rows *rows)
{
    return unexplained(hypothesis, rows, hypothesis->from);
}

bool explains_row(const Hypothesis *hypothesis, const Row *row)
{
    return explains(hypothesis, row, hypothesis->from);
}

static bool have_one_size(const Rows *rows)
{
    for (int i = 1; i < rows->count; i++)
        if (rows->items[i].run->ranks != rows->items[0].run->ranks)
            return false;
    return true;
}

bool explains_rows(const Hypothesis *hypothesis, const Rows *rows)
{
    bool any_divides = hypothesis->by_number && hypothesis->from < hypothesis->to;
    if (any_divides && have_one_size(rows))
        return false;
    for (int number = hypothesis->from; number <= hypothesis->to; number++)
        if (!unexplained(hypothesis, rows, number))
            return true;
    return false;
}

const Diagnosis *diagnosis_of_rows(const Hypothesis table[], const Rows *rows)
{
    for (; table->of; table++)
        if (explains_rows(table, rows))
            return table->diagnosis;
    return NULL;
}

bool explain_each_row(const Hypothesis table[], const Rows *rows)
{
    EACH_ROW (row, rows) {
        const Hypothesis *hypothesis = table;
        while (hypothesis->of && !explains_row(hypothesis, row))
            hypothesis++;
        if (!hypothesis->of)
            return false;
    }
    return true;
}

bool explains_taken(const Hypothesis *hypothesis, Rows taken)
{
    bool result = explains_rows(hypothesis, &taken);
    free(taken.items);
    return result;
}

const Diagnosis *diagnosis_of_taken(const Hypothesis table[], Rows taken)
{
    const Diagnosis *diagnosis = diagnosis_of_rows(table, &taken);
    free(taken.items);
    return diagnosis;
}

bool judge_rows(const Runs *runs, const Rows *rows, const char *property, RowFault fault,
                Report *report)
{
    EACH_ROW (row, rows)
        if (!report_fault(report, runs, row->run, property, fault(row)))
            return false;
    return report_ok(report, property);
}

bool judge_cells(const Runs *runs, const Rows *rows, const char *property, CellFault fault,
                 Report *report)
{
    EACH_ROW (row, rows)
        for (int r = 0; r < row->ranks; r++)
            if (!report_fault(report, runs, row->run, property, fault((Cell){row, r, 0})))
                return false;
    return report_ok(report, property);
}
