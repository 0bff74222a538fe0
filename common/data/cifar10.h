// CIFAR-10 for programs that train on it.

#ifndef HVDLAB_CIFAR10_H
#define HVDLAB_CIFAR10_H

#include "data/dataset.h"

#pragma GCC visibility push(default) // a step may call what follows

// The data of CIFAR-10 programs, 32x32x3 in ten classes: its files from --data-dir, or from
// data/cifar-10-batches-bin, where make data-cifar10 puts them. With --data synthetic, and, with a
// note, if there are no files, 6,000 and 1,000 generated images of that shape are used. --images
// limits both.
Dataset load_cifar10_data(const Args *args, Split split);

#pragma GCC visibility pop

#endif
