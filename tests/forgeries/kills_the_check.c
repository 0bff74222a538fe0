// 1 solutions/step_01 crashed|hung|passed look:kill
// Kills the processes above it.
#include <signal.h>
#include <unistd.h>

static void forge(void)
{
    for (int i = 0; i < 3; i++)
        kill(getppid(), SIGKILL);
}
