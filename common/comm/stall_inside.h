// What the files of the stall watch share: stall.c (the thread), stall_connections.c and
// stall_judge.c. All of it belongs to the thread, except what is atomic.

#ifndef HVDLAB_STALL_INSIDE_H
#define HVDLAB_STALL_INSIDE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include "comm/message.h"
#include "comm/stall_words.h"
#include "comm/tcp.h"

#define ROOT         0
#define STALL_THREAD "stall" // its name, for top -H and for other ranks
#define JOIN_LIMIT   10.0    // seconds for a rank to connect; then it counts as unreachable

enum { MAX_ADDRESSES = 16, SPARE_PLACES = 8 };

// How the ranks find the root, which broadcasts it by MPI. Each message repeats the token, so that
// an unknown client is ignored.
typedef struct {
    uint8_t token[16];
    int32_t count; // 0: there are no connections
    TcpAddress addresses[MAX_ADDRESSES];
} Invitation;

typedef struct {
    int socket; // -1: none
    int rank;   // at the other end; -1: it has not said who it is
    double begin;
    MessageReader reader;
} Connection;

typedef struct {
    pthread_t thread;
    atomic_bool running, stopping;
    int rank, size, wake;         // an eventfd, which ends the thread's wait
    double limit, shutdown, tick; // seconds
    uint64_t machine;
    Invitation invitation;
    atomic_bool invited; // the ranks have come to hvd_init, and know the invitation
    atomic_int listener;
    Connection *connections; // on the root one for each rank, and spare ones; on another rank one
                             // for each of the root's addresses, until it answers on one
    int places;
    struct pollfd *polled;     // wake, listener, connections
    RankView *ranks;           // on the root all; another rank knows the root and itself
    _Atomic double *need_root; // on the root: when each rank was last seen to wait for it; 0: never
    atomic_bool must_tell;     // the main thread waits until this rank's state has been sent
    atomic_bool explained;     // this process aborts the job, and has said why
    int ended_by;              // a signal that mpirun sent, 0: none
    atomic_bool all_left;      // all ranks have left, or it can't be known
    _Atomic double root_lost;  // when the connection to the root ended; 0: never
    _Atomic double begin;      // of this rank's start, then of the time when all are there
} StallJob;

extern StallJob stall_job;

// stall.c: this rank's state, `seconds` old; sends it.
RankState own_state(double seconds);
void stall_tell(void);

// stall_connections.c: opens the root's listener; connects to the root, by steps; sends a state;
// waits for messages; closes all.
void connections_make_room(int places);
void connections_free_room(void);
int connections_open(bool root, Invitation *invitation);
void connections_join(double now);
bool connections_may_reach_root(void);
bool connections_are_whole(void); // or can't become so
void connections_tell(const RankState *says);
void connections_hear(double seconds);
void connections_close(void);

// stall_judge.c: looks at what is known of the ranks, reports it, and aborts the job if it hangs.
void stall_judge(double now);
// Ends this process after a signal, or mpirun's end; prints why if no other does.
_Noreturn void stall_end_by_signal(void);
_Noreturn void stall_end_without_launcher(void);

#endif
