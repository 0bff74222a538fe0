// Reading and writing safetensors files: an 8-byte little-endian header length, a JSON header
// that gives each tensor's type, shape and byte range, then the bytes. Format as documented by the
// safetensors project (https://github.com/huggingface/safetensors).
//
// Files may come from anywhere: everything in the header is checked (length, JSON, UTF-8, types,
// shapes against byte counts, ranges inside the file, without overlap or hole) before anything is
// used, and a fault makes the program exit with an error message that names the file and the fault.
// A header of more than 2 MiB is refused (the reference implementation's limit is 100 MB): that is
// room for 16,000 tensors, and for no more than a hundred megabytes of parsed JSON.

#ifndef HVDLAB_SAFETENSORS_H
#define HVDLAB_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { ST_FLOAT32, ST_INT32 } SafetensorType;

#define ST_MAX_DIMS 8

typedef struct {
    char *name;
    SafetensorType type;
    int ndims;
    int64_t dims[ST_MAX_DIMS];
    int64_t count;      // product of dims
    const void *data;   // count floats or int32, 4-byte aligned, owned by the file; NULL: promised
    int number;         // of a promised one
    int64_t begin, end; // its bytes, behind the header
    uint64_t hash;      // of its values; 0: not known yet
} Safetensor;

typedef struct Safetensors Safetensors;

// Reads a whole file. Never returns NULL.
Safetensors *safetensors_read(const char *path);
void safetensors_free(Safetensors *file);

// Reads names, shapes and metadata alone: every tensor's data is NULL.
Safetensors *safetensors_read_header(const char *path);

// The tensor of that name, or NULL.
const Safetensor *safetensors_find(const Safetensors *file, const char *name);

// All tensors, in the order of their bytes.
int safetensors_count(const Safetensors *file);
const Safetensor *safetensors_at(const Safetensors *file, int index);

// A value of __metadata__, or NULL.
const char *safetensors_metadata(const Safetensors *file, const char *key);

// A file in memory, to be written. Its metadata, and tensors: copies of data, or promises of
// floats, which fill(context, number, to) puts there when they are hashed or written.
typedef void SafetensorFill(const void *context, int number, float *to);
Safetensors *safetensors_new(SafetensorFill *fill, const void *context);
void safetensors_add(Safetensors *file, const char *name, SafetensorType type, int ndims,
                     const int64_t *dims, const void *data);
void safetensors_promise(Safetensors *file, const char *name, int ndims, const int64_t *dims,
                         int number);
void safetensors_set_metadata(Safetensors *file, const char *key, const char *value); // NULL: none

// Writes to exactly this path, with the metadata entry "hash" (below), and waits until the bytes
// are on the disk. Returns 0, or the system's error number: then there is no file, or, if it could
// not be opened, the previous one is unchanged. EMSGSIZE: the header would be longer than a reader
// accepts.
int safetensors_write(Safetensors *file, const char *path);

// The text for that number: the system's, or the one for EMSGSIZE.
const char *safetensors_fault_text(int fault);

// The same, beside the path and then renamed; exits with an error message where it fails.
void safetensors_save(Safetensors *file, const char *path);

// Keeps of the file only its metadata.
void safetensors_drop_tensors(Safetensors *file);

// A hash of a tensor's values: equal values, equal hashes.
uint64_t safetensors_hash(Safetensors *file, int index);

// Whether the metadata entry "hash" is the hash of everything else in the file, so that no bit has
// changed.
bool safetensors_is_sealed(Safetensors *file);

#endif
