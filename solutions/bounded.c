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

// bounded: with a bound of 0 a worker's gradients wait for those of the others.
static void take_gradients(PsServer *server, const float *gradients, int bound, Round *round)
{
    if (bound > 0) {
        ps_apply(server, gradients);
        return;
    }
    for (size_t i = 0; i < ps_length(server); i++)
        round->sum[i] += gradients[i];
    round->held++;
}

// The update of a round, if all that still work have brought their gradients.
static void end_round(PsServer *server, const Standing standing[], Round *round)
{
    if (round->held == 0 || slowest(standing) <= ps_version(server))
        return;
    for (size_t i = 0; i < ps_length(server); i++)
        round->sum[i] /= round->held;
    ps_apply(server, round->sum);
    memset(round->sum, 0, ps_length(server) * sizeof *round->sum);
    round->held = 0;
}

// Sends weights to the workers that have waited for the slowest one, and need not any more.
static void answer_waiting(PsServer *server, Standing standing[], int bound)
{
    for (int w = 0; w < ps_workers(); w++)
        if (standing[w].waiting && standing[w].updates - slowest(standing) <= bound) {
            standing[w].waiting = false;
            ps_send_weights(server, w);
        }
}

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
            asking->waiting = true;
            break;
        case PS_PUSH:
            asking->updates++;
            if (asking->updates - slowest(standing) > lead)
                lead = asking->updates - slowest(standing);
            take_gradients(server, request.gradients, bound, &round);
            break;
        case PS_DONE:
        case PS_LOST:
            asking->left = true;
            working--;
            break;
        }
        // bounded: whatever has come may end a round, and then somebody's waiting.
        end_round(server, standing, &round);
        answer_waiting(server, standing, bound);
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
