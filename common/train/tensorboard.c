// TensorBoard event files: a protobuf encoder for the one message that scalars need, and TFRecord
// frames around it. The callbacks choose the scalars, and write only on the root.

#include "train/tensorboard.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/format.h"

struct EventFile {
    FILE *stream; // NULL: the log has been given up
    char *path;
    off_t length; // of the records that are complete
    uint32_t crc_table[256];
};

// A protobuf message, or a frame, that is being put together.
typedef struct {
    uint8_t *bytes;
    size_t size, capacity;
} ProtoMessage;

// Field numbers of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE_VALUE = 2,
};

// https://protobuf.dev/programming-guides/encoding: how a field's bytes are laid out.
enum { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2, WIRE_32_BITS = 5 };

// More than the maximum size of all field keys, lengths and numbers of an event, or of a frame.
enum { OVERHEAD = 64 };

static ProtoMessage message_new(size_t text_length)
{
    size_t capacity = text_length + OVERHEAD;
    return (ProtoMessage){.bytes = allocate(capacity, 1), .capacity = capacity};
}

static void put_bytes(ProtoMessage *message, const void *bytes, size_t count)
{
    CHECK(count <= message->capacity - message->size);
    memcpy(message->bytes + message->size, bytes, count);
    message->size += count;
}

static void put_byte(ProtoMessage *message, uint8_t byte)
{
    put_bytes(message, &byte, 1);
}

// The lowest `count` bytes of a number, the lowest first.
static void put_little_endian(ProtoMessage *message, uint64_t number, int count)
{
    for (int i = 0; i < count; i++)
        put_byte(message, (uint8_t)(number >> (8 * i)));
}

// Seven bits a byte, the lowest first; the top bit says that more follow.
static void put_varint(ProtoMessage *message, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        put_byte(message, (uint8_t)(number | 0x80));
    put_byte(message, (uint8_t)number);
}

static void put_key(ProtoMessage *message, unsigned field, unsigned wire_type)
{
    put_varint(message, field << 3 | wire_type);
}

static void put_int64_field(ProtoMessage *message, unsigned field, int64_t value)
{
    put_key(message, field, WIRE_VARINT);
    put_varint(message, (uint64_t)value);
}

static void put_double_field(ProtoMessage *message, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(message, field, WIRE_64_BITS);
    put_little_endian(message, bits, 8);
}

static void put_float_field(ProtoMessage *message, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(message, field, WIRE_32_BITS);
    put_little_endian(message, bits, 4);
}

// A string, or a message within a message.
static void put_bytes_field(ProtoMessage *message, unsigned field, const void *bytes, size_t count)
{
    put_key(message, field, WIRE_BYTES);
    put_varint(message, count);
    put_bytes(message, bytes, count);
}

// CRC-32C, the Castagnoli polynomial with its bits reversed (RFC 3720, appendix B.4). zlib's crc32
// uses another polynomial.
static void fill_crc_table(uint32_t table[256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        table[byte] = crc;
    }
}

// TFRecord rotates the sum and adds a constant, since a CRC over data that contain their own CRC is
// weak.
static uint32_t masked_crc(const uint32_t table[256], const uint8_t *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++)
        crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

_Noreturn static void die_of(const char *what, const char *path)
{
    die("cannot %s %s: %s", what, path, strerror(errno));
}

// The training continues without its log.
static void give_up_log(EventFile *file, const char *reason)
{
    warn("cannot write the log %s: %s; the training goes on without it", file->path, reason);
    ends_incomplete("the log %s is not complete: %s", file->path, reason);
    if (file->stream)
        fclose(file->stream);
    file->stream = NULL;
    (void)!truncate(file->path, file->length); // a record that was cut off would be none
}

static bool is_deleted(FILE *stream)
{
    struct stat status;
    return fstat(fileno(stream), &status) == 0 && status.st_nlink == 0;
}

// One record, in a single write: TensorBoard may be reading the file at the same time.
static void write_record(EventFile *file, const ProtoMessage *event)
{
    if (!file->stream)
        return;
    ProtoMessage frame = message_new(event->size);
    put_little_endian(&frame, event->size, 8);
    put_little_endian(&frame, masked_crc(file->crc_table, frame.bytes, 8), 4);
    put_bytes(&frame, event->bytes, event->size);
    put_little_endian(&frame, masked_crc(file->crc_table, event->bytes, event->size), 4);
    if (fwrite(frame.bytes, 1, frame.size, file->stream) != frame.size || fflush(file->stream) != 0)
        give_up_log(file, strerror(errno));
    else if (is_deleted(file->stream))
        give_up_log(file, "it has been deleted");
    else
        file->length += (off_t)frame.size;
    free(frame.bytes);
}

// An event with the time of day, by which TensorBoard orders events.
static ProtoMessage event_new(size_t text_length)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    ProtoMessage event = message_new(text_length);
    put_double_field(&event, EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    return event;
}

static char *event_path(const char *folder)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return format_text("%s/events.out.tfevents.%010lld.%s.%d", folder, (long long)time(NULL), host,
                       (int)getpid());
}

EventFile *event_file_open(const char *folder)
{
    make_folders(folder);
    EventFile *file = allocate(1, sizeof *file);
    fill_crc_table(file->crc_table);
    file->path = event_path(folder);
    file->stream = fopen(file->path, "abe"); // a second file in the same second loses nothing
    if (!file->stream || fseeko(file->stream, 0, SEEK_END) != 0)
        die_of("create", file->path);
    file->length = ftello(file->stream);

    static const char version[] = "brain.Event:2";
    ProtoMessage event = event_new(strlen(version));
    put_bytes_field(&event, EVENT_FILE_VERSION, version, strlen(version));
    write_record(file, &event);
    free(event.bytes);
    return file;
}

void event_file_scalar(EventFile *file, const char *tag, int64_t step, float value)
{
    ProtoMessage scalar = message_new(strlen(tag));
    put_bytes_field(&scalar, VALUE_TAG, tag, strlen(tag));
    put_float_field(&scalar, VALUE_SIMPLE_VALUE, value);

    ProtoMessage summary = message_new(scalar.size);
    put_bytes_field(&summary, SUMMARY_VALUE, scalar.bytes, scalar.size);

    ProtoMessage event = event_new(summary.size);
    put_int64_field(&event, EVENT_STEP, step);
    put_bytes_field(&event, EVENT_SUMMARY, summary.bytes, summary.size);
    write_record(file, &event);

    free(scalar.bytes);
    free(summary.bytes);
    free(event.bytes);
}

void event_file_close(EventFile *file)
{
    FILE *stream = file->stream;
    file->stream = NULL;
    if (stream && fclose(stream) != 0)
        give_up_log(file, strerror(errno));
    free(file->path);
    free(file);
}
