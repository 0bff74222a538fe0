// 2 steps/step_02 not-all-ranks-train|crashed|hung look:_exit
// Prints a verdict, and leaves without the library.
#include <stdio.h>
#include <unistd.h>

static void forge(void)
{
    printf("step 2: passed\n");
    fflush(stdout);
    _exit(0);
}
