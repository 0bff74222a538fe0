// Messages in a stream of bytes, such as a TCP connection. A message is a header of 16 bytes (magic
// word, kind, length; little-endian), then `length` bytes. A rule of the reader decides whether a
// message of that kind and length may come now, before memory is allocated, so that an unknown
// client cannot use up memory.

#ifndef HVDLAB_MESSAGE_H
#define HVDLAB_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MESSAGE_HEADER = 16 };

// Writes the header of a message.
void message_header(unsigned char header[MESSAGE_HEADER], uint32_t kind, uint64_t length);

typedef bool (*MessageRule)(const void *who, uint32_t kind, uint64_t length);

// Zeroed at first, except the rule. To be freed with message_reader_free.
typedef struct {
    MessageRule may_come;
    const void *who; // what the rule is called with
    unsigned char header[MESSAGE_HEADER];
    size_t have; // bytes of header and body so far
    uint32_t kind;
    size_t length;
    unsigned char *body; // `length` bytes of the message; owned
    size_t room;         // bytes there
} MessageReader;

typedef enum {
    MESSAGE_PART,    // more bytes are to come
    MESSAGE_WHOLE,   // kind, length and body are one; message_next() makes way for another
    MESSAGE_FOREIGN, // this is no message
    MESSAGE_REFUSED, // the rule says no
    MESSAGE_ENDED,   // the connection is at its end
} MessageState;

// Where the next bytes of the stream belong, and how many at most: at least one, while the message
// is a part.
unsigned char *message_space(MessageReader *reader, size_t *room);

// So many have been put there. After a message that is foreign or refused the stream is worthless.
MessageState message_take(MessageReader *reader, size_t count);

// Takes what has arrived on a connection, up to the end of a message, and does not wait.
// MESSAGE_PART: nothing more has arrived.
MessageState message_receive(MessageReader *reader, int socket);

// Forgets a whole message and keeps its memory for the next one.
void message_next(MessageReader *reader);

void message_reader_free(MessageReader *reader);

#endif
