// TCP for parameter servers and the stall watch: addresses, non-blocking connections, and detection
// of a peer that is gone, also where its machine has failed.

#ifndef HVDLAB_TCP_H
#define HVDLAB_TCP_H

#include <stdbool.h>
#include <stddef.h>

// "HOST:PORT", or "[HOST]:PORT" where the host has colons itself.
typedef struct {
    char host[256];
    char port[8];
} TcpAddress;

// False where the `length` bytes of text are none.
bool tcp_address(const char *text, size_t length, TcpAddress *address);

// A socket that listens there, or -1 and *why, which says it in words. Port 0: the system chooses
// one, which then is in *address.
int tcp_listen(TcpAddress *address, const char **why);

// This machine's IPv4 addresses with that port, at most `max`, the loopback address last and always
// among them. Returns how many.
int tcp_own_addresses(const char *port, TcpAddress *addresses, int max);

// Accepts the next connection, and tells where it comes from; -1: there is none.
int tcp_accept(int listener, char from[64]);

// Connects to the listener there, in `seconds` at most; -1 and *why: no answer (yet).
int tcp_connect(const TcpAddress *address, double seconds, const char **why);

// Neither waits. How many bytes were moved; 0: none just now; -1: the connection is at its end.
long tcp_receive(int socket, void *bytes, size_t room);
long tcp_send(int socket, const void *bytes, size_t count);

// Sends these bytes, if the other machine's system has acknowledged all but some thousand of those
// before, else none of them. Acknowledged bytes may not have been received by the program there.
void tcp_send_whole(int socket, const void *bytes, size_t count);

// Sends these last bytes, and waits until the other end has seen that nothing more will come; until
// the deadline (seconds_now()) at most.
void tcp_send_last(int socket, const void *bytes, size_t count, double deadline);

#endif
