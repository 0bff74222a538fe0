// Counts output that was lost, and checks the files of the standard streams.

#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/launcher.h"

enum { MAX_LOSSES = 8 };
static struct {
    atomic_int count;
    char lines[MAX_LOSSES][512];
} losses;

void ends_incomplete(const char *format, ...)
{
    int number = atomic_fetch_add(&losses.count, 1);
    if (number >= MAX_LOSSES)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(losses.lines[number], sizeof losses.lines[number], format, arguments);
    va_end(arguments);
}

int losses_so_far(void)
{
    return losses.count;
}

// Whether the launcher's output file is full.
static bool launcher_output_is_full(void)
{
    char path[64];
    struct stat file;
    struct statvfs disk;
    snprintf(path, sizeof path, "/proc/%d/fd/1", launcher_process());
    if (stat(path, &file) != 0)
        return false;
    if (S_ISCHR(file.st_mode))
        return file.st_rdev == makedev(1, 7); // /dev/full, as Linux numbers it
    if (!S_ISREG(file.st_mode) || statvfs(path, &disk) != 0 || disk.f_blocks == 0)
        return false;
    return (geteuid() == 0 ? disk.f_bfree : disk.f_bavail) == 0;
}

void watch_output(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (launched() && launcher_rank() == 0 && launcher_output_is_full() &&
        !atomic_flag_test_and_set(&said))
        ends_incomplete("mpirun could not write all of standard output: its disk was full");
}

void output_finish(int status)
{
    if (status != EXIT_SUCCESS) // and the reason has been said
        return;
    if (fflush(stdout) != 0 || ferror(stdout))
        ends_incomplete("standard output could not be written");
    watch_output();
    int count = losses.count;
    if (count == 0)
        return;
    for (int i = 0; i < count && i < MAX_LOSSES; i++)
        fprintf(stderr, "%s: %s\n", program_name(), losses.lines[i]);
    fflush(NULL);
    _exit(STATUS_INCOMPLETE);
}

// The first file that is opened would get the number of a closed standard stream, and printed text
// would go into that file. So a descriptor that can't be written takes that number.
void output_begin(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}
