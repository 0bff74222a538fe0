// Safetensors files. Reading goes in three stages, and none trusts the one before: the header's
// bytes are taken from the file, the header is parsed and compared with itself and with the file's
// size, and only then are the tensors' bytes read. Writing is the same in reverse. What the tensors
// mean is left to the callers.

#include "data/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/trace.h"

enum { PREFIX_BYTES = 8, ELEMENT_BYTES = 4, HEADER_ALIGNMENT = 8 };

#define MAX_HEADER_BYTES 2097152
#define METADATA_KEY     "__metadata__"
#define HASH_KEY         "hash"

// A tensor with its place in the part of the file that follows the header.
typedef struct {
    Safetensor tensor;
    int64_t begin, end;
    uint64_t hash; // of the values; 0: not known yet
} Entry;

struct Safetensors {
    Entry *entries; // sorted by place
    int count, capacity;
    cJSON *metadata;        // an object of strings, or NULL
    SafetensorReader *read; // of the tensors that are promised
    const void *context;
    float *room; // for one of them, where there is any
    size_t room_count;
};

// A file that is being read.
typedef struct {
    const char *path;
    FILE *stream;
    int64_t data_bytes; // what follows the header
} Source;

// -- Text -----------------------------------------------------------------------------------------

// The length of the UTF-8 sequence at the beginning of `text`, or 0 where it is not a valid one
// (RFC 3629: shortest form only, no surrogates, nothing above U+10FFFF).
static size_t utf8_sequence(const unsigned char *text, size_t available)
{
    unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || length > available)
        return 0;
    // Only the second byte has limits of its own, and only after these four leads.
    unsigned char lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < lowest || text[1] > highest)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

static bool is_utf8(const char *text, size_t length)
{
    for (size_t i = 0, step; i < length; i += step) {
        step = utf8_sequence((const unsigned char *)text + i, length - i);
        if (step == 0)
            return false;
    }
    return true;
}

// cJSON takes any control character for white space, and a string for ended at a NUL. JSON allows
// neither, and the second would make two different names look alike.
static bool has_bad_characters(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' && c != '\t' && c != '\n' && c != '\r')
            return true;
        if (c == '\\') {
            if (length - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
                return true;
            i++; // the escaped character, which may be another backslash
        }
    }
    return false;
}

// -- The header's bytes ---------------------------------------------------------------------------

static void read_bytes(const Source *source, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, source->stream) == bytes)
        return;
    if (ferror(source->stream))
        die("%s: %s", source->path, strerror(errno));
    die("%s: the file ended while it was read", source->path);
}

