// What every optimizer does to one weight, in double precision, by the formulas of optimizer.h.

#ifndef HVDLAB_TESTS_RULES_H
#define HVDLAB_TESTS_RULES_H

#include "nn/optimizer.h"

// An optimizer's state for one weight, in double precision.
typedef struct {
    double w, a, b; // a and b: the slots
} Weight;

// A rule updates one weight by gradient g; t counts from 1.
typedef void (*Rule)(Weight *weight, double g, double lr, int t);

typedef struct {
    const char *name;
    Optimizer *(*create)(float learning_rate);
    Rule rule;
} NamedRule;
enum { OPTIMIZER_RULES = 8 };
extern const NamedRule optimizer_rules[OPTIMIZER_RULES];

#endif
