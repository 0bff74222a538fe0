// The same files, compressed. The first byte says what is done with the file of images that
// follows: 0 leaves it as it is, for gzip files that are in the corpus; else it is compressed, at
// one of zlib's levels, and then, as the next three bytes say, left whole, cut off, made longer, or
// changed in one byte. (A random change to a compressed file would hardly get past its check sum.)

#include "fuzz.h"
#include <string.h>
#include <zlib.h>
#include "data/dataset.h"

enum { WHOLE, CUT, LONGER, CHANGED, DAMAGES };

// Three labels.
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 4};

static uint8_t file[1 << 17];

// Fills `file`; returns its length.
static size_t compress_file(const uint8_t *bytes, size_t size, int level)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)bytes,
                       .avail_in = (uInt)size,
                       .next_out = file,
                       .avail_out = sizeof file};
    FUZZ_CHECK(deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK);
    FUZZ_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    size_t length = stream.total_out;
    deflateEnd(&stream);
    return length;
}

static size_t damage(size_t length, int kind, size_t place, uint8_t byte)
{
    place %= length;
    switch (kind) {
    case CUT:
        return place;
    case LONGER:
        memset(file + length, byte, place % 64);
        return length + place % 64;
    case CHANGED:
        file[place] ^= byte;
        return length;
    default:
        return length;
    }
}

static void load(void *paths)
{
    const char **path = paths;
    Dataset dataset = load_idx(path[0], path[1], 10);
    dataset_free(&dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 4 || size > sizeof file / 2)
        return 0;
    const char *paths[] = {NULL, fuzz_file(1, labels, sizeof labels)};
    if (bytes[0] == 0) {
        paths[0] = fuzz_file(0, bytes + 1, size - 1);
        fuzz_call(load, paths, FREES_ALL);
        return 0;
    }
    const uint8_t *plain = bytes + 4;
    size_t plain_size = size - 4;
    size_t length = compress_file(plain, plain_size, bytes[0] % 10);
    int kind = bytes[1] % DAMAGES;
    length = damage(length, kind, bytes[2] + 256u * bytes[3], bytes[1] / DAMAGES);
    paths[0] = fuzz_file(0, file, length);
    bool loaded = fuzz_call(load, paths, FREES_ALL);
    if (kind == WHOLE) { // compressed or not, it is the same file
        paths[0] = fuzz_file(0, plain, plain_size);
        FUZZ_CHECK(plain_size < 2 || (plain[0] == 0x1f && plain[1] == 0x8b) ||
                   fuzz_call(load, paths, FREES_ALL) == loaded);
    }
    return 0;
}
