// hvdlab: what a step includes. A small Keras in C, with the layers, optimizers, callbacks and
// training loop of the lab, and hvd, which makes one training of many processes; each header
// documents its part.

#ifndef HVDLAB_H
#define HVDLAB_H

#include <stdio.h>

#include "args.h"      // the command line
#include "dataset.h"   // images and labels
#include "augment.h"   // batches
#include "layers.h"    // what a model is built from
#include "optimizer.h" // SGD, Adam, ...
#include "model.h"     // compile
#include "callbacks.h" // what happens around an epoch
#include "fit.h"       // fit and evaluate
#include "hvd.h"       // ranks, all-reduce, the distributed optimizer and its callbacks
#include "device.h"    // device_use
#include "rng.h"       // set_seed

#endif
