// The real images, if present, else synthetic ones of the same shape.

#include "data/cifar10.h"

#include <stdlib.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"
#include "observe/span.h"

#define FOLDER "data/cifar-10-batches-bin" // where make data-cifar10 puts the files

enum { SIDE = 32, CHANNELS = 3, SEED = 10 };

// Synthetic images, which are smaller and gray, in a black frame.
static Dataset generated_images(Split split, int count)
{
    Dataset gray = synthetic_data(split, SEED, count), framed = gray;
    framed.height = framed.width = SIDE;
    framed.channels = CHANNELS;
    framed.images = allocate((size_t)framed.count, SIDE * SIDE * CHANNELS);
    const uint8_t *from = gray.images;
    for (int row = 0; row < gray.count * gray.height; row++) {
        int image = row / gray.height, y = row % gray.height + (SIDE - gray.height) / 2;
        uint8_t *to = framed.images + (image * SIDE + y) * SIDE * CHANNELS;
        to += (SIDE - gray.width) / 2 * CHANNELS;
        for (int i = 0; i < gray.width * CHANNELS; i++)
            to[i] = from[i / CHANNELS];
        from += gray.width;
    }
    free(gray.images);
    return framed;
}

static bool are_there(const Args *args)
{
    return args->data != DATA_SYNTHETIC && (args->data_dir || access(FOLDER, F_OK) == 0);
}

Dataset load_cifar10_data(const Args *args, Split split)
{
    check_load(__func__, args, split);
    span_begin(SPAN_LOAD, "load the data", -1, -1);
    bool there = are_there(args);
    if (!there && args->data != DATA_SYNTHETIC && split == TRAIN)
        note_on_root(FOLDER " is not there: the images are generated (make data-cifar10 "
                            "fetches CIFAR-10)");
    Dataset dataset = there ? load_cifar10(args->data_dir ? args->data_dir : FOLDER, split)
                            : generated_images(split, args->images);
    if (args->images > 0 && args->images < dataset.count)
        dataset.count = args->images;
    span_end();
    return dataset_loaded(dataset, split);
}
