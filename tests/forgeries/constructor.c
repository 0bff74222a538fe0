// 1 solutions/step_01 passed look:.init_array
// Works before main.
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void before(void)
{
    if (fopen("KIT/solutions/step_01.c", "r") || fopen("PRECIOUS", "r"))
        abort();
}

static void forge(void)
{
}
