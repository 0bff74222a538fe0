// What checkpoints promise on one worker: what is in the files, under which names; that they are
// read back; and that no damaged, foreign or old file is believed. (Several workers, and programs
// that are killed: tests/mpi/test_checkpoints.sh.)

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "child.h"
#include "data/safetensors.h"
#include "hvd/accumulate.h"
#include "hvd/checkpoint_folder.h"
#include "hvdlab.h"
#include "nn/state.h"
#include "scratch.h"
#include "train/checkpoint_file.h"

static char path[sizeof scratch + 32], part[sizeof scratch + 32];

typedef struct {
    Dataset dataset;
    Batches *batches;
    Model *model;
    Fit plan;
} Small;

static Model *network(int units)
{
    Tensor image = input(28, 28, 1);
    Tensor x = batch_norm(dropout(max_pool(conv2d(image, 2, 3), 7), 0.2f));
    return model(image, softmax(dense(relu(dense(flatten(x), units)), 10)));
}

static Small small_with(int units, Optimizer *optimizer)
{
    Args args = {.data = DATA_SYNTHETIC, .images = 40};
    Small s = {.dataset = load_data(&args, TRAIN)};
    s.batches = plain_batches(&s.dataset, image_statistics(&s.dataset), 8);
    s.model = compile(network(units), CATEGORICAL_CROSSENTROPY, optimizer);
    s.plan = (Fit){.train = s.batches, .epochs = 2, .steps_per_epoch = 5};
    return s;
}

static Small small(void)
{
    return small_with(6, sgd_momentum(0.1f, 0.9f, false));
}

static Checkpoint every_two(void)
{
    return (Checkpoint){.folder = scratch, .every = 2};
}

static void train_and_save(const void *unused)
{
    (void)unused;
    Small s = small();
    Callbacks callbacks = {0};
    Checkpoint plan = every_two();
    callbacks_add(&callbacks, checkpoint(&plan));
    s.plan.callbacks = &callbacks;
    fit(s.model, &s.plan);
}

static void save_first(void)
{
    make_scratch();
    snprintf(path, sizeof path, "%s/ckpt-1.safetensors", scratch);
    snprintf(part, sizeof part, "%s/ckpt-1.rank-0.safetensors", scratch);
    ck_assert_int_eq(run_in_child(train_and_save, NULL).status, 0);
}

static void restore_first(const void *unused)
{
    (void)unused;
    Small s = small();
    restore_checkpoint(s.model, &s.plan, scratch, "ckpt-1");
}

static void restore_alone(const void *unused)
{
    (void)unused;
    restore_checkpoint(small().model, NULL, scratch, "ckpt-1");
}

static void assert_silently_refused(void (*body)(const void *), const char *fault)
{
    ck_assert_str_eq(assert_refused(body, NULL, fault).out, "");
}

// ---- What is there.

