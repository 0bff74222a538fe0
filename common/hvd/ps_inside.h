// What servers and workers have in common (ps.h): the job's environment, the parts of the weights,
// and what they say to each other. The payloads, in the order in which they travel:
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
    TcpAddress *servers;       // owned
    double say_after, give_up; // seconds of waiting for others at the beginning
} PsJob;

// From the environment. Exits with an error message where it makes no sense, or where the role is
// another than `caller` is for.
PsJob ps_job(const char *caller, RoleKind kind);
void ps_job_free(PsJob *job);

// A server's part of the weights' arena.
Share ps_part(const Parameters *parameters, int server, int servers);

// Bytes of a message with a part of the weights, behind its header.
size_t ps_part_bytes(const Share *part);

// A worker's first message to that server.
PsHello ps_hello(const PsJob *job, const Parameters *parameters, int server);

// "server 1 (127.0.0.1:7002)"; valid until the next call.
const char *ps_server_name(const PsJob *job, int server);

// Which processes have not come yet, while this one waits for them.
typedef struct {
    double begin, next; // when to speak the next time
} PsWaiting;
PsWaiting ps_waiting(const PsJob *job);
// Prints the warning when it is due, and exits when the time is over; `who` is "worker 2", say.
void ps_wait_for(PsWaiting *waiting, const PsJob *job, const char *who, const char *why);

#endif
