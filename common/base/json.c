// cJSON's hooks, fields and files.

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"

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

cJSON *json_read(const char *path)
{
    size_t size;
    char *text = file_bytes(path, &size);
    cJSON *object = cJSON_Parse(text);
    if (!object)
        die("%s is not JSON", path);
    free(text);
    return object;
}

void json_write(const cJSON *object, const char *path)
{
    char *text = cJSON_Print(object);
    file_replace(path, text, strlen(text));
    free(text);
}
