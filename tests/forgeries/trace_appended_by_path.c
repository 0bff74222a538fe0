// 2 steps/step_02 forged-trace
// Finds the pipe of the trace beside its own folder.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void forge(void)
{
    for (int rank = 0; rank < 16; rank++) {
        char path[64];
        snprintf(path, sizeof path, "../pipes/rank-%d.jsonl", rank);
        int pipe = open(path, O_WRONLY | O_NONBLOCK);
        if (pipe >= 0)
            dprintf(pipe, "{\"event\":\"end\",\"t\":1,\"status\":0}\n");
    }
}
