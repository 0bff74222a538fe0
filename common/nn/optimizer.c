// Optimizers: their names, constants and state. The arithmetic of an update is the backend's.

#include "nn/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "base/rng.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "base/error.h"
#include "base/memory.h"
#include "nn/hooks.h"

void (*gradients_seen)(const Parameters *parameters, size_t offset, size_t length, bool applied);

void optimizer_allocate_slots(Optimizer *self, const Parameters *parameters)
{
    for (int i = 0; i < self->slot_count; i++) {
        if (self->slots[i])
            continue;
        self->device = parameters->device;
        self->slots[i] =
            backend_of(self->device)->allocate(self->device, parameters->length * sizeof(float));
    }
}

void optimizer_free_slots(Optimizer *self)
{
    for (int i = 0; i < self->slot_count; i++) {
        if (self->slots[i])
            backend_of(self->device)->release(self->device, self->slots[i]);
        self->slots[i] = NULL;
    }
}

bool optimizer_is_in_parts(const Optimizer *self)
{
    return self->takes_pieces && self->iterations > 0 && !self->slots[0];
}

void optimizer_drop_state(Optimizer *self)
{
    optimizer_free_slots(self); // the first update makes them again, zeroed
    for (int i = 0; i < self->part_count; i++)
        for (int slot = 0; slot < self->slot_count; slot++)
            memset(self->parts[i].slots[slot], 0, self->parts[i].count * sizeof(float));
}

const char *slot_name(UpdateKind kind, int slot)
{
    static const char *const names[][2] = {
        [SGD] = {"momentum"},
        [ADAM] = {"m", "v"},
        [ADADELTA] = {"accum_grad", "accum_var"},
        [ADAGRAD] = {"accumulator"},
        [RMSPROP] = {"rms", "momentum"},
    };
    return names[kind][slot];
}

// `values`, in device memory, lie at this offset of their arena.
static double fingerprint(Device *device, const float *from, size_t offset, size_t length)
{
    float *values = allocate(length, sizeof *values);
    backend_of(device)->read(device, values, from, length * sizeof *values);
    Rng rng = rng_stream_of(0, RNG_FINGERPRINT, 0);
    rng_skip(&rng, offset);
    double sum = 0;
    for (size_t i = 0; i < length; i++)
        sum += (double)values[i] * (2 * (double)rng_uniform(&rng) - 1);
    free(values);
    return sum;
}

double arena_fingerprint(Device *device, const float *arena, size_t offset, size_t length)
{
    return fingerprint(device, arena + offset, offset, length);
}

double gradient_fingerprint(const Parameters *p, size_t offset, size_t length)
{
    return fingerprint(p->device, p->gradients + (offset - p->first_gradient), offset, length);
}

static void apply(Optimizer *self, const Parameters *parameters)
{
    if (gradients_seen)
        gradients_seen(parameters, 0, parameters->length, true);
    trace("apply", TEXT("optimizer", self->name),
          NUMBER("value", gradient_fingerprint(parameters, 0, parameters->length)),
          NUMBER("learning_rate", self->rule.learning_rate),
          NUMBER("momentum", self->rule.momentum));
    span_begin(SPAN_COMPUTE, SPAN_QUEUED(parameters->device->gpu, "update"), -1, -1);
    optimizer_allocate_slots(self, parameters);
    Update update = self->rule;
    update.step = ++self->iterations;
    update.weights = parameters->weights;
    update.gradients = parameters->gradients;
    update.slots[0] = self->slots[0];
    update.slots[1] = self->slots[1];
    backend_of(parameters->device)
        ->update(parameters->device, &update, parameters->segments, parameters->segment_count);
    span_end();
}

