// What is known of runs with parameter servers: their processes, and what each of them is waiting
// for. The workers are ranks 0 to N - 1, the servers follow.

#ifndef HVDLAB_STEPS_SERVERS_H
#define HVDLAB_STEPS_SERVERS_H

#include "run.h"

// "worker 2", "server 0"; valid until the fourth call after it.
const char *process_words(const Traces *traces, int rank);

// -1: the trace does not tell.
int worker_count(const Traces *traces);

// The server's number that a worker waits for, in a pull without an answer; -1: it waits for none.
int awaited_server(const Traces *traces, int rank);

// Has some server been told that this worker is gone, done or lost?
bool worker_has_left(const Traces *traces, int rank);

// True where the processes that have not ended wait for each other, and have taken all that was
// sent to them: then none will ever go on.
bool is_deadlock_of_servers(const Traces *traces);

// How many requests of that kind the server with that rank has taken; worker -1: from any.
int requests_taken(const Traces *traces, int rank, const char *kind, int worker);

#endif
