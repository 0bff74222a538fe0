// Small things that every layer needs: ending the program with one clear line, memory, time, and
// the rank that the launcher gave this process.
//
// Standard error carries one line per warning or error, and each begins with the program's name.

#ifndef HVDLAB_UTIL_H
#define HVDLAB_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))

// Ends the program because its user must change something: prints "PROGRAM: MESSAGE" on standard
// error and exits with status 2. Under mpirun the root rank speaks and exits at once; another rank
// waits a second and a half, and if the job still lives it speaks itself, naming its rank. mpirun
// then ends the other ranks. `format` has no newline and no program name in it.
_Noreturn void die(const char *format, ...) PRINTF_LIKE(1, 2);

// From now on die() calls `end_job` with the exit status instead of leaving at once: with MPI there
// is a quicker way to end the other ranks than to let mpirun find out.
void set_job_end(void (*end_job)(int status));

// Prints "PROGRAM: warning: MESSAGE" on standard error and goes on.
void warn(const char *format, ...) PRINTF_LIKE(1, 2);

// The same, on the root rank only: for what concerns all ranks alike.
void warn_on_root(const char *format, ...) PRINTF_LIKE(1, 2);

// Prints "PROGRAM: note: MESSAGE" on standard error, on the root rank only.
void note_on_root(const char *format, ...) PRINTF_LIKE(1, 2);

// The program's name as standard error shows it: the last part of argv[0].
const char *program_name(void);

// Ends the program with file and line when the library itself is wrong (never for a user's fault).
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_failed(#condition, __FILE__, __LINE__);                                          \
    } while (0)
_Noreturn void check_failed(const char *condition, const char *file, int line);

// Zeroed memory for `count` objects of `size` bytes, aligned to 64 bytes; the caller frees it with
// free(). Ends the program when there is none, or when count * size overflows.
void *allocate(size_t count, size_t size);

// Tells a leak checker that these objects, and what they point to, may live until the process ends:
// a program that has trained ends without freeing its model, as a Keras script does. NULL is
// nothing. One may still free them.
void lives_until_exit(const void *memory);

// A formatted string that the caller frees.
char *format_text(const char *format, ...) PRINTF_LIKE(1, 2);

// Seconds on a clock that only goes forward.
double seconds_now(void);

// The value of an environment variable that holds a whole number of at least 1, or 0 where it is
// not set or empty. Ends the program when it holds anything else.
int environment_count(const char *name);

// The rank and the number of ranks, as the launcher's environment has them (Open MPI's mpirun, PMI
// or Slurm); 0 and 1 for a process that was started without one. Known before MPI is initialised.
int launcher_rank(void);
int launcher_size(void);

// True where a launcher started this process.
bool launched(void);

// Where a process stands among those of its node. Two settings make one machine look like several
// nodes: HVD_LAYOUT=0,0,1,0,1 names the node of each rank, from rank 0 on (names beyond the last
// rank are no matter); HVD_RANKS_PER_NODE=K makes as many as hold K ranks each, dealt to them in
// turn as mpirun's --map-by node does (rank r on node r % nodes). Where both are set, the layout
// counts; without them there is one node, this one. Ends the program where a setting makes no
// sense. Who is on a node the launcher's environment says, until MPI is asked (set_place).
typedef struct {
    int local_rank, local_size;
    int node, nodes; // 0 and 1 where nothing is pretended
} Place;
Place launcher_place(void);

// True where one of the two settings is there.
bool pretends_nodes(void);

// From now on launcher_place() answers so, unless one of the two settings pretends otherwise: MPI
// knows which ranks share a machine, whatever the launcher's environment says.
void set_place(int local_rank, int local_size);

// A process's name and parent; false where there is no such process.
bool look_at_process(int process, char name[64], int *parent);

// The launcher above a process (mpirun, or its daemon on this node; something may stand between,
// such as a shell), else the process's parent.
int launcher_above(int process);

// The one above this process, or -1 where none started it.
int launcher_process(void);

#endif
