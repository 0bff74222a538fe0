// Trains a LeNet on Fashion-MNIST by parameter servers: some processes keep the weights, the others
// compute gradients. Each process runs this program; its environment says what it is.

#include "hvdlab.h"
#include "lessons/exercises.h"

// What a server does, from the time when all workers are there until all of them have left.
static void serve(PsServer *server)
{
    // TODO: server: take one request after another, of whichever worker, and do what each kind asks
    // for: a worker that pulls waits for this server's weights; gradients that are pushed become an
    // update at once, by themselves; a worker leaves once, and may be lost instead. Return when no
    // worker is left. make doc NAME=ps_next says what there is.
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    Model *model = compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    if (ps_is_server()) {
        PsServer *server = ps_server_start(model);
        serve(server);
        ps_server_stop(server);
    } else {
        Batches *batches = own_batches(&args);
        PsWorker *worker = ps_worker_start(model);
        train_with_servers(worker, model, batches, args.epochs);
        ps_worker_stop(worker);
    }
    return 0;
}
