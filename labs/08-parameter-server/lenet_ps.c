// Trains a LeNet on Fashion-MNIST by parameter servers, with the library's server and worker. Each process runs
// this program; its environment says what it is.

#include "hvdlab.h"
#include "lessons/exercises.h"

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
        train_with_servers(worker, model, batches, args.epochs);
        ps_worker_stop(worker);
    }
    return 0;
}
