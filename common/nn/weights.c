// The variables of a model and its optimizer's slots, in the form of a file.

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/format.h"
#include "nn/weights.h"
#include "run/args.h"
#include "observe/trace.h"

static const Optimizer *changing(const Model *model)
{
    return optimizer_innermost(model_optimizer(model));
}

static int trainable_count(const Model *model)
{
    int count = 0;
    for (int i = 0; i < model_variable_count(model); i++)
        count += model_variable(model, i)->trainable;
    return count;
}

int state_count(const Model *model)
{
    return model_variable_count(model) + changing(model)->slot_count * trainable_count(model);
}

// The number of the trainable variable that has `before` others before it.
static int trainable_variable(const Model *model, int before)
{
    int i = 0;
    for (int seen = 0;; i++) {
        seen += model_variable(model, i)->trainable;
        if (seen > before)
            return i;
    }
}

StateTensor state_tensor(const Model *model, int number)
{
    int variables = model_variable_count(model), trainable = trainable_count(model);
    StateTensor tensor = {.variable = number, .slot = -1};
    if (number >= variables) {
        tensor.slot = (number - variables) / trainable;
        tensor.variable = trainable_variable(model, (number - variables) % trainable);
    }
    const char *name = model_variable(model, tensor.variable)->name;
    if (tensor.slot < 0)
        snprintf(tensor.name, sizeof tensor.name, "%s", name);
    else
        snprintf(tensor.name, sizeof tensor.name, "optimizer/%s/%s",
                 slot_name(changing(model)->rule.kind, tensor.slot), name);
    return tensor;
}

static void read_state(const void *model, int number, float *to)
{
    StateTensor tensor = state_tensor(model, number);
    if (tensor.slot < 0)
        model_read_variable(model, tensor.variable, to);
    else
        model_read_slot(model, tensor.variable, tensor.slot, to);
}

void promise_state(Safetensors *file, const Model *model, int number)
{
    StateTensor tensor = state_tensor(model, number);
    const Variable *variable = model_variable(model, tensor.variable);
    int64_t dims[ST_MAX_DIMS];
    for (int i = 0; i < variable->ndims; i++)
        dims[i] = variable->dims[i];
    safetensors_promise(file, tensor.name, variable->ndims, dims, number);
}

Safetensors *file_of_states(const Model *model, int count)
{
    Safetensors *file = safetensors_new(read_state, model);
    for (int i = 0; i < count; i++)
        promise_state(file, model, i);
    return file;
}

size_t state_in_part(const StatePart *part, const Variable *variable, size_t *begin)
{
    size_t end = part->offset + part->count, last = variable->offset + variable->length;
    *begin = part->offset > variable->offset ? part->offset : variable->offset;
    end = end < last ? end : last;
    return *begin < end ? end - *begin : 0;
}

bool fits_state(const Model *model, const StateTensor *tensor, const Safetensor *candidate)
{
    const Variable *variable = model_variable(model, tensor->variable);
    bool fits = candidate->type == ST_FLOAT32 && candidate->ndims == variable->ndims;
    for (int i = 0; fits && i < variable->ndims; i++)
        fits = candidate->dims[i] == variable->dims[i];
    return fits;
}

static void check_model(const Model *model, const char *caller)
{
    model_check_compiled(model, caller);
    const Optimizer *optimizer = model_optimizer(model);
    if (optimizer->pass && optimizer->weight_bytes > 0)
        die("%s: with weights_in_shards() no worker has all weights from the first pass on",
            caller);
}

void save_weights(const Model *model, const char *folder, const char *name)
{
    check_model(model, __func__);
    if (!folder || !name)
        die("%s: the folder or the name is missing (NULL)", __func__);
    char *path = format_text("%s/%s.safetensors", folder, name);
    checkpoint_dir_is_used();
    trace("saved", TEXT("path", path));
    Safetensors *file = file_of_states(model, model_variable_count(model));
    make_folders(folder);
    safetensors_save(file, path);
    safetensors_free(file);
    free(path);
}

static bool is_of_model(const Model *model, const char *name)
{
    for (int i = 0; i < model_variable_count(model); i++)
        if (strcmp(model_variable(model, i)->name, name) == 0)
            return true;
    return false;
}

// The faults so far, and that of this tensor.
static void add_fault(char **faults, const char *name, const char *fault, const Safetensor *found)
{
    text_add(faults, "%s%s %s", *faults ? ", " : "", name, fault);
    for (int i = 0; found && i < found->ndims; i++)
        text_add(faults, "%s%" PRId64, i ? " x " : " ", found->dims[i]);
}

Safetensors *read_weights(const char *path)
{
    Safetensors *file = safetensors_read(path);
    if (safetensors_metadata(file, "hash") && !safetensors_is_sealed(file))
        die("%s: the file is damaged: its contents do not have the hash that it names", path);
    return file;
}

void check_weights(const char *path, const Safetensors *file, const Model *model, int count)
{
    char *faults = NULL;
    for (int i = 0; i < count; i++) {
        StateTensor tensor = state_tensor(model, i);
        const Safetensor *found = safetensors_find(file, tensor.name);
        if (!found || !fits_state(model, &tensor, found))
            add_fault(&faults, tensor.name, found ? "has another type or shape," : "is missing",
                      found);
    }
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        if (strncmp(name, "optimizer/", strlen("optimizer/")) != 0 && !is_of_model(model, name))
            add_fault(&faults, name, "is not the model's", NULL);
    }
    if (faults)
        die("%s: these are another model's weights: %.300s%s", path, faults,
            strlen(faults) > 300 ? " ..." : "");
}

void put_weights(const Safetensors *file, Model *model, int count)
{
    for (int i = 0; i < count; i++) {
        StateTensor tensor = state_tensor(model, i);
        const Safetensor *values = safetensors_find(file, tensor.name);
        if (values && tensor.slot < 0)
            model_write_variable(model, tensor.variable, values->data);
        else if (values && fits_state(model, &tensor, values)) // else it is a shard
            model_write_slot(model, tensor.variable, tensor.slot, values->data);
    }
}

void load_weights(Model *model, const char *path)
{
    check_model(model, __func__);
    if (!path)
        die("%s: the path is missing (NULL)", __func__);
    Safetensors *file = read_weights(path);
    check_weights(path, file, model, model_variable_count(model));
    put_weights(file, model, model_variable_count(model));
    safetensors_free(file);
}

int weights_dim(const char *path, const char *variable, int axis)
{
    if (!path || !variable)
        die("%s: the file or the variable is missing (NULL)", __func__);
    Safetensors *file = safetensors_read_header(path);
    const Safetensor *found = safetensors_find(file, variable);
    int64_t dim = found && axis >= 0 && axis < found->ndims ? found->dims[axis] : 0;
    safetensors_free(file);
    return dim < INT_MAX ? (int)dim : INT_MAX;
}
