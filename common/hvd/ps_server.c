// A parameter server: one thread that waits for no single connection. It collects the bytes of each
// connection until they are a message, and keeps what a connection cannot take yet. So a slow,
// stopped or lost worker does not affect the others, nor does an unknown client.

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
#include "base/output.h"
#include "observe/trace.h"

#define HELLO_SECONDS 10 // that a connection has to say who it is
enum { MAX_UNKNOWN = 16, MAX_WARNINGS = 5, NOBODY = -1 };

// A connection: an unknown client's until it has sent a valid PS_HELLO.
typedef struct {
    PsLink link;
    int worker; // NOBODY: an unknown client
    char from[64];
    double since;
    bool whole; // the reader has a message
    const PsServer *server;
} Peer;

typedef enum { AWAITED, HERE, LOST, LEFT } Presence;

// The time in which all workers are active: from each one's first push until the first leaves.
typedef struct {
    int begun; // workers that have pushed
    double from, until;
    int64_t pushes;
} Together;

typedef struct {
    Presence presence; // LOST: and the program does not know it yet
    Peer *peer;        // NULL: it is not here
    bool asked;        // its pull is not answered
    bool has_pushed;
} Seat;

struct PsServer {
    PsJob job;
    Model *model;
    const Parameters *parameters;
    Share part;
    Parameters own; // the part, as the optimizer sees it
    Segment *segments;
    int listener;
    Peer *peers; // places for the workers, and for unknown clients
    int places, next_place;
    struct pollfd *polled; // the peers, then the listener
    Peer *served;          // whose gradients the program uses
    Seat *seats;           // of the workers
    int warnings;
    int64_t pulls, pushes, version;
    int64_t *stale; // stale[n]: pushes with n updates since their pull
    int stale_count;
    Together together;
};

// ---- Connections.

static bool may_come(const void *who, uint32_t kind, uint64_t length)
{
    const Peer *peer = who;
    const PsServer *server = peer->server;
    if (peer->worker == NOBODY)
        return kind == PS_HELLO && length == sizeof(PsHello);
    const Seat *seat = &server->seats[peer->worker];
    if (seat->presence == AWAITED && kind != PS_FAILED)
        return false; // before PS_WELCOME
    switch (kind) {
    case PS_ASKS:
        return length == 0 && !seat->asked;
    case PS_FINISHED:
        return length == 0;
    case PS_GRADIENTS:
        return length == ps_part_bytes(&server->part);
    case PS_FAILED:
        return length == sizeof(uint32_t);
    default:
        return false;
    }
}

static bool is_unknown(const Peer *peer)
{
    return peer->link.socket >= 0 && peer->worker == NOBODY;
}

// Keeps its memory, where the program's gradients may be, until its place is reused.
static void close_peer(PsServer *server, Peer *peer)
{
    close(peer->link.socket);
    peer->link.socket = -1;
    peer->whole = false;
    if (peer->worker == NOBODY)
        return;
    Seat *seat = &server->seats[peer->worker];
    seat->peer = NULL;
    seat->asked = false;
    if (seat->presence == HERE)
        seat->presence = LOST;
}

static void send_pending(PsServer *server, Peer *peer)
{
    if (!ps_send(&peer->link))
        close_peer(server, peer);
}

// Unknown clients must not fill the log.
static void turn_away(PsServer *server, Peer *peer, const char *what, const char *reason)
{
    int number = server->job.role.number;
    if (++server->warnings <= MAX_WARNINGS)
        warn("server %d: a connection from %s %s%s", number, peer->from, what, reason);
    else if (server->warnings == MAX_WARNINGS + 1)
        warn("server %d: nothing more is said of refused connections", number);
    close_peer(server, peer);
}

static void refuse(PsServer *server, Peer *peer, const char *reason)
{
    size_t length = strlen(reason);
    memcpy(ps_add(&peer->link, PS_REFUSED, length), reason, length);
    ps_send(&peer->link);
    turn_away(server, peer, "is refused: ", reason);
}

static void close_silent(PsServer *server, Peer *peer)
{
    turn_away(server, peer, "has not said who it is", " and is closed");
}

