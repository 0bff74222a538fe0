// Optimizers, with the formulas and defaults of tf_keras (tf.keras 2.x). `g` is the gradient, L2
// part included, `lr` the learning rate, `t` the number of the update beginning with 1.
//
//     SGD        w -= lr g
//     momentum   v = m v - lr g;  w += v                    Nesterov: w += m v - lr g
//     Adam       m += (g - m)(1 - b1);  v += (g^2 - v)(1 - b2)
//                w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)     (Kingma and Ba, 2015)
//     Adadelta   a = rho a + (1 - rho) g^2;  d = sqrt(x + eps) / sqrt(a + eps) g
//                x = rho x + (1 - rho) d^2;  w -= lr d                       (Zeiler, 2012)
//     Adagrad    a += g^2, from 0.1;  w -= lr g / sqrt(a + eps)              (Duchi et al., 2011)
//     RMSprop    a = rho a + (1 - rho) g^2;  w -= lr g / sqrt(a + eps)       (Hinton, 2012)
//     momentum   v = m v + lr g / sqrt(a + eps);  w -= v

#ifndef HVDLAB_OPTIMIZER_H
#define HVDLAB_OPTIMIZER_H

#include "base/types.h"
#include "backend/parameters.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef struct Optimizer Optimizer;

// Before and after an operation with weights reads them: in the forward pass, in the backward pass.
typedef enum { FORWARD_BEGINS, FORWARD_ENDS, BACKWARD_BEGINS, BACKWARD_ENDS } PassMoment;

// State that is not in slots: that of `count` weights from `offset` of the arena on.
typedef struct {
    size_t offset, count;
    float *slots[2];
} StatePart;

// A program may make one of its own, from calloc, with a name and an apply, around an `inner` one
// whose apply it calls: rate, updates and slots are then those of the innermost, for callbacks and
// checkpoints, too.
struct Optimizer {
    const char *name;
    Optimizer *inner;   // the optimizer that this one wraps, owned; NULL where it wraps none
    Update rule;        // kind, learning rate and constants; one may change them before training
    int64_t iterations; // updates so far
    int slot_count;     // arenas of state beside the weights: momenta, accumulators
    float *slots[2];    // owned; allocated at the first update,
    Device *device;     // on this device
    bool compiled;      // a model owns it

    // The model does not keep the gradients: those of an operation's variables are there while
    // gradient_ready runs, and parameters->first_gradient is their offset.
    bool takes_pieces;
    // Such a one keeps its state in parts, of which this process has these. Its slots then exist from
    // a restored checkpoint to the next update, which takes the parts from them.
    StatePart *parts; // owned
    int part_count;
    // What it has allocated in other ways than as slots: state, and gradients. In bytes.
    size_t state_bytes, gradient_bytes;
    // Bytes of weights where it frees those of the model's arena, the most so far; 0: it does not.
    size_t weight_bytes;

    // Called by the backward pass when the gradients at offset ... offset + length - 1 of the arena
    // are complete; with offset and length 0 before gradients that were never applied are
    // overwritten. NULL where it is not needed.
    void (*gradient_ready)(Optimizer *self, const Parameters *parameters, size_t offset,
                           size_t length);
    // Nothing is lost where gradient_ready is called only when so many floats are complete, once
    // for each operation as always: a device can then compute them by one call.
    size_t waits_for;
    // Called at these moments, with the weights at offset ... offset + length - 1 of the arena: one
    // of its pieces. NULL where it is not needed.
    void (*pass)(Optimizer *self, const Parameters *parameters, size_t offset, size_t length,
                 PassMoment moment);
    // Updates all weights from all gradients.
    void (*apply)(Optimizer *self, const Parameters *parameters);
    // Frees its other memory. NULL if there is none.
    void (*release)(Optimizer *self);
};

// The caller owns the optimizer; compile() hands it to the model, which frees it. Here, in the
// functions that set a rate or a momentum, and in compile(), a constant that is infinite, not a
// number or negative (or not below 1: beta_1, beta_2, rho) makes the program exit with an error
// message.
Optimizer *sgd(float learning_rate);
Optimizer *sgd_momentum(float learning_rate, float momentum, bool nesterov);
Optimizer *adam(float learning_rate);
Optimizer *adadelta(float learning_rate);
Optimizer *adagrad(float learning_rate);
Optimizer *rmsprop(float learning_rate);
Optimizer *rmsprop_momentum(float learning_rate, float momentum);

// The optimizer that changes the weights, however often it is wrapped: itself, its learning rate,
// its momentum (of SGD and RMSprop; others do not use it), and its updates so far.
Optimizer *optimizer_innermost(Optimizer *optimizer);
float optimizer_learning_rate(const Optimizer *optimizer);
void optimizer_set_learning_rate(Optimizer *optimizer, float learning_rate);
float optimizer_momentum(const Optimizer *optimizer);
void optimizer_set_momentum(Optimizer *optimizer, float momentum);
int64_t optimizer_iterations(const Optimizer *optimizer);

// The fingerprint of a stretch of an arena, weights or gradients (trace.h says what that is).
double arena_fingerprint(Device *device, const float *arena, size_t offset, size_t length);

// That of gradients at an offset of their arena.
double gradient_fingerprint(const Parameters *parameters, size_t offset, size_t length);

// Gives an optimizer its slots, zeroed, if it does not have them yet: apply() does it too.
void optimizer_allocate_slots(Optimizer *optimizer, const Parameters *parameters);

// Frees them: the next update starts as the first one does.
void optimizer_free_slots(Optimizer *optimizer);

// True if the state is in parts; alike on all ranks, also where a rank has no part.
bool optimizer_is_in_parts(const Optimizer *optimizer);

// The state of no updates: no slots, and zeros in the parts.
void optimizer_drop_state(Optimizer *optimizer);

void optimizer_free(Optimizer *optimizer);

#pragma GCC visibility pop

// Inside the library: exits with an error message where a constant is out of range.
void optimizer_check(const Optimizer *optimizer);

// Inside the library: what tf_keras calls a slot of the optimizer's kind: "momentum", "m".
const char *slot_name(UpdateKind kind, int slot);

#endif
