// The connections of the stall watch: messages of one kind over TCP (tcp.h, message.h).

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/layout.h"
#include "base/memory.h"
#include "comm/stall_inside.h"

#define STANDING      100 // the kind; those of parameter servers are smaller
#define CONNECT_LIMIT 1.0 // seconds for an address to be reached
#define ANSWER_LIMIT  2.0 // and then for the root to answer, before another one is tried
#define UNKNOWN       (-1)

typedef struct {
    uint8_t token[sizeof((Invitation *)0)->token];
    RankState says;
} Told;

static void send_to(int socket, const RankState *says)
{
    unsigned char bytes[MESSAGE_HEADER + sizeof(Told)];
    Told message = {.says = *says};
    memcpy(message.token, stall_job.invitation.token, sizeof message.token);
    message_header(bytes, STANDING, sizeof message);
    memcpy(bytes + MESSAGE_HEADER, &message, sizeof message);
    tcp_send_whole(socket, bytes, sizeof bytes);
}

void connections_tell(const RankState *says)
{
    for (int i = 0; i < stall_job.places; i++)
        if (stall_job.connections[i].socket >= 0 &&
            (stall_job.connections[i].rank >= 0 || stall_job.rank != ROOT))
            send_to(stall_job.connections[i].socket, says);
}

// ---- Where a connection begins.

static bool may_come(const void *unused, uint32_t kind, uint64_t length)
{
    (void)unused;
    return kind == STANDING && length == sizeof(Told);
}

void connections_make_room(int places)
{
    stall_job.places = places;
    stall_job.polled = allocate((size_t)places + 2, sizeof *stall_job.polled);
    stall_job.connections = allocate((size_t)places, sizeof *stall_job.connections);
    for (int i = 0; i < places; i++)
        stall_job.connections[i] = (Connection){.socket = -1,
                                                .rank = UNKNOWN,
                                                .reader = {.may_come = may_come,
                                                           .body = allocate(1, sizeof(Told)),
                                                           .room = sizeof(Told)}};
}

void connections_free_room(void)
{
    for (int i = 0; i < stall_job.places; i++)
        message_reader_free(&stall_job.connections[i].reader);
    free(stall_job.connections);
    free(stall_job.polled);
}

static void forget(Connection *connection)
{
    if (connection->socket >= 0)
        close(connection->socket);
    connection->socket = -1;
    connection->rank = UNKNOWN;
    message_next(&connection->reader);
}

static void begin(Connection *connection, int socket, double now)
{
    forget(connection);
    connection->socket = socket;
    connection->begin = now;
}

int connections_open(bool root, Invitation *invitation)
{
    const char *why;
    *invitation = (Invitation){0};
    if (!root || getrandom(invitation->token, sizeof invitation->token, 0) < 0)
        return -1;
    TcpAddress any = {.host = "0.0.0.0", .port = "0"}, own = {.host = "127.0.0.1", .port = "0"};
    TcpAddress *address = ranks_share_machine() ? &own : &any;
    int listener = tcp_listen(address, &why);
    if (listener >= 0)
        invitation->count = tcp_own_addresses(address->port, invitation->addresses,
                                              address == &own ? 1 : MAX_ADDRESSES);
    return listener;
}

// A free place, or that of the client that has kept silent for longest.
static Connection *place_for_another(void)
{
    Connection *oldest = NULL;
    for (int i = 0; i < stall_job.places; i++) {
        Connection *place = &stall_job.connections[i];
        if (place->socket < 0)
            return place;
        if (place->rank < 0 && (!oldest || place->begin < oldest->begin))
            oldest = place;
    }
    return oldest; // more places than ranks
}

static void accept_another(double now)
{
    char from[64];
    int socket = tcp_accept(stall_job.listener, from);
    if (socket >= 0)
        begin(place_for_another(), socket, now);
    else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        close(stall_job.listener); // accept() fails for good
        stall_job.listener = -1;
    }
}

static bool is_connected(int rank)
{
    for (int i = 0; i < stall_job.places; i++)
        if (stall_job.connections[i].socket >= 0 && stall_job.connections[i].rank == rank)
            return true;
    return false;
}

