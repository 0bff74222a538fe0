// Which formula explains the numbers that ranks have shown, and the mistake that it stands for. A
// judge reads rows of numbers from the traces, and has its hypotheses in a table.

#ifndef HVDLAB_STEPS_HYPOTHESES_H
#define HVDLAB_STEPS_HYPOTHESES_H

#include "judge.h"

// What all ranks had and showed at one moment of a run: in an update, for a batch, after an epoch.
typedef struct {
    const Run *run;
    const void *of;          // for the judge's own formulas: the run as the judge has read it, ...
    int at;                  // ... and the moment's number there
    int ranks, batches;      // that take part
    RankSet unknown;         // ranks that showed nothing: any hypothesis explains it
    double own[MAX_RANKS];   // what each rank computed by itself
    double shown[MAX_RANKS]; // what it made of all ranks' numbers
    double allowed;          // how far a number may be from the hypothesis, ...
    double relative;         // ... and how far as a part of it
} Row;

typedef struct {
    Row *items; // to be freed
    int count;
} Rows;

void rows_add(Rows *rows, const Row *row);

// A row in which only this rank has shown something; that rank.
Row row_of_rank(const Run *run, int rank, double shown);
int rank_of_row(const Row *row);

// A row for each run: what each rank shows is a number of its own.
Rows rows_of_ranks(const Runs *runs, int (*shown)(const Run *run, int rank));

#define EACH_ROW(row, rows)                                                                        \
    for (const Row *row = (rows)->items, *end_##row = row ? row + (rows)->count : row;             \
         row < end_##row; row++)

// A number of a row, for a formula: what has this rank shown? `number` may stand in the program.
typedef struct {
    const Row *row;
    int rank, number;
} Cell;
typedef double (*Formula)(Cell cell);

// Defines a formula that is one expression of `cell`; of this file alone.
#define FORMULA(name, expression) static SHARED_FORMULA(name, expression)
#define SHARED_FORMULA(name, expression)                                                           \
    double name(Cell cell)                                                                         \
    {                                                                                              \
        (void)cell;                                                                                \
        return expression;                                                                         \
    }

// What ranks may show, and what is wrong then: a numerator, and how often it is divided by each of
// these; below 0, multiplied.
typedef struct {
    Formula of;
    const Diagnosis *diagnosis;
    int by_ranks, by_local_size, by_batches, by_number;
    int from, to; // `number` may be any of these, the same in all rows
} Hypothesis;

// Numerators.
double own_number(Cell cell);
double sum_of_own(Cell cell);
double sum_of_machine(Cell cell);      // of the ranks on this rank's machine
double own_of_number(Cell cell);       // of rank `number`; of rank 0 where there is no such rank
double mean_on_the_root(Cell cell);    // the rank's own on the others
double mean_of_those_alike(Cell cell); // of the ranks that have shown the same as this one
double constant_zero(Cell cell);
double constant_one(Cell cell);
double its_rank(Cell cell);
double rank_by_number(Cell cell);     // a quotient of whole numbers, ...
double rank_modulo_number(Cell cell); // ... and its remainder
double rank_modulo_local_size(Cell cell);
double rank_by_nodes(Cell cell);
double rank_modulo_nodes(Cell cell);

double largest_own(const Row *row);
bool row_is_finite(const Row *row);
RankSet ranks_alike(const Row *row, int rank); // that have shown the same as this one

// With the first of its numbers.
double hypothesis_value(const Hypothesis *hypothesis, const Row *row, int rank);

// A divisor that stands in the program is told from others only where there are several runs.
bool explains_row(const Hypothesis *hypothesis, const Row *row);
bool explains_rows(const Hypothesis *hypothesis, const Rows *rows);
const Row *first_unexplained(const Hypothesis *hypothesis, const Rows *rows);

// Tables end with a row of zeros. The diagnosis of the first hypothesis that explains all rows, or
// NULL; whether each row is explained by some hypothesis.
const Diagnosis *diagnosis_of_rows(const Hypothesis table[], const Rows *rows);
bool explain_each_row(const Hypothesis table[], const Rows *rows);

// The same of rows that they take over.
bool explains_taken(const Hypothesis *hypothesis, Rows taken);
const Diagnosis *diagnosis_of_taken(const Hypothesis table[], Rows taken);

// Judges a property that each row has, or each rank in each row. Returns whether all do.
typedef Fault (*RowFault)(const Row *row);
typedef Fault (*CellFault)(Cell cell);
bool judge_rows(const Runs *runs, const Rows *rows, const char *property, RowFault fault,
                Report *report);
bool judge_cells(const Runs *runs, const Rows *rows, const char *property, CellFault fault,
                 Report *report);

#endif
