// For tests of what ends a program: runs a function in a child process and keeps the exit status
// and what it printed.

#ifndef HVDLAB_TESTS_CHILD_H
#define HVDLAB_TESTS_CHILD_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int status;      // the exit status, or 128 + the signal that ended the child
    char out[16384]; // standard output
    char err[4096];  // standard error
} Outcome;

// Copies what the child wrote, cut to `size` bytes with the final '\0'.
static inline void child_output(FILE *file, char *text, size_t size)
{
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

// Calls body(argument) in a child, which exits with status 0 if it returns.
static inline Outcome run_in_child(void (*body)(const void *), const void *argument)
{
    Outcome outcome = {0};
    FILE *out = tmpfile(), *err = tmpfile();
    ck_assert(out && err);
    fflush(NULL); // else the child would print what waits in this process's buffers once more
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        body(argument);
        exit(EXIT_SUCCESS);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    child_output(out, outcome.out, sizeof outcome.out);
    child_output(err, outcome.err, sizeof outcome.err);
    return outcome;
}

// What it wrote to standard error must be one line, with these words in it.
static inline void assert_one_line(const Outcome *outcome, const char *words)
{
    const char *end = strchr(outcome->err, '\n');
    ck_assert_msg(end && end[1] == '\0', "not one line: %s", outcome->err);
    ck_assert_msg(strstr(outcome->err, words), "no '%s': %s", words, outcome->err);
}

// body(argument) must end its process with status 2 and such a line.
static inline Outcome assert_refused(void (*body)(const void *), const void *argument,
                                     const char *words)
{
    Outcome outcome = run_in_child(body, argument);
    ck_assert_msg(outcome.status == 2, "status %d, and no '%s': %s", outcome.status, words,
                  outcome.err);
    assert_one_line(&outcome, words);
    return outcome;
}

// A call that ends the program in that way, for a table of them.
typedef struct {
    void (*call)(void);
    const char *words;
} RefusedCall;

static inline void make_call(const void *refused)
{
    ((const RefusedCall *)refused)->call();
}

static inline void assert_call_refused(const RefusedCall *refused)
{
    assert_refused(make_call, refused, refused->words);
}

// Runs a suite, each test in a process of its own; the result is main's.
static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