static void drop_silent(PsServer *server)
{
    for (int i = 0; i < server->places; i++) {
        Peer *peer = &server->peers[i];
        if (is_unknown(peer) && seconds_now() - peer->since > HELLO_SECONDS)
            close_silent(server, peer);
    }
}

// A free place, or that of the client that has kept silent for longest.
static Peer *place_for_another(PsServer *server)
{
    Peer *oldest = NULL;
    for (int i = 0; i < server->places; i++) {
        Peer *peer = &server->peers[i];
        if (peer->link.socket < 0)
            return peer;
        if (is_unknown(peer) && (!oldest || peer->since < oldest->since))
            oldest = peer;
    }
    close_silent(server, oldest); // more places than workers
    return oldest;
}

static void accept_peers(PsServer *server)
{
    char from[sizeof((Peer *)0)->from];
    for (int socket; (socket = tcp_accept(server->listener, from)) >= 0;) {
        Peer *peer = place_for_another(server);
        ps_link_free(&peer->link);
        *peer = (Peer){.link = {.socket = socket, .reader = {.may_come = may_come, .who = peer}},
                       .worker = NOBODY,
                       .since = seconds_now(),
                       .server = server};
        memcpy(peer->from, from, sizeof from);
    }
}

// ---- Who is there.

// The reason to refuse a worker with this PS_HELLO; NULL: it may join.
static const char *objection(const PsServer *server, const PsHello *hello)
{
    const PsJob *job = &server->job;
    if (memcmp(hello->word, job->word, PS_WORD) != 0)
        return "it belongs to another job (HVD_JOB)";
    if (hello->servers != (uint32_t)job->role.servers ||
        hello->workers != (uint32_t)job->role.workers || hello->worker >= hello->workers)
        return "it counts other servers or workers (HVD_SERVERS, HVD_WORKERS)";
    if (hello->server != (uint32_t)job->role.number)
        return "it takes this for another server (the order of HVD_SERVERS)";
    if (hello->layout != server->parameters->layout || hello->length != server->parameters->length)
        return "its model has other variables, or only one of both is on a GPU";
    const Seat *seat = &server->seats[hello->worker];
    if (seat->peer)
        return "a worker with this number is there already (HVD_ROLE)";
    if (seat->presence != AWAITED)
        return "the worker with this number has left already";
    return NULL;
}

static void admit(PsServer *server, Peer *peer)
{
    PsHello hello;
    memcpy(&hello, peer->link.reader.body, sizeof hello);
    const char *why_not = objection(server, &hello);
    if (why_not) {
        refuse(server, peer, why_not);
        return;
    }
    message_next(&peer->link.reader);
    peer->worker = (int)hello.worker;
    server->seats[hello.worker].peer = peer;
}

// A worker that knows of a lost server says so at any time.
static _Noreturn void end_after_failure(PsServer *server, const Peer *from)
{
    uint32_t gone;
    memcpy(&gone, from->link.reader.body, sizeof gone);
    gone = gone < (uint32_t)server->job.role.servers ? gone : 0;
    double deadline = seconds_now() + PARTNERS_WAIT;
    for (int w = 0; w < server->job.role.workers; w++)
        if (server->seats[w].peer)
            ps_tell_lost(&server->seats[w].peer->link, gone, deadline);
    die("%s is gone, says worker %d", ps_server_name(&server->job, (int)gone), from->worker);
}

// ---- What comes.

static void receive(PsServer *server, Peer *peer)
{
    while (peer->link.socket >= 0 && !peer->whole) {
        MessageState state = message_receive(&peer->link.reader, peer->link.socket);
        if (state == MESSAGE_PART)
            return;
        if (state == MESSAGE_ENDED)
            close_peer(server, peer);
        else if (state != MESSAGE_WHOLE)
            turn_away(server, peer, "sends what does not belong here", ", and is closed");
        else if (peer->worker == NOBODY)
            admit(server, peer);
        else if (peer->link.reader.kind == PS_FAILED)
            end_after_failure(server, peer);
        else
            peer->whole = true;
    }
}

