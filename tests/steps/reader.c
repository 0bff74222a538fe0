// A process without rights: another user's where this program is root, in Landlock where the kernel
// has it, and with a list of the system calls that reading takes.

#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include "process.h"
#include "run.h"
#include "seal.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif

#define MAX_MEMORY ((rlim_t)2 << 30)

enum { MAX_FOLDERS = 64 };

typedef struct {
    Reading reading;
    const char *const *folders;
    void *argument;
    double seconds;
    uid_t user; // that it becomes
} Request;

// ---- What it may not do.

static void limit(int resource, rlim_t most)
{
    const struct rlimit both = {most, most};
    setrlimit((__rlimit_resource_t)resource, &both);
}

// (As root only of others' programs, whose files have that user: one's own belong to root.)
static void become_nobody(uid_t user)
{
    if (user != getuid() && (setgroups(0, NULL) != 0 || setresgid(user, user, user) != 0 ||
                             setresuid(user, user, user) != 0))
        die("cannot become another user: %s", strerror(errno));
    prctl(PR_SET_DUMPABLE, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        die("cannot give up rights: %s", strerror(errno));
}

#ifdef LANDLOCK_CREATE_RULESET_VERSION
// Files outside of these folders can't be opened.
static void keep_to(const int *folders)
{
    const struct landlock_ruleset_attr all = {.handled_access_fs =
                                                  (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all.handled_access_fs, 0);
    for (; rules >= 0 && *folders >= 0; folders++) {
        const struct landlock_path_beneath_attr rule = {
            .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
            .parent_fd = *folders};
        syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    }
    if (rules >= 0) {
        syscall(SYS_landlock_restrict_self, rules, 0);
        close(rules);
    }
}
#else
static void keep_to(const int *folders)
{
    (void)folders;
}
#endif

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE
// Reading, memory, time, and the end.
static const unsigned calls[] = {
    SYS_read,         SYS_readv,          SYS_pread64,      SYS_lseek,       SYS_write,
    SYS_writev,       SYS_close,          SYS_fstat,        SYS_newfstatat,  SYS_statx,
    SYS_getdents64,   SYS_fcntl,          SYS_brk,          SYS_mmap,        SYS_munmap,
    SYS_mremap,       SYS_mprotect,       SYS_madvise,      SYS_futex,       SYS_clock_gettime,
    SYS_gettimeofday, SYS_getpid,         SYS_gettid,       SYS_getuid,      SYS_sysinfo,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_sched_getaffinity,
    SYS_getrandom,    SYS_fchdir,         SYS_exit,         SYS_exit_group,
};
enum { CALLS = sizeof calls / sizeof *calls };

#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define LOAD(field)                                                                                \
    (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_EQUAL(value, then, otherwise)                                                           \
    (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, otherwise)
#define RETURN(what) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, what)

// Any other call fails with EPERM; so does an open that does more than read, and a signal to
// another process (abort() sends this one its own). A kernel without seccomp leaves out this wall.
static void keep_to_reading(void)
{
    struct sock_filter program[CALLS + 16];
    unsigned short count = 0;
    program[count++] = LOAD(arch);
    program[count++] = IF_EQUAL(ARCHITECTURE, 1, 0);
    program[count++] = RETURN(SECCOMP_RET_KILL_PROCESS);
    program[count++] = LOAD(nr);
    for (int i = 0; i < CALLS; i++) // to the last instruction, which allows it
        program[count++] = IF_EQUAL(calls[i], (unsigned char)(CALLS - i + 7), 0);
    program[count++] = IF_EQUAL(SYS_openat, 0, 3);
    program[count++] = LOAD(args[2]);
    program[count++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, WRITES);
    program[count++] = IF_EQUAL(0, 4, 3);
    program[count++] = IF_EQUAL(SYS_tgkill, 0, 2);
    program[count++] = LOAD(args[0]);
    program[count++] = IF_EQUAL((unsigned)getpid(), 1, 0);
    program[count++] = RETURN(SECCOMP_RET_ERRNO | EPERM);
    program[count++] = RETURN(SECCOMP_RET_ALLOW);
    const struct sock_fprog filter = {count, program};
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}
#else
static void keep_to_reading(void)
{
}
#endif

// ---- The reader.

static void read_without_rights(void *argument)
{
    const Request *request = argument;
    int folders[MAX_FOLDERS + 1], count = 0;
    for (; request->folders[count]; count++) {
        CHECK(count < MAX_FOLDERS);
        folders[count] = open(request->folders[count], O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (folders[count] < 0)
            die("cannot open %s: %s", request->folders[count], strerror(errno));
    }
    folders[count] = -1;
    crowding(); // it looks into folders of the system
    limit(RLIMIT_CPU, (rlim_t)request->seconds + 1);
    limit(RLIMIT_FSIZE, 0);
    become_nobody(request->user);
    limit(RLIMIT_NPROC, 0);
#ifndef __SANITIZE_ADDRESS__ // which reserves terabytes
    limit(RLIMIT_DATA, MAX_MEMORY);
#endif
    keep_to(folders);
    keep_to_reading();
    request->reading(folders, request->argument);
}

static char *fault_of(const Process *process, bool in_time)
{
    int signal_number = process->status - 128;
    const char *said = process->text ? process->text : "";
    if (!in_time || signal_number == SIGXCPU)
        return format_text("took too long");
    if (signal_number > 0)
        return format_text("was ended by signal %d (%s)%s%.200s", signal_number,
                           strsignal(signal_number), *said ? ": " : "", said);
    return format_text("ended with status %d%s%.200s", process->status, *said ? ": " : "", said);
}

Answer reader_ask(Reading reading, const char *const *folders, void *argument, double seconds)
{
    Request request = {reading, folders, argument, seconds, seal_user()};
    Process process = process_call(read_without_rights, &request);
    double end = seconds_now() + seconds;
    while (!process.ended && seconds_now() < end)
        process_wait(&process, 50);
    bool in_time = process.ended;
    process_kill(&process);
    Answer answer = {0};
    if (in_time && process.status == 0)
        answer.text = format_text("%s", process.text ? process.text : "");
    else
        answer.fault = fault_of(&process, in_time);
    process_free(&process);
    return answer;
}

void answer_free(Answer *answer)
{
    free(answer->text);
    free(answer->fault);
    *answer = (Answer){0};
}
