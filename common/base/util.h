// Small things that every layer needs: ending the program with one clear line, memory, time, and
// the rank that the launcher gave this process.
//
// Standard error carries one line per warning or error, and each begins with the program's name.

#ifndef HVDLAB_UTIL_H
#define HVDLAB_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exit statuses beside 0: done in part, or failed; and nothing done, since the user must change
// something first.
#define STATUS_INCOMPLETE 1
#define STATUS_USER_MUST  2

#define PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))

// Ends the program because its user must change something: prints "PROGRAM: MESSAGE" on standard
// error and exits with status 2. Under mpirun the root rank speaks and exits at once; another rank
// waits a second and a half, and if the job still lives it speaks itself, naming its rank. mpirun
// then ends the other ranks. A process with a role (base/role.h) speaks at once, and names it.
// `format` has no newline and no program name in it.
_Noreturn void die(const char *format, ...) PRINTF_LIKE(1, 2);

// Ends the program in the same way, but with status 1: no setting was wrong, and yet its work can't
// be completed (a loss that is no number, say).
_Noreturn void give_up(const char *format, ...) PRINTF_LIKE(1, 2);

// From now on die() and give_up() call `end_job` with the exit status instead of leaving at once:
// with MPI there is a quicker way to end the other ranks than to let mpirun find out.
void set_job_end(void (*end_job)(int status));

// Prints "PROGRAM: warning: MESSAGE" on standard error and goes on.
void warn(const char *format, ...) PRINTF_LIKE(1, 2);

// The same, on the root rank only: for what concerns all ranks alike.
void warn_on_root(const char *format, ...) PRINTF_LIKE(1, 2);

// The program goes on, but something that it was to leave behind is lost (a log, its output): where
// it would end with status 0 it prints "PROGRAM: MESSAGE" as its last line and ends with 1. What
// was written to standard output and did not arrive is noticed without this call.
void ends_incomplete(const char *format, ...) PRINTF_LIKE(1, 2);

// How many such calls there were so far.
int losses_so_far(void);

// Looks whether what mpirun prints for its ranks gets lost, since they can't see it themselves: it
// goes to a disk that is full, or to /dev/full. The program then ends incomplete. Also called when
// the program ends.
void watch_output(void);

// Before main (start.c): opens the standard streams that are closed, so that no file takes their
// place. At exit: exits with status 1 where ends_incomplete() was called and the status would be 0.
void process_begin(void);
void process_end(int status);

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

// The block at `memory` (NULL: a new one), which the caller had from here, with room for `count`
// objects of `size` bytes; what is added is not zeroed. Ends the program when there is none.
void *enlarge(void *memory, size_t count, size_t size);

// Whether there is room for `bytes` more in the address space, and the end of the program where
// there is none, since `what` needs it: to be asked before a library that does not look whether it
// got its memory.
bool has_room(size_t bytes);
void need_room(size_t bytes, const char *what);

// Tells a leak checker that these objects, and what they point to, may live until the process ends:
// a program that has trained ends without freeing its model, as a Keras script does. NULL is
// nothing. One may still free them.
void lives_until_exit(const void *memory);

// A formatted string that the caller frees.
char *format_text(const char *format, ...) PRINTF_LIKE(1, 2);

// The shortest decimal number that reads back as this float, "0.01".
typedef struct {
    char text[16];
} FloatText;
FloatText float_text(float number);

// "rank 2", "ranks 0, 2-4 and 7": `count` ranks in ascending order, at least one. The caller frees
// it.
char *ranks_text(const int *ranks, int count);

// "3,9": any numbers. The caller frees it.
char *numbers_text(const int *numbers, int count);

// Makes the folder and those above it that are not there; where one can't be made, the program ends
// with a line.
void make_folders(const char *path);

// Reads a whole number from 0 to `largest` that is all of `text`; false where it is none. Only
// digits: strtoull would also take white space in front and turn -1 into a very large number.
bool read_whole_number(const char *text, uint64_t largest, uint64_t *number);

// Seconds on a clock that only goes forward.
double seconds_now(void);

// Sleeps so many seconds, whatever signals come; not at all where they are not above 0. A signal
// handler may call it.
void sleep_seconds(double seconds);

// The value of an environment variable that holds a whole number from 1 to `most`, or 0 where it is
// not set or empty. Ends the program when it holds anything else.
int environment_count(const char *name, int most);

// The rank and the number of ranks, as the launcher's environment has them (Open MPI's mpirun, PMI
// or Slurm); of a process that was started without one 0 and 1, or what its role says
// (base/role.h). Known before MPI is initialised.
// A launcher's environment that contradicts itself or holds no numbers (a rank that is not below
// the size, a size above MAX_LAUNCHED, ...) ends the program with one line before main.
#define MAX_LAUNCHED (1 << 20)
int launcher_rank(void);
int launcher_size(void);

// Exits where the launcher's environment contradicts itself. start.c calls it before main.
void launcher_check(void);

// True where a launcher started this process.
bool launched(void);

// Where a process stands among those of its node. Two settings make one machine look like several
// nodes: HVD_LAYOUT=0,0,1,0,1 names the node of each rank, from rank 0 on (names beyond the last
// rank are no matter); HVD_RANKS_PER_NODE=K makes as many as hold K ranks each, dealt to them in
// turn as mpirun's --map-by node does (rank r on node r % nodes). Where both are set, the layout
// counts; without them there is one node, this one. Ends the program where a setting makes no
// sense. HVD_RANKS_PER_NODE is at most MAX_LAUNCHED, a node's name at most 999. Who is on a node
// the launcher's environment says, until MPI is asked (set_place).
typedef struct {
    int local_rank, local_size;
    int node, nodes; // 0 and 1 where nothing is simulated
} Place;
Place launcher_place(void);

// A simulated node's name: "node-12". From 100 to 999 a letter stands for the hundreds, "node-12-b"
// for 112, so that hosts can have names that differ in no number.
typedef struct {
    char text[32];
} NodeName;
NodeName node_name(int node);

// True where one of the two settings is there.
bool simulates_nodes(void);

// From now on launcher_place() answers so, unless one of the two settings says otherwise: MPI
// knows which ranks share a machine, whatever the launcher's environment says.
void set_place(int local_rank, int local_size);

// The launcher above a process (mpirun, or its daemon on this node; something may stand between,
// such as a shell), else the process's parent.
int launcher_above(int process);

// The one above this process, or -1 where none started it.
int launcher_process(void);

#endif
