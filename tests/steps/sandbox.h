// Where a student's program runs: in folders of its own, out of reach of the kit's and the user's
// files where bubblewrap can do that (bwrap, which must be installed and allowed to), and elsewhere
// at least not where they lie.

#ifndef HVDLAB_STEPS_SANDBOX_H
#define HVDLAB_STEPS_SANDBOX_H

#include "process.h"

typedef struct {
    char *folder;    // the run's, absolute; owned, as the others are
    char *trace;     // below it: the traces
    char *work;      // where the program finds itself; its HOME, too
    char *temporary; // for mpirun's own files: a short name, since sockets take no long one
    bool sealed;     // by bubblewrap
} Sandbox;

// Makes the folders. Ends this program when that is impossible.
Sandbox sandbox_make(const char *folder);

// Copies what is in a folder to where the program will find itself.
void sandbox_fill(const Sandbox *sandbox, const char *files);

// Starts argv[0], an absolute name, in it.
Process sandbox_start(const Sandbox *sandbox, const char *const argv[]);

// True where what argv[0] became has living children.
bool sandbox_has_children(const Sandbox *sandbox, const Process *process);

void sandbox_free(Sandbox *sandbox);

// Removes what would stay behind if this program ended now.
void sandbox_tidy_up(void);

#endif
