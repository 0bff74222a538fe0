// The variables of a model as a file.

#include <stdlib.h>
#include "base/util.h"
#include "data/safetensors.h"
#include "nn/model.h"
#include "sys/trace.h"

static void add_variable(Safetensors *file, const Model *model, int index)
{
    const Variable *variable = model_variable(model, index);
    float *values = allocate(variable_size(variable), sizeof *values);
    int64_t dims[ST_MAX_DIMS];
    for (int i = 0; i < variable->ndims; i++)
        dims[i] = variable->dims[i];
    model_read_variable(model, index, values);
    safetensors_add(file, variable->name, ST_FLOAT32, variable->ndims, dims, values);
    free(values);
}

void save_weights(const Model *model, const char *folder, const char *name)
{
    model_check_compiled(model, __func__);
    if (!folder || !name)
        die("%s: the folder or the name is missing (NULL)", __func__);
    char *path = format_text("%s/%s.safetensors", folder, name);
    trace("saved", TEXT("path", path));
    Safetensors *file = safetensors_new();
    for (int i = 0; i < model_variable_count(model); i++)
        add_variable(file, model, i);
    make_folders(folder);
    safetensors_save(file, path);
    safetensors_free(file);
    free(path);
}
