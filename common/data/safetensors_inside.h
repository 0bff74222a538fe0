// Inside a safetensors file in memory: what its reader (safetensors_read.c) and its writer
// (safetensors.c) share.

#ifndef HVDLAB_SAFETENSORS_INSIDE_H
#define HVDLAB_SAFETENSORS_INSIDE_H

#include <cjson/cJSON.h>
#include "data/safetensors.h"

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

// True where the bytes are UTF-8 (RFC 3629).
bool safetensors_is_utf8(const char *text, size_t length);

// Adds the entry behind the others.
void safetensors_append(Safetensors *file, Entry entry);

#endif
