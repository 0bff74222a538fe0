// What a parameter server makes of the gradients that workers push, and whether it answers those
// that pull, from its trace.

#ifndef HVDLAB_STEPS_PUSHES_H
#define HVDLAB_STEPS_PUSHES_H

#include "judge.h"

#define EACH_APPLIED "every push becomes one update, by itself and at once"
#define RETURNS      "the server's loop returns to main"

// What is wrong with them: a push that is not applied so; a server that main does not stop.
Fault pushes_fault(const Run *run);
Fault return_fault(const Run *run);

// The first fault that a server of the run has.
Fault each_server(const Run *run, Fault (*fault)(const Run *run, int rank));

// Do two fingerprints mean the same gradients, but for rounding? `scale` is of their size.
bool same_gradients(double a, double b, double scale);

// Reports a server that has left while workers still needed it; false: there is none.
bool report_left_early(const Run *run, Report *report);

// The pull that a server has taken and not answered, and of which worker (its rank); -1: none.
int unanswered_worker(const Traces *traces, int server_rank);

#endif
