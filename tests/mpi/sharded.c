// For test_sharded_checkpoints.sh: trains by Adam, all ranks with the same batch, and saves; or goes
// on from what another number of ranks has saved. `sharded FOLDER save` makes three updates, saves
// ckpt-1, and makes two more. `sharded FOLDER load` restores ckpt-1, and makes the two. Both print a
// hash of the state as it was saved or restored; the weights in the end are FOLDER/NAME, which a
// third word names. WHOLE=1: the optimizer is not in shards. CONV=1: the model has a convolution.
// `sharded FOLDER compare A B` compares two such files.
// OWNERS=K: whole pieces belong to ranks, from rank K on, and other ranks have no state. FROZEN=1: no
// rank updates the first of them.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"
#include "lessons/shards.h"
#include "lessons/shards_state.h"

static Model *create(Optimizer *optimizer)
{
    set_seed(1);
    Tensor image = input(8, 8, 1);
    Tensor x = getenv("CONV") ? max_pool(relu(batch_norm(conv2d(image, 5, 3))), 2) : image;
    x = relu(dense(flatten(x), 13));
    return compile(model(image, softmax(dense(x, 3))), CATEGORICAL_CROSSENTROPY, optimizer);
}

static void train(Model *m, int updates)
{
    float images[6 * 64];
    int labels[6];
    for (int i = 0; i < 6 * 64; i++)
        images[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < 6; i++)
        labels[i] = i % 3;
    for (int i = 0; i < updates; i++)
        train_on_batch(m, &(Batch){images, labels, 6});
}

// Each rank's own slices together are the whole.
static void print_state(Model *m)
{
    uint64_t hash = (uint64_t)optimizer_iterations(model_optimizer(m));
    for (int i = 0; i < state_array_count(m); i++) {
        StateArray array = state_array(m, i);
        float *whole = calloc((size_t)array.length, sizeof *whole);
        for (int k = array.own.begin; k < array.own.begin + array.own.count; k++)
            whole[k] = array.values[k - array.needed.begin];
        hvd_allreduce(whole, (size_t)array.length, HVD_SUM);
        for (size_t byte = 0; byte < (size_t)array.length * sizeof *whole; byte++)
            hash = (hash ^ ((unsigned char *)whole)[byte]) * 0x100000001b3; // FNV-1a
        free(whole);
    }
    if (hvd_rank() == 0)
        printf("state %016llx\n", (unsigned long long)hash);
}

static int owner_of(const Piece *piece)
{
    static const Piece *pieces[8];
    int n = 0;
    while (pieces[n] && pieces[n] != piece)
        n++;
    pieces[n] = piece;
    if (n == 0 && getenv("FROZEN"))
        return -1;
    return (n + atoi(getenv("OWNERS"))) % hvd_size();
}

// All ranks have the same gradients.
static void keep_of_owner(Piece *piece)
{
    size_t count = owner_of(piece) == hvd_rank() ? (size_t)piece_count(piece) : 0;
    memcpy(kept_gradients(piece, (int)count), piece_gradients(piece), count * sizeof(float));
}

static void update_by_owner(Piece *piece)
{
    if (owner_of(piece) < 0)
        return;
    if (owner_of(piece) == hvd_rank())
        update_weights(piece, 0, piece_count(piece));
    hvd_broadcast(piece_weights(piece), (size_t)piece_count(piece), owner_of(piece));
}

static Optimizer *create_optimizer(void)
{
    Optimizer *opt = adam(0.01f);
    return getenv("WHOLE")    ? hvd_distributed_optimizer(opt)
           : getenv("OWNERS") ? optimizer_in_shards(opt, keep_of_owner, update_by_owner)
                              : optimizer_in_equal_shards(opt);
}

static float *weights_of(Model *m, const char *folder, const char *name, size_t *length)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    load_weights(m, path);
    const Parameters *p = model_parameters(m);
    float *weights = malloc(p->length * sizeof *weights);
    memcpy(weights, p->weights, p->length * sizeof *weights);
    *length = p->length;
    return weights;
}

// Status 0: the trained weights of these files are equal, to 1e-5.
static int compare(const char *folder, const char *a, const char *b)
{
    Model *m = create(adam(0.01f));
    size_t length;
    const float *x = weights_of(m, folder, a, &length), *y = weights_of(m, folder, b, &length);
    for (size_t i = 0; i < length; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-5f)) {
            fprintf(stderr, "number %zu: %g is not %g\n", i, (double)y[i], (double)x[i]);
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    hvd_init();
    if (argc > 4)
        return compare(argv[1], argv[3], argv[4]);
    bool saves = argc > 3 && strcmp(argv[2], "save") == 0;
    const char *folder = argc > 1 ? argv[1] : ".";
    Model *m = create(create_optimizer());
    hvd_broadcast_model(m, 0);
    if (saves)
        train(m, 3);
    if (saves && !save_checkpoint(&(Training){.model = m, .epochs_done = 1}, folder, "ckpt-1"))
        return 1;
    if (!saves)
        restore_checkpoint(m, NULL, folder, "ckpt-1");
    if (!saves && getenv("BROADCAST"))
        hvd_broadcast_model(m, 0);
    if (!getenv("WHOLE") && !getenv("OWNERS"))
        print_state(m);
    train(m, 2);
    if (getenv("TWICE")) { // from the middle of a training
        restore_checkpoint(m, NULL, folder, "ckpt-1");
        train(m, 2);
    }
    if (hvd_rank() == 0)
        save_weights(m, folder, argc > 3 ? argv[3] : "weights");
    return 0;
}
