// 1 steps/step_01 does-not-compile
// Takes the solution into its data.
__asm__(".incbin \"KIT/solutions/step_01.c\"");
static void forge(void)
{
}