// Tries one address after the other, again and again, until the root answers on one of these
// connections, which stay open until then. If there is one address, its connection is the root's:
// this rank waits for the root's answer for longer before it would leave without it.
void connections_join(double now)
{
    static int tried;
    static double next;
    int count = stall_job.invitation.count;
    if (stall_job.rank == ROOT || !stall_job.invited || stall_job.ranks[ROOT].known || now < next)
        return;
    if (count == 1 && stall_job.connections[0].socket >= 0) {
        if (now - stall_job.begin > JOIN_LIMIT)
            stall_job.all_left = true;
        return;
    }
    if (tried >= count)
        stall_job.all_left = true;
    if (count > 0) {
        const char *why;
        Connection *root = &stall_job.connections[tried % count];
        if (root->socket < 0)
            begin(root,
                  tcp_connect(&stall_job.invitation.addresses[tried % count], CONNECT_LIMIT, &why),
                  now);
        if (root->socket >= 0 || tried >= count)
            next = seconds_now() + ANSWER_LIMIT;
        tried++;
    }
    stall_tell();
}

bool connections_may_reach_root(void)
{
    return stall_job.ranks[ROOT].known || is_connected(UNKNOWN);
}

bool connections_are_whole(void)
{
    int known = 0;
    for (int r = 0; r < stall_job.size; r++)
        known += r != stall_job.rank && stall_job.ranks[r].known;
    return stall_job.all_left || known == (stall_job.rank == ROOT ? stall_job.size - 1 : 1);
}

// ---- Messages received.

// The root has answered on this one.
static void forget_others(const Connection *connection)
{
    for (int i = 0; i < stall_job.places; i++)
        if (&stall_job.connections[i] != connection)
            forget(&stall_job.connections[i]);
}

// False: the client is no rank of this job, or a rank that has another connection.
static bool take(Connection *connection, double now)
{
    const Told *message = (const void *)connection->reader.body;
    const RankState *says = &message->says;
    bool may_be = stall_job.rank == ROOT ? says->rank > ROOT && says->rank < stall_job.size
                                         : says->rank == ROOT;
    if (memcmp(message->token, stall_job.invitation.token, sizeof message->token) != 0 || !may_be ||
        (connection->rank >= 0 && connection->rank != says->rank))
        return false;
    bool is_new = connection->rank < 0;
    if (is_new && is_connected(says->rank))
        return false;
    connection->rank = says->rank;
    view_take(&stall_job.ranks[says->rank], says, now);
    if (is_new && stall_job.rank == ROOT) {
        RankState answer = own_state(0);
        send_to(connection->socket, &answer);
    }
    if (stall_job.rank != ROOT) {
        stall_job.all_left = says->all_left;
        forget_others(connection);
    }
    return true;
}

// False at the end of the connection.
static bool receive(Connection *connection, double now)
{
    MessageState state;
    while ((state = message_receive(&connection->reader, connection->socket)) == MESSAGE_WHOLE) {
        if (!take(connection, now))
            return false;
        message_next(&connection->reader);
    }
    return state == MESSAGE_PART;
}

static void lose(Connection *connection, double now)
{
    if (connection->rank >= 0) {
        RankView *rank = &stall_job.ranks[connection->rank];
        rank->gone = !rank->says.ends && !rank->says.explained && rank->says.left == HERE;
        rank->since = now;
        if (connection->rank == ROOT)
            stall_job.root_lost = now;
    }
    forget(connection);
}

void connections_hear(double seconds)
{
    struct pollfd *polled = stall_job.polled;
    nfds_t count = 0;
    polled[count++] = (struct pollfd){.fd = stall_job.wake, .events = POLLIN};
    polled[count++] = (struct pollfd){.fd = stall_job.listener, .events = POLLIN};
    for (int i = 0; i < stall_job.places; i++)
        polled[count++] = (struct pollfd){.fd = stall_job.connections[i].socket, .events = POLLIN};
    if (poll(polled, count, seconds > 0 ? (int)(seconds * 1000) + 1 : 0) <= 0)
        return;
    eventfd_t unused;
    double now = seconds_now();
    if (polled[0].revents)
        eventfd_read(stall_job.wake, &unused);
    for (int i = 0; i < stall_job.places; i++)
        if (polled[2 + i].revents && !receive(&stall_job.connections[i], now))
            lose(&stall_job.connections[i], now);
    if (polled[1].revents)
        accept_another(now);
}

void connections_close(void)
{
    for (int i = 0; i < stall_job.places; i++)
        forget(&stall_job.connections[i]);
    if (stall_job.listener >= 0)
        close(stall_job.listener);
    stall_job.listener = -1;
}
