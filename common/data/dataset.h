// Data sets in memory: MNIST and Fashion-MNIST (IDX files, plain or gzip), CIFAR-10 (binary
// version) and a synthetic set for machines without either. Images stay bytes; batches (augment.h)
// turn them into floats. A file that is missing, cut short or damaged makes the program exit with
// an error message that names the file and the fault. The headers of a pair of IDX files are
// compared before any image is read; of images at most 4096x4096, at most 1,048,576 and 1 GiB are
// read.
//
// Formats: the IDX format as Y. LeCun's MNIST page defines it; the binary version of CIFAR-10 as
// A. Krizhevsky's page defines it (a label byte, then 1,024 bytes each of red, green and blue).

#ifndef HVDLAB_DATASET_H
#define HVDLAB_DATASET_H

#include <stdint.h>
#include "base/types.h"
#include "run/args.h"

#pragma GCC visibility push(default) // a step may call what follows

typedef enum { TRAIN, TEST } Split;

typedef struct {
    uint8_t *images; // count x height x width x channels bytes, owned
    uint8_t *labels; // count class numbers, 0 ... classes - 1, owned
    int count;
    int height, width, channels;
    int classes;
} Dataset;

// Mean and standard deviation (of the whole population) of each channel, in the bytes' units.
typedef struct {
    float mean[4];
    float std[4];
} Statistics;

// The data set that the command line asks for: --data, --data-dir, --images. Only the images that
// --images asks for are read; the rest of a file is not checked. Fashion-MNIST is looked for in
// --data-dir alone if it was given, else in Debian's folder, then in data/. Synthetic images are
// the same on every rank, and without --seed also in every run.
Dataset load_data(const Args *args, Split split);

// Images and labels from two IDX files. Each path may be plain or gzip, whatever its name.
Dataset load_idx(const char *images_path, const char *labels_path, int classes);

// CIFAR-10's binary version from the folder that holds data_batch_1.bin ... data_batch_5.bin and
// test_batch.bin. Each must hold exactly 10,000 images.
Dataset load_cifar10(const char *folder, Split split);

// 6,000 or 1,000 images of 28x28 in ten classes, learnable within an epoch or two; a function of
// `seed` alone. With `images` above 0 only the first ones, at most that many, are drawn.
Dataset synthetic_data(Split split, uint64_t seed, int images);

// A data set of its own with the `count` images that have these numbers, 0 to dataset->count - 1,
// in this order; a number may come more than once. Statistics of a few images are not those of all:
// compute them (image_statistics) before. The caller frees it with dataset_free, though a program
// that ends need not. A number that is out of range makes the program exit with an error message.
USE_RESULT Dataset dataset_select(const Dataset *dataset, const int *numbers, int count);

// The same with the `count` images from number `first` on, in their order.
USE_RESULT Dataset dataset_range(const Dataset *dataset, int first, int count);

// A data set of its own with all these images, class by class, as folders with one class each hold
// them: those of class 0 first, each class in the order in which it was. Freed as dataset_select's.
USE_RESULT Dataset dataset_by_class(const Dataset *dataset);

// The shard of worker `index` of `count`: every count-th image, from number `index` on. The shards
// of all workers are the whole data set, and no image is in two of them; their sizes differ by one
// at most. (What a tf.data.Dataset's shard and Python's [index::count] select.) A data set of its
// own, as dataset_select's. An index below 0, or not below `count`, makes the program exit with an
// error message.
USE_RESULT Dataset shard_dataset(const Dataset *dataset, int index, int count);

// Frees what the data set owns and empties it.
void dataset_free(Dataset *dataset);

Statistics image_statistics(const Dataset *dataset);

#pragma GCC visibility pop

// Inside the library: exits with an error message, which names `caller`, where a loader's arguments
// make no sense.
void check_load(const char *caller, const Args *args, Split split);

// Inside the library: what a loader returns at its end. Notes the images for traces.
Dataset dataset_loaded(Dataset dataset, Split split);

#endif
