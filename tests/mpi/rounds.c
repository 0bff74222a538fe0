// The same training twice, for a test: as a worker of parameter servers that hold each round
// (the solution of bounded, with --staleness 0), and under mpirun with the distributed optimizer,
// from the weights that the first one began with. The second says how far its weights are from the
// first's, and ends with status 1 where that is more than 1e-5 of the largest weight.
//
// ROUNDS=FOLDER: where the first leaves its weights for the second.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "hvdlab.h"

// Nothing in it is a matter of more or less, such as a ReLU or a pool, where gradients that were
// added in another order would soon make another training.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    return model(image, softmax(dense(flatten(image), 10)));
}

static FILE *weights_file(const char *name, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("ROUNDS"), name);
    FILE *file = fopen(path, mode);
    if (!file)
        perror(path), exit(3);
    return file;
}

static void write_weights(const Model *m, const char *name)
{
    const Parameters *all = model_parameters(m);
    FILE *file = weights_file(name, "wb");
    if (fwrite(all->weights, sizeof(float), all->length, file) != all->length || fclose(file) != 0)
        exit(3);
}

static void read_weights(const Model *m, const char *name, float *to)
{
    FILE *file = weights_file(name, "rb");
    if (fread(to, sizeof(float), model_parameters(m)->length, file) != model_parameters(m)->length)
        exit(3);
    fclose(file);
}

static void pull(PsWorker *worker, int64_t updates)
{
    for (int s = 0; s < ps_servers(); s++)
        if (ps_pull(worker, s) != updates)
            exit(3);
}

static void train_by_servers(Model *m, Batches *batches)
{
    PsWorker *worker = ps_worker_start(m);
    int steps = batches_len(batches);
    for (int step = 0; step < steps; step++) {
        pull(worker, step);
        if (step == 0 && ps_number() == 0)
            write_weights(m, "begin");
        Batch batch = batches_next(batches);
        compute_gradients(m, &batch);
        for (int s = 0; s < ps_servers(); s++)
            ps_push(worker, s);
    }
    if (ps_number() == 0) { // no rank has more images
        pull(worker, steps);
        write_weights(m, "end");
    }
    ps_worker_stop(worker);
}

static int train_by_allreduce(Model *m, Batches *batches)
{
    const Parameters *all = model_parameters(m);
    read_weights(m, "begin", all->weights);
    for (int step = 0; step < batches_len(batches); step++) {
        Batch batch = batches_next(batches);
        train_on_batch(m, &batch);
    }
    hvd_broadcast_model(m, hvd_join());
    float *theirs = malloc(all->length * sizeof *theirs);
    read_weights(m, "end", theirs);
    float largest = 0, farthest = 0;
    for (size_t i = 0; i < all->length; i++) {
        largest = fmaxf(largest, fabsf(theirs[i]));
        farthest = fmaxf(farthest, fabsf(theirs[i] - all->weights[i]));
    }
    free(theirs);
    if (hvd_rank() == 0)
        printf("weights up to %g, differences up to %g\n", largest, farthest);
    return !(farthest <= 1e-5f * largest);
}

int main(int argc, char **argv)
{
    bool by_servers = getenv("HVD_ROLE") != NULL;
    if (!by_servers)
        hvd_init();
    Args args = parse_args(argc, argv);
    Dataset images = load_data(&args, TRAIN);
    Dataset share = shard_dataset(&images, by_servers ? ps_number() : hvd_rank(),
                                  by_servers ? ps_workers() : hvd_size());
    Batches *batches = plain_batches(&share, image_statistics(&images), args.batch_size);
    batches_begin(batches, batches_len(batches));
    Optimizer *optimizer = sgd(args.base_lr);
    if (!by_servers)
        optimizer = hvd_distributed_optimizer(optimizer);
    Model *m = compile(create_model(), CATEGORICAL_CROSSENTROPY, optimizer);
    if (!by_servers)
        return train_by_allreduce(m, batches);
    train_by_servers(m, batches);
    return 0;
}
