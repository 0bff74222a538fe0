// What build/replay and the kit promise each other: replay begins where a checkpoint of the kit
// left a training, predicts and makes the same updates, to the last bit, and leaves a checkpoint
// that the kit goes on from. And what it refuses.

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/format.h"
#include "child.h"
#include "data/safetensors.h"
#include "hvdlab.h"
#include "models/models.h"
#include "nn/weights.h"
#include "scratch.h"

#define BATCH   4
#define BEFORE  3 // updates before the checkpoint,
#define UPDATES 2 // and after it

static char *program;

static void set_up(void)
{
    const char *build = getenv("BUILD");
    char *path = format_text("%s/replay", build ? build : "build");
    program = realpath(path, NULL);
    ck_assert_msg(program, "%s is not there", path);
    free(path);
    make_scratch();
    ck_assert_int_eq(chdir(scratch), 0);
}

static void tear_down(void)
{
    remove_scratch();
    free(program);
}

static Optimizer *momentum(void)
{
    return sgd_momentum(0.01f, 0.8f, true);
}

static Optimizer *adam_slowly(void)
{
    return adam(0.002f);
}

static Optimizer *adadelta_quickly(void)
{
    return adadelta(0.5f);
}

static Optimizer *adagrad_quickly(void)
{
    return adagrad(0.1f);
}

static Optimizer *rmsprop_and_momentum(void)
{
    return rmsprop_momentum(0.001f, 0.5f);
}

// One of each model, and of each optimizer.
typedef struct {
    const char *model;
    Model *(*build)(ModelShape);
    ModelShape shape;
    float wd;
    const char *optimizer;
    Optimizer *(*create)(void);
    const char *momentum; // NULL: that of tf_keras
} Kind;

