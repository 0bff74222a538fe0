// Safetensors files: in memory, written, and read in three stages: the header's bytes, what the
// header says of itself and the file's size, and only then the tensors' bytes. No stage trusts the
// one before. The callers know the meaning of the tensors.

#include "data/safetensors.h"

#include <cjson/cJSON.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "observe/trace.h"

enum { PREFIX_BYTES = sizeof(uint64_t), ELEMENT_BYTES = 4, HEADER_ALIGNMENT = 8 };

#define MAX_HEADER_BYTES 2097152
#define METADATA_KEY     "__metadata__"
#define HASH_KEY         "hash"

struct Safetensors {
    Safetensor *tensors; // in the order of their bytes
    int count;
    cJSON *metadata; // an object of strings, or NULL
    SafetensorFill *fill;
    const void *context;
    float *room; // for a promised tensor, as large as the largest of them
    size_t room_count;
};

// ---- In memory.

Safetensors *safetensors_new(SafetensorFill *fill, const void *context)
{
    Safetensors *file = allocate(1, sizeof *file);
    file->fill = fill;
    file->context = context;
    return file;
}

void safetensors_drop_tensors(Safetensors *file)
{
    for (int i = 0; i < file->count; i++) {
        free(file->tensors[i].name);
        free((void *)file->tensors[i].data);
    }
    file->count = 0;
}

void safetensors_free(Safetensors *file)
{
    if (file == NULL)
        return;
    safetensors_drop_tensors(file);
    free(file->tensors);
    free(file->room);
    cJSON_Delete(file->metadata);
    free(file);
}

const Safetensor *safetensors_find(const Safetensors *file, const char *name)
{
    for (int i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
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
    return &file->tensors[index];
}

const char *safetensors_metadata(const Safetensors *file, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file->metadata, key));
}

void safetensors_set_metadata(Safetensors *file, const char *key, const char *value)
{
    CHECK(text_is_utf8(key) && (!value || text_is_utf8(value)));
    if (file->metadata == NULL)
        file->metadata = cJSON_CreateObject();
    cJSON_DeleteItemFromObjectCaseSensitive(file->metadata, key);
    if (value)
        cJSON_AddStringToObject(file->metadata, key, value);
}

static Safetensor *append(Safetensors *file, const char *name, SafetensorType type, int ndims,
                          const int64_t *dims)
{
    CHECK(ndims >= 0 && ndims <= ST_MAX_DIMS);
    CHECK(strcmp(name, METADATA_KEY) != 0 && text_is_utf8(name) && !safetensors_find(file, name));
    file->tensors = enlarge(file->tensors, (size_t)file->count + 1, sizeof *file->tensors);
    Safetensor *tensor = &file->tensors[file->count++];
    *tensor = (Safetensor){.type = type, .ndims = ndims, .count = 1};
    tensor->name = format_text("%s", name);
    for (int i = 0; i < ndims; i++)
        tensor->count *= tensor->dims[i] = dims[i];
    tensor->begin = file->count > 1 ? tensor[-1].end : 0;
    tensor->end = tensor->begin + tensor->count * ELEMENT_BYTES;
    return tensor;
}

void safetensors_add(Safetensors *file, const char *name, SafetensorType type, int ndims,
                     const int64_t *dims, const void *data)
{
    Safetensor *tensor = append(file, name, type, ndims, dims);
    void *copy = allocate((size_t)tensor->count, ELEMENT_BYTES);
    if (tensor->count > 0) // one without elements may come without data
        memcpy(copy, data, (size_t)tensor->count * ELEMENT_BYTES);
    tensor->data = copy;
}

void safetensors_promise(Safetensors *file, const char *name, int ndims, const int64_t *dims,
                         int number)
{
    Safetensor *tensor = append(file, name, ST_FLOAT32, ndims, dims);
    tensor->number = number;
    if ((size_t)tensor->count > file->room_count)
        file->room_count = (size_t)tensor->count;
}

// A tensor's values, valid until the next call. All promised tensors share one buffer, so that the
// values are still in the cache when they are hashed and written.
static const void *values_of(Safetensors *file, const Safetensor *tensor)
{
    if (tensor->data || tensor->count == 0)
        return tensor->data;
    if (!file->room)
        file->room = allocate(file->room_count, ELEMENT_BYTES);
    file->fill(file->context, tensor->number, file->room);
    return file->room;
}

static void take_hash(Safetensor *tensor, const void *values)
{
    if (tensor->hash == 0)
        tensor->hash = hash_words(1, values, (size_t)tensor->count * ELEMENT_BYTES) | 1;
}