// Waits for events, and handles them.
static void wait_for_peers(PsServer *server, int milliseconds)
{
    int count = server->places;
    struct pollfd *polled = server->polled;
    for (int i = 0; i < count; i++) {
        const Peer *peer = &server->peers[i];
        short wants_room = ps_is_sending(&peer->link) ? POLLOUT : 0;
        polled[i] = (struct pollfd){.fd = peer->link.socket,
                                    .events = (short)((peer->whole ? 0 : POLLIN) | wants_room)};
    }
    polled[count] = (struct pollfd){.fd = server->listener, .events = POLLIN};
    int ready = poll(polled, (nfds_t)count + 1, milliseconds);
    for (int i = 0; ready > 0 && i < count; i++) {
        if (polled[i].revents & POLLOUT)
            send_pending(server, &server->peers[i]);
        if (polled[i].revents & ~POLLOUT)
            receive(server, &server->peers[i]);
    }
    if (ready > 0 && polled[count].revents)
        accept_peers(server);
    drop_silent(server);
}

// ---- The beginning.

static int first_absent(const PsServer *server)
{
    for (int w = 0; w < server->job.role.workers; w++)
        if (!server->seats[w].peer)
            return w;
    return NOBODY;
}

static void wait_for_workers(PsServer *server)
{
    for (int absent; (absent = first_absent(server)) != NOBODY;) {
        wait_for_peers(server, 200);
        char who[32];
        snprintf(who, sizeof who, "worker %d", absent);
        if (!server->seats[absent].peer)
            ps_wait_for(&server->job, who, "");
    }
    for (int w = 0; w < server->job.role.workers; w++) {
        Seat *seat = &server->seats[w];
        seat->presence = HERE;
        ps_add(&seat->peer->link, PS_WELCOME, 0);
        send_pending(server, seat->peer);
    }
}

// The model's segments within the part, relative to its beginning.
static void take_part(PsServer *server)
{
    const Parameters *all = server->parameters;
    server->part = ps_part(all, server->job.role.number, server->job.role.servers);
    size_t begin = server->part.begin, end = begin + server->part.count;
    server->segments = allocate((size_t)all->segment_count, sizeof *server->segments);
    int count = 0;
    for (int i = 0; i < all->segment_count; i++) {
        Segment segment = all->segments[i];
        size_t from = segment.offset > begin ? segment.offset : begin,
               to = segment.offset + segment.length < end ? segment.offset + segment.length : end;
        if (from < to)
            server->segments[count++] = (Segment){from - begin, to - from, segment.l2};
    }
    server->own = *all;
    server->own.weights += begin;
    server->own.gradients += begin;
    server->own.length = server->part.count;
    server->own.segments = server->segments;
    server->own.segment_count = count;
}

static double weights_fingerprint(const PsServer *server)
{
    return arena_fingerprint(server->parameters->device, server->parameters->weights,
                             server->part.begin, server->part.count);
}

// The optimizer's state before is that of all weights, or of another part of them.
static void drop_optimizer_state(const PsServer *server)
{
    Optimizer *optimizer = optimizer_innermost(model_optimizer(server->model));
    optimizer_free_slots(optimizer);
    optimizer->iterations = 0;
}

static void make_places(PsServer *server)
{
    int workers = server->job.role.workers;
    server->places = workers + MAX_UNKNOWN;
    server->seats = allocate((size_t)workers, sizeof *server->seats);
    server->peers = allocate((size_t)server->places, sizeof *server->peers);
    server->polled = allocate((size_t)server->places + 1, sizeof *server->polled);
    for (int i = 0; i < server->places; i++)
        server->peers[i].link.socket = -1;
}

