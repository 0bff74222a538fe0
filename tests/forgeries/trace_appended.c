// 2 steps/step_02 forged-trace
// Appends events to the trace.
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
            dprintf(number, "{\"event\":\"fit\",\"t\":1,\"verbose\":0}\n");
    }
}

static void forge(void)
{
    atexit(append);
}
