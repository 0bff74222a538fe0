// TCP addresses and non-blocking connections.

#include "comm/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/numbers.h"

#define MAX_PENDING 8192 // bytes, sent or not, without an acknowledgement; any socket has more room

bool tcp_address(const char *text, size_t length, TcpAddress *address)
{
    const char *end = text + length, *colon = memrchr(text, ':', length);
    if (!colon || colon == text || colon + 1 == end)
        return false;
    size_t digits = (size_t)(end - colon - 1), host_length = (size_t)(colon - text);
    if (text[0] == '[' && colon[-1] == ']') {
        text++;
        host_length -= 2;
    }
    if (host_length == 0 || host_length >= sizeof address->host || digits > 5)
        return false;
    *address = (TcpAddress){0};
    memcpy(address->host, text, host_length);
    memcpy(address->port, colon + 1, digits);
    return whole_number(address->port, 65535) >= 1;
}

static struct addrinfo *look_up(const TcpAddress *address, int flags, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found = NULL;
    int fault = getaddrinfo(address->host, address->port, &hints, &found);
    if (fault != 0)
        *why = gai_strerror(fault);
    return fault == 0 ? found : NULL;
}

static int new_socket(const struct addrinfo *at)
{
    return socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
}

// No delay for small messages; a machine that has not answered for half a minute counts as lost. (A
// stopped process does not: its machine answers.)
static void set_options(int socket)
{
    const int on = 1, idle = 10, interval = 5, count = 4;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void read_port(int socket, TcpAddress *address)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    if (getsockname(socket, (struct sockaddr *)&own, &length) == 0)
        getnameinfo((struct sockaddr *)&own, length, NULL, 0, address->port, sizeof address->port,
                    NI_NUMERICSERV);
}

int tcp_listen(TcpAddress *address, const char **why)
{
    struct addrinfo *found = look_up(address, AI_PASSIVE, why);
    int listener = -1;
    for (const struct addrinfo *at = found; at && listener < 0; at = at->ai_next) {
        const int on = 1;
        listener = new_socket(at);
        if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            bind(listener, at->ai_addr, at->ai_addrlen) != 0 || listen(listener, SOMAXCONN) != 0) {
            *why = strerror(errno);
            if (listener >= 0)
                close(listener);
            listener = -1;
        }
    }
    if (found)
        freeaddrinfo(found);
    if (listener >= 0)
        read_port(listener, address);
    return listener;
}

int tcp_own_addresses(const char *port, TcpAddress *addresses, int max)
{
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (const struct ifaddrs *at = all; at && count < max - 1; at = at->ifa_next) {
        TcpAddress *address = &addresses[count];
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) &&
            !(at->ifa_flags & IFF_LOOPBACK) &&
            getnameinfo(at->ifa_addr, sizeof(struct sockaddr_in), address->host,
                        sizeof address->host, NULL, 0, NI_NUMERICHOST) == 0)
            count++;
    }
    if (all)
        freeifaddrs(all);
    snprintf(addresses[count++].host, sizeof addresses->host, "127.0.0.1");
    for (int i = 0; i < count; i++)
        snprintf(addresses[i].port, sizeof addresses->port, "%s", port);
    return count;
}

int tcp_accept(int listener, char from[64])
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int socket =
        accept4(listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0)
        return -1;
    set_options(socket);
    if (getnameinfo((struct sockaddr *)&address, length, from, 64, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(from, 64, "somewhere");
    return socket;
}

// Waits for a connection that was begun; 0 or an errno.
static int finish_connecting(int socket, double seconds)
{
    struct pollfd wait = {.fd = socket, .events = POLLOUT};
    int fault = ETIMEDOUT;
    socklen_t length = sizeof fault;
    if (poll(&wait, 1, (int)(1000 * seconds)) == 1)
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &fault, &length);
    return fault;
}

// If nobody listens, the system may have given this port to this connection, which then reaches
// itself.
static bool is_connected_to_itself(int socket)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t length = sizeof own, its_length = sizeof other;
    return getsockname(socket, (struct sockaddr *)&own, &length) == 0 &&
           getpeername(socket, (struct sockaddr *)&other, &its_length) == 0 &&
           length == its_length && memcmp(&own, &other, length) == 0;
}

int tcp_connect(const TcpAddress *address, double seconds, const char **why)
{
    struct addrinfo *found = look_up(address, 0, why);
    int connected = -1;
    for (const struct addrinfo *at = found; at && connected < 0; at = at->ai_next) {
        int socket = new_socket(at), fault = 0;
        if (socket < 0 || connect(socket, at->ai_addr, at->ai_addrlen) != 0)
            fault = errno;
        if (fault == EINPROGRESS)
            fault = finish_connecting(socket, seconds);
        if (fault == 0 && is_connected_to_itself(socket))
            fault = ECONNREFUSED;
        if (fault == 0) {
            connected = socket;
            continue;
        }
        *why = strerror(fault);
        if (socket >= 0)
            close(socket);
    }
    if (found)
        freeaddrinfo(found);
    if (connected >= 0)
        set_options(connected);
    return connected;
}

static long moved(ssize_t count)
{
    if (count >= 0)
        return count;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

long tcp_receive(int socket, void *bytes, size_t room)
{
    ssize_t count = recv(socket, bytes, room, 0);
    return count == 0 ? -1 : moved(count);
}

long tcp_send(int socket, const void *bytes, size_t count)
{
    return moved(send(socket, bytes, count, MSG_NOSIGNAL));
}

void tcp_send_whole(int socket, const void *bytes, size_t count)
{
    int pending = 0;
    if (ioctl(socket, SIOCOUTQ, &pending) != 0 || pending < MAX_PENDING)
        tcp_send(socket, bytes, count);
}

void tcp_send_last(int socket, const void *bytes, size_t count, double deadline)
{
    const unsigned char *at = bytes, *end = at + count;
    for (long sent = 0; at < end && sent >= 0 && seconds_now() < deadline;) {
        sent = tcp_send(socket, at, (size_t)(end - at));
        at += sent > 0 ? sent : 0;
        if (sent == 0)
            poll(&(struct pollfd){.fd = socket, .events = POLLOUT}, 1, 50);
    }
    char unread[4096]; // closing a connection with unread bytes would discard sent bytes, too
    shutdown(socket, SHUT_WR);
    while (seconds_now() < deadline && tcp_receive(socket, unread, sizeof unread) >= 0)
        poll(&(struct pollfd){.fd = socket, .events = POLLIN}, 1, 50);
}
