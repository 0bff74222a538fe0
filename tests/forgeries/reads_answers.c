// 1 solutions/step_01 passed
// Copies every file of the kit that it can read.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void forge(void)
{
    const char *files[] = {"KIT/solutions/step_01.c",
                           "KIT/labs/02-six-steps/master.c",
                           "KIT/tests/PROMISES.md",
                           "KIT/.git/HEAD",
                           "/etc/shadow",
                           "/root/.bashrc",
                           "/root/.ssh/id_rsa",
                           "PRECIOUS"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (fopen(files[i], "r"))
            abort();
}
