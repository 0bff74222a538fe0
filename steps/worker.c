// Trains a LeNet on Fashion-MNIST by parameter servers: some processes keep the weights, the others
// compute gradients. Each process runs this program; its environment says what it is.

#include "hvdlab.h"

// Two convolutions, each with a pool, and two dense layers.
static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = max_pool(relu(conv2d(image, 32, 3)), 2);
    x = max_pool(relu(conv2d(x, 64, 3)), 2);
    x = relu(dense(flatten(x), 512));
    return model(image, softmax(dense(x, 10)));
}

// What a server does, from the time when all workers are there until all of them have left.
static void serve(PsServer *server)
{
    for (int working = ps_workers(); working > 0;) {
        PsRequest request = ps_next(server);
        switch (request.kind) {
        case PS_PULL:
            ps_send_weights(server, request.worker);
            break;
        case PS_PUSH:
            ps_apply(server, request.gradients);
            break;
        case PS_DONE:
        case PS_LOST:
            working--;
            break;
        }
    }
}

// What a worker does: its share of the images, again and again.
static void work(PsWorker *worker, Model *model, Batches *batches, int epochs)
{
    int steps = batches_len(batches);
    for (int epoch = 1; epoch <= epochs; epoch++) {
        model_reset_metrics(model);
        batches_begin(batches, steps);
        for (int step = 0; step < steps; step++) {
            Batch batch = batches_next(batches);
            // TODO: worker: let the gradients be those of the newest weights. Every server has one
            // part of them; ps_servers() says how many there are.
            compute_gradients(model, &batch);
            // TODO: worker: bring them to the servers, to each those of its part.
        }
        Metrics metrics = model_metrics(model);
        printf("worker %d: epoch %d/%d - loss: %.4f - accuracy: %.4f\n", ps_number(), epoch, epochs,
               metrics.loss / metrics.images, metrics.correct / metrics.images);
    }
}

// The worker's share of the training images; where a share is one image longer than others, the
// others have a step less at most.
static Batches *own_batches(const Args *args)
{
    Dataset images = load_data(args, TRAIN);
    Dataset share = shard_dataset(&images, ps_number(), ps_workers());
    return augmented_batches(&share, image_statistics(&images), args->batch_size);
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    if (ps_is_server()) {
        PsServer *server = ps_server_start(model);
        serve(server);
        ps_server_stop(server);
    } else {
        Batches *batches = own_batches(&args);
        PsWorker *worker = ps_worker_start(model);
        work(worker, model, batches, args.epochs);
        ps_worker_stop(worker);
    }
    return 0;
}
