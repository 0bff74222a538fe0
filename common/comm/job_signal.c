// The signals that end a job; job_signal.h has the contract.

#include "comm/job_signal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/last_words.h"

static const struct {
    int number;
    const char *name;
} ending[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
enum { ENDING = sizeof ending / sizeof *ending };

static atomic_int caught, sender, waker, owner;

// The interrupted thread stops here: the signal would end the process.
static void note_signal(int number, siginfo_t *information, void *unused)
{
    (void)unused;
    if (getpid() == owner && caught)
        return;              // mpirun may send two; the first ends the program
    if (getpid() == owner) { // not a child that has just been forked
        sender = information->si_pid;
        caught = number;
        eventfd_write(waker, 1);
        sleep_seconds(HANDLER_WAIT);
    }
    signal(number, SIG_DFL);
    raise(number); // as soon as this function returns
}

void catch_signals(int wake)
{
    waker = wake;
    owner = getpid();
    for (int i = 0; i < ENDING; i++) {
        struct sigaction present;
        struct sigaction ours = {.sa_sigaction = note_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
        if (sigaction(ending[i].number, NULL, &present) == 0 && present.sa_handler == SIG_DFL)
            sigaction(ending[i].number, &ours, NULL);
    }
}

void release_signals(void)
{
    for (int i = 0; i < ENDING; i++) {
        struct sigaction present;
        if (sigaction(ending[i].number, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) &&
            present.sa_sigaction == note_signal)
            signal(ending[i].number, SIG_DFL);
    }
}

void ending_signals(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < ENDING; i++)
        sigaddset(set, ending[i].number);
}

int job_signal(void)
{
    return caught;
}

int job_signal_sender(void)
{
    return sender;
}

const char *job_signal_name(void)
{
    for (int i = 0; i < ENDING; i++)
        if (ending[i].number == caught)
            return ending[i].name;
    return "no signal";
}

_Noreturn void die_by_signal(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
    _exit(128 + number);
}
