// What servers and workers have in common (ps.h): the job's environment, the parts of the weights,
// and their messages, in their order:
//
//     message          from       payload
//     PS_HELLO         worker     PsHello: who it is, and of which job
//     PS_WELCOME       server     nothing: all have come
//     PS_REFUSED       server     text: why the worker may not join
//     PS_ASKS          worker     nothing: it pulls
//     PS_WEIGHTS       server     int64 version, the part's floats
//     PS_GRADIENTS     worker     int64 version of the weights behind them, the part's floats
//     PS_FINISHED      worker     nothing: its work is done
//     PS_FAILED        both       uint32 number of the server that is gone

#ifndef HVDLAB_PS_INSIDE_H
#define HVDLAB_PS_INSIDE_H

#include "base/role.h"
#include "base/share.h"
#include "hvd/ps.h"
#include "comm/message.h"
#include "comm/tcp.h"

typedef enum {
    PS_HELLO = 1,
    PS_WELCOME,
    PS_REFUSED,
    PS_ASKS,
    PS_WEIGHTS,
    PS_GRADIENTS,
    PS_FINISHED,
    PS_FAILED,
} PsMessage;

enum { PS_WORD = 64, PS_REASON = 256 };

typedef struct {
    char word[PS_WORD]; // HVD_JOB, zeros behind it
    uint32_t worker, workers, server, servers;
    uint64_t layout, length; // of the model's weights
} PsHello;

typedef struct {
    Role role;
    char word[PS_WORD];
    TcpAddress *servers; // owned
    // Start of the wait (seconds_now()); seconds to the next warning (0: none), and to the error.
    double begin, warning, most;
} PsJob;

// From the environment. Exits with an error message where it makes no sense, or where the role is
// another than `caller` is for.
PsJob ps_job(const char *caller, RoleKind kind);
void ps_job_free(PsJob *job);

// A server's part of the weights' arena.
Share ps_part(const Parameters *parameters, int server, int servers);

// Bytes of a message with a part of the weights, behind its header.
size_t ps_part_bytes(const Share *part);

// "server 1 (127.0.0.1:7002)"; valid until the next call.
const char *ps_server_name(const PsJob *job, int server);

// One end of a connection between a server and a worker (ps_link.c). Zeroed at first, except the
// socket and the reader's rule.
typedef struct {
    int socket; // -1: closed
    MessageReader reader;
    unsigned char *pending;   // bytes to be sent, a part at most; owned
    size_t count, sent, room; // of them
} PsLink;

static inline bool ps_is_sending(const PsLink *link)
{
    return link->sent < link->count;
}

// Queues a message. Returns the address for its payload; then ps_send.
unsigned char *ps_add(PsLink *link, PsMessage kind, size_t length);
// Sends without waiting; false: the connection has ended.
bool ps_send(PsLink *link);
// Tells the other end, until the deadline (seconds_now()) at most, that a server is gone.
void ps_tell_lost(PsLink *link, uint32_t gone, double deadline);
void ps_link_free(PsLink *link); // and closes it

// While this process waits for another to come: prints the warning when it is due, and exits when
// the time is over; `who` is "worker 2", say.
void ps_wait_for(PsJob *job, const char *who, const char *why);

#endif
