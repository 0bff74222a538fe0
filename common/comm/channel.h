// Connections of all ranks to the root, beside MPI: messages of one small size over TCP. A thread
// can send and receive while the main thread hangs in MPI. The channel does not look at the
// content.
//
// The root's invitation travels by MPI. It holds a random token, which every message repeats, so
// that an unknown client on the port is ignored.

#ifndef HVDLAB_CHANNEL_H
#define HVDLAB_CHANNEL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHANNEL_ADDRESSES 16

typedef struct {
    uint8_t token[16];
    in_port_t port; // 0: there is no channel
    int32_t count;
    struct in_addr addresses[CHANNEL_ADDRESSES]; // to be tried in this order
} Invitation;

// On the root: a socket that waits for `ranks` others, and the invitation by which they find it. If
// all are on this machine, it cannot be reached from another. -1, and port 0: there is none.
int channel_open(bool one_machine, int ranks, Invitation *invitation);

// On another rank: a connection to the root, to which this first message was sent, and which has
// answered; -1: none. Takes two seconds for an address at most. Where `wake` (an eventfd) is
// written meanwhile, it reads it, asks gives_up, and goes on or returns -1.
int channel_join(const Invitation *invitation, int wake, bool (*gives_up)(void), const void *hello,
                 size_t size);

// On the root: a connection that waits, or -1. Its rank is known from its first message, which is
// to be answered.
int channel_accept(int listener);
void channel_answer(int connection, const Invitation *invitation);

// Sends the token and a message, complete or not at all, without waiting. Any thread may call it.
void channel_send(int connection, const Invitation *invitation, const void *message, size_t size);

// The received part of a message; it begins as {0}.
#define CHANNEL_LARGEST 512
typedef struct {
    size_t filled;
    uint8_t bytes[CHANNEL_LARGEST];
} Incoming;

// Reads what is there: CHANNEL_MESSAGE fills `message`, and there may be another. CHANNEL_CLOSED:
// the other side is gone, or is not a rank of this job.
typedef enum { CHANNEL_NOTHING, CHANNEL_MESSAGE, CHANNEL_CLOSED } ChannelNews;
ChannelNews channel_receive(int connection, Incoming *incoming, const Invitation *invitation,
                            void *message, size_t size);

#endif
