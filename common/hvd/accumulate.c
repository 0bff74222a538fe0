// Several gradients for one update: what hvd_distributed_optimizer_every puts around a distributed
// optimizer. The sum lies beside the model's gradients, on the same device, from the first of them
// to the update; the optimizer inside gets it in their place.

#include "hvd/accumulate.h"

#include "backend/backend.h"
#include "base/util.h"

typedef struct {
    Optimizer optimizer;
    int passes, passed; // for an update, and since the last one
    Parameters mean;    // the model's, with gradients of its own; NULL where nothing has passed
} Accumulator;

// mean += gradients / passes, which is an update by SGD.
static void add(Accumulator *a, const Parameters *parameters)
{
    Update sum = {.kind = SGD,
                  .learning_rate = -1.0f / (float)a->passes,
                  .step = 1,
                  .weights = a->mean.gradients,
                  .gradients = parameters->gradients};
    Segment all = {.length = parameters->length};
    backend_of(parameters->device)->update(parameters->device, &sum, &all, 1);
}

static void begin(Accumulator *a, const Parameters *parameters)
{
    Device *device = parameters->device;
    a->mean = *parameters;
    a->mean.gradients =
        backend_of(device)->allocate(device, parameters->length * sizeof(float)); // zeros
}

static void end(Accumulator *a)
{
    backend_of(a->mean.device)->release(a->mean.device, a->mean.gradients);
    a->mean.gradients = NULL;
    a->passed = 0;
}

static void apply(Optimizer *self, const Parameters *parameters)
{
    Accumulator *a = (Accumulator *)self;
    if (a->passed == 0)
        begin(a, parameters);
    add(a, parameters);
    if (++a->passed < a->passes)
        return;
    self->inner->apply(self->inner, &a->mean);
    end(a);
}

static void release(Optimizer *self)
{
    Accumulator *a = (Accumulator *)self;
    if (a->passed > 0)
        end(a);
}

int hvd_gradients_held(const Optimizer *optimizer, int *passes)
{
    for (; optimizer; optimizer = optimizer->inner)
        if (optimizer->release == release) {
            *passes = ((const Accumulator *)optimizer)->passes;
            return ((const Accumulator *)optimizer)->passed;
        }
    return 0;
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
