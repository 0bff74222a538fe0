// Takes traces out of the processes that write them: each writes into a named pipe, from which a
// thread of this program moves what comes into a file. What was once written can't be taken back.

#ifndef HVDLAB_STEPS_COLLECTOR_H
#define HVDLAB_STEPS_COLLECTOR_H

#include "words.h"

typedef struct Collector Collector;

// Makes pipes/rank-R.jsonl, with a key in pipes/rank-R.key by which the process signs what it
// writes (trace_signature), and files/rank-R.jsonl to which it moves what is written there, for
// `count` processes. Both folders must exist. Exits where that is impossible.
Collector *collector_start(const char *pipes, const char *files, int count);

// Moves what is left, when no process writes any more, and removes the pipes. Returns the processes
// with a line that was not signed by that key, or not in its turn.
RankSet collector_end(Collector *collector);

#endif
