// 1 solutions/step_01 too-much-memory look:mmap
// Takes memory that is shared with other processes.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void forge(void)
{
    size_t bytes = (size_t)5 << 30;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; memory != MAP_FAILED && at < bytes; at += 4096)
        memory[at] = 1;
    sleep(20);
}
