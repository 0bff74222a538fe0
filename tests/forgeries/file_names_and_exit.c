// 1 solutions/step_01 too-many-files look:open
// Makes as many files as it can, and leaves at once.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void forge(void)
{
    for (int number = 0; number < 1000000; number++) {
        char name[64];
        snprintf(name, sizeof name, "/tmp/%d-%d", (int)getpid(), number);
        int file = open(name, O_WRONLY | O_CREAT, 0600);
        if (file < 0)
            _exit(14);
        close(file);
    }
}
