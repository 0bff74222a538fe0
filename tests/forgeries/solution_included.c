// 1 steps/step_01 does-not-compile
// Includes the solution from the folder of the kit.
#include "KIT/solutions/step_01.c"
static void forge(void)
{
}
