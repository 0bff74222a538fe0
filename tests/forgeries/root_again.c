// 1 solutions/step_01 passed look:setuid
// Asks to be root again.
#include <stdlib.h>
#include <unistd.h>

#include <stdio.h>

static int fopen_shadow(void)
{
    return fopen("/etc/shadow", "r") != NULL;
}

static void forge(void)
{
    if (setuid(0) == 0 && geteuid() == 0 && fopen_shadow())
        abort();
}
