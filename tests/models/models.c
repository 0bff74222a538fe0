// The named models.

#include "models/models.h"

static int width_or(const ModelShape *shape, int index, int original)
{
    return shape->widths[index] ? shape->widths[index] : original;
}

static Tensor cbr(Tensor x, int filters)
{
    return relu(batch_norm(conv2d(x, filters, 3)));
}

static Tensor block(Tensor x, int filters, bool scale_input, bool with_dropout)
{
    Tensor x0 = scale_input ? conv2d(x, filters, 1) : x;
    x = cbr(x, filters);
    if (with_dropout)
        x = dropout(x, 0.01f);
    x = cbr(x, filters);
    return add(x0, x);
}

Model *wide_resnet(ModelShape shape)
{
    Tensor image = input(shape.height, shape.width, shape.channels);
    Tensor x = cbr(image, width_or(&shape, 0, 16));
    for (int group = 0; group < 3; group++) {
        int filters = width_or(&shape, 1 + group, 16 << group);
        if (group > 0)
            x = max_pool(x, 2);
        x = block(x, filters, true, shape.dropout);
        x = block(x, filters, false, shape.dropout);
    }
    x = global_average_pool(x);
    return model(image, softmax(dense(x, width_or(&shape, 4, 10))));
}

// Two convolutions, each with a pool, and two dense layers; `hidden` is the first one's original
// width.
static Model *small_cnn(const ModelShape *shape, int hidden)
{
    Tensor image = input(shape->height, shape->width, shape->channels);
    Tensor x = max_pool(relu(conv2d(image, width_or(shape, 0, 32), 3)), 2);
    x = max_pool(relu(conv2d(x, width_or(shape, 1, 64), 3)), 2);
    x = relu(dense(flatten(x), width_or(shape, 2, hidden)));
    return model(image, softmax(dense(x, width_or(shape, 3, 10))));
}

Model *lenet(ModelShape shape)
{
    return small_cnn(&shape, 512);
}

Model *cifar_cnn(ModelShape shape)
{
    return small_cnn(&shape, 256);
}

Model *bag_of_words(ModelShape shape)
{
    Tensor words = input_tokens(shape.width);
    Tensor x = embedding(words, width_or(&shape, 0, 10000), width_or(&shape, 1, 16));
    x = global_average_pool(x);
    return model(words, softmax(dense(x, width_or(&shape, 2, 10))));
}

Model *mlp(ModelShape shape)
{
    Tensor image = input(shape.height, shape.width, shape.channels);
    Tensor x = relu(dense(flatten(image), width_or(&shape, 0, 256)));
    x = relu(dense(x, width_or(&shape, 1, 256)));
    return model(image, softmax(dense(x, width_or(&shape, 2, 10))));
}
