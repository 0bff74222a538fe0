// Trains nine dense layers on Fashion-MNIST by Adam, on many devices. Each worker keeps a part of
// the gradients and of the optimizer's state.

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

// The part of a piece that this worker keeps: `count` numbers from number `begin` on.
typedef struct {
    int begin, count;
} Part;

static Part own_part(const Piece *piece)
{
    int count = piece_count(piece);
#if STEP >= 1
    // zero: equal parts in the order of the ranks; the first ones are one longer, if need be.
    int each = count / hvd_size(), longer = count % hvd_size(), rank = hvd_rank();
    return (Part){
        .begin = rank * each + (rank < longer ? rank : longer),
        .count = each + (rank < longer),
    };
#else
    // TODO: zero: every worker keeps the whole piece. Give each a part of its own, as
    // hvd_reduce_scatter divides it (make doc NAME=hvd_reduce_scatter).
    return (Part){.begin = 0, .count = count};
#endif
}

// The gradients of a piece are complete. Their memory is used for the next piece when this returns.
static void ready(Piece *piece)
{
    float *kept = kept_gradients(piece, own_part(piece).count);
#if STEP >= 1
    // zero: each worker gets the mean of its own part only.
    hvd_reduce_scatter(piece_gradients(piece), (size_t)piece_count(piece), kept, HVD_AVERAGE);
#else
    // TODO: zero: this keeps the mean of the whole piece. Let each worker get its own part only.
    memcpy(kept, piece_gradients(piece), (size_t)piece_count(piece) * sizeof *kept);
    hvd_allreduce(kept, (size_t)piece_count(piece), HVD_AVERAGE);
#endif
}

// The backward pass is done. The next forward pass reads all weights of the piece.
static void update(Piece *piece)
{
    Part own = own_part(piece);
    update_weights(piece, own.begin, own.count);
#if STEP >= 1
    // zero: the other workers have updated the other parts.
    size_t total;
    float *all = hvd_allgather(piece_weights(piece) + own.begin, (size_t)own.count, &total);
    memcpy(piece_weights(piece), all, total * sizeof *all);
    free(all);
#else
    // TODO: zero: get the parts that the other workers have updated.
#endif
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    Optimizer *opt = optimizer_in_shards(adam(args.base_lr), ready, update);
    train_on_workers(compile(create_model(), CATEGORICAL_CROSSENTROPY, opt), &args);
    return 0;
}
