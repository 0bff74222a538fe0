// 1 solutions/step_01 hung|crashed look:fork
// Starts processes without end.
#include <unistd.h>

static void forge(void)
{
    for (;;)
        fork();
}
