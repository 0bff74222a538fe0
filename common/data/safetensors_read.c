// Reads safetensors files, in three stages: it reads the header's bytes, parses the header and
// checks it against itself and the file's size, and only then reads the tensors' bytes. No stage
// trusts the one before. The callers know the meaning of the tensors.

#include "data/safetensors_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"

// A file that is being read.
typedef struct {
    const char *path;
    FILE *stream;
    int64_t data_bytes; // what follows the header
} OpenFile;

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
    // Only the second byte has special limits, and only after these four first bytes.
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

bool safetensors_is_utf8(const char *text, size_t length)
{
    for (size_t i = 0, step; i < length; i += step) {
        step = utf8_sequence((const unsigned char *)text + i, length - i);
        if (step == 0)
            return false;
    }
    return true;
}

// cJSON treats any control character as white space, and NUL as a string's end. JSON allows
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

static void read_bytes(const OpenFile *source, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, source->stream) == bytes)
        return;
    if (ferror(source->stream))
        die("%s: %s", source->path, strerror(errno));
    die("%s: the file ended while it was read", source->path);
}

// Opens the file and returns the size of the opened file, even if the name is reused meanwhile.
static int64_t open_source(OpenFile *source)
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

static uint64_t read_header_length(const OpenFile *source, int64_t file_bytes)
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

// cJSON needs up to 40 bytes for one.
static cJSON *parse_header(const OpenFile *source, const char *text, size_t length)
{
    if (!safetensors_is_utf8(text, length))
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

// Reads the header; leaves the stream at the first byte of the tensors.
static cJSON *read_header(OpenFile *source)
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

// JSON does not define which of two equal keys counts, so such a file is refused.
static void check_keys(const OpenFile *source, const cJSON *object)
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

static void check_metadata(const OpenFile *source, const cJSON *metadata)
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

static SafetensorType parse_type(const OpenFile *source, const char *name, const cJSON *dtype)
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

static void parse_shape(const OpenFile *source, const cJSON *shape, Safetensor *tensor)
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

static void parse_offsets(const OpenFile *source, const cJSON *offsets, Entry *entry)
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
static void parse_entry(const OpenFile *source, const cJSON *item, Entry *entry)
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
    // Division instead of multiplication: the count may be near the maximum, and a product would
    // overflow.
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
static void check_places(const OpenFile *source, const Safetensors *file)
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

static Safetensors *parse_entries(const OpenFile *source, cJSON *header)
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
static void read_tensors(const OpenFile *source, Safetensors *file)
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
    OpenFile source = {.path = path};
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
