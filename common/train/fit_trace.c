// The events of the training loop.

#include "train/fit_inside.h"

#include <stdlib.h>
#include "base/format.h"
#include "observe/trace.h"
#include "run/device.h"

void fit_trace_begin(const Fit *fit)
{
    if (!trace_on())
        return;
    char *names = format_text("%s", "");
    for (int i = 0; fit->callbacks && i < fit->callbacks->count; i++) {
        const char *name = fit->callbacks->items[i]->name;
        text_add(&names, "%s%s", i ? "," : "", name ? name : "");
    }
    trace(
        "fit", NUMBER("verbose", fit->verbose), NUMBER("epochs", fit->epochs),
        NUMBER("steps", fit->steps_per_epoch), NUMBER("validation_steps", fit->validation_steps),
        NUMBER("train_len", batches_len(fit->train)),
        NUMBER("validation_len", fit->validation ? batches_len(fit->validation) : 0),
        NUMBER("train_images", batches_dataset(fit->train)->count),
        NUMBER("train_batch", batches_requested_size(fit->train)),
        NUMBER("validation_images", fit->validation ? batches_dataset(fit->validation)->count : 0),
        NUMBER("validation_batch", fit->validation ? batches_requested_size(fit->validation) : 0),
        TEXT("callbacks", names));
    free(names);
}

void fit_trace_weights(const char *event, const Model *model)
{
    if (!trace_on())
        return;
    Fingerprints prints = model_fingerprints(model);
    trace(event, NUMBER("weights", prints.weights), NUMBER("statistics", prints.statistics));
}

static bool is_first(const Fit *fit, const Training *training)
{
    return training->epoch == fit->initial_epoch && training->step == fit->initial_step;
}

void fit_trace_batch(const Fit *fit, const Training *training)
{
    if (is_first(fit, training))
        fit_trace_weights("first_batch", training->model);
}

void fit_trace_step(const Fit *fit, const Training *training)
{
    if (!trace_on())
        return;
    Fingerprints prints = model_fingerprints(training->model);
    if (is_first(fit, training) && device_is_started()) { // else other threads compute
        char *cores = device_cores();
        trace("first_step", TEXT("cores", cores));
        free(cores);
    }
    trace("step", NUMBER("epoch", training->epoch), NUMBER("step", training->step),
          NUMBER("weights", prints.weights), NUMBER("statistics", prints.statistics),
          NUMBER("arena", model_arena_fingerprint(training->model)));
}