uint64_t safetensors_hash(Safetensors *file, int index)
{
    CHECK(index >= 0 && index < file->count);
    Safetensor *tensor = &file->tensors[index];
    if (tensor->hash == 0)
        take_hash(tensor, values_of(file, tensor));
    return tensor->hash;
}

// Of everything but the stored hash.
static char *hash_of_all(Safetensors *file)
{
    uint64_t hash = 1;
    for (int i = 0; i < file->count; i++) {
        const Safetensor *tensor = &file->tensors[i];
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

bool safetensors_is_sealed(Safetensors *file)
{
    const char *said = safetensors_metadata(file, HASH_KEY);
    char *hash = hash_of_all(file);
    bool equal = said && strcmp(said, hash) == 0;
    free(hash);
    return equal;
}

// ---- Writing.

static void describe_tensor(cJSON *header, const Safetensor *tensor)
{
    cJSON *item = cJSON_AddObjectToObject(header, tensor->name);
    cJSON_AddStringToObject(item, "dtype", tensor->type == ST_FLOAT32 ? "F32" : "I32");
    double dims[ST_MAX_DIMS], offsets[] = {(double)tensor->begin, (double)tensor->end};
    for (int i = 0; i < tensor->ndims; i++)
        dims[i] = (double)tensor->dims[i];
    cJSON_AddItemToObject(item, "shape", cJSON_CreateDoubleArray(dims, tensor->ndims));
    cJSON_AddItemToObject(item, "data_offsets", cJSON_CreateDoubleArray(offsets, 2));
}

static bool write_header(const Safetensors *file, FILE *stream)
{
    cJSON *header = cJSON_CreateObject();
    cJSON_AddItemToObject(header, METADATA_KEY, cJSON_Duplicate(file->metadata, true));
    for (int i = 0; i < file->count; i++)
        describe_tensor(header, &file->tensors[i]);
    char *json = json_print(header, false);
    // Padded with spaces, so that the numbers are aligned in a mapped file.
    uint64_t length = (strlen(json) + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    uint64_t prefix = htole64(length);
    bool written = length <= MAX_HEADER_BYTES && fwrite(&prefix, sizeof prefix, 1, stream) == 1 &&
                   fprintf(stream, "%-*s", (int)length, json) >= 0;
    if (length > MAX_HEADER_BYTES)
        errno = EMSGSIZE;
    cJSON_free(json);
    cJSON_Delete(header);
    return written;
}

static bool write_tensor(Safetensors *file, Safetensor *tensor, FILE *stream)
{
    const void *values = values_of(file, tensor);
    size_t count = (size_t)tensor->count;
    bool written = fwrite(values, ELEMENT_BYTES, count, stream) == count && fflush(stream) == 0;
    take_hash(tensor, values);
    // The disk can begin before the last tensor.
    sync_file_range(fileno(stream), 0, 0, SYNC_FILE_RANGE_WRITE);
    return written;
}

// Each tensor is read once, so the header's hash of all tensors is known last: then the header is
// rewritten, with the same length.
static bool write_all(Safetensors *file, FILE *stream, const char *path)
{
    safetensors_set_metadata(file, HASH_KEY, "0000000000000000");
    bool written = write_header(file, stream);
    for (int i = 0; i < file->count && written; i++) {
        if (i == file->count / 2)
            trace("half_written", TEXT("path", path));
        written = write_tensor(file, &file->tensors[i], stream);
    }
    if (!written)
        return false;
    char *hash = hash_of_all(file);
    safetensors_set_metadata(file, HASH_KEY, hash);
    free(hash);
    // Without the fsync a power failure could leave the new name on a file without its bytes.
    return fseek(stream, 0, SEEK_SET) == 0 && write_header(file, stream) && fflush(stream) == 0 &&
           (errno = sync_file(fileno(stream))) == 0;
}

int safetensors_write(Safetensors *file, const char *path)
{
    struct stat there; // a device or a pipe has no header to rewrite, and must not be removed
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
        return EINVAL;
    FILE *stream = fopen(path, "wbe");
    if (stream == NULL)
        return errno;
    int fault = write_all(file, stream, path) ? 0 : errno;
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

void safetensors_save(Safetensors *file, const char *path)
{
    char *temporary = format_text("%s.tmp-%ld", path, (long)getpid());
    int fault = safetensors_write(file, temporary);
    if (fault == 0 && rename(temporary, path) != 0) {
        fault = errno;
        unlink(temporary);
    }
    if (fault != 0)
        die("%s: %s", path, safetensors_fault_text(fault));
    free(temporary);
}

// ---- Reading: the header's bytes.

static void read_bytes(const char *path, FILE *stream, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stream) == bytes)
        return;
    die("%s: %s", path, ferror(stream) ? strerror(errno) : "the file ended while it was read");
}

// Returns the size of the opened file, even if the name is reused meanwhile.
static int64_t open_file(const char *path, FILE **stream)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe waits for a writer
    if (file < 0 || fstat(file, &status) != 0)
        die("%s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        die("%s: %s", path,
            S_ISDIR(status.st_mode) ? "this is a folder, not a file" : "not a regular file");
    *stream = fdopen(file, "rb");
    if (*stream == NULL)
        die("%s: %s", path, strerror(errno));
    return status.st_size;
}

static size_t read_header_length(const char *path, FILE *stream, int64_t file_bytes)
{
    if (file_bytes == 0)
        die("%s: the file is empty", path);
    if (file_bytes < PREFIX_BYTES)
        die("%s: too short for a safetensors file", path);
    uint64_t prefix;
    read_bytes(path, stream, &prefix, sizeof prefix);
    uint64_t length = le64toh(prefix);
    if (length > MAX_HEADER_BYTES)
        die("%s: not a safetensors file (header length %" PRIu64 " is above the limit of %d)", path,
            length, MAX_HEADER_BYTES);
    if (length > (uint64_t)file_bytes - PREFIX_BYTES)
        die("%s: the file ends inside its header", path);
    return length;
}

// cJSON treats any control character as white space, and NUL as a string's end. JSON allows
// neither, and the second would make two different names look alike.
static bool has_bad_characters(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' && c != '\t' && c != '\n' && c != '\r')
            return true;
        if (c == '\\' && strncmp(text + i, "\\u0000", 6) == 0)
            return true;
        i += c == '\\'; // the escaped character, which may be another backslash
    }
    return false;
}

