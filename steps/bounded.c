// Trains a LeNet on Fashion-MNIST by parameter servers: some processes keep the weights, the others
// compute gradients. Each process runs this program; its environment says what it is.

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// What a server knows of each worker.
typedef struct {
    int updates;  // gradients that it has brought so far
    bool waiting; // it has pulled, and was not answered yet
    bool left;    // by PS_DONE or PS_LOST
} Standing;

// The fewest updates of a worker that has not left; INT_MAX: all have.
static int slowest(const Standing standing[])
{
    int fewest = INT_MAX;
    for (int w = 0; w < ps_workers(); w++)
        if (!standing[w].left && standing[w].updates < fewest)
            fewest = standing[w].updates;
    return fewest;
}

// The gradients of a round, with a bound of 0.
typedef struct {
    float *sum;
    int held; // so many are in the sum
} Round;


// Takes one request after another until no worker is left. No worker gets weights while it has
// brought more than `bound` updates more than the slowest one.
static void serve(PsServer *server, int bound)
{
    Standing *standing = calloc(ps_workers(), sizeof *standing);
    int lead = 0;
    Round round = {.sum = calloc(ps_length(server), sizeof *round.sum)};
    for (int working = ps_workers(); working > 0;) {
        PsRequest request = ps_next(server);
        Standing *asking = &standing[request.worker];
        switch (request.kind) {
        case PS_PULL:
            // TODO: bounded: this is where nobody waits. Let a worker wait while it is more than
            // `bound` updates ahead of the slowest; it is answered when that one has caught up (or
            // has left).
            ps_send_weights(server, request.worker);
            break;
        case PS_PUSH:
            asking->updates++;
            if (asking->updates - slowest(standing) > lead)
                lead = asking->updates - slowest(standing);
            // TODO: bounded: with a bound of 0 the workers go in rounds. Add the gradients of a round
            // to round.sum, and make one update by their mean when all that still work have sent theirs.
            ps_apply(server, request.gradients);
            break;
        case PS_DONE:
        case PS_LOST:
            asking->left = true;
            working--;
            break;
        }
        // TODO: bounded: with whatever has come, a worker's leaving too, a round may be complete,
        // and somebody's waiting over. Look here: first at the round and its update, then at who is
        // to be answered.
    }
    printf("server %d: after a push a worker was %d updates ahead of the slowest at most\n",
           ps_number(), lead);
    free(round.sum);
    free(standing);
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    Model *model = compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    if (ps_is_server()) {
        PsServer *server = ps_server_start(model);
        serve(server, args.staleness);
        ps_server_stop(server);
    } else {
        Batches *batches = own_batches(&args);
        PsWorker *worker = ps_worker_start(model);
        train_with_servers(worker, model, batches, args.epochs);
        ps_worker_stop(worker);
    }
    return 0;
}
