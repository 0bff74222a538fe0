// Whether an operation on the backend does what the reference says: error measures, and the checks
// that every operation has to pass.

#ifndef HVDLAB_TESTS_COMPARISON_H
#define HVDLAB_TESTS_COMPARISON_H

#include "operation.h"
#include "reference.h"

// Errors are relative to the tensor's largest value. A float has 6e-8, and sums of some hundred
// products lose one to two digits. Sums over all pixels lose a little more.
#define FORWARD_TOLERANCE 1e-5

// What an arithmetic of few digits is allowed besides, relative to the tensor's largest value: TF32
// keeps 10 bits behind the point, bfloat16 7. 0 for floats.
double rounding(void);

// All that an operation must do: in a training step the output, every gradient (or samples of it,
// where it is large), the moving statistics, and the same bits when repeated; where inference is
// another computation, that too. Outputs next to a kink lose their gradient.
void check_trial(const Spec *spec, Trial *trial);

// The same with random values.
void check_spec(Spec spec);
void check_specs(const Spec *specs, size_t count);
#define CHECK_SPECS(specs) check_specs(specs, COUNT(specs))

// The trial's operation on the same values in double precision, in training.
Reference reference_create(const Trial *trial);
void reference_free(Reference *reference);

// The output; and batch norm's moving statistics, after a training step or after inference.
void check_output(const Spec *spec, const Trial *trial, const Reference *reference,
                  const char *what);
void check_statistics(const Spec *spec, const Trial *trial, const Reference *reference);

// The largest difference relative to the largest expected value; infinite where one is not a
// number.
double largest_error(const float *values, const double *expected, size_t count);
void check_error(const Spec *spec, const char *what, double error, double tolerance);

double dot(const float *a, const float *b, size_t count);

// Doubles, zeroed, to be freed, NULL for none; and a copy of floats.
double *doubles(size_t count);
double *widen(const float *values, size_t count);

#endif
