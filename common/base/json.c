// Memory for cJSON, the library that reads and writes JSON for every layer. It answers NULL where
// there is no memory, in the middle of what it makes, too, and takes that for a fault of the text.
// With this file it never comes to that: what can't be had ends the program with one line.

#include <cjson/cJSON.h>
#include <stdlib.h>
#include "base/util.h"

static void *have_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        die("out of memory: there are no %zu bytes left", bytes);
    return memory;
}

__attribute__((constructor)) static void give_memory(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = have_memory, .free_fn = free});
}
