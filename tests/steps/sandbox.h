// Where a student's file is compiled and its program runs: in folders of its own, and in the seal
// that the check has chosen (seal.h).

#ifndef HVDLAB_STEPS_SANDBOX_H
#define HVDLAB_STEPS_SANDBOX_H

#include <stdbool.h>
#include "process.h"

typedef struct {
    char *folder;    // the run's, absolute; owned, as the others are
    char *trace;     // beside it: the traces, out of the program's sight where sealed
    char *pipes;     // into which the processes write them; the program's HVDLAB_TRACE
    char *work;      // where the program finds itself; its HOME, too
    char *logs;      // for the program's --log-dir, a flag that takes no blanks
    char *temporary; // for mpirun's own files: a short name, since sockets take no long one
    char *scratch;   // below the folder: /tmp and /dev/shm of the seal
    bool limited;    // the folder, with all that the program may write, has a limit (storage.h)
} Sandbox;

// The temporary folder's name begins so, and a link of that name in the run's folder leads to it.
#define TEMPORARY_BEGIN "/tmp/hvdlab-"
#define TEMPORARY_LINK  "temporary"

// Makes the folders. Ends this program when that is impossible.
Sandbox sandbox_make(const char *folder);

// Copies what is in a folder to where the program will find itself.
void sandbox_fill(const Sandbox *sandbox, const char *files);

// Removes one of the files there, by its path below that folder.
void sandbox_lose(const Sandbox *sandbox, const char *path);

// Starts argv[0], an absolute name, in it. `files` (a list that NULL ends) can be read there: of
// the kit and of home folders nothing else can. All of them must exist.
Process sandbox_start(const Sandbox *sandbox, const char *const argv[], const char *const *files);

// Compiles `copy`, which the compiler finds as `file` (for its messages, and for headers beside
// it), by the program `compiler`, into `program`.
Process sandbox_compile(const char *compiler, const char *file, const char *copy,
                        const char *program);

// True where what argv[0] became has living children.
bool sandbox_has_children(const Process *process);

void sandbox_free(Sandbox *sandbox);

// Removes what would stay behind if this program ended now.
void sandbox_tidy_up(void);

#endif
