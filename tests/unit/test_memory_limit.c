// What tests/steps/memory_limit.h promises, with memory that RLIMIT_DATA does not count.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "child.h"
#include "steps/memory_limit.h"

#define MIB   ((size_t)1 << 20)
#define LIMIT (64 * MIB)

// The wait status of a child that joins the limit and writes to so much shared memory.
static int status_of_child(const char *limit, size_t bytes)
{
    pid_t child = fork();
    if (child == 0) {
        memory_limit_join(limit);
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            _exit(1);
        memset(memory, 1, bytes);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

START_TEST(who_stays_below_the_limit_is_not_killed)
{
    char *limit = memory_limit_begin(LIMIT);
    ck_assert_ptr_nonnull(limit);
    ck_assert_int_eq(status_of_child(limit, LIMIT / 4), 0);
    ck_assert(!memory_limit_end(limit));
}
END_TEST

START_TEST(who_exceeds_the_limit_is_killed_and_this_is_known)
{
    char *limit = memory_limit_begin(LIMIT);
    ck_assert_ptr_nonnull(limit);
    char *folder = strdup(limit);
    int status = status_of_child(limit, 4 * LIMIT);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert(memory_limit_end(limit));
    ck_assert_int_ne(access(folder, F_OK), 0);
    free(folder);
}
END_TEST

int main(void)
{
    char *limit = memory_limit_begin(LIMIT);
    if (!limit) {
        puts("skipped: this system does not let you make cgroups");
        return 77;
    }
    memory_limit_end(limit);
    Suite *suite = suite_create("memory limit");
    TCase *tcase = tcase_create("memory limit");
    tcase_add_test(tcase, who_stays_below_the_limit_is_not_killed);
    tcase_add_test(tcase, who_exceeds_the_limit_is_killed_and_this_is_known);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