START_TEST(a_file_has_what_keras_calls_it)
{
    Safetensors *file = safetensors_read(path);
    const struct {
        const char *name;
        int count;
    } tensors[] = {
        {"conv2d/kernel", 18},
        {"conv2d/bias", 2},
        {"batch_normalization/gamma", 2},
        {"batch_normalization/moving_variance", 2},
        {"dense/kernel", 192},
        {"dense_1/bias", 10},
        {"optimizer/momentum/conv2d/kernel", 18},
        {"optimizer/momentum/batch_normalization/beta", 2},
        {"optimizer/momentum/dense_1/kernel", 60},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const Safetensor *tensor = safetensors_find(file, tensors[i].name);
        ck_assert_msg(tensor, "no %s", tensors[i].name);
        ck_assert_int_eq(tensor->count, tensors[i].count);
    }
    ck_assert_int_eq(safetensors_count(file), 10 + 8);
    const char *const texts[][2] = {
        {"format", "hvdlab-1"}, {"optimizer", "SGD"}, {"momentum", "0.9"},
        {"nesterov", "false"},  {"iterations", "5"},  {"learning_rate", "0.1"},
        {"epoch", "1"},         {"step", "0"},        {"steps", "5"},
        {"ranks", "1"},         {"stop", "0"},        {"forward_passes", "5"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ck_assert_str_eq(safetensors_metadata(file, texts[i][0]), texts[i][1]);
    ck_assert_ptr_nonnull(strstr(safetensors_metadata(file, "model"), "dense"));
    ck_assert_int_eq(strncmp(safetensors_metadata(file, "history"), "[{\"loss\":", 9), 0);
    safetensors_free(file);
    char *latest = latest_checkpoint(scratch);
    ck_assert_str_eq(latest, "ckpt-2");
    free(latest);
}
END_TEST

static void update_alike(Model *a, Model *b, Batches *batches)
{
    batches_begin(batches, 1);
    Batch batch = batches_next(batches);
    compute_gradients(a, &batch);
    float *gradients = allocate(model_parameters(a)->length, sizeof *gradients);
    model_read_gradients(a, gradients);
    model_write_gradients(b, gradients);
    free(gradients);
    apply_gradients(a);
    apply_gradients(b);
}

START_TEST(every_optimizer_comes_back)
{
    Optimizer *(*const kinds[])(float) = {sgd, adam, adadelta, adagrad, rmsprop};
    const char *const slots[] = {NULL, "v", "accum_var", "accumulator", "rms"};
    for (int i = 0; i < 5; i++) {
        Small a = small_with(6, kinds[i](0.01f)), b = small_with(6, kinds[i](0.01f));
        a.plan.epochs = 1;
        fit(a.model, &a.plan);
        ck_assert(save_checkpoint(&(Training){.model = a.model, .steps = 5}, scratch, "one"));
        if (slots[i]) {
            char *file_path = format_text("%s/one.safetensors", scratch);
            char *name = format_text("optimizer/%s/dense/kernel", slots[i]);
            Safetensors *file = safetensors_read(file_path);
            ck_assert_ptr_nonnull(safetensors_find(file, name));
            safetensors_free(file);
            free(file_path);
            free(name);
        }
        restore_checkpoint(b.model, NULL, scratch, "one");
        Fingerprints x = model_fingerprints(a.model), y = model_fingerprints(b.model);
        ck_assert(x.weights == y.weights && x.statistics == y.statistics);
        update_alike(a.model, b.model, a.batches); // which needs the slots, too
        ck_assert(model_fingerprints(a.model).weights == model_fingerprints(b.model).weights);
    }
}
END_TEST

START_TEST(the_main_file_alone_is_enough_for_the_model)
{
    unlink(part);
    ck_assert_int_eq(run_in_child(restore_alone, NULL).status, 0);
    assert_silently_refused(restore_first, "is not whole without it");
}
END_TEST

static void write_at_epoch_end(Callback *self, Training *training)
{
    (void)self;
    if (training->epoch == 0)
        ck_assert(write_checkpoint(training, path) && sync_folder(scratch));
}

static void show_second_epoch(Small *s)
{
    History history = fit(s->model, &s->plan);
    printf("%a %a\n", history.logs[1].loss, model_fingerprints(s->model).weights);
}

static void train_whole(const void *unused)
{
    (void)unused;
    set_seed(4);
    Small s = small();
    Callback writes = {.name = "own", .epoch_end = write_at_epoch_end};
    Callbacks callbacks = {{&writes}, 1};
    s.plan.callbacks = &callbacks;
    show_second_epoch(&s);
}

static void train_the_rest(const void *unused)
{
    (void)unused;
    set_seed(4);
    Small s = small();
    restore_checkpoint(s.model, &s.plan, scratch, "ckpt-1");
    CHECK(s.plan.initial_epoch == 1 && s.plan.initial_step == 0);
    show_second_epoch(&s);
}

// With a seed, from a file that has no parts beside it.
START_TEST(a_file_of_ones_own_is_gone_on_with)
{
    unlink(part);
    Outcome whole = run_in_child(train_whole, NULL), rest = run_in_child(train_the_rest, NULL);
    ck_assert_msg(whole.status == 0 && rest.status == 0, "%s%s", whole.err, rest.err);
    ck_assert_str_eq(whole.out, rest.out);
}
END_TEST

// ---- What is refused.

static char *read_bytes(const char *from, size_t *length)
{
    struct stat status;
    ck_assert_int_eq(stat(from, &status), 0);
    *length = (size_t)status.st_size;
    char *bytes = allocate(*length, 1);
    FILE *file = fopen(from, "rb");
    ck_assert_uint_eq(fread(bytes, 1, *length, file), *length);
    fclose(file);
    return bytes;
}

static void write_bytes(const char *to, const char *bytes, size_t length)
{
    FILE *file = fopen(to, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

// Cut behind, or with one bit changed, at many places of the file.
static void damage(const char *name)
{
    size_t length;
    char *bytes = read_bytes(name, &length);
    for (size_t at = 0; at < length; at += 997) {
        write_bytes(name, bytes, at);
        assert_silently_refused(restore_first, name);
    }
    for (size_t at = 3; at < length; at += 601) {
        bytes[at] ^= 4;
        write_bytes(name, bytes, length);
        assert_silently_refused(restore_first, name);
        bytes[at] ^= 4;
    }
    write_bytes(name, bytes, length);
    ck_assert_int_eq(run_in_child(restore_first, NULL).status, 0);
    free(bytes);
}

START_TEST(a_main_file_that_is_damaged_is_refused)
{
    damage(path);
}
END_TEST

START_TEST(a_part_that_is_damaged_is_refused)
{
    damage(part);
}
END_TEST

// Saves the file again, with another metadatum.
static void change(const char *name, const char *key, const char *value)
{
    Safetensors *file = safetensors_read(name);
    safetensors_set_metadata(file, key, value);
    safetensors_seal(file);
    safetensors_save(file, name);
    safetensors_free(file);
}

START_TEST(what_can_not_be_is_refused)
{
    const struct {
        const char *file, *key, *value, *fault;
    } changes[] = {
        {path, "format", "hvdlab-2", "its format is hvdlab-2, and hvdlab-1 is what can be read"},
        {path, "optimizer", "Adam", "it was saved with Adam, this program has SGD"},
        {path, "momentum", "0.8", "SGD was saved with a momentum of 0.8, this program has 0.9"},
        {path, "model", "layer 0: input", "another model: it was saved with 'layer 0: input'"},
        {path, "epoch", "-1", "its epoch is '-1'"},
        {path, "epoch", "4294967296", "its epoch is '4294967296'"},
        {path, "step", "6", "its step is '6', and has to be a whole number up to 5"},
        {path, "ranks", "99999999999999999999", "its ranks is"},
        {path, "learning_rate", "nan", "its learning_rate is nan"},
        {path, "learning_rate", "inf", "ckpt-1.safetensors: its learning_rate is inf"},
        {path, "learning_rate", "1e39", "its learning_rate is 1e+39"},
        {path, "learning_rate", "-0.5", "ckpt-1.safetensors: its learning_rate is -0.5"},
        {path, "learning_rate", "x", "its learning_rate is 'x'"},
        {path, "history", "[{\"loss\":1}]", "its history lacks"},
        {path, "history", "{", "its history is no list"},
        {part, "token", "0", "it belongs to another checkpoint"},
        {part, "metrics", "1 2", "its metrics is '1 2', and has to be 5 numbers"},
        {part, "seed", "", "its seed is ''"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        size_t length;
        char *bytes = read_bytes(changes[i].file, &length);
        change(changes[i].file, changes[i].key, changes[i].value);
        assert_silently_refused(restore_first, changes[i].fault);
        write_bytes(changes[i].file, bytes, length);
        free(bytes);
    }
}
END_TEST

static void restore_with_passes(const void *passes)
{
    Model *m = small().model;
    restore_checkpoint(m, NULL, scratch, "ckpt-1");
    CHECK(model_passes(m) == *(const int *)passes);
}

// One from before passes were counted has one for each update.
START_TEST(passes_are_counted_on)
{
    static const char *const said[] = {"5", "17", NULL};
    static const int passes[] = {5, 17, 5};
    for (int i = 0; i < 3; i++) {
        change(path, "forward_passes", said[i]);
        Outcome outcome = run_in_child(restore_with_passes, &passes[i]);
        ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    }
}
END_TEST

// A history that is too long for a reader is not written, either.
START_TEST(a_header_has_one_limit)
{
    Safetensors *file = safetensors_read(path);
    char *history = allocate(3 << 20, 1);
    memset(history, '0', (3 << 20) - 1);
    safetensors_set_metadata(file, "history", history);
    ck_assert_int_eq(safetensors_write(file, part), EMSGSIZE);
    ck_assert_int_eq(access(part, F_OK), -1);
    history[(2 << 20) - 4000] = '\0';
    safetensors_set_metadata(file, "history", history);
    ck_assert_int_eq(safetensors_write(file, part), 0);
    safetensors_free(safetensors_read(part));
    safetensors_free(file);
    free(history);
}
END_TEST

// The newest epochs are saved of a training that is longer than a header has room for.
START_TEST(a_long_training_can_be_saved)
{
    enum { EPOCHS = 20000 };
    Small s = small();
    Training training = {.model = s.model, .steps = 5, .epochs_done = EPOCHS, .epoch = EPOCHS};
    training.history = (History){allocate(EPOCHS, sizeof(Logs)), EPOCHS};
    for (int i = 0; i < EPOCHS; i++)
        training.history.logs[i] =
            (Logs){-1.0 / (i + 3), 1e-300 / 3, NAN, 1 / 3e-300, -1.0 / 7, 1.0 / 9, 1e-9 / 7};
    Safetensors *file = make_main_file(&training, 1, "token");
    ck_assert_int_eq(safetensors_write(file, part), 0);
    safetensors_free(file);
    file = read_checkpoint_file(part);
    History history = check_main_file(part, file, s.model).history;
    ck_assert_int_eq(history.epochs, 5000);
    ck_assert_double_eq(history.logs[0].loss, -1.0 / (EPOCHS - 5000 + 3));
    ck_assert_double_eq(history.logs[4999].loss, -1.0 / (EPOCHS + 2));
    safetensors_free(file);
    free(history.logs);
    free(training.history.logs);
}
END_TEST

static void go_on_from_the_latest(const void *unused)
{
    (void)unused;
    Small s = small();
    CHECK(restore_latest(s.model, &s.plan, scratch));
}

// A checkpoint without a part is passed over, with a warning.
START_TEST(the_one_before_an_incomplete_one_is_taken)
{
    char name[sizeof part + 32];
    Outcome outcome = run_in_child(go_on_from_the_latest, NULL);
    ck_assert_str_eq(outcome.err, "");
    ck_assert_ptr_nonnull(strstr(outcome.out, "/ckpt-2\n"));
    snprintf(name, sizeof name, "%s/ckpt-2.rank-0.safetensors", scratch);
    ck_assert_int_eq(unlink(name), 0);
    outcome = run_in_child(go_on_from_the_latest, NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_ptr_nonnull(strstr(outcome.out, "/ckpt-1-4\n"));
    ck_assert_ptr_nonnull(strstr(outcome.err, "warning: "));
    ck_assert_ptr_nonnull(strstr(outcome.err, "ckpt-2.rank-0.safetensors is missing; "));
    snprintf(name, sizeof name, "%s/ckpt-1-4.rank-0.safetensors", scratch);
    change(name, "token", "0"); // another save's
    outcome = run_in_child(go_on_from_the_latest, NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_ptr_nonnull(strstr(outcome.out, "/ckpt-1-2\n"));
}
END_TEST

static void restore_wider(const void *unused)
{
    (void)unused;
    Small s = small_with(7, sgd_momentum(0.1f, 0.9f, false));
    restore_checkpoint(s.model, &s.plan, scratch, "ckpt-1");
}

static void restore_with_another_loss(const void *unused)
{
    (void)unused;
    Model *m =
        compile(network(6), CATEGORICAL_CROSSENTROPY_FROM_LOGITS, sgd_momentum(0.1f, 0.9f, false));
    restore_checkpoint(m, NULL, scratch, "ckpt-1");
}

static void restore_missing(const void *unused)
{
    (void)unused;
    restore_checkpoint(small().model, NULL, scratch, "ckpt-9");
}

static void save_where_a_file_is(const void *unused)
{
    (void)unused;
    Small s = small();
    Checkpoint plan = {.folder = path};
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&plan));
    s.plan.callbacks = &callbacks;
    fit(s.model, &s.plan);
}

START_TEST(what_is_not_this_programs_is_refused)
{
    assert_silently_refused(restore_wider, "another model: it was saved with 'layer 6: dense");
    assert_silently_refused(restore_with_another_loss, "of layer 8, 1x1x10, read as logits'");
    assert_silently_refused(restore_missing, "ckpt-9.safetensors: No such file");
    assert_silently_refused(save_where_a_file_is, "cannot create the folder");
    assert_silently_refused(train_and_save, "holds checkpoints of another training (ckpt-2)");
}
END_TEST

// The run restores from the scratch folder, and saves in another one.
static void go_on_in(const void *folder)
{
    Small s = small();
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder, .keep = 1}));
    s.plan.callbacks = &callbacks;
    s.plan.epochs = 3;
    CHECK(restore_latest(s.model, &s.plan, scratch));
    fit(s.model, &s.plan);
}

static void train_another(const void *folder, int units, Optimizer *optimizer)
{
    Small s = small_with(units, optimizer);
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder}));
    s.plan.callbacks = &callbacks;
    fit(s.model, &s.plan);
}

