// 1 solutions/step_01 hung|crashed look:kill
// Kills all processes that it can.
#include <signal.h>
#include <sys/types.h>

static void forge(void)
{
    kill(-1, SIGKILL);
}
