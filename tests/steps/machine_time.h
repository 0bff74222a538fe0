// Time as a run gets it from the machine.

#ifndef HVDLAB_STEPS_MACHINE_TIME_H
#define HVDLAB_STEPS_MACHINE_TIME_H

// seconds_now() without the time that a run has lost to others, in this check so far: seconds in
// which threads of `process` and of its descendants waited for a processor, and all of them
// together ran on less than one. On a machine that gives a run a quarter of a core a second is a
// quarter of one. Must be called several times a second while the run goes on.
double machine_time(int process);

// How much slower than others this machine's processor is, from 1 to 4: by the processor time that
// the children that have ended took, of which the compiler is one.
double machine_slowness(void);

#endif
