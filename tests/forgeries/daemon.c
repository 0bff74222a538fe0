// 1 solutions/step_01 passed look:fork
// Leaves a process behind.
#include <unistd.h>

static void forge(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0)
            for (;;)
                sleep(1000);
        _exit(0);
    }
}
