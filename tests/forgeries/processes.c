// 1 solutions/step_01 too-many-processes|crashed look:fork
// Starts processes without end.
#include <unistd.h>

static void forge(void)
{
    for (;;)
        fork();
}