PsServer *ps_server_start(Model *model)
{
    model_check_compiled(model, "ps_server_start");
    PsServer *server = allocate(1, sizeof *server);
    server->job = ps_job("ps_server_start", ROLE_SERVER);
    server->model = model;
    server->parameters = model_parameters(model);
    drop_optimizer_state(server);
    make_places(server);
    take_part(server);
    const char *why = "";
    server->listener = tcp_listen(&server->job.servers[server->job.role.number], &why);
    if (server->listener < 0)
        die("cannot listen as %s: %s", ps_server_name(&server->job, server->job.role.number), why);
    wait_for_workers(server);
    trace("ps_start", TEXT("role", "server"), NUMBER("number", server->job.role.number),
          NUMBER("servers", server->job.role.servers), NUMBER("workers", server->job.role.workers),
          NUMBER("offset", server->part.begin), NUMBER("length", server->part.count),
          NUMBER("total", server->parameters->length),
          NUMBER("weights", weights_fingerprint(server)));
    return server;
}

static void need_server(const PsServer *server, const char *caller)
{
    if (!server)
        die("%s: there is no server (NULL)", caller);
}

size_t ps_length(const PsServer *server)
{
    need_server(server, __func__);
    return server->part.count;
}

int64_t ps_version(const PsServer *server)
{
    need_server(server, __func__);
    return server->version;
}

// ---- Requests.

static void count_staleness(PsServer *server, int64_t updates)
{
    if (updates < 0 || updates >= 1 << 20)
        return; // invalid
    int place = (int)updates;
    if (place >= server->stale_count) {
        server->stale = enlarge(server->stale, (size_t)place + 1, sizeof *server->stale);
        memset(server->stale + server->stale_count, 0,
               (size_t)(place + 1 - server->stale_count) * sizeof *server->stale);
        server->stale_count = place + 1;
    }
    server->stale[place]++;
}

static void count_push(PsServer *server, Seat *seat)
{
    Together *together = &server->together;
    if (together->from > 0 && together->until <= 0)
        together->pushes++;
    if (!seat->has_pushed && ++together->begun == server->job.role.workers)
        together->from = seconds_now();
    seat->has_pushed = true;
    server->pushes++;
}

static void leave(PsServer *server, int worker)
{
    server->seats[worker].presence = LEFT;
    if (server->together.until <= 0)
        server->together.until = seconds_now();
}

static void take_gradients(const PsServer *server, const float *gradients)
{
    const Parameters *own = &server->own;
    backend_of(own->device)
        ->write(own->device, own->gradients, gradients, own->length * sizeof *gradients);
}

static double gradients_fingerprint(const PsServer *server)
{
    return arena_fingerprint(server->own.device, server->parameters->gradients, server->part.begin,
                             server->part.count);
}

static void trace_request(const PsServer *server, const PsRequest *request)
{
    static const char *const kinds[] = {"pull", "push", "done", "lost"};
    if (!trace_on())
        return;
    if (request->gradients)
        take_gradients(server, request->gradients);
    trace("ps_request", TEXT("kind", kinds[request->kind]), NUMBER("worker", request->worker),
          NUMBER("version", request->version),
          NUMBER("value", request->gradients ? gradients_fingerprint(server) : 0));
}

// The peer's complete message, in the program's form.
static PsRequest take_request(PsServer *server, Peer *peer)
{
    Seat *seat = &server->seats[peer->worker];
    PsRequest request = {.worker = peer->worker};
    const MessageReader *message = &peer->link.reader;
    switch (message->kind) {
    case PS_ASKS:
        request.kind = PS_PULL;
        seat->asked = true;
        server->pulls++;
        break;
    case PS_GRADIENTS:
        request.kind = PS_PUSH;
        memcpy(&request.version, message->body, sizeof request.version);
        request.gradients = (const float *)(const void *)(message->body + sizeof request.version);
        count_push(server, seat);
        count_staleness(server, server->version - request.version);
        break;
    default: // PS_FINISHED: may_come and receive let nothing else through
        request.kind = PS_DONE;
        leave(server, peer->worker);
    }
    server->served = peer;
    return request;
}

static bool find_lost(PsServer *server, PsRequest *request)
{
    for (int w = 0; w < server->job.role.workers; w++)
        if (server->seats[w].presence == LOST) {
            leave(server, w);
            ends_incomplete("server %d: worker %d is gone, and had not said that it was done",
                            server->job.role.number, w);
            *request = (PsRequest){.kind = PS_LOST, .worker = w};
            return true;
        }
    return false;
}

