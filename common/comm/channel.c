// Sockets between the ranks of a job; channel.h has the contract. They never block, and child
// programs of a rank do not inherit them.

#include "comm/channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/error.h"

#define PATIENCE_MS 2000 // for an address to answer
#define MAX_UNSENT  8192 // bytes; a root that is stopped reads nothing

static void add_address(Invitation *invitation, struct in_addr address)
{
    if (invitation->count < CHANNEL_ADDRESSES)
        invitation->addresses[invitation->count++] = address;
}

// This machine's addresses; the loopback address comes last.
static void add_addresses(Invitation *invitation, bool one_machine)
{
    struct ifaddrs *all = NULL;
    if (!one_machine && getifaddrs(&all) != 0)
        all = NULL;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) &&
            !(at->ifa_flags & IFF_LOOPBACK))
            add_address(invitation, ((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr);
    if (all)
        freeifaddrs(all);
    add_address(invitation, (struct in_addr){htonl(INADDR_LOOPBACK)});
}

int channel_open(bool one_machine, int ranks, Invitation *invitation)
{
    *invitation = (Invitation){0};
    struct sockaddr_in place = {
        .sin_family = AF_INET,
        .sin_addr = {htonl(one_machine ? INADDR_LOOPBACK : INADDR_ANY)},
    };
    socklen_t size = sizeof place;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return -1;
    if (getrandom(invitation->token, sizeof invitation->token, 0) !=
            (ssize_t)sizeof invitation->token ||
        bind(listener, (struct sockaddr *)&place, size) != 0 || listen(listener, ranks) != 0 ||
        getsockname(listener, (struct sockaddr *)&place, &size) != 0) {
        close(listener);
        return -1;
    }
    add_addresses(invitation, one_machine);
    invitation->port = place.sin_port;
    return listener;
}

// What a wait for the other side looks at beside it.
typedef struct {
    int wake;
    bool (*gives_up)(void);
} Caller;

// True once the connection can be written (POLLOUT) or read (POLLIN). A wake-up may also be an old
// one, of what has been seen already.
static bool wait_for(int connection, short events, const Caller *caller)
{
    struct pollfd both[] = {{.fd = connection, .events = events},
                            {.fd = caller->wake, .events = POLLIN}};
    eventfd_t unused;
    while (poll(both, 2, PATIENCE_MS) > 0) {
        if (both[1].revents)
            eventfd_read(caller->wake, &unused);
        if (both[1].revents && caller->gives_up())
            return false;
        if (both[0].revents)
            return true;
    }
    return false;
}

// The answer proves that the other side knows the token: it has each byte inverted, so that an echo
// is no answer.
static void make_answer(const Invitation *invitation, uint8_t answer[sizeof invitation->token])
{
    for (size_t i = 0; i < sizeof invitation->token; i++)
        answer[i] = (uint8_t)~invitation->token[i];
}

static bool is_connected(int connection, const Caller *caller)
{
    int fault = 0;
    socklen_t size = sizeof fault;
    return wait_for(connection, POLLOUT, caller) &&
           getsockopt(connection, SOL_SOCKET, SO_ERROR, &fault, &size) == 0 && fault == 0;
}

static bool is_answered(int connection, const Invitation *invitation, const Caller *caller)
{
    uint8_t wanted[sizeof invitation->token], answer[sizeof invitation->token];
    make_answer(invitation, wanted);
    return wait_for(connection, POLLIN, caller) &&
           recv(connection, answer, sizeof answer, 0) == (ssize_t)sizeof answer &&
           memcmp(answer, wanted, sizeof answer) == 0;
}

int channel_join(const Invitation *invitation, int wake, bool (*gives_up)(void), const void *hello,
                 size_t size)
{
    const Caller caller = {wake, gives_up};
    for (int i = 0; invitation->port != 0 && i < invitation->count; i++) {
        const struct sockaddr_in place = {
            .sin_family = AF_INET,
            .sin_port = invitation->port,
            .sin_addr = invitation->addresses[i],
        };
        int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connection < 0)
            return -1;
        int result = connect(connection, (const struct sockaddr *)&place, sizeof place);
        if ((result == 0 || errno == EINPROGRESS) && is_connected(connection, &caller)) {
            channel_send(connection, invitation, hello, size);
            if (is_answered(connection, invitation, &caller))
                return connection;
        }
        close(connection);
    }
    return -1;
}

int channel_accept(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void channel_answer(int connection, const Invitation *invitation)
{
    uint8_t answer[sizeof invitation->token];
    make_answer(invitation, answer);
    (void)!send(connection, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// A single call, which takes the whole message if there is room: messages of two threads don't mix.
void channel_send(int connection, const Invitation *invitation, const void *message, size_t size)
{
    uint8_t bytes[CHANNEL_LARGEST];
    int unsent = 0;
    CHECK(sizeof invitation->token + size <= sizeof bytes);
    if (connection < 0 || (ioctl(connection, SIOCOUTQ, &unsent) == 0 && unsent > MAX_UNSENT))
        return;
    memcpy(bytes, invitation->token, sizeof invitation->token);
    memcpy(bytes + sizeof invitation->token, message, size);
    (void)!send(connection, bytes, sizeof invitation->token + size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ChannelNews channel_receive(int connection, Incoming *incoming, const Invitation *invitation,
                            void *message, size_t size)
{
    const size_t token = sizeof invitation->token, whole = token + size;
    CHECK(whole <= sizeof incoming->bytes);
    ssize_t bytes = recv(connection, incoming->bytes + incoming->filled, whole - incoming->filled,
                         MSG_DONTWAIT);
    if (bytes < 0)
        return errno == EAGAIN || errno == EINTR ? CHANNEL_NOTHING : CHANNEL_CLOSED;
    if (bytes == 0)
        return CHANNEL_CLOSED;
    incoming->filled += (size_t)bytes;
    if (incoming->filled < whole)
        return CHANNEL_NOTHING;
    incoming->filled = 0;
    if (memcmp(incoming->bytes, invitation->token, token) != 0)
        return CHANNEL_CLOSED;
    memcpy(message, incoming->bytes + token, size);
    return CHANNEL_MESSAGE;
}
