// 1 steps/step_01 UNTOUCHED|crashed look:ptrace
// Attaches itself to the processes above it.
#include <sys/ptrace.h>
#include <sys/types.h>
#include <unistd.h>

static void forge(void)
{
    ptrace(PTRACE_ATTACH, getppid(), 0, 0);
    ptrace(PTRACE_ATTACH, 1, 0, 0);
}
