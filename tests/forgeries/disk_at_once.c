// 1 solutions/step_01 too-much-disk look:posix_fallocate
// Takes the disk in a moment, in the folder for temporary files, and stays to the end.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void forge(void)
{
    for (int number = 0; number < 24; number++) {
        char name[256];
        snprintf(name, sizeof name, "%s/file-%d-%d", getenv("TMPDIR"), (int)getpid(), number);
        int file = open(name, O_WRONLY | O_CREAT, 0600);
        posix_fallocate(file, 0, 250 << 20);
        close(file);
        for (int i = 0; i < 64; i++) { // what is left
            snprintf(name, sizeof name, "/tmp/file-%d-%d-%d", (int)getpid(), number, i);
            file = open(name, O_WRONLY | O_CREAT, 0600);
            posix_fallocate(file, 0, 4 << 20);
            close(file);
        }
    }
}
