// Aligned and zeroed blocks, and room in the address space.

#include "base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/error.h"

#define ALIGNMENT 64

void *allocate(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT)
        die("out of memory: %zu objects of %zu bytes are more than there can be", count, size);

    // aligned_alloc requires a multiple of the alignment; a size of 0 still gives a valid block.
    size_t rounded = bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, rounded);
    if (!memory)
        die("out of memory: there are no %zu bytes left", bytes);
    return memset(memory, 0, rounded);
}

void *enlarge(void *memory, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        die("out of memory: %zu objects of %zu bytes are more than there can be", count, size);
    void *larger = realloc(memory, bytes > 0 ? bytes : 1);
    if (!larger)
        die("out of memory: there are no %zu bytes left", bytes);
    return larger;
}

bool has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return false;
    munmap(room, bytes);
    return true;
}

void need_room(size_t bytes, const char *what)
{
    if (!has_room(bytes))
        die("out of memory: there are no %zu MiB left, which %s may need", bytes >> 20, what);
}

size_t resident_memory(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%*u %zu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

// The leak sanitizer's own, where the program is built with it.
#pragma GCC visibility push(default)
__attribute__((weak)) void __lsan_ignore_object(const void *memory);
#pragma GCC visibility pop

void lives_until_exit(const void *memory)
{
    if (memory && __lsan_ignore_object)
        __lsan_ignore_object(memory);
}
