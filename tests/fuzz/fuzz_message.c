// Messages on a stream, as parameter servers read them. The first byte says how many bytes come at
// a time, the second how long a message may be.

#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include "comm/message.h"

enum { KINDS = 8 };

typedef struct {
    const uint8_t *bytes;
    size_t size, piece, longest;
} Stream;

static bool may_come(const void *who, uint32_t kind, uint64_t length)
{
    return kind < KINDS && length <= ((const Stream *)who)->longest;
}

static void read_messages(void *argument)
{
    Stream *stream = argument;
    MessageReader reader = {.may_come = may_come, .who = stream};
    MessageState state = MESSAGE_PART;
    while (stream->size > 0 && state != MESSAGE_FOREIGN && state != MESSAGE_REFUSED) {
        size_t room, count = stream->piece < stream->size ? stream->piece : stream->size;
        unsigned char *space = message_space(&reader, &room);
        FUZZ_CHECK(room > 0);
        count = count < room ? count : room;
        memcpy(space, stream->bytes, count);
        stream->bytes += count;
        stream->size -= count;
        state = message_take(&reader, count);
        FUZZ_CHECK(reader.room <= stream->longest);
        if (state == MESSAGE_WHOLE) {
            FUZZ_CHECK(reader.kind < KINDS && reader.length <= stream->longest);
            FUZZ_CHECK(memcmp(reader.body, stream->bytes - reader.length, reader.length) == 0);
            message_next(&reader);
        }
    }
    message_reader_free(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    Stream stream = {bytes + 2, size - 2, 1u + bytes[0], bytes[1]};
    fuzz_call(read_messages, &stream, FREES_ALL);
    return 0;
}
