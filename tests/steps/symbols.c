// The undefined symbols of an object, and its sections.

#include "symbols.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "words.h"

// Names with a star stand for all that begin so.
static const char *const watched[] = {
    "PMPI_*",
    "dlopen",
    "dlmopen",
    "dlsym",
    "dladdr",
    "dl_iterate_phdr",
    "ptrace",
    "process_vm_*",
    "syscall",
    "fork",
    "vfork",
    "clone",
    "daemon",
    "exec*",
    "fexecve",
    "posix_spawn*",
    "system",
    "popen",
    "socket",
    "connect",
    "bind",
    "mprotect",
    "prctl",
    "personality",
    "kill",
    "killpg",
    "tgkill",
    "_exit",
    "_Exit",
    "quick_exit",
    "unshare",
    "setns",
    "mount",
    "chroot",
    "pivot_root",
    "setuid",
    "setgid",
    "shm_open",
    "shmget",
    "memfd_create",
    "mmap",
    "fopen*",
    "freopen*",
    "open",
    "open64",
    "openat*",
    "creat",
    "MPI_Win_*",
    "MPI_Neighbor_*",
    "MPI_Ineighbor_*",
    "MPI_File_*",
    "MPI_Comm_spawn*",
    "MPI_Comm_connect",
    "MPI_Comm_accept",
    "MPI_Comm_join",
    "MPI_T_*",
    "_r_debug",
    "_DYNAMIC",
    NULL,
};

// Sections whose code runs before or after main.
static const char *const before_main[] = {".init_array", ".preinit_array", ".ctors", ".fini_array",
                                          ".dtors",      ".init",          ".fini",  NULL};

static bool is_named(const char *name, const char *const *list, bool begins)
{
    for (; *list; list++) {
        size_t length = strlen(*list);
        bool star = (*list)[length - 1] == '*';
        if (strncmp(name, *list, star ? length - 1 : length) == 0 &&
            (star || name[length] == '\0' || (begins && name[length] == '.')))
            return true;
    }
    return false;
}

char *symbols_to_look_at(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[4096], name[1024], *calls = NULL, *sections = NULL, *text = NULL;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, " U %1023s", name) == 1 && is_named(name, watched, false))
            text_add(&calls, "%s%s", calls ? ", " : "", name);
        else if (sscanf(line, " %*d %1023s %*x", name) == 1 && is_named(name, before_main, true))
            text_add(&sections, "%s%s", sections ? ", " : "", name);
    }
    if (file)
        fclose(file);
    if (calls)
        text_add(&text, "it uses %s", calls);
    if (sections)
        text_add(&text, "%scode of it runs before or after main (%s)", text ? "\n" : "", sections);
    free(calls);
    free(sections);
    return text;
}
