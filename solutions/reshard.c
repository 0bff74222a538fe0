// Trains four dense layers on Fashion-MNIST by Adam, with the state in shards, and saves it: each
// worker its own shard. Told to --resume, it goes on from these files, on any number of workers.

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "hvdlab.h"
#include "lessons/shard_file.h"
#include "lessons/shards_state.h"

static Model *create_model(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = flatten(image);
    for (int layer = 0; layer < 3; layer++)
        x = relu(dense(x, 97));
    return model(image, softmax(dense(x, 10)));
}

// After the training. The folder may hold the shards of an earlier run, of more workers or fewer.
static void save(Model *model, const char *folder)
{
    Shard *shard = shard_new();
    // reshard: of each array the slice that this worker updates. Its values lie behind those that
    // the worker has in memory before it.
    for (int i = 0; i < state_array_count(model); i++) {
        StateArray array = state_array(model, i);
        shard_add(shard, array.name, array.own,
                  array.values + array.own.begin - array.needed.begin);
    }
    // reshard: what else a later run must know.
    shard_add_number(shard, "shards", hvd_size());
    shard_add_number(shard, "updates", (long)optimizer_iterations(model_optimizer(model)));
    shard_write(shard, folder, hvd_rank());
    shard_free(shard);
}

// Before the training. All workers have begun with the root's random weights, no updates, and an
// optimizer's state of zeros.
static void restore(Model *model, const char *folder)
{
    for (int s = 0, shards = 1; s < shards; s++) {
        Shard *shard = shard_read(folder, s);
        if (!shard) {
            fprintf(stderr, "reshard: %s/shard-%d.safetensors is missing\n", folder, s);
            exit(2);
        }
        // reshard: the number of shards is that of the workers that have saved.
        shards = (int)shard_number(shard, "shards");
        model_optimizer(model)->iterations = shard_number(shard, "updates");
        for (int i = 0; i < state_array_count(model); i++) {
            StateArray array = state_array(model, i);
            Slice saved, needed = array.needed;
            const float *values = shard_values(shard, array.name, &saved);
            // reshard: the part of the slice that this worker needs which lies in this shard.
            int begin = saved.begin > needed.begin ? saved.begin : needed.begin;
            int saved_end = saved.begin + saved.count, needed_end = needed.begin + needed.count;
            int end = saved_end < needed_end ? saved_end : needed_end;
            if (begin < end)
                memcpy(array.values + begin - needed.begin, values + begin - saved.begin,
                       (size_t)(end - begin) * sizeof *values);
        }
        shard_free(shard);
    }
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    const char *folder = args.checkpoint_dir ? args.checkpoint_dir : "build/shards";
    mkdir(folder, 0777); // it may be there already

    Optimizer *opt = optimizer_in_equal_shards(adam(args.base_lr));
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, opt);
    hvd_broadcast_model(model, 0);
    if (args.resume)
        restore(model, folder);
    train_in_equal_shards(model, &args);
    save(model, folder);
    return 0;
}
