// Trains a LeNet on Fashion-MNIST by parameter servers: some processes keep the weights, the others
// compute gradients. Each process runs this program; its environment says what it is.

#include "hvdlab.h"
#include "lessons/exercises.h"

// What a server does, from the time when all workers are there until all of them have left.
static void serve(PsServer *server)
{
#if STEP >= 1
    // server: answer whoever asks; a worker leaves once, by PS_DONE or PS_LOST.
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
#else
    // TODO: server: take one request after another, of whichever worker, and do what each kind asks
    // for: a worker that pulls waits for this server's weights; gradients that are pushed become an
    // update at once, by themselves; a worker leaves once, and may be lost instead. Return when no
    // worker is left. make doc NAME=ps_next says what there is.
#endif
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
