// POSIX's clocks.

#include "base/clock.h"

#include <errno.h>
#include <time.h>

static double seconds_by(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double seconds_now(void)
{
    return seconds_by(CLOCK_MONOTONIC);
}

double date_now(void)
{
    return seconds_by(CLOCK_REALTIME);
}

void sleep_seconds(double seconds)
{
    if (!(seconds > 0))
        return;
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}
