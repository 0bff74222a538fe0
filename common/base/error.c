// Prints errors and warnings; fatal errors exit.

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/launcher.h"
#include "base/last_words.h"
#include "base/role.h"

#define MAX_MESSAGE 4096 // bytes of a line on standard error

const char *program_name(void)
{
    return program_invocation_short_name;
}

// A text may quote user input with a line break; a message stays one line.
static void keep_to_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == '\x7f')
            *text = '?';
}

// Prints "PROGRAM: PREFIX MESSAGE" by a single call, so that the lines of several ranks don't mix.
// Allocates nothing: memory may be exhausted.
static void say(const char *prefix, const char *format, va_list arguments)
{
    char message[MAX_MESSAGE];
    vsnprintf(message, sizeof message, format, arguments);
    keep_to_one_line(message);
    fprintf(stderr, "%s: %s%s\n", program_name(), prefix, message);
}

static void (*abort_handler)(int status) = _exit;

void set_abort_handler(void (*function)(int status))
{
    abort_handler = function;
}

// Prints the final message of this process, unless the job has ended meanwhile.
static void say_last(const char *format, va_list arguments)
{
    // Several threads may find the same fault; only the first one prints it.
    static atomic_flag ending = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&ending))
        pause();

    char prefix[32] = "";
    int rank = launcher_rank();
    Role role = role_from_environment();
    if (role.kind && !launched()) { // no launcher ends it when another process has left
        snprintf(prefix, sizeof prefix, "%s %d: ", role_name(role.kind), role.number);
    } else if (rank != 0) {
        snprintf(prefix, sizeof prefix, "rank %d: ", rank);
        // mpirun ends the ranks one second after the root has exited, by a signal that may be
        // handled.
        sleep_seconds(OTHERS_WAIT);
    }
    fflush(stdout);
    say(prefix, format, arguments);
}

// Not exit(): an exit handler that ends MPI would wait for the other ranks.
_Noreturn static void leave(int status)
{
    abort_handler(status);
    _exit(status);
}

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_last(format, arguments);
    va_end(arguments);
    leave(STATUS_USER_MUST);
}

void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_last(format, arguments);
    va_end(arguments);
    leave(STATUS_INCOMPLETE);
}

void warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("warning: ", format, arguments);
    va_end(arguments);
}

void warn_on_root(const char *format, ...)
{
    if (launcher_rank() != 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    say("warning: ", format, arguments);
    va_end(arguments);
}

void note_on_root(const char *format, ...)
{
    if (launcher_rank() != 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    say("note: ", format, arguments);
    va_end(arguments);
}

void check_failed(const char *condition, const char *file, int line)
{
    fflush(stdout);
    fprintf(stderr, "%s: rank %d: %s:%d: internal error: assertion failed: %s\n", program_name(),
            launcher_rank(), file, line, condition);
    abort();
}
