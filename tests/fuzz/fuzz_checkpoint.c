// A checkpoint's files for a small model: the first byte says which one this is, a main file, a
// rank's part, or either with the hash that it has. That of the others is not looked at, but what
// they say.

#include "fuzz.h"
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "train/checkpoint_file.h"

static Model *network;

static void prepare(void)
{
    set_seed(1);
    Tensor image = input(1, 1, 2);
    network = compile(model(image, softmax(dense(flatten(batch_norm(conv2d(image, 1, 1))), 2))),
                      CATEGORICAL_CROSSENTROPY, sgd_momentum(0.1f, 0.9f, false));
    optimizer_allocate_slots(model_optimizer(network), model_parameters(network));
}

static void use_main(void *path)
{
    Safetensors *file = safetensors_read(path);
    Saved saved = check_main_file(path, file, network);
    FUZZ_CHECK(saved.ranks >= 0 && saved.epoch >= 0 && saved.step >= 0 &&
               saved.step <= saved.steps);
    FUZZ_CHECK(strlen(saved.token) < (size_t)-1 && saved.history.epochs >= 0);
    check_state(path, file, network);
    put_tensors(file, network);
    put_optimizer(path, file, network);
    FUZZ_CHECK(model_optimizer(network)->iterations >= 0);
    free(saved.history.logs);
    safetensors_free(file);
}

static void use_part(void *path)
{
    double kept[2];
    Callback keeper = {.name = "keeper", .kept = kept, .kept_count = 2};
    Safetensors *part = safetensors_read(path);
    check_part(path, part, network);
    put_origin(path, part);
    put_tensors(part, network);
    put_optimizer(path, part, network);
    put_metrics(path, part, network);
    put_callbacks(path, part, &(Callbacks){{&keeper}, 1});
    safetensors_free(part);
}

static void use_as_it_is(void *path)
{
    safetensors_free(read_checkpoint_file(path));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static void (*const uses[])(void *) = {use_main, use_part, use_as_it_is};
    if (!network)
        prepare();
    if (size > 0)
        fuzz_call(uses[bytes[0] % 3], (void *)(uintptr_t)fuzz_file(0, bytes + 1, size - 1),
                  FREES_ALL);
    return 0;
}