static const Kind kinds[] = {
    {"wrn", wide_resnet, {12, 12, 1, {3, 4, 6, 8, 10}, false}, 0.01f, "sgd", momentum, "0.8"},
    {"lenet", lenet, {28, 28, 1, {4, 6, 12, 10}, false}, 0, "adadelta", adadelta_quickly, NULL},
    {"cnn",
     cifar_cnn,
     {16, 12, 3, {3, 5, 8, 10}, false},
     0,
     "rmsprop",
     rmsprop_and_momentum,
     "0.5"},
    {"mlp", mlp, {28, 28, 1, {11, 7, 10}, false}, 0.001f, "adam", adam_slowly, NULL},
    {"mlp", mlp, {10, 8, 1, {9, 6, 10}, false}, 0, "adagrad", adagrad_quickly, NULL},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static Model *compiled(const Kind *kind)
{
    Model *model = l2_penalty(kind->build(kind->shape), kind->wd);
    return compile(model, CATEGORICAL_CROSSENTROPY, kind->create());
}

static size_t image_size(const Kind *kind)
{
    return (size_t)(kind->shape.height * kind->shape.width * kind->shape.channels);
}

// The images and labels of all updates, before the checkpoint and after it; others are drawn for
// each kind.
typedef struct {
    float *x;
    int *y;
} Images;

static Images draw_images(const Kind *kind)
{
    size_t count = (BEFORE + UPDATES) * BATCH;
    Images images = {allocate(count * image_size(kind), sizeof(float)),
                     allocate(count, sizeof(int))};
    Rng rng = rng_stream_of((uint64_t)(kind - kinds), RNG_SYNTHETIC_DATA, 0);
    for (size_t i = 0; i < count * image_size(kind); i++)
        images.x[i] = rng_uniform(&rng);
    for (size_t i = 0; i < count; i++)
        images.y[i] = (int)rng_below(&rng, 10);
    return images;
}

static void free_images(Images images)
{
    free(images.x);
    free(images.y);
}

static Batch batch_of(const Kind *kind, const Images *images, int update)
{
    return (Batch){images->x + (size_t)update * BATCH * image_size(kind),
                   images->y + update * BATCH, BATCH};
}

// ---- Cases.

// The case of the updates behind the checkpoint, without what is to come out.
static Safetensors *new_case(const Kind *kind, const Images *images, int updates, bool labels)
{
    Safetensors *file = safetensors_new(NULL, NULL);
    safetensors_set_metadata(file, "model", kind->model);
    safetensors_set_metadata(file, "optimizer", kind->optimizer);
    safetensors_set_metadata(file, "learning_rate", "1"); // the checkpoint has the right one
    safetensors_set_metadata(file, "weight_decay", float_text(kind->wd).text);
    if (kind->momentum)
        safetensors_set_metadata(file, "momentum", kind->momentum);
    if (strcmp(kind->optimizer, "sgd") == 0)
        safetensors_set_metadata(file, "nesterov", "true");
    ModelShape s = kind->shape;
    int64_t dims[] = {updates, BATCH, s.height, s.width, s.channels};
    Batch first = batch_of(kind, images, BEFORE);
    safetensors_add(file, "x", ST_FLOAT32, 5, dims, first.images);
    if (labels)
        safetensors_add(file, "y", ST_INT32, 2, dims, first.labels);
    return file;
}

static void add_prediction(Safetensors *to, Model *model, const Batch *batch)
{
    float values[BATCH * 10];
    predict_on_batch(model, batch, values);
    safetensors_add(to, "prediction", ST_FLOAT32, 2, (int64_t[]){BATCH, 10}, values);
}

// All variables as they are, in the group "initial" or "final".
static void add_variables(Safetensors *to, const char *group, const Model *model)
{
    for (int i = 0; i < model_variable_count(model); i++) {
        const Variable *v = model_variable(model, i);
        char *name = format_text("%s/%s", group, v->name);
        float *values = allocate(variable_size(v), sizeof *values);
        int64_t dims[4];
        for (int d = 0; d < v->ndims; d++)
            dims[d] = v->dims[d];
        model_read_variable(model, i, values);
        safetensors_add(to, name, ST_FLOAT32, v->ndims, dims, values);
        free(values);
        free(name);
    }
}

static void save_case(Safetensors *file, const char *name)
{
    safetensors_save(file, name);
    safetensors_free(file);
}

// ---- Running replay.

static void replay(const void *words)
{
    char *command = format_text("exec '%s' %s", program, (const char *)words);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
}

static void assert_agrees(const Kind *kind, const char *words)
{
    Outcome outcome = run_in_child(replay, words);
    ck_assert_msg(outcome.status == 0, "%s, %s: status %d: %s%s", kind->model, words,
                  outcome.status, outcome.out, outcome.err);
    ck_assert_msg(!strstr(outcome.out, "prediction not in"), "nothing is compared: %s",
                  outcome.out);
}

// ---- What is promised.

static void train(Model *model, const Kind *kind, const Images *images, int first, int count,
                  float *losses)
{
    for (int i = 0; i < count; i++) {
        Batch batch = batch_of(kind, images, first + i);
        model_reset_metrics(model);
        train_on_batch(model, &batch);
        losses[i] = (float)(model_metrics(model).loss / BATCH);
    }
}

static void leave_checkpoint(Model *model, const char *path)
{
    Logs logs = {.loss = 1};
    Training training = {.model = model, .steps = BEFORE, .epochs_done = 1, .history = {&logs, 1}};
    ck_assert(write_checkpoint(&training, path));
}

// A training of this kind, and the checkpoint ckpt-1 that it leaves.
static Model *trained(const Kind *kind, const Images *images)
{
    float losses[BEFORE];
    Model *model = compiled(kind);
    train(model, kind, images, 0, BEFORE, losses);
    leave_checkpoint(model, "ckpt-1.safetensors");
    return model;
}

static float *read_tensor(const Model *model, const StateTensor *tensor, size_t size)
{
    float *values = allocate(size, sizeof *values);
    if (tensor->slot < 0)
        model_read_variable(model, tensor->variable, values);
    else
        model_read_slot(model, tensor->variable, tensor->slot, values);
    return values;
}

static void assert_same_state(const Model *a, const Model *b)
{
    for (int i = 0; i < state_count(a); i++) {
        StateTensor tensor = state_tensor(a, i);
        size_t size = variable_size(model_variable(a, tensor.variable));
        float *x = read_tensor(a, &tensor, size), *y = read_tensor(b, &tensor, size);
        ck_assert_msg(memcmp(x, y, size * sizeof *x) == 0, "%s differs", tensor.name);
        free(x);
        free(y);
    }
    const Optimizer *one = model_optimizer(a), *other = model_optimizer(b);
    ck_assert_int_eq(one->iterations, other->iterations);
    ck_assert(optimizer_learning_rate(one) == optimizer_learning_rate(other));
}

// Without labels.
START_TEST(replay_predicts_from_a_checkpoint_of_the_kit)
{
    const Kind *kind = &kinds[_i];
    Images images = draw_images(kind);
    Model *model = trained(kind, &images);
    Safetensors *file = new_case(kind, &images, 1, false);
    Batch batch = batch_of(kind, &images, BEFORE);
    add_prediction(file, model, &batch);
    add_variables(file, "final", model);
    save_case(file, "case");
    assert_agrees(kind, "case --restore ckpt-1.safetensors --tolerance 0");
    free_images(images);
}
END_TEST

START_TEST(replay_and_the_kit_go_on_with_each_others_trainings)
{
    const Kind *kind = &kinds[_i];
    Images images = draw_images(kind);
    Model *model = trained(kind, &images);
    float losses[UPDATES];
    train(model, kind, &images, BEFORE, UPDATES, losses);
    Safetensors *file = new_case(kind, &images, UPDATES, true);
    Batch batch = batch_of(kind, &images, BEFORE);
    safetensors_add(file, "loss", ST_FLOAT32, 1, (int64_t[]){UPDATES}, losses);
    add_prediction(file, model, &batch);
    add_variables(file, "final", model);
    save_case(file, "case");
    assert_agrees(kind,
                  "case --restore ckpt-1.safetensors --save ckpt-2.safetensors --tolerance 0");

    Model *other = compiled(kind);
    Fit plan = {.steps_per_epoch = UPDATES};
    restore_checkpoint(other, &plan, ".", "ckpt-2");
    ck_assert_int_eq(plan.initial_epoch, 1);
    assert_same_state(model, other);
    train(model, kind, &images, 0, UPDATES, losses);
    train(other, kind, &images, 0, UPDATES, losses);
    assert_same_state(model, other);
    free_images(images);
}
END_TEST

// Weights of another framework, without an update.
START_TEST(the_kit_goes_on_from_a_case)
{
    const Kind *kind = &kinds[0];
    Images images = draw_images(kind);
    Model *model = compiled(kind);
    Safetensors *file = new_case(kind, &images, 1, false);
    add_variables(file, "initial", model);
    save_case(file, "case");
    ck_assert_int_eq(run_in_child(replay, "case --save best.safetensors").status, 0);
    Model *other = compiled(kind);
    restore_checkpoint(other, NULL, ".", "best");
    optimizer_set_learning_rate(model_optimizer(model), 1); // the case's
    assert_same_state(model, other);
    free_images(images);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
    const Kind *mlp_adam = &kinds[3];
    Images images = draw_images(mlp_adam);
    trained(mlp_adam, &images);
    save_case(new_case(mlp_adam, &images, 1, false), "case");
    assert_refused(replay, "case --restore nothing.safetensors", "nothing.safetensors: ");
    assert_refused(replay, "case --restore ckpt-1.safetensors --save nowhere/ckpt-2.safetensors",
                   "cannot save the checkpoint nowhere/ckpt-2.safetensors: No such file");
    assert_refused(replay, "case --restore case", "case: this is no checkpoint: it has no format");
    assert_refused(replay, "case", "there is no tensor initial/dense/kernel");

    Kind other = *mlp_adam;
    other.create = adadelta_quickly;
    other.optimizer = "adadelta";
    save_case(new_case(&other, &images, 1, false), "other");
    assert_refused(
        replay, "other --restore ckpt-1.safetensors",
        "ckpt-1.safetensors: another optimizer: it was saved with Adam, this program has Adadelta");
    other = *mlp_adam;
    other.model = "lenet";
    save_case(new_case(&other, &images, 1, false), "other");
    assert_refused(replay, "other --restore ckpt-1.safetensors",
                   "ckpt-1.safetensors: there is no tensor conv2d/kernel");
    other = *mlp_adam;
    other.shape.width = 14; // other inputs of the first layer
    save_case(new_case(&other, &images, 1, false), "other");
    assert_refused(
        replay, "other --restore ckpt-1.safetensors",
        "ckpt-1.safetensors: dense/kernel does not have the shape that the model gives it");

    FILE *file = fopen("ckpt-1.safetensors", "r+b");
    ck_assert(file && fseek(file, -1, SEEK_END) == 0 && fputc(77, file) == 77 && fclose(file) == 0);
    assert_refused(replay, "case --restore ckpt-1.safetensors",
                   "ckpt-1.safetensors: the file is damaged");
    free_images(images);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay");
    TCase *exchange = tcase_create("exchange");
    tcase_add_checked_fixture(exchange, set_up, tear_down);
    tcase_set_timeout(exchange, 60); // each starts programs
    tcase_add_loop_test(exchange, replay_predicts_from_a_checkpoint_of_the_kit, 0, KINDS);
    tcase_add_loop_test(exchange, replay_and_the_kit_go_on_with_each_others_trainings, 0, KINDS);
    tcase_add_test(exchange, the_kit_goes_on_from_a_case);
    tcase_add_test(exchange, what_does_not_fit_is_refused);
    suite_add_tcase(suite, exchange);
    return run_suite(suite);
}
