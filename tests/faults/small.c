// A program that does one thing, so that every call in it can be made to fail in little time:
//
//     small train FLAG... | idx IMAGES LABELS | cifar10 FOLDER | safetensors FILE [COPY] | lab TABLE
//
// `train` trains a network of two layers as the steps train theirs; the others only read. It prints
// what it found, so that one that lost something can be told from one that did not; with COPY it
// also writes what it read.

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/safetensors.h"
#include "hvdlab.h"
#include "steps/lab.h"
#include "base/error.h"

static uint64_t sum_of(const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;
    uint64_t sum = count;
    for (size_t i = 0; i < count; i++)
        sum = sum * 31 + byte[i];
    return sum;
}

static void show_data_set(Dataset dataset)
{
    size_t image = (size_t)dataset.height * (size_t)dataset.width * (size_t)dataset.channels;
    printf("%d images %" PRIx64 " labels %" PRIx64 "\n", dataset.count,
           sum_of(dataset.images, (size_t)dataset.count * image),
           sum_of(dataset.labels, (size_t)dataset.count));
    dataset_free(&dataset);
}

static void read_safetensors(const char *path, const char *copy_path)
{
    Safetensors *file = safetensors_read(path), *copy = safetensors_new(NULL, NULL);
    for (int i = 0; i < safetensors_count(file); i++) {
        const Safetensor *t = safetensors_at(file, i);
        printf("%s %" PRIx64 "\n", t->name, sum_of(t->data, (size_t)t->count * 4));
        safetensors_add(copy, t->name, t->type, t->ndims, t->dims, t->data);
    }
    safetensors_set_metadata(copy, "format", "copy");
    if (copy_path)
        safetensors_save(copy, copy_path);
    safetensors_free(file);
    safetensors_free(copy);
}

static void read_labs(const char *path)
{
    FILE *table = fopen(path, "re");
    if (!table)
        die("cannot read %s: %s", path, strerror(errno));
    Exercises exercises = exercises_from(table);
    fclose(table);
    for (int i = 0; i < exercises.count; i++)
        printf("%s %d runs\n", exercises.items[i].name, exercises.items[i].run_count);
    exercises_free(&exercises);
}

static Model *two_layers(void)
{
    Tensor image = input(28, 28, 1);
    return model(image, softmax(dense(relu(dense(flatten(image), 16)), 10)));
}

static void train(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    Dataset data = load_data(&args, TEST);
    Statistics statistics = image_statistics(&data);
    Batches *batches = augmented_batches(&data, statistics, args.batch_size);
    Model *model = compile(two_layers(), CATEGORICAL_CROSSENTROPY, adam(args.base_lr));
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, print_total_time());
    callbacks_add(&callbacks, tensorboard(args.log_dir));
    Fit plan = {.train = batches,
                .epochs = args.epochs,
                .steps_per_epoch = batches_len(batches),
                .validation = batches,
                .validation_steps = 1,
                .callbacks = &callbacks,
                .verbose = 1};
    if (args.checkpoint_dir)
        callbacks_add(&callbacks,
                      checkpoint(&(Checkpoint){.folder = args.checkpoint_dir, .keep = 1}));
    if (args.resume)
        restore_latest(model, &plan, args.checkpoint_dir);
    fit(model, &plan);
    printf("Test loss: %.4f\n", evaluate(model, batches, 1).loss);
}

int main(int argc, char **argv)
{
    setlocale(LC_ALL, ""); // as programs do that speak the user's language
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "train") == 0)
        train(argc - 1, argv + 1);
    else if (strcmp(what, "idx") == 0 && argc == 4)
        show_data_set(load_idx(argv[2], argv[3], 10));
    else if (strcmp(what, "cifar10") == 0 && argc == 3)
        show_data_set(load_cifar10(argv[2], TEST));
    else if (strcmp(what, "safetensors") == 0 && argc >= 3)
        read_safetensors(argv[2], argv[3]); // NULL: no copy
    else if (strcmp(what, "lab") == 0 && argc == 3)
        read_labs(argv[2]);
    else
        die("readers: idx IMAGES LABELS | cifar10 FOLDER | safetensors FILE [COPY] | lab TABLE | "
            "args WORD...");
    if (fflush(stdout) != 0 || ferror(stdout))
        die("standard output could not be written");
    return EXIT_SUCCESS;
}
