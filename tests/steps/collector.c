// Traces, from pipes into files.

#include "collector.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/format.h"
#include "observe/trace.h"

typedef struct {
    char *path, *key_path; // of the pipe, and of the key
    char *trace;           // the file's path
    int pipe, file;
    uint64_t key;
} Channel;

struct Collector {
    pthread_t thread;
    int wake; // an eventfd; written: nothing more comes
    int count;
    Channel channels[MAX_RANKS];
};

// True where there was something.
static bool move(const Channel *channel)
{
    char bytes[1 << 16];
    ssize_t count = read(channel->pipe, bytes, sizeof bytes);
    if (count > 0 && !write_whole(channel->file, bytes, (size_t)count))
        die("a trace can't be kept: %s", strerror(errno));
    return count > 0;
}

static void *collect(void *argument)
{
    const Collector *collector = argument;
    struct pollfd wanted[MAX_RANKS + 1];
    for (int i = 0; i < collector->count; i++)
        wanted[i] = (struct pollfd){.fd = collector->channels[i].pipe, .events = POLLIN};
    wanted[collector->count] = (struct pollfd){.fd = collector->wake, .events = POLLIN};
    for (bool more = true; more;) {
        poll(wanted, (nfds_t)collector->count + 1, -1);
        more = wanted[collector->count].revents == 0;
        for (int i = 0; i < collector->count; i++)
            while (wanted[i].revents && move(&collector->channels[i]))
                continue;
    }
    for (int i = 0; i < collector->count; i++)
        while (move(&collector->channels[i]))
            continue;
    return NULL;
}

// Open for both, so that it has no end before a process has opened it, or between two.
static Channel open_channel(const char *pipes, const char *files, int number)
{
    Channel channel = {.path = format_text("%s/rank-%d.jsonl", pipes, number),
                       .key_path = format_text("%s/rank-%d.key", pipes, number),
                       .trace = format_text("%s/rank-%d.jsonl", files, number)};
    if (getrandom(&channel.key, sizeof channel.key, 0) != sizeof channel.key)
        die("cannot get random numbers: %s", strerror(errno));
    FILE *key = fopen(channel.key_path, "we");
    if (!key || fprintf(key, "%016" PRIx64 "\n", channel.key) < 0 || fclose(key) != 0)
        die("cannot write %s: %s", channel.key_path, strerror(errno));
    if (mkfifo(channel.path, 0666) != 0 ||
        (channel.pipe = open(channel.path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0 ||
        (channel.file = open(channel.trace, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        die("cannot make a pipe for the traces: %s", strerror(errno));
    fcntl(channel.pipe, F_SETPIPE_SZ, 1 << 20); // where the system allows as much
    return channel;
}

Collector *collector_start(const char *pipes, const char *files, int count)
{
    Collector *collector = allocate(1, sizeof *collector);
    CHECK(count <= MAX_RANKS);
    collector->count = count;
    for (int i = 0; i < count; i++)
        collector->channels[i] = open_channel(pipes, files, i);
    collector->wake = eventfd(0, EFD_CLOEXEC);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); // they are the main thread's
    if (collector->wake < 0 || pthread_create(&collector->thread, NULL, collect, collector) != 0)
        die("cannot start a thread that takes the traces: %s", strerror(errno));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return collector;
}

// True where a whole line was written by another than the library, or again.
static bool is_forged(const Channel *channel)
{
    FILE *file = fopen(channel->trace, "re");
    if (!file)
        die("cannot read %s: %s", channel->trace, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    uint64_t number = 0, signature;
    bool forged = false;
    for (ssize_t length; !forged && (length = getline(&line, &room, file)) > 0;) {
        const char *tab = memrchr(line, '\t', (size_t)length);
        if (line[length - 1] != '\n')
            break; // the process was killed within it
        forged = !tab || sscanf(tab + 1, "%16" SCNx64, &signature) != 1 ||
                 signature != trace_signature(channel->key, number++, line, (size_t)(tab - line));
    }
    fclose(file);
    free(line);
    return forged;
}

RankSet collector_end(Collector *collector)
{
    RankSet forged = 0;
    eventfd_write(collector->wake, 1);
    pthread_join(collector->thread, NULL);
    for (int i = 0; i < collector->count; i++) {
        close(collector->channels[i].pipe);
        close(collector->channels[i].file);
        unlink(collector->channels[i].path);
        unlink(collector->channels[i].key_path); // where no process has read it
        forged |= is_forged(&collector->channels[i]) ? 1u << i : 0;
        free(collector->channels[i].path);
        free(collector->channels[i].key_path);
        free(collector->channels[i].trace);
    }
    close(collector->wake);
    free(collector);
    return forged;
}
