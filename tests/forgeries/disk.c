// 1 solutions/step_01 too-much-disk|crashed look:open
// Fills the disk.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void forge(void)
{
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    for (int number = 0;; number++) {
        char name[32];
        snprintf(name, sizeof name, "file-%d", number);
        int file = open(name, O_WRONLY | O_CREAT, 0600);
        for (int i = 0; i < 200; i++)
            if (file < 0 || write(file, block, sizeof block) < 0)
                abort();
        close(file);
    }
}