// Round robin, so that no worker is served twice before another is served once.
static bool find_request(PsServer *server, PsRequest *request)
{
    for (int i = 0; i < server->places; i++) {
        int place = (server->next_place + i) % server->places;
        if (!server->peers[place].whole)
            continue;
        server->next_place = place + 1;
        *request = take_request(server, &server->peers[place]);
        return true;
    }
    return find_lost(server, request);
}

static bool all_have_left(const PsServer *server)
{
    for (int w = 0; w < server->job.role.workers; w++)
        if (server->seats[w].presence != LEFT)
            return false;
    return true;
}

PsRequest ps_next(PsServer *server)
{
    need_server(server, __func__);
    if (all_have_left(server))
        die("ps_next: all workers have left, so there is nothing to wait for");
    if (server->served) {
        server->served->whole = false;
        message_next(&server->served->link.reader);
        server->served = NULL;
    }
    PsRequest request;
    while (!find_request(server, &request))
        wait_for_peers(server, 1000);
    trace_request(server, &request);
    return request;
}

void ps_send_weights(PsServer *server, int worker)
{
    need_server(server, __func__);
    if (worker < 0 || worker >= server->job.role.workers)
        die("ps_send_weights: there is no worker %d: the job has %d, counted from 0", worker,
            server->job.role.workers);
    Seat *seat = &server->seats[worker];
    if (!seat->peer || seat->presence != HERE)
        return;
    if (!seat->asked)
        die("ps_send_weights: worker %d has not asked for weights since it got some", worker);
    seat->asked = false;
    unsigned char *to = ps_add(&seat->peer->link, PS_WEIGHTS, ps_part_bytes(&server->part));
    memcpy(to, &server->version, sizeof server->version);
    backend_of(server->own.device)
        ->read(server->own.device, (float *)(void *)(to + sizeof server->version),
               server->own.weights, server->own.length * sizeof(float));
    trace("ps_sent", NUMBER("worker", worker), NUMBER("version", server->version),
          NUMBER("weights", weights_fingerprint(server)));
    send_pending(server, seat->peer);
}

void ps_apply(PsServer *server, const float *gradients)
{
    need_server(server, __func__);
    if (!gradients)
        die("ps_apply: there are no gradients (NULL): a request that is no PS_PUSH has none");
    Parameters *own = &server->own;
    Optimizer *optimizer = model_optimizer(server->model);
    take_gradients(server, gradients);
    double value = trace_on() ? gradients_fingerprint(server) : 0;
    if (own->length > 0)
        optimizer->apply(optimizer, own);
    server->version++;
    trace("ps_applied", NUMBER("version", server->version), NUMBER("value", value),
          NUMBER("learning_rate", optimizer_learning_rate(optimizer)),
          NUMBER("weights", weights_fingerprint(server)));
}

// ---- The end.

static void print_summary(const PsServer *server)
{
    printf("server %d: %zu weights - %lld pulls - %lld pushes - %lld updates - staleness:",
           server->job.role.number, server->part.count, (long long)server->pulls,
           (long long)server->pushes, (long long)server->version);
    for (int i = 0; i < server->stale_count; i++)
        if (server->stale[i] > 0)
            printf(" %d: %lld", i, (long long)server->stale[i]);
    putchar('\n');
    const Together *together = &server->together;
    if (together->pushes > 0 && together->until > together->from)
        printf("server %d: %.2f pushes a second while all workers were at work\n",
               server->job.role.number,
               (double)together->pushes / (together->until - together->from));
}

void ps_server_stop(PsServer *server)
{
    need_server(server, __func__);
    trace("ps_stop", TEXT("role", "server"), NUMBER("number", server->job.role.number));
    print_summary(server);
    drop_optimizer_state(server);
    for (int i = 0; i < server->places; i++)
        ps_link_free(&server->peers[i].link);
    close(server->listener);
    free(server->polled);
    free(server->peers);
    free(server->seats);
    free(server->segments);
    free(server->stale);
    ps_job_free(&server->job);
    free(server);
}
