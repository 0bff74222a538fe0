// Safetensors files in memory: what is in one, adding to it, and writing it to the disk. Reading is
// safetensors_read.c's. The callers know the meaning of the tensors.

#include "data/safetensors_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/format.h"
#include "observe/trace.h"

void safetensors_drop_tensors(Safetensors *file)
{
    for (int i = 0; i < file->count; i++) {
        free(file->entries[i].tensor.name);
        free((void *)file->entries[i].tensor.data);
    }
    file->count = 0;
}

void safetensors_free(Safetensors *file)
{
    if (file == NULL)
        return;
    safetensors_drop_tensors(file);
    free(file->entries);
    free(file->room);
    cJSON_Delete(file->metadata);
    free(file);
}

const Safetensor *safetensors_find(const Safetensors *file, const char *name)
{
    for (int i = 0; i < file->count; i++) {
        if (strcmp(file->entries[i].tensor.name, name) == 0)
            return &file->entries[i].tensor;
    }
    return NULL;
}

int safetensors_count(const Safetensors *file)
{
    return file->count;
}

const Safetensor *safetensors_at(const Safetensors *file, int index)
{
    CHECK(index >= 0 && index < file->count);
    return &file->entries[index].tensor;
}

const char *safetensors_metadata(const Safetensors *file, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file->metadata, key));
}

// -- Writing --------------------------------------------------------------------------------------

Safetensors *safetensors_new(void)
{
    return allocate(1, sizeof(Safetensors));
}

void safetensors_append(Safetensors *file, Entry entry)
{
    if (file->count == file->capacity) {
        file->capacity = 2 * file->capacity + 16;
        file->entries = enlarge(file->entries, (size_t)file->capacity, sizeof *file->entries);
    }
    file->entries[file->count++] = entry;
}

// Frees data that belongs to the file.
static void append(Safetensors *file, const char *name, SafetensorType type, int ndims,
                   const int64_t *dims, const void *data)
{
    CHECK(ndims >= 0 && ndims <= ST_MAX_DIMS);
    CHECK(strcmp(name, METADATA_KEY) != 0 && safetensors_is_utf8(name, strlen(name)));
    CHECK(safetensors_find(file, name) == NULL);
    Safetensor tensor = {.type = type, .ndims = ndims, .count = 1, .data = data};
    tensor.name = format_text("%s", name);
    for (int i = 0; i < ndims; i++) {
        tensor.dims[i] = dims[i];
        tensor.count *= dims[i];
    }
    int64_t begin = file->count > 0 ? file->entries[file->count - 1].end : 0;
    int64_t end = begin + tensor.count * ELEMENT_BYTES;
    safetensors_append(file, (Entry){.tensor = tensor, .begin = begin, .end = end});
}

void safetensors_add(Safetensors *file, const char *name, SafetensorType type, int ndims,
                     const int64_t *dims, const void *data)
{
    size_t count = 1;
    for (int i = 0; i < ndims; i++)
        count *= (size_t)dims[i];
    void *copy = allocate(count, ELEMENT_BYTES);
    if (count > 0) // a tensor without elements may come without data
        memcpy(copy, data, count * ELEMENT_BYTES);
    append(file, name, type, ndims, dims, copy);
}

void safetensors_give(Safetensors *file, const char *name, int ndims, const int64_t *dims,
                      float *data)
{
    append(file, name, ST_FLOAT32, ndims, dims, data);
}

void safetensors_promise(Safetensors *file, const char *name, int ndims, const int64_t *dims)
{
    append(file, name, ST_FLOAT32, ndims, dims, NULL);
    size_t count = (size_t)file->entries[file->count - 1].tensor.count;
    if (count > file->room_count)
        file->room_count = count;
}

void safetensors_read_by(Safetensors *file, SafetensorReader *read, const void *context)
{
    file->read = read;
    file->context = context;
}

// A tensor's values, valid until the next call. All promised tensors share one buffer, so that the
// values are still in the cache when they are hashed and written.
static const void *values_of(Safetensors *file, int index)
{
    const Safetensor *tensor = &file->entries[index].tensor;
    if (tensor->data || tensor->count == 0)
        return tensor->data;
    if (!file->room)
        file->room = allocate(file->room_count, ELEMENT_BYTES);
    file->read(file->context, index, file->room);
    return file->room;
}

void safetensors_set_metadata(Safetensors *file, const char *key, const char *value)
{
    CHECK(safetensors_is_utf8(key, strlen(key)) &&
          (!value || safetensors_is_utf8(value, strlen(value))));
    if (file->metadata == NULL)
        file->metadata = cJSON_CreateObject();
    cJSON_DeleteItemFromObjectCaseSensitive(file->metadata, key);
    if (value)
        cJSON_AddStringToObject(file->metadata, key, value);
}

static void describe_entry(cJSON *header, const Entry *entry)
{
    const Safetensor *tensor = &entry->tensor;
    cJSON *item = cJSON_AddObjectToObject(header, tensor->name);
    const char *dtype = tensor->type == ST_FLOAT32 ? "F32" : "I32";
    cJSON_AddStringToObject(item, "dtype", dtype);
    cJSON *shape = cJSON_AddArrayToObject(item, "shape");
    for (int i = 0; i < tensor->ndims; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->dims[i]));
    cJSON *offsets = cJSON_AddArrayToObject(item, "data_offsets");
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)entry->begin));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)entry->end));
}

