// cJSON's hooks.

#include "base/json.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include "base/error.h"

static void *have_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        die("out of memory: there are no %zu bytes left", bytes);
    return memory;
}

void json_use_memory(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = have_memory, .free_fn = free});
}
