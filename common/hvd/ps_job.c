// The environment of a job of parameter servers and workers, and the partition of the weights.

#include "hvd/ps_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/setting.h"

// ---- The environment.

static const char *needed(Setting setting, const char *example)
{
    const char *text = setting_text(setting), *name = setting_name(setting);
    if (!text)
        die("%s is not set: a job of parameter servers needs it in the environment of each "
            "process, as %s=%s",
            name, name, example);
    return text;
}

// Cached: programs may call this in a loop.
static Role need_role(void)
{
    static Role found;
    if (found.kind)
        return found;
    const char *role = needed(HVD_ROLE, "server:0"),
               *servers = needed(HVD_SERVERS, "127.0.0.1:7001"),
               *workers = needed(HVD_WORKERS, "3");
    found = role_from_environment();
    if (!found.kind)
        die("HVD_ROLE=%.40s, HVD_SERVERS=%.200s and HVD_WORKERS=%.40s make no sense together: a "
            "role is server:N or worker:N, and N is below the number of addresses, or of workers",
            role, servers, workers);
    return found;
}

bool ps_is_server(void)
{
    return need_role().kind == ROLE_SERVER;
}

int ps_number(void)
{
    return need_role().number;
}

int ps_servers(void)
{
    return need_role().servers;
}

int ps_workers(void)
{
    return need_role().workers;
}

static TcpAddress *read_addresses(int count)
{
    TcpAddress *addresses = allocate((size_t)count, sizeof *addresses);
    const char *at = needed(HVD_SERVERS, "127.0.0.1:7001");
    for (int i = 0; i < count; i++) {
        size_t length = strcspn(at, ",");
        if (!tcp_address(at, length, &addresses[i]))
            die("HVD_SERVERS: \"%.*s\" is no address HOST:PORT", (int)(length < 200 ? length : 200),
                at);
        at += length + (at[length] == ',');
    }
    return addresses;
}

static void read_word(char word[PS_WORD])
{
    const char *text = needed(HVD_JOB, "any-word, the same for all");
    if (strlen(text) >= PS_WORD)
        die("HVD_JOB is longer than %d characters", PS_WORD - 1);
    memcpy(word, text, strlen(text));
}

PsJob ps_job(const char *caller, RoleKind kind)
{
    PsJob job = {.role = need_role(),
                 .begin = seconds_now(),
                 .warning = setting_seconds(HVD_STALL_SECONDS),
                 .most = setting_seconds(HVD_START_SECONDS)};
    if (job.role.kind != kind)
        die("%s: this process is %s %d (HVD_ROLE)", caller, role_name(job.role.kind),
            job.role.number);
    read_word(job.word);
    job.servers = read_addresses(job.role.servers);
    return job;
}

void ps_job_free(PsJob *job)
{
    free(job->servers);
    job->servers = NULL;
}

const char *ps_server_name(const PsJob *job, int server)
{
    static char name[sizeof(TcpAddress) + 32];
    snprintf(name, sizeof name, "server %d (%s:%s)", server, job->servers[server].host,
             job->servers[server].port);
    return name;
}

// ---- The parts.

// An optimizer's work is separate for each value, so any offset would do; multiples of a vector are
// faster.
Share ps_part(const Parameters *parameters, int server, int servers)
{
    return share_of_blocks(parameters->length, 16, server, servers); // floats
}

size_t ps_part_bytes(const Share *part)
{
    return sizeof(int64_t) + part->count * sizeof(float);
}

// ---- Waiting at the beginning.

void ps_wait_for(PsJob *job, const char *who, const char *why)
{
    double waited = seconds_now() - job->begin;
    const char *colon = *why ? ": " : "";
    if (waited > job->most)
        die("%s has not come within %g seconds (HVD_START_SECONDS)%s%s", who, job->most, colon,
            why);
    if (job->warning > 0 && waited > job->warning) {
        fprintf(stderr, "%s: %s %d: waiting for %s for %.0f seconds now%s%s\n", program_name(),
                role_name(job->role.kind), job->role.number, who, waited, colon, why);
        job->warning = 2 * waited;
    }
}
