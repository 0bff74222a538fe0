// cJSON's hooks.

#include "base/json.h"

#include <math.h>

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

const char *json_text(const cJSON *object, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);
    return cJSON_IsString(item) ? item->valuestring : "";
}

double json_number(const cJSON *object, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, field);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}
