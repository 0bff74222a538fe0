// The launcher that started this process (Open MPI's mpirun, PMI or Slurm), known before MPI is
// initialised. The variables are taken as they are; layout.h checks them.

#ifndef HVDLAB_LAUNCHER_H
#define HVDLAB_LAUNCHER_H

#include <stdbool.h>

// What a launcher says of more ranks than this is taken for nonsense.
#define MAX_LAUNCHED (1 << 20)

// The rank and the number of ranks; of a process that was started without a launcher 0 and 1, or
// what its role says (base/role.h).
int launcher_rank(void);
int launcher_size(void);

// The same among the ranks of this node, as the launcher has it: before MPI is asked, and without
// simulated nodes. launcher_place() in layout.h knows better.
int launcher_local_rank(void);
int launcher_local_size(void);

// True where a launcher started this process.
bool launched(void);

// True where Slurm's srun did: Slurm's variables describe this process only then.
bool launched_by_srun(void);

// Which job this process is of: a text that all of its ranks have, and no other job on this
// machine.
typedef struct {
    char text[256];
} JobName;
JobName launcher_job(void);

// The launcher above a process (mpirun, or its daemon on this node; something may stand between,
// such as a shell), else the process's parent.
int launcher_above(int process);

// The one above this process, or -1 where none started it.
int launcher_process(void);

#endif
