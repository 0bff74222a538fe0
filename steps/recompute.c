// Trains a deep network on Fashion-MNIST, block by block. Blocks drop activations that are needed
// again only later, and compute them a second time.

#include <math.h>
#include "hvdlab.h"
#include "lessons/chain.h"

enum { UNITS = 512, CLASSES = 10 };

static int last_block;

// Block 0 reads images, the last one gives the classes.
static Model *create_block(int block)
{
    Tensor in = block == 0 ? input(28, 28, 1) : input_vector(UNITS);
    Tensor x = block == 0 ? flatten(in) : in;
    if (block == last_block)
        return model(in, softmax(dense(x, CLASSES)));
    return model(in, relu(dense(x, UNITS)));
}

// The gradients of a batch that has begun.
static void compute_blocks(Chain *chain)
{
    int blocks = chain_blocks(chain);
    // TODO: recompute: all blocks keep their activations until the backward pass is over. Let at
    // most half of the blocks, and two more, have activations at any time. The others drop theirs,
    // and compute them again when the backward pass needs them: each of them once, no more.
    for (int b = 0; b < blocks; b++)
        block_forward(chain, b);
    for (int b = blocks - 1; b >= 0; b--)
        block_backward(chain, b);
}

static void train_epoch(Chain *chain, Batches *batches)
{
    int steps = batches_len(batches);
    batches_begin(batches, steps);
    for (int step = 0; step < steps; step++) {
        Batch batch = batches_next(batches);
        chain_begin(chain, &batch);
        compute_blocks(chain);
        chain_update(chain);
    }
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);

    Dataset images = load_data(&args, TRAIN);
    // Standardized with the mean and the standard deviation of the training images.
    Batches *batches = plain_batches(&images, image_statistics(&images), args.batch_size);

    last_block = args.blocks - 1;
    // Blocks one after another, each a model of its own that reads what the one before it computes.
    Chain *blocks = chain(args.blocks, create_block, args.base_lr);
    for (int epoch = 1; epoch <= args.epochs; epoch++) {
        chain_reset_metrics(blocks);
        double begin = seconds_now();
        train_epoch(blocks, batches);
        Metrics metrics = chain_metrics(blocks);
        printf("Epoch %d/%d - loss: %.4f - accuracy: %.4f - %.0f images/s - activations: %.1f MB\n",
               epoch, args.epochs, metrics.loss / metrics.images, metrics.correct / metrics.images,
               metrics.images / (seconds_now() - begin),
               (double)chain_max_activations(blocks) / 1e6);
    }
    return 0;
}
