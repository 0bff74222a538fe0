// hvdlab: what a step includes. A small Keras in C, with the layers, optimizers, callbacks and
// training loop of the lab, and hvd, which makes one training of many processes; each header
// documents its part.

#ifndef HVDLAB_H
#define HVDLAB_H

#include <stdio.h>

#include "base/clock.h"        // seconds_now
#include "base/rng.h"          // set_seed
#include "run/args.h"          // the command line
#include "run/device.h"        // device_use
#include "data/dataset.h"      // images and labels
#include "data/cifar10.h"      // those of CIFAR-10
#include "data/batches.h"      // batches
#include "data/augment.h"      // how their images are changed
#include "data/pipeline.h"     // batches, put together from stages
#include "nn/layers.h"         // what a model is built from
#include "nn/optimizer.h"      // SGD, Adam, ...
#include "nn/model.h"          // compile
#include "train/callbacks.h"   // what happens around an epoch
#include "train/fit.h"         // fit and evaluate
#include "train/mirrored.h"    // the same on all devices of one process
#include "train/stages.h"      // a model in parts, each on a device
#include "comm/comm.h"         // ranks, all-reduce, groups of workers
#include "comm/hvd_run.h"      // workers that a plain program starts
#include "hvd/hvd.h"           // the distributed optimizer and its callbacks
#include "hvd/checkpoint.h"    // a training saved, and gone on with
#include "hvd/ps.h"            // parameter servers, without mpirun
#include "lessons/placement.h" // a table of the workers on each host
#include "lessons/sweep.h"     // an all-reduce tried on many sizes
#include "lessons/text.h"      // sentences, and batches of them

#endif
