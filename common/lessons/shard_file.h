// One worker's shard of a training's state as a file (lab 10): slices of arrays, under the arrays'
// names, and numbers beside them. Python's safetensors opens the file.

#ifndef HVDLAB_SHARD_FILE_H
#define HVDLAB_SHARD_FILE_H

#pragma GCC visibility push(default) // a step may call what follows

// `count` numbers of an array from number `begin` on.
typedef struct {
    int begin, count;
} Slice;

typedef struct Shard Shard;

// An empty shard in memory; and a copy of a slice of an array added to it, or a number, under a
// name that it does not have yet.
Shard *shard_new(void);
void shard_add(Shard *shard, const char *array, Slice slice, const float *values);
void shard_add_number(Shard *shard, const char *name, long number);

// Writes the shard to FOLDER/shard-NUMBER.safetensors, and waits until it is on the disk. The program
// exits with an error message where it can't be written.
void shard_write(Shard *shard, const char *folder, int number);

// Reads that file; NULL where there is none. A damaged one makes the program exit with an error
// message.
Shard *shard_read(const char *folder, int number);

// The values of an array, and in `slice` which slice they are. NULL, and no numbers, where the
// shard has nothing of that name.
const float *shard_values(const Shard *shard, const char *array, Slice *slice);

// A number; -1 where the shard has none of that name.
long shard_number(const Shard *shard, const char *name);

void shard_free(Shard *shard);

#pragma GCC visibility pop

#endif
