// ring steps/ring does-not-compile
// Includes the annotated source of the lab.
#define STEP 9
#include "KIT/labs/03-allreduce/ring.c"
static void forge(void)
{
}
