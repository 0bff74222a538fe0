// A worker of a job with parameter servers: pulls weights, pushes gradients, and detects lost
// servers.

#include "hvd/ps_inside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "base/memory.h"
#include "run/args.h"
#include "observe/trace.h"
#include "nn/weights.h"

// The state of one server's connection.
typedef struct {
    int socket;
    MessageReader reader;
    const unsigned char *rest; // of a message that is being sent
    size_t rest_count;
    Share part;
    bool welcome; // it has said that all are there
    bool asked;   // it owes weights
    bool pulled;  // it has sent some
    int64_t version;
} Link;

struct PsWorker {
    PsJob job;
    Model *model;
    const Parameters *parameters;
    Link *links;
    unsigned char *message; // room for the gradients of the largest part, with their header
};

_Noreturn static void server_is_gone(PsWorker *worker, int gone)
{
    unsigned char message[MESSAGE_HEADER + sizeof(uint32_t)];
    uint32_t number = (uint32_t)gone;
    message_header(message, PS_FAILED, sizeof number);
    memcpy(message + MESSAGE_HEADER, &number, sizeof number);
    double deadline = seconds_now() + PARTNERS_WAIT;
    for (int s = 0; s < worker->job.role.servers; s++) {
        Link *link = &worker->links[s];
        if (s == gone || link->socket < 0)
            continue;
        tcp_send_before(link->socket, link->rest, link->rest_count, deadline);
        tcp_send_before(link->socket, message, sizeof message, deadline);
        tcp_part(link->socket, deadline);
    }
    die("%s is gone, and its part of the weights with it", ps_server_name(&worker->job, gone));
}

// ---- What comes from a server.

static bool may_come(const void *who, uint32_t kind, uint64_t length)
{
    const Link *link = who;
    switch (kind) {
    case PS_WELCOME:
        return !link->welcome && length == 0;
    case PS_REFUSED:
        return !link->welcome && length <= PS_REASON;
    case PS_WEIGHTS:
        return link->asked && length == ps_part_bytes(&link->part);
    case PS_FAILED:
        return length == sizeof(uint32_t);
    default:
        return false;
    }
}

static void take_message(PsWorker *worker, int server)
{
    Link *link = &worker->links[server];
    uint32_t gone;
    switch (link->reader.kind) {
    case PS_WELCOME:
        link->welcome = true;
        break;
    case PS_REFUSED:
        die("%s refuses this worker: %.*s", ps_server_name(&worker->job, server),
            (int)link->reader.length, (const char *)link->reader.body);
    case PS_WEIGHTS:
        link->asked = false;
        return; // the reader keeps them until they are used
    case PS_FAILED:
        memcpy(&gone, link->reader.body, sizeof gone);
        if (gone < (uint32_t)worker->job.role.servers)
            server_is_gone(worker, (int)gone);
        break;
    }
    message_next(&link->reader);
}

// Reads the bytes that have arrived.
static void receive(PsWorker *worker, int server)
{
    Link *link = &worker->links[server];
    for (;;) {
        size_t room;
        unsigned char *space = message_space(&link->reader, &room);
        long count = tcp_receive(link->socket, space, room);
        if (count == 0)
            return;
        if (count < 0)
            server_is_gone(worker, server);
        MessageState state = message_take(&link->reader, (size_t)count);
        if (state == MESSAGE_FOREIGN || state == MESSAGE_REFUSED)
            die("%s has sent what a server of this job doesn't: somebody else listens there",
                ps_server_name(&worker->job, server));
        if (state == MESSAGE_WHOLE) {
            take_message(worker, server);
            if (link->reader.have) // weights
                return;
        }
    }
}

// Waits until that server's connection can be read, or written (POLLOUT); any server may be lost
// meanwhile.
static void wait_for_servers(PsWorker *worker, int server, short events, int milliseconds)
{
    int count = worker->job.role.servers;
    struct pollfd *polled = allocate((size_t)count, sizeof *polled);
    for (int s = 0; s < count; s++)
        polled[s] =
            (struct pollfd){.fd = worker->links[s].socket, .events = s == server ? events : POLLIN};
    if (poll(polled, (nfds_t)count, milliseconds) > 0)
        for (int s = 0; s < count; s++)
            if (polled[s].revents & ~POLLOUT)
                receive(worker, s);
    free(polled);
}

// Sends a whole message.
static void send_message(PsWorker *worker, int server, const void *message, size_t count)
{
    Link *link = &worker->links[server];
    link->rest = message;
    link->rest_count = count;
    while (link->rest_count > 0) {
        long sent = tcp_send(link->socket, link->rest, link->rest_count);
        if (sent < 0) {
            receive(worker, server); // it may have said that another one is gone
            server_is_gone(worker, server);
        }
        link->rest += sent;
        link->rest_count -= (size_t)sent;
        if (link->rest_count > 0)
            wait_for_servers(worker, server, POLLIN | POLLOUT, -1);
    }
}

// Sends a message without a payload.
static void send_word(PsWorker *worker, int server, PsMessage kind)
{
    unsigned char header[MESSAGE_HEADER];
    message_header(header, kind, 0);
    send_message(worker, server, header, sizeof header);
}

// ---- The beginning.

