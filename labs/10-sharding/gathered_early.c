// Trains nine dense layers on Fashion-MNIST by Adam, on many devices. Each worker keeps a part of
// the weights, of the gradients and of the optimizer's state, and has all weights of a layer only
// while it is computed.

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

enum { MAX_WORKERS = 1024 };

// The part of a piece that a worker keeps: `count` numbers from number `begin` on. (As in gathered.)
typedef struct {
    int begin, count;
} Part;

static Part part_of(const Piece *piece, int rank)
{
    int count = piece_count(piece);
    int each = count / hvd_size(), longer = count % hvd_size();
    return (Part){
        .begin = rank * each + (rank < longer ? rank : longer),
        .count = each + (rank < longer),
    };
}

static Part own_part(const Piece *piece)
{
    return part_of(piece, hvd_rank());
}

// The training begins. (As in gathered.)
static void divide(Piece *piece)
{
    Part own = own_part(piece);
    keep_weights(piece, own.begin, own.count);
    free_weights(piece);
}

#if STEP >= 1
// The piece whose gather has begun, or NULL, and the request of that.
static Piece *coming;
static MPI_Request request = MPI_REQUEST_NULL;

#endif
// All workers get all weights of the piece: a part of each worker, in the order of the ranks.
static void gather(Piece *piece)
{
    static int counts[MAX_WORKERS], begins[MAX_WORKERS];
    for (int r = 0; r < hvd_size(); r++) {
        Part part = part_of(piece, r);
        counts[r] = part.count;
        begins[r] = part.begin;
    }
#if STEP >= 1
    // gathered_early: begins it. Until the request is complete the arrays and the weights are MPI's.
    MPI_Iallgatherv(kept_weights(piece), own_part(piece).count, MPI_FLOAT, allocate_weights(piece),
                    counts, begins, MPI_FLOAT, MPI_COMM_WORLD, &request);
    coming = piece;
#else
    // TODO: gathered_early: this returns when the weights are there. Begin to gather them instead.
    MPI_Allgatherv(kept_weights(piece), own_part(piece).count, MPI_FLOAT, allocate_weights(piece),
                   counts, begins, MPI_FLOAT, MPI_COMM_WORLD);
#endif
}

// The forward or the backward pass of this layer begins, when this function returns.
static void before_pass(Piece *piece)
{
#if STEP >= 1
    // gathered_early: nothing has come early for the first layer of the forward or backward pass.
    if (coming != piece)
        gather(piece);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    coming = NULL;
    // gathered_early: this layer has its weights; those of the next one travel while it computes.
    if (next_piece(piece))
        gather(next_piece(piece));
#else
    // TODO: gathered_early: this layer needs its weights now. What can travel while it computes?
    gather(piece);
#endif
}

// The pass of this layer is done. (As in gathered.)
static void after_pass(Piece *piece)
{
    free_weights(piece);
}

// The gradients of a piece are complete. (As in zero.)
static void ready(Piece *piece)
{
    float *kept = kept_gradients(piece, own_part(piece).count);
    hvd_reduce_scatter(piece_gradients(piece), (size_t)piece_count(piece), kept, HVD_AVERAGE);
}

// The backward pass is done. (As in gathered.)
static void update(Piece *piece)
{
    Part own = own_part(piece);
    update_weights(piece, own.begin, own.count);
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
