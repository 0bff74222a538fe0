// 2 steps/step_02 forged-trace
// Signs an event with a signature of its own.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void append(void)
{
    for (int number = 3; number < 64; number++) {
        char path[64], name[256] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        if (readlink(path, name, sizeof name - 1) > 0 && strstr(name, ".jsonl"))
            dprintf(number, "{\"event\":\"init\",\"t\":1}\t0123456789abcdef\n");
    }
}

static void forge(void)
{
    atexit(append);
}
