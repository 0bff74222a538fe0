// Callbacks: what happens around the training loop. fit() calls each callback's functions in the
// order in which the callbacks were added. The order matters if one callback changes values that a
// later one reads (an average of the metrics among ranks, say).

#ifndef HVDLAB_CALLBACKS_H
#define HVDLAB_CALLBACKS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/types.h"
#include "nn/model.h"

#pragma GCC visibility push(default) // a step may call what follows

// The metrics of one epoch. Losses are mean cross-entropies; accuracies are 0 to 1.
typedef struct {
    double loss, accuracy;         // running means over the epoch's training images
    double val_loss, val_accuracy; // over the validation images, if there are any
    double images, val_images;     // how many images stand behind them
    double lr;                     // learning rate of the epoch
} Logs;

// The metrics of the epochs that were trained. `logs` may be freed with free(); a program that ends
// need not.
typedef struct {
    Logs *logs;
    int epochs;
} History;

typedef struct Callback Callback;

// How many callbacks one training can have.
#define MAX_CALLBACKS 16

// A list of callbacks; it begins as {0}.
typedef struct {
    Callback *items[MAX_CALLBACKS];
    int count;
} Callbacks;

// The training as its callbacks see it.
typedef struct {
    Model *model;
    int epoch, epochs;   // the current one, from 0, and how many were asked for
    int64_t step, steps; // the current one of this epoch, from 0
    int batch_size;      // as requested; the last batch of a permutation may have fewer
    Logs logs;           // complete at the end of an epoch; callbacks may change them
    bool stop;           // a callback sets it to end training after this epoch
    int verbose;         // as fit() was told
    int epochs_done;     // whole epochs, of this training and of the one that it goes on with;
    int64_t steps_done;  // and steps of the epoch after them
    History history;     // of the epochs so far
    Batches *train, *validation;
    const Callbacks *callbacks;
} Training;

// Each function may be NULL. `self` is the callback; its state is what `state` points to, or the
// larger struct that it begins.
struct Callback {
    const char *name;
    void (*train_begin)(Callback *self, Training *training);
    void (*epoch_begin)(Callback *self, Training *training);
    void (*batch_begin)(Callback *self, Training *training);
    void (*batch_end)(Callback *self, Training *training);
    void (*epoch_end)(Callback *self, Training *training);
    void (*train_end)(Callback *self, Training *training);
    void (*release)(Callback *self); // frees what it holds beside itself
    // After the batch_end of all callbacks, and after the epoch_end of all: nothing of the step, or
    // of the epoch, is still to be done (steps_done is 0 then).
    void (*at_rest)(Callback *self, Training *training);
    // Those numbers of its state that later epochs depend on, so that a checkpoint keeps them.
    double *kept;
    int kept_count;
    void *state;
};

// Adds a callback at the end. The list owns it until callbacks_free, which calls each one's
// release, if there is one, then free(), and leaves an empty list. A program that ends need not
// free its list. NULL, a callback that is in the list already, and more than MAX_CALLBACKS make the
// program exit with an error message.
void callbacks_add(Callbacks *callbacks, Callback *callback);
void callbacks_free(Callbacks *callbacks);

// A callback with these functions and this state, which stays the caller's, as Keras's
// LambdaCallback.
USE_RESULT Callback *lambda_callback(Callback functions);

// Sets the learning rate at the beginning of every epoch (from 0) to schedule(epoch, base_lr).
USE_RESULT Callback *learning_rate_schedule(float (*schedule)(int epoch, float base_lr),
                                            float base_lr);

// Prints "Images/sec: X" after every epoch: `images` / the time from its beginning to its end,
// validation included.
USE_RESULT Callback *print_throughput(int images);

// Multiplies the learning rate by `factor`, down to `min_lr`, when the validation loss has not
// fallen for `patience` epochs in a row; then counts again. A loss has fallen if it is more than
// 0.0001 below the best so far. As Keras's ReduceLROnPlateau for val_loss with its other defaults.
// Prints a line if `verbose`. Add it after an average of the metrics: only if all workers see the
// same loss do they reduce together. A factor that is not between 0 and 1, a negative patience or
// min_lr, and a training without validation make the program exit with an error message.
USE_RESULT Callback *reduce_lr_on_plateau(float factor, int patience, float min_lr, int verbose);

// Ends training when the validation accuracy has been above `target` in `patience` epochs in a row
// (2.5 means 3). Prints a line if `verbose`. A target that is not 0 to 1, and a patience that is
// not above 0, make the program exit with an error message.
USE_RESULT Callback *stop_at_accuracy(float target, float patience, int verbose);

// Prints "Cumulative training time after epoch N: S" and, at the end, the same in all; seconds.
USE_RESULT Callback *print_total_time(void);

// Writes loss, accuracy, val_loss, val_accuracy, lr and images/s of every epoch as TensorBoard
// scalars into `log_dir`. Only the launcher's root rank writes.
USE_RESULT Callback *tensorboard(const char *log_dir);

#pragma GCC visibility pop

// Inside the library: an event of an epoch with its metrics, and the name of the callback that it
// is about, if any.
void trace_metrics(const char *event, const Callback *callback, const Training *training);

#endif
