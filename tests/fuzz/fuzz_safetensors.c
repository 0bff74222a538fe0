// Safetensors files: read, and everything looked at that was found.

#include "fuzz.h"
#include <string.h>
#include "data/safetensors.h"

static void read_file(void *path)
{
    Safetensors *file = safetensors_read(path);
    for (int i = 0; i < safetensors_count(file); i++) {
        const Safetensor *tensor = safetensors_at(file, i);
        FUZZ_CHECK(safetensors_find(file, tensor->name) == tensor);
        FUZZ_CHECK(tensor->ndims >= 0 && tensor->ndims <= ST_MAX_DIMS && tensor->count >= 0);
        const char *numbers = tensor->data;
        size_t bytes = (size_t)tensor->count * 4;
        FUZZ_CHECK(bytes == 0 || memchr(numbers + bytes - 1, numbers[bytes - 1], 1));
    }
    safetensors_metadata(file, "format");
    safetensors_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_call(read_file, (void *)(uintptr_t)fuzz_file(0, bytes, size), FREES_ALL);
    return 0;
}
