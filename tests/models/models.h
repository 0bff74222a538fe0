// The kit's models by name, for programs that take a model as an argument (replay, bench). A step
// spells its own model out; tests hold it against its twin here.

#ifndef TESTS_MODELS_H
#define TESTS_MODELS_H

#include <stdbool.h>
#include "nn/model.h"

// Where a model can be cut down: filters or units of its layers, in the order of the forward pass.
// Zero stands for the original.
#define MODEL_MAX_WIDTHS 8

typedef struct {
    int height, width, channels; // of the input
    int widths[MODEL_MAX_WIDTHS];
    bool dropout; // false leaves dropout out, for replay
} ModelShape;

// Wide ResNet, depth 16 (Zagoruyko and Komodakis, 2016), as the lab has it: the residual sum comes
// after the ReLU. widths: the first convolution's (16) and those of the three groups (16k, 32k,
// 64k), then the classes (10).
Model *wide_resnet(ModelShape shape);

// conv 32, pool, conv 64, pool, dense 512, dense 10: convolutions 3x3 with ReLU. widths: those
// four.
Model *lenet(ModelShape shape);

// dense 256, dense 256, dense 10. widths: those three.
Model *mlp(ModelShape shape);

// The CIFAR-10 CNN: conv 32, pool, conv 64, pool, dense 256, dense 10. widths: those four.
Model *cifar_cnn(ModelShape shape);

// A bag of words, of sentences of `width` tokens: embedding 10,000 x 16, the mean of a sentence's
// vectors, dense 10. widths: vocabulary, dimension, classes.
Model *bag_of_words(ModelShape shape);

#endif