static void reach(PsWorker *worker, int server, PsWaiting *waiting)
{
    Link *link = &worker->links[server];
    const char *why = "";
    while ((link->socket = tcp_connect(&worker->job.servers[server], 1, &why)) < 0) {
        ps_wait_for(waiting, &worker->job, ps_server_name(&worker->job, server), why);
        sleep_seconds(0.05);
    }
    PsHello hello = ps_hello(&worker->job, worker->parameters, server);
    unsigned char message[MESSAGE_HEADER + sizeof hello];
    message_header(message, PS_HELLO, sizeof hello);
    memcpy(message + MESSAGE_HEADER, &hello, sizeof hello);
    send_message(worker, server, message, sizeof message);
}

PsWorker *ps_worker_start(Model *model)
{
    model_check_compiled(model, "ps_worker_start");
    PsWorker *worker = allocate(1, sizeof *worker);
    worker->job = ps_job("ps_worker_start", ROLE_WORKER);
    worker->model = model;
    worker->parameters = model_parameters(model);
    int servers = worker->job.role.servers;
    worker->links = allocate((size_t)servers, sizeof *worker->links);
    size_t largest = 0;
    for (int s = 0; s < servers; s++) {
        Link *link = &worker->links[s];
        *link = (Link){.socket = -1, .reader = {.may_come = may_come, .who = link}};
        link->part = ps_part(worker->parameters, s, servers);
        size_t bytes = ps_part_bytes(&link->part);
        largest = bytes > largest ? bytes : largest;
    }
    worker->message = allocate(MESSAGE_HEADER + largest, 1);
    PsWaiting waiting = ps_waiting(&worker->job);
    for (int s = 0; s < servers; s++)
        reach(worker, s, &waiting);
    for (int s = 0; s < servers; s++)
        while (!worker->links[s].welcome) {
            wait_for_servers(worker, s, POLLIN, 200);
            if (!worker->links[s].welcome)
                ps_wait_for(&waiting, &worker->job, "some worker", ps_server_name(&worker->job, s));
        }
    trace("ps_start", TEXT("role", "worker"), NUMBER("number", worker->job.role.number),
          NUMBER("servers", servers), NUMBER("workers", worker->job.role.workers));
    return worker;
}

// ---- Weights and gradients.

static Link *link_to(PsWorker *worker, const char *caller, int server)
{
    if (!worker)
        die("%s: there is no worker (NULL)", caller);
    int servers = worker->job.role.servers;
    if (server < 0 || server >= servers)
        die("%s: there is no server %d: the job has %d, counted from 0", caller, server, servers);
    return &worker->links[server];
}

static double part_fingerprint(const PsWorker *worker, const float *arena, const Link *link)
{
    return arena_fingerprint(worker->parameters->device, arena, link->part.begin, link->part.count);
}

int64_t ps_pull(PsWorker *worker, int server)
{
    Link *link = link_to(worker, __func__, server);
    trace("ps_pull", NUMBER("server", server));
    link->asked = true;
    send_word(worker, server, PS_ASKS);
    while (link->asked)
        wait_for_servers(worker, server, POLLIN, -1);
    const Parameters *parameters = worker->parameters;
    memcpy(&link->version, link->reader.body, sizeof link->version);
    backend_of(parameters->device)
        ->write(parameters->device, parameters->weights + link->part.begin,
                link->reader.body + sizeof link->version, link->part.count * sizeof(float));
    message_next(&link->reader);
    link->pulled = true;
    trace("ps_pulled", NUMBER("server", server), NUMBER("version", link->version),
          NUMBER("weights", part_fingerprint(worker, parameters->weights, link)));
    return link->version;
}

void ps_push(PsWorker *worker, int server)
{
    Link *link = link_to(worker, __func__, server);
    if (!link->pulled)
        die("ps_push: nothing was pulled from server %d yet, so these are gradients of weights "
            "that it doesn't know",
            server);
    if (model_passes(worker->model) == 0)
        model_check_has_gradients(worker->model, __func__);
    const Parameters *parameters = worker->parameters;
    unsigned char *version = worker->message + MESSAGE_HEADER,
                  *gradients = version + sizeof(int64_t);
    message_header(worker->message, PS_GRADIENTS, ps_part_bytes(&link->part));
    memcpy(version, &link->version, sizeof link->version);
    backend_of(parameters->device)
        ->read(parameters->device, gradients, parameters->gradients + link->part.begin,
               link->part.count * sizeof(float));
    trace("ps_push", NUMBER("server", server), NUMBER("version", link->version),
          NUMBER("value", part_fingerprint(worker, parameters->gradients, link)));
    send_message(worker, server, worker->message, MESSAGE_HEADER + ps_part_bytes(&link->part));
}

void ps_worker_stop(PsWorker *worker)
{
    if (!worker)
        die("ps_worker_stop: there is no worker (NULL)");
    for (int s = 0; s < worker->job.role.servers; s++) {
        send_word(worker, s, PS_FINISHED);
        close(worker->links[s].socket); // it may end now
        worker->links[s].socket = -1;
        message_reader_free(&worker->links[s].reader);
    }
    trace("ps_stop", TEXT("role", "worker"), NUMBER("number", worker->job.role.number));
    free(worker->links);
    free(worker->message);
    ps_job_free(&worker->job);
    free(worker);
}
