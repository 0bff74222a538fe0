// What the ranks printed, told apart by the tags that mpirun puts before each line.

#ifndef HVDLAB_STEPS_OUTPUT_H
#define HVDLAB_STEPS_OUTPUT_H

#include "words.h"

#define MPIRUN (-1) // speaks itself

typedef struct {
    int rank;         // or MPIRUN
    bool error;       // standard error
    const char *text; // without tag and line break
} Line;

typedef struct {
    char *text; // owned; the lines lie in it
    Line *lines;
    int count;
} Output;

// Takes the lines apart; empty ones are left out.
Output output_read(const char *text);
void output_free(Output *output);

// How many lines a rank wrote to standard output, and the first of them, or NULL.
int output_count(const Output *output, int rank);
const char *output_first(const Output *output, int rank);

// True where some rank's standard error holds the words.
bool output_says(const Output *output, const char *words);

// What mpirun says of the rank that ended the job, and how: that it "ended with status 3", or "was
// ended by signal 11 (Segmentation fault)". Rank -1 where mpirun doesn't say. Of parameter servers
// and workers, which end one by one: one that a signal has ended, or the one with the highest
// status. Rank `victim` was to be killed and counts for nothing; -1: none was.
typedef struct {
    int rank;
    int status; // 0: not known
    char how[96];
} FailedRank;
FailedRank output_failed_rank(const Output *output, int victim);

#endif