// Opens the file and returns its size: that of this file, whatever the name will mean later.
static int64_t open_source(Source *source)
{
    struct stat status;
    int file = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe waits for a writer
    if (file < 0 || fstat(file, &status) != 0)
        die("%s: %s", source->path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        die("%s: this is a folder, not a file", source->path);
    if (!S_ISREG(status.st_mode))
        die("%s: not a regular file", source->path);
    source->stream = fdopen(file, "rb");
    if (source->stream == NULL)
        die("%s: %s", source->path, strerror(errno));
    return status.st_size;
}

static uint64_t read_header_length(const Source *source, int64_t file_bytes)
{
    if (file_bytes == 0)
        die("%s: the file is empty", source->path);
    if (file_bytes < PREFIX_BYTES)
        die("%s: too short for a safetensors file", source->path);
    unsigned char prefix[PREFIX_BYTES];
    read_bytes(source, prefix, sizeof prefix);
    uint64_t length = 0;
    for (int i = PREFIX_BYTES - 1; i >= 0; i--)
        length = length << 8 | prefix[i];
    if (length > MAX_HEADER_BYTES)
        die("%s: not a safetensors file (header length %llu is above the limit of %d)",
            source->path, (unsigned long long)length, MAX_HEADER_BYTES);
    if (length > (uint64_t)file_bytes - PREFIX_BYTES)
        die("%s: the file ends inside its header", source->path);
    return length;
}

// cJSON makes up to 40 bytes of one.
static cJSON *parse_header(const Source *source, const char *text, size_t length)
{
    if (!is_utf8(text, length))
        die("%s: the header is not valid UTF-8", source->path);
    const char *end = NULL;
    cJSON *header = NULL;
    if (length > 0 && text[0] == '{' && !has_bad_characters(text, length))
        header = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (header == NULL)
        die("%s: the header is not a JSON object", source->path);
    for (; end < text + length; end++) {
        if (*end != ' ')
            die("%s: the header goes on after its JSON object", source->path);
    }
    return header;
}

// Reads the header, and leaves the stream where the tensors' bytes begin.
static cJSON *read_header(Source *source)
{
    int64_t file_bytes = open_source(source);
    uint64_t length = read_header_length(source, file_bytes);
    source->data_bytes = file_bytes - PREFIX_BYTES - (int64_t)length;
    char *text = allocate(length + 1, 1);
    read_bytes(source, text, length);
    cJSON *header = parse_header(source, text, length);
    free(text);
    return header;
}

// -- What the header says -------------------------------------------------------------------------

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// JSON leaves open which of two equal keys counts, so a file that has them means nothing certain.
static void check_keys(const Source *source, const cJSON *object)
{
    size_t count = (size_t)cJSON_GetArraySize(object), i = 0;
    const char **names = allocate(count + 1, sizeof *names);
    for (const cJSON *item = object->child; item != NULL; item = item->next)
        names[i++] = item->string;
    qsort(names, count, sizeof *names, compare_names);
    for (i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            die("%s: the name '%s' appears twice", source->path, names[i]);
    }
    free(names);
}

static void check_metadata(const Source *source, const cJSON *metadata)
{
    if (metadata == NULL)
        return;
    if (!cJSON_IsObject(metadata))
        die("%s: " METADATA_KEY " is not a JSON object", source->path);
    check_keys(source, metadata);
    for (const cJSON *item = metadata->child; item != NULL; item = item->next) {
        if (!cJSON_IsString(item))
            die("%s: " METADATA_KEY ": '%s' is not a string", source->path, item->string);
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

static SafetensorType parse_type(const Source *source, const char *name, const cJSON *dtype)
{
    if (!cJSON_IsString(dtype))
        die("%s: tensor '%s' has no dtype", source->path, name);
    if (strcmp(dtype->valuestring, "F32") == 0)
        return ST_FLOAT32;
    if (strcmp(dtype->valuestring, "I32") == 0)
        return ST_INT32;
    die("%s: tensor '%s' has type %s; only F32 and I32 can be read", source->path, name,
        dtype->valuestring);
}

static void parse_shape(const Source *source, const cJSON *shape, Safetensor *tensor)
{
    if (!cJSON_IsArray(shape))
        die("%s: tensor '%s' has no shape", source->path, tensor->name);
    tensor->count = 1;
    for (const cJSON *item = shape->child; item != NULL; item = item->next) {
        if (tensor->ndims == ST_MAX_DIMS)
            die("%s: tensor '%s' has more than %d dimensions", source->path, tensor->name,
                ST_MAX_DIMS);
        int64_t *dim = &tensor->dims[tensor->ndims++];
        if (!whole_number(item, dim))
            die("%s: tensor '%s' has a dimension that is not a whole number from 0 up",
                source->path, tensor->name);
        if (__builtin_mul_overflow(tensor->count, *dim, &tensor->count))
            die("%s: tensor '%s' has an impossibly large shape", source->path, tensor->name);
    }
}

static void parse_offsets(const Source *source, const cJSON *offsets, Entry *entry)
{
    const char *name = entry->tensor.name;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
        die("%s: tensor '%s' has no data_offsets of two numbers", source->path, name);
    if (!whole_number(offsets->child, &entry->begin) ||
        !whole_number(offsets->child->next, &entry->end))
        die("%s: tensor '%s' has an offset that is not a whole number from 0 up", source->path,
            name);
    if (entry->begin > entry->end)
        die("%s: tensor '%s' ends before it begins", source->path, name);
    if (entry->end > source->data_bytes)
        die("%s: tensor '%s' lies outside the file", source->path, name);
}

// Reads one member of the header, which must describe a tensor.
static void parse_entry(const Source *source, const cJSON *item, Entry *entry)
{
    Safetensor *tensor = &entry->tensor;
    if (!cJSON_IsObject(item))
        die("%s: tensor '%s' is not a JSON object", source->path, item->string);
    check_keys(source, item);
    tensor->name = format_text("%s", item->string);
    tensor->type =
        parse_type(source, tensor->name, cJSON_GetObjectItemCaseSensitive(item, "dtype"));
    parse_shape(source, cJSON_GetObjectItemCaseSensitive(item, "shape"), tensor);
    parse_offsets(source, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), entry);
    // Divided, not multiplied: the count may be close to the largest number there is.
    int64_t bytes = entry->end - entry->begin;
    if (bytes % ELEMENT_BYTES != 0 || bytes / ELEMENT_BYTES != tensor->count)
        die("%s: tensor '%s' has %lld bytes, which do not fit its shape", source->path,
            tensor->name, (long long)bytes);
}

static int compare_places(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) // an empty tensor stands before the one that begins at its place
        return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

// Every byte after the header must belong to exactly one tensor.
static void check_places(const Source *source, const Safetensors *file)
{
    int64_t expected = 0;
    for (int i = 0; i < file->count; i++) {
        const Entry *entry = &file->entries[i];
        if (entry->begin < expected)
            die("%s: tensors '%s' and '%s' overlap", source->path, file->entries[i - 1].tensor.name,
                entry->tensor.name);
        if (entry->begin > expected)
            die("%s: there is a hole before tensor '%s'", source->path, entry->tensor.name);
        expected = entry->end;
    }
    if (expected != source->data_bytes)
        die("%s: %lld bytes follow the last tensor", source->path,
            (long long)(source->data_bytes - expected));
}

// -- Reading --------------------------------------------------------------------------------------

static Safetensors *parse_entries(const Source *source, cJSON *header)
{
    Safetensors *file = allocate(1, sizeof *file);
    check_keys(source, header);
    file->metadata = cJSON_DetachItemFromObjectCaseSensitive(header, METADATA_KEY);
    check_metadata(source, file->metadata);
    file->capacity = cJSON_GetArraySize(header);
    file->entries = allocate((size_t)file->capacity + 1, sizeof *file->entries);
    for (const cJSON *item = header->child; item != NULL; item = item->next)
        parse_entry(source, item, &file->entries[file->count++]);
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_places);
    check_places(source, file);
    return file;
}

// Each tensor gets memory of its own: in the file it may begin at any byte, a float may not. They
// follow each other without a hole, so that reading on is enough.
static void read_tensors(const Source *source, Safetensors *file)
{
    for (int i = 0; i < file->count; i++) {
        Safetensor *tensor = &file->entries[i].tensor;
        size_t count = (size_t)tensor->count;
        void *data = allocate(count, ELEMENT_BYTES);
        read_bytes(source, data, count * ELEMENT_BYTES);
        tensor->data = data;
    }
}

static Safetensors *read_file(const char *path, bool tensors)
{
    Source source = {.path = path};
    cJSON *header = read_header(&source);
    Safetensors *file = parse_entries(&source, header);
    cJSON_Delete(header);
    if (tensors)
        read_tensors(&source, file);
    fclose(source.stream);
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

static void append_entry(Safetensors *file, Entry entry)
{
    if (file->count == file->capacity) {
        file->capacity = 2 * file->capacity + 16;
        file->entries = enlarge(file->entries, (size_t)file->capacity, sizeof *file->entries);
    }
    file->entries[file->count++] = entry;
}

// Of data that belongs to the file.
static void append(Safetensors *file, const char *name, SafetensorType type, int ndims,
                   const int64_t *dims, const void *data)
{
    CHECK(ndims >= 0 && ndims <= ST_MAX_DIMS);
    CHECK(strcmp(name, METADATA_KEY) != 0 && is_utf8(name, strlen(name)));
    CHECK(safetensors_find(file, name) == NULL);
    Safetensor tensor = {.type = type, .ndims = ndims, .count = 1, .data = data};
    tensor.name = format_text("%s", name);
    for (int i = 0; i < ndims; i++) {
        tensor.dims[i] = dims[i];
        tensor.count *= dims[i];
    }
    int64_t begin = file->count > 0 ? file->entries[file->count - 1].end : 0;
    int64_t end = begin + tensor.count * ELEMENT_BYTES;
    append_entry(file, (Entry){.tensor = tensor, .begin = begin, .end = end});
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

// A tensor's values, up to the next call. The same memory for all that are promised: what is read
// is still near when it is hashed and written.
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
    CHECK(is_utf8(key, strlen(key)) && (!value || is_utf8(value, strlen(value))));
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
    char *json = cJSON_PrintUnformatted(header);
    size_t length = strlen(json);
    // So that whoever maps the file finds its numbers aligned.
    size_t padded = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    char *text = format_text("%-*s", (int)padded, json);
    cJSON_free(json);
    cJSON_Delete(header);
    return text;
}

// -- Whether it has changed -----------------------------------------------------------------------

static uint64_t mix_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

// One step for each 8 bytes, each of which changes every later value of its lane; four lanes, as
// long as there is enough, since a processor does several steps at once. The last bytes are filled
// up with zeros, and the length goes in, too.
static uint64_t mix(uint64_t hash, const void *bytes, size_t length)
{
    const char *at = bytes;
    uint64_t lanes[4] = {hash ^ length, 1, 2, 3}, words[4];
    size_t left = length;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++)
            lanes[i] = mix_word(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    if (left > 0)
        memcpy(words, at, left);
    for (int i = 0; i < 4; i++)
        lanes[i] = mix_word(lanes[i], words[i]);
    for (int i = 1; i < 4; i++)
        lanes[0] = mix_word(lanes[0], lanes[i]);
    return lanes[0];
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    return mix(hash, text, strlen(text));
}

static void take_hash(Entry *entry, const void *values)
{
    entry->hash = mix(1, values, (size_t)entry->tensor.count * ELEMENT_BYTES) | 1;
}

uint64_t safetensors_hash(Safetensors *file, int index)
{
    CHECK(index >= 0 && index < file->count);
    if (file->entries[index].hash == 0)
        take_hash(&file->entries[index], values_of(file, index));
    return file->entries[index].hash;
}

// Of everything but the hash that it has.
static char *hash_of_all(Safetensors *file)
{
    uint64_t hash = 1;
    for (int i = 0; i < file->count; i++) {
        const Safetensor *tensor = &file->entries[i].tensor;
        uint64_t values = safetensors_hash(file, i);
        hash = mix_text(hash, tensor->name);
        hash = mix(hash, tensor->dims, (size_t)tensor->ndims * sizeof *tensor->dims);
        hash = mix(hash, &values, sizeof values) + tensor->type;
    }
    for (const cJSON *item = file->metadata ? file->metadata->child : NULL; item; item = item->next)
        if (strcmp(item->string, HASH_KEY) != 0)
            hash = mix_text(mix_text(hash, item->string), item->valuestring);
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

// For traces: what is written so far gets into the file.
static bool stop_half_way(FILE *stream, const char *path)
{
    if (!trace_on())
        return true;
    bool written = fflush(stream) == 0;
    trace("half_written", TEXT("path", path));
    return written;
}

static bool write_tensors(Safetensors *file, FILE *stream, const char *path, bool hashed)
{
    bool written = true;
    for (int i = 0; i < file->count && written; i++) {
        if (i == file->count / 2 && !stop_half_way(stream, path))
            return false;
        Entry *entry = &file->entries[i];
        const void *values = values_of(file, i);
        size_t count = (size_t)entry->tensor.count;
        written = fwrite(values, ELEMENT_BYTES, count, stream) == count;
        if (hashed && entry->hash == 0)
            take_hash(entry, values);
        // The disk need not wait for the last tensor.
        sync_file_range(fileno(stream), 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    return written;
}

// Each tensor is read once, so the hash of all, which stands in the header, is known last: then the
// header, whose length stays, is written again.
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
    return written && fflush(stream) == 0 && fsync(fileno(stream)) == 0;
}

static int write_file(Safetensors *file, const char *path, bool sealed)
{
    FILE *stream = fopen(path, "wb");
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
                               "takes (names and shapes of tensors, and the history of epochs)"
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
