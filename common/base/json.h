// Memory for cJSON, the library that reads and writes JSON for every layer.

#ifndef HVDLAB_JSON_H
#define HVDLAB_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>

// From now on the program exits with an error message where cJSON gets no memory. cJSON itself
// would return NULL, also in the middle of what it makes, and report it as an error in the text.
void json_use_memory(void);

// cJSON_Parse and cJSON_Print (or, without `lines`, cJSON_PrintUnformatted) in any locale.
cJSON *json_parse(const char *text);
char *json_print(const cJSON *object, bool lines);

// The object in a file, which the caller deletes; exits with an error message where there is none.
cJSON *json_read(const char *path);

// Replaces a file by the object's text.
void json_write(const cJSON *object, const char *path);

// A field of an object: the empty text, or NaN, where the object is NULL or lacks it.
const char *json_text(const cJSON *object, const char *field);
double json_number(const cJSON *object, const char *field);

#endif
