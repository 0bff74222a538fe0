// 1 solutions/step_01 does-not-compile
// Has a symbol whose name holds blanks and an option of objcopy.
extern int odd(void) __asm__("PMPI_Send=MPI_Send --strip-all");
#pragma weak odd

static void forge(void)
{
    if (odd)
        odd();
}
