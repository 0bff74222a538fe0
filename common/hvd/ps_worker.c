// A worker of a job with parameter servers: pulls weights, pushes gradients, and detects lost
// servers.

#include "hvd/ps_inside.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "base/memory.h"
#include "observe/trace.h"

// The state of one server's connection.
typedef struct {
    PsLink link;
    Share part;
    bool welcome; // it has said that all are there
    bool asked;   // it owes weights
    bool pulled;  // it has sent some
    int64_t version;
} Server;

struct PsWorker {
    PsJob job;
    Model *model;
    const Parameters *parameters;
    Server *servers;
};

_Noreturn static void server_is_gone(PsWorker *worker, int gone)
{
    double deadline = seconds_now() + PARTNERS_WAIT;
    for (int s = 0; s < worker->job.role.servers; s++)
        if (s != gone && worker->servers[s].link.socket >= 0)
            ps_tell_lost(&worker->servers[s].link, (uint32_t)gone, deadline);
    die("%s is gone, and its part of the weights with it", ps_server_name(&worker->job, gone));
}

// ---- What comes from a server.

static bool may_come(const void *who, uint32_t kind, uint64_t length)
{
    const Server *server = who;
    switch (kind) {
    case PS_WELCOME:
        return !server->welcome && length == 0;
    case PS_REFUSED:
        return !server->welcome && length <= PS_REASON;
    case PS_WEIGHTS:
        return server->asked && length == ps_part_bytes(&server->part);
    case PS_FAILED:
        return length == sizeof(uint32_t);
    default:
        return false;
    }
}

static void take_message(PsWorker *worker, int number)
{
    Server *server = &worker->servers[number];
    const MessageReader *message = &server->link.reader;
    uint32_t gone;
    switch (message->kind) {
    case PS_WELCOME:
        server->welcome = true;
        break;
    case PS_REFUSED:
        die("%s refuses this worker: %.*s", ps_server_name(&worker->job, number),
            (int)message->length, (const char *)message->body);
    case PS_WEIGHTS:
        server->asked = false;
        return; // the reader keeps them until they are used
    case PS_FAILED:
        memcpy(&gone, message->body, sizeof gone);
        if (gone < (uint32_t)worker->job.role.servers)
            server_is_gone(worker, (int)gone);
        break;
    }
    message_next(&server->link.reader);
}

// Reads the messages that have arrived.
static void receive(PsWorker *worker, int number)
{
    PsLink *link = &worker->servers[number].link;
    MessageState state;
    while ((state = message_receive(&link->reader, link->socket)) == MESSAGE_WHOLE) {
        take_message(worker, number);
        if (link->reader.have) // weights
            return;
    }
    if (state == MESSAGE_ENDED)
        server_is_gone(worker, number);
    if (state != MESSAGE_PART)
        die("%s has sent what a server of this job doesn't: somebody else listens there",
            ps_server_name(&worker->job, number));
}

// Waits until that connection can be read, or written (POLLOUT); detects other lost servers.
static void wait_for_servers(PsWorker *worker, int number, short events, int milliseconds)
{
    int count = worker->job.role.servers;
    struct pollfd *polled = allocate((size_t)count, sizeof *polled);
    for (int s = 0; s < count; s++)
        polled[s] = (struct pollfd){.fd = worker->servers[s].link.socket,
                                    .events = s == number ? events : POLLIN};
    if (poll(polled, (nfds_t)count, milliseconds) > 0)
        for (int s = 0; s < count; s++)
            if (polled[s].revents & ~POLLOUT)
                receive(worker, s);
    free(polled);
}

// Sends all that is pending.
static void send_pending(PsWorker *worker, int number)
{
    PsLink *link = &worker->servers[number].link;
    for (;;) {
        if (!ps_send(link)) {
            receive(worker, number); // it may have said that another one is gone
            server_is_gone(worker, number);
        }
        if (!ps_is_sending(link))
            return;
        wait_for_servers(worker, number, POLLIN | POLLOUT, -1);
    }
}

// ---- The beginning.

static PsHello hello_to(const PsWorker *worker, int number)
{
    const PsJob *job = &worker->job;
    PsHello hello = {.worker = (uint32_t)job->role.number,
                     .workers = (uint32_t)job->role.workers,
                     .server = (uint32_t)number,
                     .servers = (uint32_t)job->role.servers,
                     .layout = worker->parameters->layout,
                     .length = worker->parameters->length};
    memcpy(hello.word, job->word, PS_WORD);
    return hello;
}

