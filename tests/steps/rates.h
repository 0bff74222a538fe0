// The learning rate and the momentum of every update that a rank made in fit().

#ifndef HVDLAB_STEPS_RATES_H
#define HVDLAB_STEPS_RATES_H

#include "report.h"
#include "run.h"

typedef struct {
    int epoch, step; // from 0
    double learning_rate, momentum;
} RateOfUpdate;

typedef struct {
    RateOfUpdate *items;
    int count;
} Rates;

// Of all steps of the rank's first fit(); where no optimizer of the kit's made an update in a step,
// its rate is not a number. The caller frees `items`, which have room for one more.
Rates rates_read(const Run *run, int rank);

// Training steps of an epoch, as fit() was asked for; not a number where it was not called.
double steps_per_epoch(const Run *run);

// True where the library ended the job at an update to which ranks came with different learning
// rates: those of the ranks.
bool rates_disagree(const Run *run, double rates[]);

// Equal up to the rounding of single precision.
bool same_rate(double a, double b);

// Says so where SGD's momentum is another one than in the file that the student got.
void note_momentum(const Run *run, double handed_out, Report *report);

// What may be wrong with a rate that goes by the number of workers.
extern const Diagnosis d_rate_scaled_twice, d_rate_divided;

#endif
