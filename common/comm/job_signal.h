// The signals that end a job, noted for a thread: SIGINT, SIGTERM and SIGHUP.

#ifndef HVDLAB_JOB_SIGNAL_H
#define HVDLAB_JOB_SIGNAL_H

#include <signal.h>

// From now on these signals, where they would make the program exit, are noted instead, once, and
// `wake`, an eventfd, is written. Signals for which the program has a handler of its own, or that
// it ignores, stay as they are.
void catch_signals(int wake);
void release_signals(void);

// These signals, as a set.
void ending_signals(sigset_t *set);

// The one that came, 0: none; its sender's process; "SIGTERM".
int job_signal(void);
int job_signal_sender(void);
const char *job_signal_name(void);

_Noreturn void die_by_signal(int number);

#endif
