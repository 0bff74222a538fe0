// 2 steps/step_02 UNTOUCHED
// Prints a verdict and leaves.
#include <stdio.h>
#include <stdlib.h>

static void forge(void)
{
    printf("step 2: passed\n");
    fflush(stdout);
}