// `text` has a NUL behind it. cJSON needs up to 40 bytes for one.
static cJSON *parse_header(const char *path, const char *text, size_t length)
{
    if (!text_is_utf8(text))
        die("%s: the header is not valid UTF-8", path);
    const char *end = NULL;
    cJSON *header = NULL;
    if (text[0] == '{' && !has_bad_characters(text, length))
        header = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (header == NULL)
        die("%s: the header is not a JSON object", path);
    if (end + strspn(end, " ") != text + length)
        die("%s: the header goes on after its JSON object", path);
    return header;
}

// ---- Reading: what the header says. A fault's text is what is wrong with a tensor.

typedef const char *Fault;

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// JSON does not define which of two equal keys counts, so such a file is refused.
static void check_keys(const char *path, const cJSON *object)
{
    size_t count = (size_t)cJSON_GetArraySize(object), i = 0;
    const char **names = allocate(count + 1, sizeof *names);
    for (const cJSON *item = object->child; item != NULL; item = item->next)
        names[i++] = item->string;
    qsort(names, count, sizeof *names, compare_names);
    for (i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            die("%s: the name '%s' appears twice", path, names[i]);
    }
    free(names);
}

static void check_metadata(const char *path, const cJSON *metadata)
{
    if (metadata == NULL)
        return;
    if (!cJSON_IsObject(metadata))
        die("%s: " METADATA_KEY " is not a JSON object", path);
    check_keys(path, metadata);
    for (const cJSON *item = metadata->child; item != NULL; item = item->next) {
        if (!cJSON_IsString(item))
            die("%s: " METADATA_KEY ": '%s' is not a string", path, item->string);
    }
}