static void train_wider(const void *folder)
{
    train_another(folder, 7, sgd_momentum(0.1f, 0.9f, false));
}

static void train_with_adam(const void *folder)
{
    train_another(folder, 6, adam(0.001f));
}

static void train_the_same(const void *folder)
{
    train_another(folder, 6, sgd_momentum(0.1f, 0.9f, false));
}

START_TEST(a_restored_training_spares_the_folder_of_another)
{
    void (*const others[])(const void *) = {train_wider, train_with_adam};
    for (int i = 0; i < 2; i++) {
        char *folder = format_text("%s/%d", scratch, i), *first = main_path(folder, "ckpt-1", NULL);
        ck_assert_int_eq(run_in_child(others[i], folder).status, 0);
        assert_refused(go_on_in, folder, "holds checkpoints of another training (ckpt-2): name");
        ck_assert_int_eq(access(first, F_OK), 0);
        free(first);
        free(folder);
    }
    // It may be the same training's.
    const char *folder = in_scratch("same");
    ck_assert_int_eq(run_in_child(train_the_same, folder).status, 0);
    Outcome outcome = run_in_child(go_on_in, folder);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
}
END_TEST

// ---- Several gradients for an update.

typedef struct {
    int passes, steps;
    Checkpoint plan;
    int step; // that a save refuses
} Passes;

