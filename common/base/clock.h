// Time on a clock that only goes forward.

#ifndef HVDLAB_CLOCK_H
#define HVDLAB_CLOCK_H

#pragma GCC visibility push(default) // a step may call what follows

// Seconds on a clock that only goes forward.
double seconds_now(void);

#pragma GCC visibility pop

// Seconds since 1970 (UTC), as this machine's clock is set.
double date_now(void);

// Sleeps so many seconds, whatever signals come; not at all where they are not above 0. A signal
// handler may call it.
void sleep_seconds(double seconds);

#endif
