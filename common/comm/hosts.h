// The hosts of a job, as mpirun's hostfile names them, and which of them answer. The question is an
// mpirun of a short program on each host, so that it uses the same way as the job.

#ifndef HVDLAB_HOSTS_H
#define HVDLAB_HOSTS_H

#include <stdbool.h>

typedef struct {
    char *name;
    char *line;   // of the file
    int slots;    // 1 where the line names none
    bool answers; // so far as hosts_ask has found out
} Host;

typedef struct {
    Host *items;
    int count;
} Hosts;

// Reads a hostfile, and marks all hosts as answering. A file that can't be read, or that names no
// host, makes the program exit with an error message. To be freed with hosts_free.
Hosts hosts_read(const char *path);
void hosts_free(Hosts *hosts);

// Asks all of them at a time, and waits `seconds` at most. Returns how many answer.
int hosts_ask(Hosts *hosts, double seconds);

// "node1" or "node1 and node3": those that answer, or don't. The caller frees it.
char *hosts_text(const Hosts *hosts, bool answer);

// How many of `ranks` fit on those that answer: all on all slots, else as many for each slot as
// there were.
int hosts_room(const Hosts *hosts, int ranks);

// Writes a hostfile of those that answer; returns its path, which the caller removes and frees.
char *hosts_write(const Hosts *hosts);

#endif
