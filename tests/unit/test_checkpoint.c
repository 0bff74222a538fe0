// What checkpoints promise on one worker: what is in the files, under which names; that they are
// read back; and that no damaged, foreign or old file is believed. (Several workers, and programs
// that are killed: tests/mpi/test_checkpoints.sh; the callback: test_checkpoint_callback.c.)

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "data/safetensors.h"
#include "hvd/accumulate.h"
#include "hvd/checkpoint_folder.h"
#include "nn/weights.h"
#include "small_training.h"
#include "train/checkpoint_file.h"

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
    double kept = 1; // under a name that is not UTF-8
    Callback writes = {
        .name = "own\xe9", .epoch_end = write_at_epoch_end, .kept = &kept, .kept_count = 1};
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
        {part, "rank", "1", "it is another rank's part"},
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

// ---- Weights alone.

static void load_into(const void *model)
{
    load_weights(*(Model *const *)model, path);
}

static void add_tensor(Safetensors *file, const char *name, int64_t count)
{
    float *zeros = allocate((size_t)count, sizeof *zeros);
    safetensors_add(file, name, ST_FLOAT32, 1, &count, zeros);
    free(zeros);
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

START_TEST(damaged_weights_are_refused)
{
    Model *m = small().model;
    save_weights(m, scratch, "ckpt-1");
    size_t length;
    char *bytes = read_bytes(path, &length);
    bytes[length - 1] ^= 4;
    write_bytes(path, bytes, length);
    free(bytes);
    assert_refused(load_into, &m, "ckpt-1.safetensors: the file is damaged");
}
END_TEST

START_TEST(a_checkpoint_with_a_variable_too_many_is_refused)
{
    Safetensors *file = safetensors_read(path);
    add_tensor(file, "dense_7/bias", 3);
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
    Safetensors *file = safetensors_new(NULL, NULL);
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
    tcase_add_test(tcase, damaged_weights_are_refused);
    tcase_add_test(tcase, a_checkpoint_with_a_variable_too_many_is_refused);
    tcase_add_test(tcase, weights_of_another_model_change_nothing);
    tcase_add_test(tcase, a_long_training_can_be_saved);
    tcase_add_test(tcase, the_one_before_an_incomplete_one_is_taken);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
