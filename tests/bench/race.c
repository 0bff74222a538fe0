// The referee's side of the race.

#include "race.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/util.h"

// In the child: becomes the contestant.
static _Noreturn void become(int in, int out, const char *const *command,
                             const char *const *environment)
{
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    for (; environment && *environment; environment += 2)
        setenv(environment[0], environment[1], 1);
    execvp(command[0], (char *const *)(uintptr_t)command);
    die("cannot start %s", command[0]);
}

bool contestant_start(Contestant *c, const char *name, const char *const *command,
                      const char *const *environment)
{
    int in[2], out[2];
    // Closed on exec: a contestant must not hold the ends of an earlier one's pipes open.
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    c->name = name;
    fflush(stdout);
    c->pid = fork();
    CHECK(c->pid >= 0);
    if (c->pid == 0)
        become(in[0], out[1], command, environment);
    close(in[0]);
    close(out[1]);
    c->to = fdopen(in[1], "w");
    c->from = fdopen(out[0], "r");
    char line[256] = "";
    if (fgets(line, sizeof line, c->from) && strcmp(line, "ready\n") == 0)
        return true;
    line[strcspn(line, "\n")] = '\0';
    printf("  %s is left out: %s\n", name, *line ? line : "it did not start");
    contestant_stop(c);
    return false;
}

void contestant_stop(Contestant *c)
{
    fclose(c->to); // the end of its input ends it
    fclose(c->from);
    waitpid(c->pid, NULL, 0);
}

// Seconds for that many steps.
static double take_turn(Contestant *c, int steps)
{
    double seconds = 0;
    fprintf(c->to, "run %d\n", steps);
    fflush(c->to);
    if (fscanf(c->from, "%lf %lf", &seconds, &c->peak_rss_mib) != 2)
        die("bench: %s stopped in the middle", c->name);
    return seconds;
}

void race(Contestant *contestants, int count, int rounds, double round_time)
{
    int *steps = allocate((size_t)count, sizeof *steps);
    for (int i = 0; i < count; i++) {
        double seconds = take_turn(&contestants[i], 1);
        steps[i] = seconds < round_time ? (int)(round_time / seconds) : 1;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++)
            contestants[i].seconds[round] = take_turn(&contestants[i], steps[i]) / steps[i];
    free(steps);
}

void contestant_profile(Contestant *c, int steps, Taken taken[WORK_KINDS])
{
    fprintf(c->to, "profile %d\n", steps);
    fflush(c->to);
    for (int kind = 0; kind < WORK_KINDS; kind++)
        if (fscanf(c->from, "%lf %lf", &taken[kind].calls, &taken[kind].seconds) != 2)
            die("bench: %s stopped in the middle", c->name);
}

Rates contestant_rates(Contestant *c)
{
    Rates rates;
    fprintf(c->to, "rates 1\n");
    fflush(c->to);
    if (fscanf(c->from, "%lf %lf", &rates.flops, &rates.bytes) != 2)
        die("bench: %s stopped in the middle", c->name);
    return rates;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(const double *values, int count)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

double speed_ratio(const Contestant *a, const Contestant *b, int rounds)
{
    double ratios[MAX_ROUNDS];
    for (int round = 0; round < rounds; round++)
        ratios[round] = b->seconds[round] / a->seconds[round];
    return median(ratios, rounds);
}
