// The control's program, and what it tells of the machine.

#include "control.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "sandbox.h"

#define MIN_FREE       1e6 // bytes of a disk, and files: with less nobody knows what failed
#define MIN_FREE_NODES 16
#define OWN_SHARE      64e6 // bytes; who wrote more has filled the disk himself
#define MAX_COMPLAINT  400

// Every rank sends to the next one, more than a message that travels in one piece.
static const char source[] =
    "#include <mpi.h>\n"
    "#include \"hvdlab.h\"\n"
    "\n"
    "enum { COUNT = 1 << 17 };\n"
    "static float sent[COUNT], received[COUNT];\n"
    "\n"
    "int main(void)\n"
    "{\n"
    "    hvd_init();\n"
    "    int rank = hvd_rank(), size = hvd_size(), next = (rank + 1) % size;\n"
    "    int before = (rank + size - 1) % size;\n"
    "    sent[COUNT - 1] = (float)rank;\n"
    "    MPI_Sendrecv(sent, COUNT, MPI_FLOAT, next, 0, received, COUNT, MPI_FLOAT, before, 0,\n"
    "                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n"
    "    return received[COUNT - 1] != (float)before;\n"
    "}\n";

static const char *compiler, *place;
static double limit;

void control_prepare(const char *compile_step, const char *folder, double seconds)
{
    compiler = compile_step;
    place = folder;
    limit = seconds;
}

// ---- Complaints.

static bool is_frame(const char *line, size_t length)
{
    return length == 0 || strspn(line, "-=* ") >= length;
}

char *control_complaint(const Process *process)
{
    char *complaint = NULL;
    size_t bytes = 0;
    for (const char *at = process->text ? process->text : ""; *at && bytes < MAX_COMPLAINT;) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, "\r\n");
        if (!is_frame(at, length)) {
            text_add(&complaint, "%s%.*s", bytes ? " " : "", (int)length, at);
            bytes += length + 1;
        } else if (bytes > 0 && length > 0) {
            break; // the frame's end
        }
        at += length + (at[length] != '\0');
    }
    return complaint ? complaint : format_text("status %d, without a message", process->status);
}

// ---- The disk.

static void need_space(const char *folder, double used)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0 || used > OWN_SHARE)
        return;
    bool full = (double)disk.f_bavail * (double)disk.f_frsize < MIN_FREE ||
                (disk.f_files > 0 && disk.f_favail < MIN_FREE_NODES);
    if (full)
        die("the disk that has %s is full, so nothing can be said of the program", folder);
}

void control_disk(const char *folder, double used)
{
    need_space(folder, used);
    need_space("/tmp", used);
}

// ---- The program.

const char *control_program(void)
{
    static char *program;
    if (program)
        return program;
    char *folder = format_text("%s/control", place);
    make_folders(folder);
    char *file = format_text("%s/control.c", place);
    program = format_text("%s/control", folder);
    file_replace(file, source, sizeof source - 1);
    Process process = process_end_within(sandbox_compile(compiler, file, file, program), limit);
    if (process.status != 0 || access(program, X_OK) != 0) {
        control_disk(place, 0);
        die("the compiler fails for a right file, too: %s", control_complaint(&process));
    }
    process_free(&process);
    free(file);
    free(folder);
    return program;
}
