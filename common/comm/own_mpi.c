// An Open MPI that is not the system's: what it must be told where its mpirun did not start us.

#include "comm/own_mpi.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"

// Words NAME=VALUE from the Makefile; PATH's value is the folder of mpirun.
#ifndef HVDLAB_OWN_MPI
#define HVDLAB_OWN_MPI ""
#endif

static void add_to_path(const char *folder)
{
    const char *path = getenv("PATH");
    size_t length = strlen(folder);
    if (path && strncmp(path, folder, length) == 0 && strchr(":", path[length]))
        return;
    char *longer = format_text("%s:%s", folder, path ? path : "/usr/bin:/bin");
    setenv("PATH", longer, 1);
    free(longer);
}

void own_mpi_find(void)
{
    char words[] = HVDLAB_OWN_MPI, *rest;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (strcmp(word, "PATH") == 0)
            add_to_path(value);
        else
            setenv(word, value, 0);
    }
}