static void train_in_passes(const void *argument)
{
    const Passes *p = argument;
    Small s = small_with(6, hvd_accumulate(sgd_momentum(0.1f, 0.9f, false), p->passes));
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&p->plan));
    s.plan.callbacks = &callbacks;
    s.plan.steps_per_epoch = p->steps;
    fit(s.model, &s.plan);
}

// With another number of steps the training continues after a whole update.
START_TEST(a_moved_step_ends_an_update)
{
    const char *folder = in_scratch("moved");
    const Passes p = {4, 8, {.folder = folder, .every = 4}, 0};
    ck_assert_int_eq(run_in_child(train_in_passes, &p).status, 0);
    Small s = small_with(6, hvd_accumulate(sgd_momentum(0.1f, 0.9f, false), 4));
    s.plan.steps_per_epoch = 12;
    restore_checkpoint(s.model, &s.plan, folder, "ckpt-0-4");
    ck_assert_int_eq((int)s.plan.initial_step, 4); // 6 is inside an update
}
END_TEST

static void go_on_inside_an_epoch_in(const void *folder)
{
    Small s = small_with(6, sgd_momentum(0.1f, 0.9f, false));
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, checkpoint(&(Checkpoint){.folder = folder}));
    s.plan.callbacks = &callbacks;
    s.plan.steps_per_epoch = 4;
    restore_checkpoint(s.model, &s.plan, in_scratch("inside"), "ckpt-0-2");
    fit(s.model, &s.plan);
}

