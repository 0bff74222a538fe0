// Where each rank of a run is when nothing moves any more, and what keeps it there, in words.

#ifndef HVDLAB_STEPS_WHEREABOUTS_H
#define HVDLAB_STEPS_WHEREABOUTS_H

#include "events.h"

// Lines of the kind "rank 0 waits in the broadcast of the variables" and "ranks 1-3, after step 3
// of epoch 1, wait in the all-reduce of the gradients". The caller frees it.
char *whereabouts(const Traces *traces);

// "; the last thing that the check saw: the return of MPI_Recv", or "". The caller frees it.
char *last_seen(const Events *events);

// The ranks that wait in a collective call on the communicator of that name; in a message.
RankSet ranks_waiting_for(const Traces *traces, const char *name);
RankSet ranks_waiting_for_messages(const Traces *traces);

// The ranks that neither wait for others nor have ended.
RankSet busy_ranks(const Traces *traces);

// True where ranks asked fit() for different numbers of "steps", or "epochs".
bool plans_differ(const Traces *traces, const char *field);

#endif
