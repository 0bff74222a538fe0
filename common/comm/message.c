// Message headers, and a reader.

#include "comm/message.h"

#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "comm/tcp.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers travel as they lie in memory");

static const unsigned char magic[4] = {'h', 'v', 'd', '1'};

void message_header(unsigned char header[MESSAGE_HEADER], uint32_t kind, uint64_t length)
{
    memcpy(header, magic, sizeof magic);
    memcpy(header + 4, &kind, sizeof kind);
    memcpy(header + 8, &length, sizeof length);
}

unsigned char *message_space(MessageReader *reader, size_t *room)
{
    if (reader->have < MESSAGE_HEADER) {
        *room = MESSAGE_HEADER - reader->have;
        return reader->header + reader->have;
    }
    size_t have = reader->have - MESSAGE_HEADER;
    *room = reader->length - have;
    return reader->body + have;
}

// The header has just become complete.
static MessageState read_header(MessageReader *reader)
{
    uint64_t length;
    if (memcmp(reader->header, magic, sizeof magic) != 0)
        return MESSAGE_FOREIGN;
    memcpy(&reader->kind, reader->header + 4, sizeof reader->kind);
    memcpy(&length, reader->header + 8, sizeof length);
    if (!reader->may_come(reader->who, reader->kind, length))
        return MESSAGE_REFUSED;
    reader->length = (size_t)length;
    if (reader->room < reader->length || !reader->body) {
        reader->room = reader->length;
        reader->body = enlarge(reader->body, reader->room, 1);
    }
    return reader->length == 0 ? MESSAGE_WHOLE : MESSAGE_PART;
}

MessageState message_take(MessageReader *reader, size_t count)
{
    bool had_header = reader->have >= MESSAGE_HEADER;
    reader->have += count;
    if (reader->have < MESSAGE_HEADER)
        return MESSAGE_PART;
    if (!had_header)
        return read_header(reader);
    return reader->have == MESSAGE_HEADER + reader->length ? MESSAGE_WHOLE : MESSAGE_PART;
}

MessageState message_receive(MessageReader *reader, int socket)
{
    for (;;) {
        size_t room;
        unsigned char *space = message_space(reader, &room);
        long count = tcp_receive(socket, space, room);
        if (count <= 0)
            return count < 0 ? MESSAGE_ENDED : MESSAGE_PART;
        MessageState state = message_take(reader, (size_t)count);
        if (state != MESSAGE_PART)
            return state;
    }
}

void message_next(MessageReader *reader)
{
    reader->have = 0;
    reader->length = 0;
}

void message_reader_free(MessageReader *reader)
{
    free(reader->body);
    reader->body = NULL;
    reader->room = 0;
}
