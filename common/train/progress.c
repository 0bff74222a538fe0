// The progress bar.

#include "train/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run/args.h"
#include "base/clock.h"
#include "base/launcher.h"
#include "base/format.h"

#define BAR_WIDTH     30
#define DRAW_INTERVAL 0.1 // seconds

// Under mpirun a process writes to a pseudo-terminal even when mpirun's own output goes to a file.
static bool launcher_writes_to_terminal(void)
{
    char *link = format_text("/proc/%d/fd/1", launcher_process());
    char target[256];
    ssize_t length = readlink(link, target, sizeof target - 1);
    free(link);
    if (length < 0)
        return false;
    target[length] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

static bool wants_bar(void)
{
    if (settings()->progress != PROGRESS_AUTO)
        return settings()->progress == PROGRESS_BAR;
    const char *terminal = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || (terminal && strcmp(terminal, "dumb") == 0))
        return false;
    return !launched() || launcher_writes_to_terminal();
}

ProgressBar progress_begin(int64_t steps, int verbose)
{
    return (ProgressBar){.bar = verbose && wants_bar(), .steps = steps, .begin = seconds_now()};
}

bool progress_due(const ProgressBar *progress)
{
    return progress->bar && seconds_now() - progress->drawn >= DRAW_INTERVAL;
}

static void draw_bar(const ProgressBar *progress, int64_t done)
{
    char bar[BAR_WIDTH + 1];
    int filled = (int)(BAR_WIDTH * done / progress->steps);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '=', (size_t)filled);
    if (filled < BAR_WIDTH)
        bar[filled] = '>';
    bar[BAR_WIDTH] = '\0';
    int width = snprintf(NULL, 0, "%lld", (long long)progress->steps);
    printf("\r%*lld/%lld [%s]", width, (long long)done, (long long)progress->steps, bar);
}

static void print_duration(double seconds)
{
    int s = (int)(seconds + 0.5);
    if (s >= 3600)
        printf("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    else if (s >= 60)
        printf("%d:%02d", s / 60, s % 60);
    else
        printf("%ds", s);
}

void progress_draw(ProgressBar *progress, int64_t done, const Metrics *metrics)
{
    double now = seconds_now(), elapsed = now - progress->begin;
    progress->drawn = now;
    draw_bar(progress, done);
    printf(" - ETA: ");
    print_duration(elapsed / (double)done * (double)(progress->steps - done));
    progress_metric("loss", metrics->loss / metrics->images);
    progress_metric("accuracy", metrics->correct / metrics->images);
    printf("\033[K"); // erases what a longer line before left
    fflush(stdout);
}

void progress_clear(const ProgressBar *progress)
{
    if (progress->bar)
        printf("\r\033[K");
}

void progress_end(const ProgressBar *progress)
{
    if (progress->bar)
        draw_bar(progress, progress->steps);
    else
        printf("%lld/%lld", (long long)progress->steps, (long long)progress->steps);
    printf(" - %.1fs", seconds_now() - progress->begin);
}

void progress_metric(const char *name, double value)
{
    printf(fabs(value) > 1e-3 || value == 0 ? " - %s: %.4f" : " - %s: %.4e", name, value);
}
