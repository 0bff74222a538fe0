// Memory for cJSON, the library that reads and writes JSON for every layer.

#ifndef HVDLAB_JSON_H
#define HVDLAB_JSON_H

// From now on the program exits with an error message where cJSON gets no memory. cJSON itself
// would return NULL, also in the middle of what it makes, and report it as an error in the text.
void json_use_memory(void);

#endif
