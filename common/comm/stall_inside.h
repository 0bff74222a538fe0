// Shared by stall.c, the watch's thread, and stall_judge.c, which decides what to report.

#ifndef HVDLAB_STALL_INSIDE_H
#define HVDLAB_STALL_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include "comm/channel.h"
#include "comm/stall_words.h"

#define ROOT   0
#define DEPUTY 1 // the rank that reports where the root can't

// On the root a connection for each rank, and some for those that have not said yet who they are.
typedef struct {
    int socket; // -1: none
    int rank;   // -1: not known yet
    Incoming incoming;
} Connection;

typedef struct {
    pthread_t thread;
    atomic_bool running;
    int rank, size, wake;
    double limit, shutdown, tick; // seconds
    Invitation invitation;
    uint64_t machine;
    atomic_bool invited; // the ranks have come to hvd_init, and know the invitation
    atomic_int listener;
    atomic_int to_root, to_deputy; // sockets, -1: none; the main thread sends, too
    Connection *connections;
    int places;
    RankView *ranks;           // on the root all, on others the root and itself
    _Atomic double *need_root; // on the root: when each rank was last seen to wait for it; 0: never
    atomic_bool joining, stopping;
    atomic_bool explained;    // this process aborts the job, and has said why
    atomic_bool all_left;     // or it can't be known
    _Atomic double root_lost; // when the root was gone before it had said so; 0: never
    _Atomic double begin;     // of this rank's start, then of the time when all are there
} StallJob;

extern StallJob stall_job;

// Looks at what is known of the ranks, reports it, and aborts the job where it hangs: on the root,
// on the deputy of a root that can't speak, and on each rank as long as it is alone.
void stall_judge(double now);

// For a rank that mpirun ends: names the rank that is gone, if that is the reason and no rank has
// named it.
void stall_name_gone(void);

#endif
