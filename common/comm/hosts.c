// Reads hostfiles, and asks the hosts that they name.

#include "comm/hosts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "comm/launch.h"

// ---- The file: a host a line, "node0 slots=2", comments behind #.

static int slots_of(const char *line)
{
    const char *word = strstr(line, "slots");
    while (word && word > line && word[-1] != ' ' && word[-1] != '\t') // max_slots
        word = strstr(word + 1, "slots");
    int slots;
    return word && sscanf(word, "slots = %d", &slots) == 1 && slots > 0 ? slots : 1;
}

static void add_host(Hosts *hosts, const char *line)
{
    const char *name = line + strspn(line, " \t");
    int length = (int)strcspn(name, " \t#");
    if (length == 0)
        return;
    hosts->items = enlarge(hosts->items, (size_t)hosts->count + 1, sizeof *hosts->items);
    hosts->items[hosts->count++] = (Host){.name = format_text("%.*s", length, name),
                                          .line = format_text("%s", line),
                                          .slots = slots_of(name),
                                          .answers = true};
}

Hosts hosts_read(const char *path)
{
    Hosts hosts = {0};
    FILE *file = fopen(path, "re");
    if (!file)
        die("the hostfile %s cannot be read: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        add_host(&hosts, line);
    }
    free(line);
    fclose(file);
    if (hosts.count == 0)
        die("the hostfile %s names no host", path);
    return hosts;
}

void hosts_free(Hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        free(hosts->items[i].name);
        free(hosts->items[i].line);
    }
    free(hosts->items);
    *hosts = (Hosts){0};
}

char *hosts_write(const Hosts *hosts)
{
    const char *folder = getenv("TMPDIR");
    char *path = format_text("%s/hvdrun-hosts-XXXXXX", folder && *folder ? folder : "/tmp");
    int descriptor = mkstemp(path);
    bool written = descriptor >= 0;
    for (int i = 0; written && i < hosts->count; i++)
        if (hosts->items[i].answers)
            written = dprintf(descriptor, "%s\n", hosts->items[i].line) > 0;
    if (!written || close(descriptor) != 0)
        die("%s cannot be written: %s", path, strerror(errno));
    return path;
}

// ---- Who answers.

// Of a question that has been asked; false while there is no answer.
static bool has_ended(Host *host, pid_t *process)
{
    int status;
    pid_t ended = waitpid(*process, &status, WNOHANG);
    if (ended == 0)
        return false;
    host->answers = ended == *process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    *process = 0;
    return true;
}

// Each host is asked to sleep: on a busy machine Open MPI 5 misses the end of one program in twenty
// that ends at once, and waits forever.
int hosts_ask(Hosts *hosts, double seconds)
{
    double begin = seconds_now();
    int open = hosts->count, answers = 0;
    pid_t *processes = allocate((size_t)hosts->count, sizeof *processes);
    for (int i = 0; i < hosts->count; i++)
        processes[i] = start_silent((char *[]){(char[]){"mpirun"}, (char[]){"--host"},
                                               hosts->items[i].name, (char[]){"-np"}, (char[]){"1"},
                                               (char[]){"sleep"}, (char[]){"0.2"}, NULL});
    while (open > 0 && seconds_now() - begin < seconds) {
        for (int i = 0; i < hosts->count; i++)
            open -= processes[i] && has_ended(&hosts->items[i], &processes[i]);
        usleep(20000);
    }
    for (int i = 0; i < hosts->count; i++) {
        if (processes[i]) {
            kill(processes[i], SIGKILL);
            waitpid(processes[i], NULL, 0);
            hosts->items[i].answers = false;
        }
        answers += hosts->items[i].answers;
    }
    free(processes);
    return answers;
}

char *hosts_text(const Hosts *hosts, bool answer)
{
    char *text = format_text("%s", "");
    int left = 0, told = 0;
    for (int i = 0; i < hosts->count; i++)
        left += hosts->items[i].answers == answer;
    for (int i = 0; i < hosts->count; i++) {
        if (hosts->items[i].answers != answer)
            continue;
        const char *between = told == 0 ? "" : told + 1 == left ? " and " : ", ";
        char *longer = format_text("%s%s%s", text, between, hosts->items[i].name);
        free(text);
        text = longer;
        told++;
    }
    return text;
}

int hosts_room(const Hosts *hosts, int ranks)
{
    int all = 0, left = 0;
    for (int i = 0; i < hosts->count; i++) {
        all += hosts->items[i].slots;
        left += hosts->items[i].answers ? hosts->items[i].slots : 0;
    }
    CHECK(all > 0);
    int most = left * ((ranks + all - 1) / all);
    return ranks < most ? ranks : most;
}
