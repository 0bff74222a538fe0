// 1 solutions/step_01 passed look:open
// Writes where nothing of a run has to be.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void forge(void)
{
    static const char *const places[] = {"/written",     "/dev/written",  "/etc/written",
                                         "/var/written", "/home/written", "/mnt/written"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (mkdir(places[i], 0700) == 0 || open(places[i], O_WRONLY | O_CREAT, 0600) >= 0)
            abort();
}
