// 1 solutions/step_01 too-much-memory
// Takes memory without end.
#include <stdlib.h>
#include <string.h>

static void forge(void)
{
    for (;;)
        memset(malloc(100 << 20), 1, 100 << 20);
}
