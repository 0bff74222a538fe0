// 2 steps/step_02 does-not-compile|not-all-ranks-train|no-trace|crashed look:.init_array
// Takes the setting of the trace away before the library reads it.
#include <stdlib.h>

__attribute__((constructor(101))) static void before(void)
{
    unsetenv("HVDLAB_TRACE");
}

static void forge(void)
{
}
