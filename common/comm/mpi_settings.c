// The settings of Open MPI for this machine; mpi_settings.h has the contract.

#include "comm/mpi_settings.h"

#include <glob.h>
#include <link.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/format.h"
#include "base/launcher.h"
#include "base/layout.h"

// ---- An Open MPI that is not the system's.

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

// ---- Bridges to this machine's own containers and virtual machines.

// Every machine with Docker has one, usually at the same address, and none leads to another physical
// machine. Open MPI takes them for a shared network: a rank connects to its own machine, and the job
// fails. So Open MPI is told to leave them out, as NCCL does (NCCL_SOCKET_IFNAME). For ranks in
// virtual machines of this one, across such a bridge, set btl_tcp_if_include.
#define INCLUDE "btl_tcp_if_include"
#define EXCLUDE "btl_tcp_if_exclude"
#define USUAL   "127.0.0.1/8,sppp" // what Open MPI leaves out by default

// Docker names a user's own networks br- and twelve hexadecimal digits.
static bool is_bridge(const char *name)
{
    static const char *const beginnings[] = {"docker", "podman", "cni-podman",
                                             "virbr",  "lxcbr",  "lxdbr"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return strncmp(name, "br-", 3) == 0 && strlen(name) == 15 &&
           strspn(name + 3, "0123456789abcdef") == 12;
}

// This machine's bridges, each after a comma; NULL: none.
static char *bridge_names(void)
{
    char *names = NULL;
    struct if_nameindex *all = if_nameindex();
    for (const struct if_nameindex *each = all; each && each->if_name; each++)
        if (is_bridge(each->if_name))
            text_add(&names, ",%s", each->if_name);
    if (all)
        if_freenameindex(all);
    return names;
}

// ---- Whether the user has set the networks. Open MPI refuses both settings at once.

static bool file_says(const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool says = false;
    while (file && !says && getline(&line, &room, file) >= 0) {
        const char *word = line + strspn(line, " \t");
        says = strncmp(word, INCLUDE, strlen(INCLUDE)) == 0 ||
               strncmp(word, EXCLUDE, strlen(EXCLUDE)) == 0;
    }
    free(line);
    if (file)
        fclose(file);
    return says;
}

// Frees the pattern.
static bool files_say(char *pattern)
{
    glob_t files = {0};
    bool say = false;
    if (glob(pattern, 0, NULL, &files) == 0)
        for (size_t i = 0; !say && i < files.gl_pathc; i++)
            say = file_says(files.gl_pathv[i]);
    globfree(&files);
    free(pattern);
    return say;
}

// The settings of an Open MPI in a folder of its own are beside its library's folder.
static int files_of_library_say(struct dl_phdr_info *library, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *end = strstr(library->dlpi_name, "/libmpi.so");
    return end && files_say(format_text("%.*s/../etc/openmpi-mca-params.conf",
                                        (int)(end - library->dlpi_name), library->dlpi_name));
}

// Set on mpirun's line, in the environment, or in a file. A file that a site has named is not read.
// (Open MPI 5 puts a file's settings into the environment.)
static bool user_has_set(void)
{
    const char *home = getenv("HOME");
    return getenv("OMPI_MCA_" INCLUDE) || getenv("OMPI_MCA_" EXCLUDE) ||
           getenv("OMPI_MCA_mca_base_param_files") ||
           getenv("OMPI_MCA_mca_base_param_file_prefix") ||
           files_say(format_text("%s/.openmpi/mca-params.conf", home ? home : "")) ||
           files_say(format_text("/etc/openmpi*/openmpi-mca-params.conf")) ||
           dl_iterate_phdr(files_of_library_say, NULL);
}

static void leave_out_bridges(void)
{
    char *names = bridge_names();
    if (names && !user_has_set()) {
        char *all = format_text(USUAL "%s", names);
        setenv("OMPI_MCA_" EXCLUDE, all, 1);
        free(all);
    }
    free(names);
}

// ---- Containers, and jobs of one machine.

// Ranks of one machine read each other's memory if they may. If a container's filter forbids it,
// Open MPI 4 prints errors unless it is told not to try.
static void respect_containers(void)
{
    char from = 1, to = 0;
    struct iovec here = {&to, 1}, there = {&from, 1};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1)
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

// Open MPI 5 asks the kernel which network reaches a rank, even on one machine; in a container
// without an answer it prints errors. So on one machine, also with simulated ones, it compares
// addresses instead. On several machines it only leaves bridges out.
void mpi_settings_choose(void)
{
    respect_containers();
    if (ranks_share_machine())
        setenv("OMPI_MCA_reachable", "weighted", 0);
    else if (launched())
        leave_out_bridges();
}
