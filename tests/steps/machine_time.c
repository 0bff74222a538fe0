// What the kernel says of threads that wait for a processor: /proc/PID/task/TID/schedstat, two
// numbers in nanoseconds, of running and of waiting. That includes the time in which a control
// group's quota is used up. A kernel without that file loses no time.

#include "machine_time.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include "base/clock.h"
#include "base/process.h"
#include "usage.h"

#define INTERVAL     0.25 // seconds between two looks
#define COMPILE_TIME 1.0  // seconds; a laptop of 2020 takes a third
#define MAX_SLOWNESS 4.0

typedef struct {
    double ran, waited; // seconds, of all threads
} Taken;

static void add_thread(int process, const char *thread, Taken *taken)
{
    char path[300], text[128];
    snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", process, thread);
    file_beginning(path, text, sizeof text);
    double ran, waited;
    if (sscanf(text, "%lf %lf", &ran, &waited) == 2) {
        taken->ran += 1e-9 * ran;
        taken->waited += 1e-9 * waited;
    }
}

static void add_process(int process, Taken *taken)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads));)
        if (entry->d_name[0] != '.')
            add_thread(process, entry->d_name, taken);
    if (threads)
        closedir(threads);
}

static Taken taken_by(int process)
{
    int below[MAX_PROCESSES], count = processes_below(process, below, MAX_PROCESSES);
    Taken taken = {0};
    for (int i = 0; i < count; i++)
        add_process(below[i], &taken);
    return taken;
}

double machine_time(int process)
{
    static double lost, last;
    static int watched;
    static Taken before;
    double now = seconds_now();
    if (process != watched) {
        watched = process;
        last = now;
        before = taken_by(process);
    }
    if (now - last >= INTERVAL) {
        // Threads that have ended count no more; then nothing is known of this time.
        Taken taken = taken_by(process);
        double ran = fmax(taken.ran - before.ran, 0),
               waited = fmax(taken.waited - before.waited, 0);
        lost += fmax(fmin(waited, now - last - ran), 0);
        last = now;
        before = taken;
    }
    return now - lost;
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

double machine_slowness(void)
{
    struct rusage children = {0};
    getrusage(RUSAGE_CHILDREN, &children);
    double taken = seconds_of(children.ru_utime) + seconds_of(children.ru_stime);
    return fmin(fmax(taken / COMPILE_TIME, 1), MAX_SLOWNESS);
}
