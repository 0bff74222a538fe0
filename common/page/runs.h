// Runs in a folder of traces (HVDLAB_TRACE): it may hold files of several.

#ifndef HVDLAB_PAGE_RUNS_H
#define HVDLAB_PAGE_RUNS_H

#include <stdbool.h>

#define MAX_FILES 1024 // of a folder

typedef struct {
    int number; // of rank-NUMBER.jsonl
    char job[256], program[64], locked_on[65];
    double time; // 0: the kit that wrote it gave no times, and no jobs
    int size;    // of the job
} RunFile;

typedef struct {
    RunFile files[MAX_FILES];
    int count;
    const RunFile *newest; // NULL: there is none
} Folder;

// As the folder is now; valid until the next call.
const Folder *read_folder(const char *path);

// Does a file belong to the run of another? Files without a job are taken to be of one run, if its
// size allows it.
bool is_of(const RunFile *file, const RunFile *run);

// The files of other runs than the newest: "rank-2.jsonl, rank-3.jsonl". NULL: none. The caller
// frees it.
char *other_files(const Folder *folder);

// Of the process that writes the file: it has a lock on it as long as it lives. Another machine may
// not see the lock.
typedef enum { RUNS, GONE, NOT_KNOWN } Life;
Life life_of(const RunFile *file, const char *path);

#endif
