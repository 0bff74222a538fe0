// What is known of runs with parameter servers: their processes, and what each of them is waiting
// for. The workers are ranks 0 to N - 1, the servers follow.

#ifndef HVDLAB_STEPS_SERVERS_H
#define HVDLAB_STEPS_SERVERS_H

#include "run.h"

// "worker 2", "server 0"; "rank 2" where there are no servers. Valid until the fourth call after
// it.
const char *process_words(const Traces *traces, int rank);

// The same of several: "workers 0 and 2", "workers 0-2 and server 0". The caller frees it.
char *process_names(const Traces *traces, RankSet ranks);

// The server's number that a worker waits for, in a pull without an answer; -1: it waits for none.
int awaited_server(const Traces *traces, int rank);

// Has some server been told that this worker is gone, done or lost?
bool worker_has_left(const Traces *traces, int rank);

// True where the processes that have not ended wait for each other, and have taken all that was
// sent to them: then none will ever go on.
bool is_deadlock_of_servers(const Traces *traces);

// Has the server with that rank taken all that workers have sent to it?
bool has_taken_all(const Traces *traces, int rank);

// How many requests of that kind the server with that rank has taken; worker -1: from any.
int requests_taken(const Traces *traces, int rank, const char *kind, int worker);

#endif
