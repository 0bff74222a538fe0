// 1 solutions/step_01 too-much-output
// Prints without end.
#include <stdio.h>

static void forge(void)
{
    for (;;)
        puts("and on and on and on and on and on and on and on and on and on and on and on and on "
             "and on");
}
