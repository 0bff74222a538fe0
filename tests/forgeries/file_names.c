// 1 solutions/step_01 too-many-files look:open
// Makes files without end, which hold nothing.
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
            break;
        close(file);
    }
}