void optimizer_check(const Optimizer *self)
{
    const Update *rule = &self->rule;
    const struct {
        const char *name;
        float value, end;
    } constants[] = {{"learning rate", rule->learning_rate, INFINITY},
                     {"momentum", rule->momentum, INFINITY},
                     {"epsilon", rule->epsilon, INFINITY},
                     {"beta_1", rule->beta_1, 1},
                     {"beta_2", rule->beta_2, 1},
                     {"rho", rule->rho, 1}};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!(constants[i].value >= 0 && constants[i].value < constants[i].end))
            die("the %s of the optimizer %s is %g, and not a finite number from 0%s",
                constants[i].name, self->name, (double)constants[i].value,
                constants[i].end > 1 ? "" : " and below 1");
}

static Optimizer *optimizer(const char *name, int slot_count, Update rule)
{
    Optimizer *self = allocate(1, sizeof *self);
    *self = (Optimizer){.name = name, .rule = rule, .slot_count = slot_count, .apply = apply};
    optimizer_check(self);
    return self;
}

Optimizer *sgd(float learning_rate)
{
    return optimizer("SGD", 0, (Update){.kind = SGD, .learning_rate = learning_rate});
}

Optimizer *sgd_momentum(float learning_rate, float momentum, bool nesterov)
{
    return optimizer("SGD", 1,
                     (Update){.kind = SGD,
                              .learning_rate = learning_rate,
                              .momentum = momentum,
                              .nesterov = nesterov});
}

Optimizer *adam(float learning_rate)
{
    return optimizer("Adam", 2,
                     (Update){.kind = ADAM,
                              .learning_rate = learning_rate,
                              .beta_1 = 0.9f,
                              .beta_2 = 0.999f,
                              .epsilon = 1e-7f});
}

Optimizer *adadelta(float learning_rate)
{
    return optimizer(
        "Adadelta", 2,
        (Update){.kind = ADADELTA, .learning_rate = learning_rate, .rho = 0.95f, .epsilon = 1e-7f});
}

Optimizer *adagrad(float learning_rate)
{
    return optimizer("Adagrad", 1,
                     (Update){.kind = ADAGRAD, .learning_rate = learning_rate, .epsilon = 1e-7f});
}

Optimizer *rmsprop(float learning_rate)
{
    return optimizer(
        "RMSprop", 1,
        (Update){.kind = RMSPROP, .learning_rate = learning_rate, .rho = 0.9f, .epsilon = 1e-7f});
}

Optimizer *rmsprop_momentum(float learning_rate, float momentum)
{
    Optimizer *self = rmsprop(learning_rate);
    self->slot_count = 2;
    self->rule.momentum = momentum;
    optimizer_check(self);
    return self;
}

Optimizer *optimizer_innermost(Optimizer *optimizer)
{
    if (!optimizer)
        die("there is no optimizer (NULL)");
    while (optimizer->inner)
        optimizer = optimizer->inner;
    return optimizer;
}

static const Optimizer *innermost(const Optimizer *optimizer)
{
    return optimizer_innermost((Optimizer *)(uintptr_t)optimizer);
}

float optimizer_learning_rate(const Optimizer *optimizer)
{
    return innermost(optimizer)->rule.learning_rate;
}

void optimizer_set_learning_rate(Optimizer *optimizer, float learning_rate)
{
    optimizer = optimizer_innermost(optimizer);
    optimizer->rule.learning_rate = learning_rate;
    optimizer_check(optimizer);
}

float optimizer_momentum(const Optimizer *optimizer)
{
    return innermost(optimizer)->rule.momentum;
}

void optimizer_set_momentum(Optimizer *optimizer, float momentum)
{
    optimizer = optimizer_innermost(optimizer);
    optimizer->rule.momentum = momentum;
    optimizer_check(optimizer);
}

int64_t optimizer_iterations(const Optimizer *optimizer)
{
    return innermost(optimizer)->iterations;
}

void optimizer_free(Optimizer *optimizer)
{
    if (!optimizer)
        return;
    optimizer_free(optimizer->inner);
    if (optimizer->release)
        optimizer->release(optimizer);
    optimizer_free_slots(optimizer);
    free(optimizer);
}