// The header's JSON text, padded with spaces; the caller frees it.
static char *format_header(const Safetensors *file)
{
    cJSON *header = cJSON_CreateObject();
    if (file->metadata != NULL)
        cJSON_AddItemToObject(header, METADATA_KEY, cJSON_Duplicate(file->metadata, true));
    for (int i = 0; i < file->count; i++)
        describe_entry(header, &file->entries[i]);
    char *json = json_print(header, false);
    size_t length = strlen(json);
    // So that the numbers are aligned in a mapped file.
    size_t padded = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    char *text = format_text("%-*s", (int)padded, json);
    cJSON_free(json);
    cJSON_Delete(header);
    return text;
}

// -- Whether it has changed -----------------------------------------------------------------------

static void take_hash(Entry *entry, const void *values)
{
    entry->hash = hash_words(1, values, (size_t)entry->tensor.count * ELEMENT_BYTES) | 1;
}

uint64_t safetensors_hash(Safetensors *file, int index)
{
    CHECK(index >= 0 && index < file->count);
    if (file->entries[index].hash == 0)
        take_hash(&file->entries[index], values_of(file, index));
    return file->entries[index].hash;
}

// Hashes everything but the stored hash.
static char *hash_of_all(Safetensors *file)
{
    uint64_t hash = 1;
    for (int i = 0; i < file->count; i++) {
        const Safetensor *tensor = &file->entries[i].tensor;
        uint64_t values = safetensors_hash(file, i);
        hash = hash_words(hash, tensor->name, strlen(tensor->name));
        hash = hash_words(hash, tensor->dims, (size_t)tensor->ndims * sizeof *tensor->dims);
        hash = hash_words(hash, &values, sizeof values) + tensor->type;
    }
    for (const cJSON *item = file->metadata ? file->metadata->child : NULL; item; item = item->next)
        if (strcmp(item->string, HASH_KEY) != 0) {
            hash = hash_words(hash, item->string, strlen(item->string));
            hash = hash_words(hash, item->valuestring, strlen(item->valuestring));
        }
    return format_text("%016" PRIx64, hash);
}

void safetensors_seal(Safetensors *file)
{
    char *hash = hash_of_all(file);
    safetensors_set_metadata(file, HASH_KEY, hash);
    free(hash);
}

bool safetensors_is_sealed(Safetensors *file)
{
    const char *said = safetensors_metadata(file, HASH_KEY);
    char *hash = hash_of_all(file);
    bool equal = said && strcmp(said, hash) == 0;
    free(hash);
    return equal;
}

// -- To the disk ----------------------------------------------------------------------------------

static bool write_header(const Safetensors *file, FILE *stream)
{
    char *header = format_header(file);
    uint64_t length = strlen(header);
    if (length > MAX_HEADER_BYTES) {
        free(header);
        errno = EMSGSIZE;
        return false;
    }
    unsigned char prefix[PREFIX_BYTES];
    for (int i = 0; i < PREFIX_BYTES; i++)
        prefix[i] = (unsigned char)(length >> 8 * i);
    bool written = fwrite(prefix, 1, sizeof prefix, stream) == sizeof prefix &&
                   fwrite(header, 1, length, stream) == length;
    free(header);
    return written;
}

static bool write_tensors(Safetensors *file, FILE *stream, const char *path, bool hashed)
{
    bool written = true;
    for (int i = 0; i < file->count && written; i++) {
        if (i == file->count / 2)
            trace("half_written", TEXT("path", path));
        Entry *entry = &file->entries[i];
        const void *values = values_of(file, i);
        size_t count = (size_t)entry->tensor.count;
        written = fwrite(values, ELEMENT_BYTES, count, stream) == count && fflush(stream) == 0;
        if (hashed && entry->hash == 0)
            take_hash(entry, values);
        // The disk can begin before the last tensor.
        sync_file_range(fileno(stream), 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    return written;
}

// Each tensor is read once, so the header's hash of all tensors is known last: then the header is
// rewritten, with the same length.
static bool write_all(Safetensors *file, FILE *stream, const char *path, bool sealed)
{
    if (sealed)
        safetensors_set_metadata(file, HASH_KEY, "0000000000000000");
    bool written = write_header(file, stream) && write_tensors(file, stream, path, sealed);
    if (sealed && written) {
        safetensors_seal(file);
        written = fseek(stream, 0, SEEK_SET) == 0 && write_header(file, stream);
    }
    // Without the fsync a power failure could leave the new name on a file without its bytes.
    return written && fflush(stream) == 0 && (errno = sync_file(fileno(stream))) == 0;
}

static int write_file(Safetensors *file, const char *path, bool sealed)
{
    FILE *stream = fopen(path, "wbe");
    if (stream == NULL)
        return errno;
    int fault = write_all(file, stream, path, sealed) ? 0 : errno;
    if (fclose(stream) != 0 && fault == 0)
        fault = errno;
    if (fault != 0)
        unlink(path);
    else
        trace("written", TEXT("path", path));
    return fault;
}

const char *safetensors_fault_text(int fault)
{
    return fault == EMSGSIZE ? "its header would be longer than 2 MiB, which no reader of the kit "
                               "takes (names and shapes of tensors, and metadata)"
                             : strerror(fault);
}

int safetensors_write(Safetensors *file, const char *path)
{
    return write_file(file, path, true);
}

void safetensors_save(Safetensors *file, const char *path)
{
    char *temporary = format_text("%s.tmp-%ld", path, (long)getpid());
    int fault = write_file(file, temporary, false);
    if (fault == 0 && rename(temporary, path) != 0) {
        fault = errno;
        unlink(temporary);
    }
    if (fault != 0)
        die("%s: %s", path, safetensors_fault_text(fault));
    free(temporary);
}
