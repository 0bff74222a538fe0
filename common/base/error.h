// Errors and warnings: one line each on standard error, which begins with the program's name.

#ifndef HVDLAB_ERROR_H
#define HVDLAB_ERROR_H

// Exit statuses beside 0: done in part, or failed; and nothing done, since the user must change
// something first.
#define STATUS_INCOMPLETE 1
#define STATUS_USER_MUST  2

#define PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))

// Exits because its user must change something: prints "PROGRAM: MESSAGE" on standard error and
// exits with status 2. Under mpirun the root rank speaks and exits at once; another rank waits a
// second and a half, and if the job still lives it speaks itself, naming its rank. mpirun then ends
// the other ranks. A process with a role (base/role.h) speaks at once, and names it. `format` has
// no newline and no program name in it.
_Noreturn void die(const char *format, ...) PRINTF_LIKE(1, 2);

// Exits in the same way, but with status 1: no setting was wrong, and yet its work can't be
// completed (a loss that is no number, say).
_Noreturn void give_up(const char *format, ...) PRINTF_LIKE(1, 2);

// From now on die() and give_up() call `function` with the exit status instead of leaving at once:
// with MPI there is a quicker way to end the other ranks than to let mpirun find out.
void set_abort_handler(void (*function)(int status));

// Prints "PROGRAM: warning: MESSAGE" on standard error and goes on.
void warn(const char *format, ...) PRINTF_LIKE(1, 2);

// The same, on the root rank only: for what concerns all ranks alike.
void warn_on_root(const char *format, ...) PRINTF_LIKE(1, 2);

// Prints "PROGRAM: note: MESSAGE" on standard error, on the root rank only.
void note_on_root(const char *format, ...) PRINTF_LIKE(1, 2);

// The program's name as standard error shows it: the last part of argv[0].
const char *program_name(void);

// Exits with file and line when the library itself is wrong (never for a user's fault).
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_failed(#condition, __FILE__, __LINE__);                                          \
    } while (0)
_Noreturn void check_failed(const char *condition, const char *file, int line);

#endif
