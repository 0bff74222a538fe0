// cJSON's hooks, fields and files.

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/numbers.h"

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

// cJSON looks for the locale's decimal point, of which it takes the first byte.
cJSON *json_parse(const char *text)
{
    NumbersLocale before = numbers_begin();
    cJSON *object = cJSON_Parse(text);
    numbers_end(before);
    return object;
}

char *json_print(const cJSON *object, bool lines)
{
    NumbersLocale before = numbers_begin();
    char *text = lines ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    numbers_end(before);
    return text;
}

cJSON *json_read(const char *path)
{
    size_t size;
    char *text = file_bytes(path, &size);
    cJSON *object = json_parse(text);
    if (!object)
        die("%s is not JSON", path);
    free(text);
    return object;
}

void json_write(const cJSON *object, const char *path)
{
    char *json = json_print(object, true), *text = format_text("%s\n", json);
    file_replace(path, text, strlen(text));
    free(json);
    free(text);
}
