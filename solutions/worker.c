// Trains a LeNet on Fashion-MNIST by parameter servers: some processes keep the weights, the others
// compute gradients. Each process runs this program; its environment says what it is.

#include "hvdlab.h"
#include "lessons/exercises.h"

// What a worker does: its shard of the images, again and again.
static void work(PsWorker *worker, Model *model, Batches *batches, int epochs)
{
    int steps = batches_len(batches);
    for (int epoch = 1; epoch <= epochs; epoch++) {
        model_reset_metrics(model);
        batches_begin(batches, steps);
        for (int step = 0; step < steps; step++) {
            Batch batch = batches_next(batches);
            // worker: the weights as they are now, every server's part of them.
            for (int server = 0; server < ps_servers(); server++)
                ps_pull(worker, server);
            compute_gradients(model, &batch);
            // worker: and to every server the gradients of its part.
            for (int server = 0; server < ps_servers(); server++)
                ps_push(worker, server);
        }
        Metrics metrics = model_metrics(model);
        printf("worker %d: epoch %d/%d - loss: %.4f - accuracy: %.4f\n", ps_number(), epoch, epochs,
               metrics.loss / metrics.images, metrics.correct / metrics.images);
    }
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    Model *model = compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    if (ps_is_server()) {
        PsServer *server = ps_server_start(model);
        serve_workers(server);
        ps_server_stop(server);
    } else {
        Batches *batches = own_batches(&args);
        PsWorker *worker = ps_worker_start(model);
        work(worker, model, batches, args.epochs);
        ps_worker_stop(worker);
    }
    return 0;
}