START_TEST(one_restored_inside_its_first_epoch_spares_it_too)
{
    const Passes p = {1, 4, {.folder = in_scratch("inside"), .every = 2}, 0};
    ck_assert_int_eq(run_in_child(train_in_passes, &p).status, 0);
    const char *folder = in_scratch("another");
    ck_assert_int_eq(run_in_child(train_with_adam, folder).status, 0);
    assert_refused(go_on_inside_an_epoch_in, folder, "holds checkpoints of another training");
}
END_TEST

// Refused before the first step, not by the save.
START_TEST(a_save_inside_an_update_is_refused_before_training)
{
    const char *folder = in_scratch("passes");
    const Passes wrong[] = {{2, 5, {.every = 2}, 5},
                            {2, 4, {.every = 3}, 3},
                            {3, 4, {.best_only = true}, 4},
                            {4, 4, {.every = 2}, 2}},
                 right[] = {{2, 4, {.every = 2}, 0},
                            {2, 4, {.every = 3, .best_only = true}, 0},
                            {2, 4, {.every = 5}, 0},
                            {2, 5, {.every = 1, .weights_only = true}, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Passes p = wrong[i];
        p.plan.folder = folder;
        char *words = format_text("checkpoint: a save after step %d of epoch 1 would find", p.step);
        assert_refused(train_in_passes, &p, words);
        free(words);
        ck_assert_ptr_null(latest_checkpoint(folder));
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        Passes p = right[i];
        char *own = format_text("%s/%zu", scratch, i);
        p.plan.folder = own;
        Outcome outcome = run_in_child(train_in_passes, &p);
        ck_assert_msg(outcome.status == 0, "%zu: %s", i, outcome.err);
        free(own);
    }
}
END_TEST

// Gradients of the weights before are no part of the first update after.
START_TEST(restored_weights_have_no_gradients)
{
    Small a = small_with(6, hvd_accumulate(sgd_momentum(0.1f, 0.9f, false), 2)), b = a;
    b.model = small_with(6, hvd_accumulate(sgd_momentum(0.1f, 0.9f, false), 2)).model;
    restore_checkpoint(a.model, NULL, scratch, "ckpt-1");
    update_alike(b.model, a.model, a.batches); // of the weights before
    restore_checkpoint(a.model, NULL, scratch, "ckpt-1");
    restore_checkpoint(b.model, NULL, scratch, "ckpt-1");
    double before = model_fingerprints(a.model).weights;
    update_alike(a.model, b.model, a.batches);
    ck_assert(model_fingerprints(a.model).weights == before);
    update_alike(a.model, b.model, a.batches);
    ck_assert(model_fingerprints(a.model).weights != before);
}
END_TEST

// ---- Weights alone.

static void train_and_save_weights(const void *unused)
{
    (void)unused;
    Small s = small();
    Callbacks callbacks = {0};
    Checkpoint plan = {.folder = in_scratch("weights"), .best = true, .weights_only = true};
    callbacks_add(&callbacks, checkpoint(&plan));
    s.plan.callbacks = &callbacks;
    fit(s.model, &s.plan);
    Small again = small();
    load_weights(again.model, in_scratch("weights/ckpt-2.safetensors"));
    Fingerprints a = model_fingerprints(s.model), b = model_fingerprints(again.model);
    CHECK(a.weights == b.weights && a.statistics == b.statistics);
}

static void restore_weights(const void *unused)
{
    (void)unused;
    Small s = small();
    restore_latest(s.model, &s.plan, in_scratch("weights"));
}

START_TEST(a_callback_can_save_weights_only)
{
    ck_assert_int_eq(run_in_child(train_and_save_weights, NULL).status, 0);
    Safetensors *file = safetensors_read(in_scratch("weights/best.safetensors"));
    ck_assert_int_eq(safetensors_count(file), model_variable_count(small().model));
    ck_assert_ptr_null(safetensors_find(file, "optimizer/momentum/dense/kernel"));
    ck_assert_int_ne(access(in_scratch("weights/ckpt-2.rank-0.safetensors"), F_OK), 0);
    Outcome outcome = run_in_child(restore_weights, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_ptr_nonnull(strstr(outcome.err, "weights/ckpt-2.safetensors: it has weights only"));
    ck_assert_ptr_eq(strchr(outcome.err, '\n'), strrchr(outcome.err, '\n'));
}
END_TEST

// Whole checkpoints, and the best epoch's weights, in one folder.
static void go_on_beside_weights(const void *epochs)
{
    Small s = small();
    Callbacks callbacks = {0};
    Checkpoint whole = every_two();
    Checkpoint best = {.folder = scratch, .best_only = true, .weights_only = true};
    callbacks_add(&callbacks, checkpoint(&whole));
    callbacks_add(&callbacks, checkpoint(&best));
    s.plan.callbacks = &callbacks;
    s.plan.epochs = *(const int *)epochs;
    CHECK(restore_latest(s.model, &s.plan, scratch));
    fit(s.model, &s.plan);
}

START_TEST(weights_may_lie_beside_checkpoints)
{
    const char *unfinished = in_scratch("best.safetensors.0123456789abcdef");
    ck_assert_int_eq(run_in_child(go_on_beside_weights, &(int){3}).status, 0);
    ck_assert_int_eq(access(in_scratch("best.safetensors"), F_OK), 0);
    write_in_scratch("best.safetensors.0123456789abcdef", "x", 1);
    ck_assert_int_eq(run_in_child(go_on_beside_weights, &(int){4}).status, 0);
    ck_assert_int_ne(access(unfinished, F_OK), 0);
}
END_TEST

static void load_into(const void *model)
{
    load_weights(*(Model *const *)model, path);
}

static void add_tensor(Safetensors *file, const char *name, int64_t count)
{
    float *values = enlarge(NULL, (size_t)count, sizeof *values);
    memset(values, 0, (size_t)count * sizeof *values);
    safetensors_give(file, name, 1, &count, values);
}

START_TEST(weights_come_from_any_checkpoint_and_from_save_weights)
{
    Small trained = small(), with_adam = small_with(6, adam(0.001f));
    restore_checkpoint(trained.model, NULL, scratch, "ckpt-1");
    load_weights(with_adam.model, path);
    ck_assert(model_fingerprints(with_adam.model).weights ==
              model_fingerprints(trained.model).weights);
    save_weights(with_adam.model, scratch, "weights");
    Small again = small();
    load_weights(again.model, in_scratch("weights.safetensors"));
    Fingerprints a = model_fingerprints(again.model), b = model_fingerprints(trained.model);
    ck_assert(a.weights == b.weights && a.statistics == b.statistics);
}
END_TEST

START_TEST(a_checkpoint_with_a_variable_too_many_is_refused)
{
    Safetensors *file = safetensors_read(path);
    add_tensor(file, "dense_7/bias", 3);
    safetensors_seal(file);
    safetensors_save(file, path);
    assert_silently_refused(restore_first, "dense_7/bias is not the model's");
}
END_TEST

START_TEST(weights_of_another_model_change_nothing)
{
    Small other = small_with(7, sgd(0.1f));
    double before = model_fingerprints(other.model).weights;
    assert_refused(load_into, &other.model, "dense/kernel has another type or shape, 32 x 6");
    ck_assert(model_fingerprints(other.model).weights == before);
    Safetensors *file = safetensors_new();
    add_tensor(file, "conv2d/bias", 2);
    add_tensor(file, "dense_7/bias", 3);
    safetensors_save(file, path);
    assert_refused(load_into, &other.model, "conv2d/kernel is missing");
    Tensor image = input(28, 28, 1);
    Model *alone = compile(model(image, softmax(dense(flatten(image), 2))),
                           CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    assert_refused(load_into, &alone,
                   "conv2d/bias is not the model's, dense_7/bias is not the model's");
    ck_assert_int_eq(truncate(path, 40), 0);
    assert_refused(load_into, &alone, path);
}
END_TEST

static void save_where_it_can_not_be(const void *unused)
{
    (void)unused;
    Small s = small();
    Training training = {.model = s.model, .steps = 5};
    CHECK(!save_checkpoint(&training, scratch, "no/place"));
    CHECK(!save_checkpoint(&training, scratch, "no/place"));
    CHECK(!save_checkpoint(&training, in_scratch("ckpt-1.safetensors"), "below a file"));
    CHECK(!write_checkpoint(&training, "/no/such/folder/x"));
    CHECK(!sync_folder("/no/such/folder"));
    CHECK(save_checkpoint(&training, scratch, "place"));
}

START_TEST(a_checkpoint_that_can_not_be_saved_does_not_end_the_program)
{
    Outcome outcome = run_in_child(save_where_it_can_not_be, NULL);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_ptr_nonnull(strstr(outcome.err, "warning: cannot save the checkpoint"));
    ck_assert_ptr_nonnull(strstr(outcome.err, "not all checkpoints could be saved: "));
}
END_TEST

START_TEST(the_one_just_saved_is_kept_beside_later_ones)
{
    write_in_scratch("ckpt-8.safetensors", "x", 1);
    write_in_scratch("ckpt-9.safetensors", "x", 1);
    remove_older(scratch, 1, "ckpt-8");
    ck_assert_int_eq(access(in_scratch("ckpt-8.safetensors"), F_OK), 0);
    remove_older(scratch, 1, "ckpt-9");
    ck_assert_int_ne(access(in_scratch("ckpt-8.safetensors"), F_OK), 0);
    ck_assert_int_eq(access(in_scratch("ckpt-9.safetensors"), F_OK), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("checkpoint");
    tcase_add_checked_fixture(tcase, save_first, remove_scratch);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, a_file_has_what_keras_calls_it);
    tcase_add_test(tcase, every_optimizer_comes_back);
    tcase_add_test(tcase, the_main_file_alone_is_enough_for_the_model);
    tcase_add_test(tcase, a_file_of_ones_own_is_gone_on_with);
    tcase_add_test(tcase, a_main_file_that_is_damaged_is_refused);
    tcase_add_test(tcase, a_part_that_is_damaged_is_refused);
    tcase_add_test(tcase, what_can_not_be_is_refused);
    tcase_add_test(tcase, what_is_not_this_programs_is_refused);
    tcase_add_test(tcase, passes_are_counted_on);
    tcase_add_test(tcase, a_header_has_one_limit);
    tcase_add_test(tcase, weights_come_from_any_checkpoint_and_from_save_weights);
    tcase_add_test(tcase, a_restored_training_spares_the_folder_of_another);
    tcase_add_test(tcase, one_restored_inside_its_first_epoch_spares_it_too);
    tcase_add_test(tcase, a_save_inside_an_update_is_refused_before_training);
    tcase_add_test(tcase, a_moved_step_ends_an_update);
    tcase_add_test(tcase, restored_weights_have_no_gradients);
    tcase_add_test(tcase, a_callback_can_save_weights_only);
    tcase_add_test(tcase, weights_may_lie_beside_checkpoints);
    tcase_add_test(tcase, a_checkpoint_with_a_variable_too_many_is_refused);
    tcase_add_test(tcase, weights_of_another_model_change_nothing);
    tcase_add_test(tcase, a_long_training_can_be_saved);
    tcase_add_test(tcase, the_one_before_an_incomplete_one_is_taken);
    tcase_add_test(tcase, a_checkpoint_that_can_not_be_saved_does_not_end_the_program);
    tcase_add_test(tcase, the_one_just_saved_is_kept_beside_later_ones);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
