// Compares the times of the program and of steps/F.c.

#include "lessons/stale_program.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"

static bool is_later(struct timespec a, struct timespec b)
{
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

void stale_program_check(void)
{
    char program[PATH_MAX] = "", source[PATH_MAX + 16];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return;
    char *name = strrchr(program, '/');
    if (!name || name - program < 6 || strncmp(name - 6, "/build", 6) != 0)
        return;
    snprintf(source, sizeof source, "%.*s/steps/%s.c", (int)(name - 6 - program), program,
             name + 1);
    struct stat built, edited;
    if (stat(program, &built) == 0 && stat(source, &edited) == 0 &&
        is_later(edited.st_mtim, built.st_mtim))
        warn_on_root("steps/%s.c was changed after this program was built: make build/%s", name + 1,
                     name + 1);
}
