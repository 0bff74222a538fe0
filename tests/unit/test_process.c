// What common/base/process.h promises: processes are found as /proc shows them.

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/process.h"
#include "child.h"

// Its name may hold what else ends a name in /proc/PID/stat.
START_TEST(a_process_is_known_whatever_its_name)
{
    int ends[2], children[8];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NAME, "a) R 1 (b");
        close(ends[1]);
        while (read(ends[0], &ends[1], 1) > 0)
            continue;
        _exit(0);
    }
    ProcessStatus status;
    for (int i = 0; i < 500; i++) {
        ck_assert(process_status(child, &status));
        if (strcmp(status.name, "a) R 1 (b") == 0)
            break;
        usleep(10000);
    }
    ck_assert_str_eq(status.name, "a) R 1 (b");
    ck_assert_int_eq(status.parent, getpid());
    ProcessStatus parent;
    ck_assert(process_status(getpid(), &parent));
    ck_assert(status.began >= parent.began && parent.began > 0);
    ck_assert_int_eq(process_children(getpid(), children, 8), 1);
    ck_assert_int_eq(children[0], child);
    close(ends[1]);
    close(ends[0]);
    waitpid(child, NULL, 0);
    ck_assert(!process_status(child, &status));
}
END_TEST

START_TEST(a_machine_has_its_own_name_whatever_is_simulated)
{
    char name[256];
    struct utsname names;
    uname(&names);
    setenv("HVD_LAYOUT", "0,1", 1);
    ck_assert_str_eq(machine_name().text, names.nodename);
    ck_assert_int_eq(gethostname(name, sizeof name), 0);
    ck_assert_str_ne(machine_name().text, name);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("process");
    TCase *tcase = tcase_create("process");
    tcase_add_test(tcase, a_process_is_known_whatever_its_name);
    tcase_add_test(tcase, a_machine_has_its_own_name_whatever_is_simulated);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
