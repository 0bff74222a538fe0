// 1 steps/step_01 UNTOUCHED|crashed|not-all-ranks-train look:exec
// Starts itself again with a library of its own in front.
#include <stdlib.h>
#include <unistd.h>

static void forge(void)
{
    if (!getenv("LD_PRELOAD")) {
        setenv("LD_PRELOAD", "./mine.so", 1);
        execl("/proc/self/exe", "step_01", (char *)0);
    }
}
