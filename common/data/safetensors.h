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
    int64_t count;    // product of dims
    const void *data; // count floats or int32, 4-byte aligned, owned by the file; NULL: promised
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

// Writing: add tensors (the data is copied) and metadata (NULL: removes it), then save. The file
// appears under its name only when it is complete (written beside it, then renamed).
Safetensors *safetensors_new(void);
void safetensors_add(Safetensors *file, const char *name, SafetensorType type, int ndims,
                     const int64_t *dims, const void *data);
void safetensors_set_metadata(Safetensors *file, const char *key, const char *value);
void safetensors_save(Safetensors *file, const char *path);

// As safetensors_add, but of floats that came from allocate() and belong to the file from now on.
void safetensors_give(Safetensors *file, const char *name, int ndims, const int64_t *dims,
                      float *data);

// Tensors of floats that the file does not hold: each time that one is hashed or written,
// read(context, index, to) puts its values there, index as in safetensors_at.
typedef void SafetensorReader(const void *context, int index, float *to);
void safetensors_promise(Safetensors *file, const char *name, int ndims, const int64_t *dims);
void safetensors_read_by(Safetensors *file, SafetensorReader *read, const void *context);

// Writes to exactly this path, sealed (below), and waits until the bytes are on the disk. Returns
// 0, or the system's error number: then there is no file, or, if it could not be opened, the
// previous one is unchanged. EMSGSIZE: the header would be longer than a reader accepts.
int safetensors_write(Safetensors *file, const char *path);

// The text for that number: the system's, or the one for EMSGSIZE.
const char *safetensors_fault_text(int fault);

// Keeps of the file only its metadata.
void safetensors_drop_tensors(Safetensors *file);

// A hash of a tensor's values: equal values, equal hashes.
uint64_t safetensors_hash(Safetensors *file, int index);

// Sets the metadata entry "hash" to a hash of everything else in the file; and tells whether it
// matches, so that no bit has changed.
void safetensors_seal(Safetensors *file);
bool safetensors_is_sealed(Safetensors *file);

#endif
