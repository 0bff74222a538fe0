// A shard as a safetensors file: tensors with one dimension, and as metadata where each begins in
// its array, and the numbers.

#include "lessons/shard_file.h"
#include "lessons/shards_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "data/safetensors.h"
#include "nn/weights.h"
#include "observe/trace.h"
#include "run/args.h"

struct Shard {
    Safetensors *file;
};

static void need_shard(const Shard *shard, const char *caller)
{
    if (!shard)
        die("%s: there is no shard (NULL)", caller);
}

static Shard *shard_of(Safetensors *file)
{
    Shard *shard = allocate(1, sizeof *shard);
    shard->file = file;
    return shard;
}

Shard *shard_new(void)
{
    return shard_of(safetensors_new(NULL, NULL));
}

static void set_number(Shard *shard, const char *kind, const char *name, long number)
{
    char *key = format_text("%s %s", kind, name), *text = format_text("%ld", number);
    safetensors_set_metadata(shard->file, key, text);
    free(key);
    free(text);
}

static long get_number(const Shard *shard, const char *kind, const char *name)
{
    char *key = format_text("%s %s", kind, name);
    const char *text = safetensors_metadata(shard->file, key);
    free(key);
    return text ? strtol(text, NULL, 10) : -1;
}

static void trace_added(const char *array, Slice slice, const float *values)
{
    uint64_t sum = 0;
    char bits[17];
    for (int i = 0; i < slice.count && trace_on(); i++)
        sum += shards_hash(values[i], slice.begin + i);
    snprintf(bits, sizeof bits, "%016" PRIx64, sum);
    trace("shard_added", TEXT("name", array), NUMBER("begin", slice.begin),
          NUMBER("count", slice.count), TEXT("bits", bits));
}

void shard_add(Shard *shard, const char *array, Slice slice, const float *values)
{
    need_shard(shard, __func__);
    if (!array || slice.begin < 0 || slice.count < 0 || (slice.count > 0 && !values))
        die("%s: %d numbers from number %d on of %s%s", __func__, slice.count, slice.begin,
            array ? array : "no array (NULL)", values ? "" : ", without values (NULL)");
    if (safetensors_find(shard->file, array))
        die("%s: the shard has %s already", __func__, array);
    safetensors_add(shard->file, array, ST_FLOAT32, 1, (int64_t[]){slice.count}, values);
    set_number(shard, "begin", array, slice.begin);
    trace_added(array, slice, values);
}

void shard_add_number(Shard *shard, const char *name, long number)
{
    need_shard(shard, __func__);
    set_number(shard, "number", name ? name : "", number);
}

static char *path_of(const char *folder, int number)
{
    return format_text("%s/shard-%d.safetensors", folder ? folder : ".", number);
}

void shard_write(Shard *shard, const char *folder, int number)
{
    need_shard(shard, __func__);
    checkpoint_dir_is_used();
    char *path = path_of(folder, number);
    safetensors_save(shard->file, path);
    trace("shard_written", NUMBER("number", number));
    free(path);
}

Shard *shard_read(const char *folder, int number)
{
    checkpoint_dir_is_used();
    char *path = path_of(folder, number);
    bool there = access(path, F_OK) == 0;
    trace("shard_read", NUMBER("number", number), NUMBER("found", there));
    Shard *shard = there ? shard_of(read_weights(path)) : NULL;
    free(path);
    return shard;
}

const float *shard_values(const Shard *shard, const char *array, Slice *slice)
{
    need_shard(shard, __func__);
    if (!array || !slice)
        die("%s: the array or the slice is missing (NULL)", __func__);
    const Safetensor *tensor = safetensors_find(shard->file, array);
    *slice = (Slice){0, 0};
    if (!tensor)
        return NULL;
    *slice = (Slice){(int)get_number(shard, "begin", array), (int)tensor->count};
    return tensor->data;
}

long shard_number(const Shard *shard, const char *name)
{
    need_shard(shard, __func__);
    return get_number(shard, "number", name ? name : "");
}

void shard_free(Shard *shard)
{
    if (!shard)
        return;
    safetensors_free(shard->file);
    free(shard);
}