// True if `item` is a whole number that a double holds exactly, not negative; then it is in
// `value`.
static bool whole_number(const cJSON *item, int64_t *value)
{
    const double limit = 9007199254740992.0; // 2^53
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble >= limit)
        return false;
    *value = (int64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static Fault parse_type(const cJSON *dtype, Safetensor *tensor)
{
    const char *type = cJSON_GetStringValue(dtype);
    if (!type)
        return "has no dtype";
    tensor->type = strcmp(type, "F32") == 0 ? ST_FLOAT32 : ST_INT32;
    if (tensor->type == ST_INT32 && strcmp(type, "I32") != 0)
        return format_text("has type %s; only F32 and I32 can be read", type);
    return NULL;
}

static Fault parse_shape(const cJSON *shape, Safetensor *tensor)
{
    if (!cJSON_IsArray(shape))
        return "has no shape";
    tensor->count = 1;
    for (const cJSON *item = shape->child; item != NULL; item = item->next) {
        if (tensor->ndims == ST_MAX_DIMS)
            return format_text("has more than %d dimensions", ST_MAX_DIMS);
        int64_t *dim = &tensor->dims[tensor->ndims++];
        if (!whole_number(item, dim))
            return "has a dimension that is not a whole number from 0 up";
        if (__builtin_mul_overflow(tensor->count, *dim, &tensor->count))
            return "has an impossibly large shape";
    }
    return NULL;
}

// After the shape. Division instead of multiplication: the count may be near the maximum, and a
// product would overflow.
static Fault parse_offsets(const cJSON *offsets, Safetensor *tensor, int64_t data_bytes)
{
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
        return "has no data_offsets of two numbers";
    if (!whole_number(offsets->child, &tensor->begin) ||
        !whole_number(offsets->child->next, &tensor->end))
        return "has an offset that is not a whole number from 0 up";
    if (tensor->begin > tensor->end)
        return "ends before it begins";
    if (tensor->end > data_bytes)
        return "lies outside the file";
    int64_t bytes = tensor->end - tensor->begin;
    if (bytes % ELEMENT_BYTES != 0 || bytes / ELEMENT_BYTES != tensor->count)
        return format_text("has %lld bytes, which do not fit its shape", (long long)bytes);
    return NULL;
}

static Fault parse_tensor(const cJSON *item, Safetensor *tensor, int64_t data_bytes)
{
    Fault fault = cJSON_IsObject(item) ? NULL : "is not a JSON object";
    if (!fault)
        fault = parse_type(cJSON_GetObjectItemCaseSensitive(item, "dtype"), tensor);
    if (!fault)
        fault = parse_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), tensor);
    if (!fault)
        fault = parse_offsets(cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), tensor,
                              data_bytes);
    return fault;
}

static int compare_places(const void *a, const void *b)
{
    const Safetensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) // an empty tensor stands before the one that begins at its place
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

// Every byte after the header must belong to exactly one tensor.
static void check_places(const char *path, const Safetensors *file, int64_t data_bytes)
{
    int64_t expected = 0;
    for (int i = 0; i < file->count; i++) {
        const Safetensor *tensor = &file->tensors[i];
        if (tensor->begin < expected)
            die("%s: tensors '%s' and '%s' overlap", path, tensor[-1].name, tensor->name);
        if (tensor->begin > expected)
            die("%s: there is a hole before tensor '%s'", path, tensor->name);
        expected = tensor->end;
    }
    if (expected != data_bytes)
        die("%s: %lld bytes follow the last tensor", path, (long long)(data_bytes - expected));
}

static Safetensors *parse_tensors(const char *path, cJSON *header, int64_t data_bytes)
{
    Safetensors *file = safetensors_new(NULL, NULL);
    check_keys(path, header);
    file->metadata = cJSON_DetachItemFromObjectCaseSensitive(header, METADATA_KEY);
    check_metadata(path, file->metadata);
    file->tensors = allocate((size_t)cJSON_GetArraySize(header) + 1, sizeof *file->tensors);
    for (const cJSON *item = header->child; item != NULL; item = item->next) {
        Safetensor *tensor = &file->tensors[file->count++];
        tensor->name = format_text("%s", item->string);
        if (cJSON_IsObject(item))
            check_keys(path, item);
        Fault fault = parse_tensor(item, tensor, data_bytes);
        if (fault)
            die("%s: tensor '%s' %s", path, tensor->name, fault);
    }
    qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_places);
    check_places(path, file, data_bytes);
    return file;
}

// ---- Reading: all of it.

// Each tensor gets memory of its own: in the file it may begin at any byte, a float may not. They
// follow each other without a hole, so that reading on is enough.
static Safetensors *read_file(const char *path, bool data)
{
    FILE *stream;
    int64_t bytes = open_file(path, &stream);
    size_t length = read_header_length(path, stream, bytes);
    char *text = allocate(length + 1, 1);
    read_bytes(path, stream, text, length);
    cJSON *header = parse_header(path, text, length);
    Safetensors *file = parse_tensors(path, header, bytes - PREFIX_BYTES - (int64_t)length);
    for (int i = 0; data && i < file->count; i++) {
        size_t count = (size_t)file->tensors[i].count;
        void *values = allocate(count, ELEMENT_BYTES);
        file->tensors[i].data = values;
        read_bytes(path, stream, values, count * ELEMENT_BYTES);
    }
    cJSON_Delete(header);
    free(text);
    fclose(stream);
    return file;
}

Safetensors *safetensors_read(const char *path)
{
    return read_file(path, true);
}

Safetensors *safetensors_read_header(const char *path)
{
    return read_file(path, false);
}
