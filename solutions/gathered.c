// Trains nine dense layers on Fashion-MNIST by Adam, on many devices. Each worker keeps a part of
// the weights, of the gradients and of the optimizer's state.

#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"
#include "lessons/exercises.h"
#include "lessons/shards.h"

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = flatten(image);
    for (int layer = 0; layer < 8; layer++)
        x = relu(dense(x, 512));
    return model(image, softmax(dense(x, 10)));
}

// The part of a piece that this worker keeps: `count` numbers from number `begin` on. (As in zero.)
typedef struct {
    int begin, count;
} Part;

static Part own_part(const Piece *piece)
{
    int count = piece_count(piece), rank = hvd_rank();
    int each = count / hvd_size(), longer = count % hvd_size();
    return (Part){
        .begin = rank * each + (rank < longer ? rank : longer),
        .count = each + (rank < longer),
    };
}

// The training begins. All workers have all weights of the piece, the root's.
static void divide(Piece *piece)
{
    Part own = own_part(piece);
    keep_weights(piece, own.begin, own.count);
    // gathered: the other workers keep the other parts.
    free_weights(piece);
}

// The forward or the backward pass of this layer begins. It reads all weights of the piece.
static void before_pass(Piece *piece)
{
    // gathered: a part of each worker, in the order of the ranks.
    size_t total;
    float *all = hvd_allgather(kept_weights(piece), (size_t)own_part(piece).count, &total);
    memcpy(allocate_weights(piece), all, total * sizeof *all);
    free(all);
}

// The pass of this layer is done.
static void after_pass(Piece *piece)
{
    // gathered: the next layer needs the memory.
    free_weights(piece);
}

// The gradients of a piece are complete. Each worker gets the mean of its own part. (As in zero.)
static void ready(Piece *piece)
{
    float *kept = kept_gradients(piece, own_part(piece).count);
    hvd_reduce_scatter(piece_gradients(piece), (size_t)piece_count(piece), kept, HVD_AVERAGE);
}

// The backward pass is done. This updates the weights that the worker keeps.
static void update(Piece *piece)
{
    Part own = own_part(piece);
    update_weights(piece, own.begin, own.count);
    // gathered: the other workers get them before the next pass.
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    Optimizer *opt = optimizer_in_shards(adam(args.base_lr), ready, update);
    opt = weights_in_shards(opt, divide, before_pass, after_pass);
    train_on_workers(compile(create_model(), CATEGORICAL_CROSSENTROPY, opt), &args);
    return 0;
}
