// IDX files, read as a data set. The first two bytes say how many of the rest are the file of
// images (the lower one first); the others are the file of labels.

#include "fuzz.h"
#include "data/dataset.h"

static void load(void *paths)
{
    const char **path = paths;
    Dataset dataset = load_idx(path[0], path[1], 10);
    FUZZ_CHECK(dataset.count > 0 && dataset.height > 0 && dataset.width > 0);
    for (int i = 0; i < dataset.count; i++)
        FUZZ_CHECK(dataset.labels[i] < 10);
    image_statistics(&dataset); // reads all of the images
    dataset_free(&dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    size_t images = bytes[0] + 256u * bytes[1];
    bytes += 2;
    size -= 2;
    images = images < size ? images : size;
    const char *paths[] = {fuzz_file(0, bytes, images),
                           fuzz_file(1, bytes + images, size - images)};
    fuzz_call(load, paths, FREES_ALL);
    return 0;
}
