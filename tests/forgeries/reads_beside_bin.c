// 1 solutions/step_01 passed
// Looks for files beside a folder "bin" of the caller's PATH.
#include <stdlib.h>
#include <unistd.h>

static void forge(void)
{
    if (access("ROSTER", F_OK) == 0)
        abort();
}
