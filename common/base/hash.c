// FNV-1a, and a hash that takes eight bytes at a time.

#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/memory.h"

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    for (const unsigned char *at = bytes, *end = at + size; at < end; at++)
        hash = (hash ^ *at) * 0x100000001b3;
    return hash;
}

uint64_t hash_text(const char *text)
{
    return hash_bytes(FNV_START, text, strlen(text));
}

char *hashes_text(const void *things, int count, size_t bytes)
{
    const char *thing = things;
    char *text = allocate((size_t)count + 1, sizeof "12345678,"), *end = text;
    for (int i = 0; i < count; i++, thing += bytes)
        end += sprintf(end, "%s%08" PRIx32, i ? "," : "",
                       (uint32_t)hash_bytes(FNV_START, thing, bytes));
    return text;
}

uint64_t hash_number(uint64_t hash, uint64_t number)
{
    hash = (hash ^ number) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

// A step changes every later value of its lane. Four lanes, because a processor overlaps independent
// steps. The last bytes are padded with zeros, and the length is hashed, too.
uint64_t hash_words(uint64_t hash, const void *bytes, size_t size)
{
    const char *at = bytes;
    uint64_t lanes[4] = {hash ^ size, 1, 2, 3}, words[4];
    size_t left = size;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++)
            lanes[i] = hash_number(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    if (left > 0)
        memcpy(words, at, left);
    for (int i = 0; i < 4; i++)
        lanes[i] = hash_number(lanes[i], words[i]);
    for (int i = 1; i < 4; i++)
        lanes[0] = hash_number(lanes[0], lanes[i]);
    return lanes[0];
}