static void reach(PsWorker *worker, int number)
{
    PsLink *link = &worker->servers[number].link;
    const char *why = "";
    while ((link->socket = tcp_connect(&worker->job.servers[number], 1, &why)) < 0) {
        ps_wait_for(&worker->job, ps_server_name(&worker->job, number), why);
        sleep_seconds(0.05);
    }
    PsHello hello = hello_to(worker, number);
    memcpy(ps_add(link, PS_HELLO, sizeof hello), &hello, sizeof hello);
    send_pending(worker, number);
}

static void wait_for_welcome(PsWorker *worker, int number)
{
    while (!worker->servers[number].welcome) {
        wait_for_servers(worker, number, POLLIN, 200);
        if (!worker->servers[number].welcome)
            ps_wait_for(&worker->job, "some worker", ps_server_name(&worker->job, number));
    }
}

PsWorker *ps_worker_start(Model *model)
{
    model_check_compiled(model, "ps_worker_start");
    PsWorker *worker = allocate(1, sizeof *worker);
    worker->job = ps_job("ps_worker_start", ROLE_WORKER);
    worker->model = model;
    worker->parameters = model_parameters(model);
    int servers = worker->job.role.servers;
    worker->servers = allocate((size_t)servers, sizeof *worker->servers);
    for (int s = 0; s < servers; s++)
        worker->servers[s] = (Server){
            .link = {.socket = -1, .reader = {.may_come = may_come, .who = &worker->servers[s]}},
            .part = ps_part(worker->parameters, s, servers)};
    for (int s = 0; s < servers; s++)
        reach(worker, s);
    for (int s = 0; s < servers; s++)
        wait_for_welcome(worker, s);
    trace("ps_start", TEXT("role", "worker"), NUMBER("number", worker->job.role.number),
          NUMBER("servers", servers), NUMBER("workers", worker->job.role.workers));
    return worker;
}

// ---- Weights and gradients.

static Server *server_of(PsWorker *worker, const char *caller, int number)
{
    if (!worker)
        die("%s: there is no worker (NULL)", caller);
    int servers = worker->job.role.servers;
    if (number < 0 || number >= servers)
        die("%s: there is no server %d: the job has %d, counted from 0", caller, number, servers);
    return &worker->servers[number];
}

static double part_fingerprint(const PsWorker *worker, const float *arena, const Share *part)
{
    return arena_fingerprint(worker->parameters->device, arena, part->begin, part->count);
}

int64_t ps_pull(PsWorker *worker, int number)
{
    Server *server = server_of(worker, __func__, number);
    const Share *part = &server->part;
    trace("ps_pull", NUMBER("server", number));
    server->asked = true;
    ps_add(&server->link, PS_ASKS, 0);
    send_pending(worker, number);
    while (server->asked)
        wait_for_servers(worker, number, POLLIN, -1);
    const Parameters *parameters = worker->parameters;
    const unsigned char *weights = server->link.reader.body;
    memcpy(&server->version, weights, sizeof server->version);
    backend_of(parameters->device)
        ->write(parameters->device, parameters->weights + part->begin,
                weights + sizeof server->version, part->count * sizeof(float));
    message_next(&server->link.reader);
    server->pulled = true;
    trace("ps_pulled", NUMBER("server", number), NUMBER("version", server->version),
          NUMBER("weights", part_fingerprint(worker, parameters->weights, part)));
    return server->version;
}

void ps_push(PsWorker *worker, int number)
{
    Server *server = server_of(worker, __func__, number);
    const Share *part = &server->part;
    if (!server->pulled)
        die("ps_push: nothing was pulled from server %d yet, so these are gradients of weights "
            "that it doesn't know",
            number);
    if (model_passes(worker->model) == 0)
        model_check_has_gradients(worker->model, __func__);
    const Parameters *parameters = worker->parameters;
    unsigned char *payload = ps_add(&server->link, PS_GRADIENTS, ps_part_bytes(part));
    memcpy(payload, &server->version, sizeof server->version);
    backend_of(parameters->device)
        ->read(parameters->device, payload + sizeof server->version,
               parameters->gradients + part->begin, part->count * sizeof(float));
    trace("ps_push", NUMBER("server", number), NUMBER("version", server->version),
          NUMBER("value", part_fingerprint(worker, parameters->gradients, part)));
    send_pending(worker, number);
}

void ps_worker_stop(PsWorker *worker)
{
    if (!worker)
        die("ps_worker_stop: there is no worker (NULL)");
    for (int s = 0; s < worker->job.role.servers; s++) {
        PsLink *link = &worker->servers[s].link;
        ps_add(link, PS_FINISHED, 0);
        send_pending(worker, s);
        ps_link_free(link); // the server may end now
        link->socket = -1;
    }
    trace("ps_stop", TEXT("role", "worker"), NUMBER("number", worker->job.role.number));
    free(worker->servers);
    ps_job_free(&worker->job);
    free(worker);
}
