// Several gradients for one update: hvd_distributed_optimizer_every wraps a distributed optimizer
// in this one. The sum is in memory of its own on the same device; the wrapped optimizer reads it
// instead of the gradients.

#include "hvd/accumulate.h"

#include "backend/backend.h"
#include "base/memory.h"

typedef struct {
    Optimizer optimizer;
    int passes, passed; // of an update; done for the next
    Parameters mean;    // the model's, with gradients of its own
} Accumulator;

// The first pass of an update sets mean = gradients / passes, the others add to it. Overwrites the
// model's gradients, which the next pass computes again.
static void add(Accumulator *a, const Parameters *parameters)
{
    Device *device = parameters->device;
    const Addend addends[] = {{device, a->mean.gradients, a->passed > 0 ? 1 : 0},
                              {device, parameters->gradients, 1.0f / (float)a->passes}};
    backend_of(device)->add_up(device, addends, 2, 0, parameters->length);
}

static void allocate_mean(Accumulator *a, const Parameters *parameters)
{
    Device *device = parameters->device;
    a->mean = *parameters;
    a->optimizer.gradient_bytes = parameters->length * sizeof *a->mean.gradients;
    a->mean.gradients = backend_of(device)->allocate(device, a->optimizer.gradient_bytes);
}

static void apply(Optimizer *self, const Parameters *parameters)
{
    Accumulator *a = (Accumulator *)self;
    if (!a->mean.gradients)
        allocate_mean(a, parameters);
    add(a, parameters);
    if (++a->passed < a->passes)
        return;
    self->inner->apply(self->inner, &a->mean);
    a->passed = 0;
}

static void release(Optimizer *self)
{
    Accumulator *a = (Accumulator *)self;
    if (a->mean.gradients)
        backend_of(a->mean.device)->release(a->mean.device, a->mean.gradients);
}

// NULL: there is none in this optimizer.
static Accumulator *find(const Optimizer *optimizer)
{
    while (optimizer && optimizer->release != release)
        optimizer = optimizer->inner;
    return (Accumulator *)(uintptr_t)optimizer;
}

int hvd_gradients_held(const Optimizer *optimizer, int *passes)
{
    const Accumulator *a = find(optimizer);
    *passes = a ? a->passes : 1;
    return a ? a->passed : 0;
}

void hvd_drop_held_gradients(Optimizer *optimizer)
{
    Accumulator *a = find(optimizer);
    if (a)
        a->passed = 0;
}

Optimizer *hvd_accumulate(Optimizer *optimizer, int passes)
{
    Accumulator *a = allocate(1, sizeof *a);
    *a = (Accumulator){
        .optimizer = {.name = optimizer->name,
                      .inner = optimizer,
                      .apply = apply,
                      .release = release},
        .passes = passes,
    };
    return &a->optimizer;
}
