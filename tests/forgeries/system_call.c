// 1 steps/step_01 UNTOUCHED|crashed look:syscall
// Asks the kernel past the C library.
#include <sys/syscall.h>
#include <unistd.h>

static void forge(void)
{
    syscall(SYS_ptrace, 16, getppid(), 0, 0);
}
