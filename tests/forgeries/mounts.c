// 1 solutions/step_01 passed look:unshare
// Makes namespaces of its own.
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>

static void forge(void)
{
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/tmp", "tmpfs", 0, 0) == 0 &&
        system("test -e PRECIOUS") == 0)
        abort();
}
