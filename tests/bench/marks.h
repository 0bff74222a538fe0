// Marks on the way of the device's work, and the time between them: CUDA events on a GPU, which
// works while the host goes on; the clock on a CPU, where a call returns when its work is done.

#ifndef BENCH_MARKS_H
#define BENCH_MARKS_H

// Marks what has been queued until now; returns the mark's number.
int mark(void);

// Seconds that the device took from one mark to another; waits for the second.
double seconds_between(int begin, int end);

// Forgets all marks.
void marks_forget(void);

#endif
