// Fashion-MNIST in a folder, as the command line asks for it. The first byte is the number of
// images
// (--images; 0: all), the next two say how many of the rest are the file of images (the lower one
// first); the others are the file of labels.

#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "data/dataset.h"

static char folder[] = "/tmp/fuzz_data.XXXXXX";
static char *links[2]; // to what is written for each input

static void remove_folder(void)
{
    unlink(links[0]);
    unlink(links[1]);
    rmdir(folder);
}

static void prepare(void)
{
    static const char *const names[] = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    FUZZ_CHECK(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK(asprintf(&links[i], "%s/%s", folder, names[i]) > 0);
        FUZZ_CHECK(symlink(fuzz_file(i, "", 0), links[i]) == 0);
    }
    atexit(remove_folder);
}

static void load(void *args)
{
    int wanted = ((Args *)args)->images;
    Dataset dataset = load_data(args, TEST);
    FUZZ_CHECK(dataset.count > 0 && (wanted == 0 || dataset.count <= wanted));
    FUZZ_CHECK(dataset.height == 28 && dataset.width == 28 && dataset.channels == 1);
    for (int i = 0; i < dataset.count; i++)
        FUZZ_CHECK(dataset.labels[i] < 10);
    image_statistics(&dataset); // reads all of the images
    dataset_free(&dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!links[0])
        prepare();
    if (size < 3)
        return 0;
    Args args = {.data = DATA_FASHION_MNIST, .data_dir = folder, .images = bytes[0]};
    size_t images = bytes[1] + 256u * bytes[2];
    bytes += 3;
    size -= 3;
    images = images < size ? images : size;
    fuzz_file(0, bytes, images);
    fuzz_file(1, bytes + images, size - images);
    fuzz_call(load, &args, FREES_ALL);
    return 0;
}
