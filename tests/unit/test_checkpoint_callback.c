// What the callback of checkpoints promises on one worker: the folders that it spares, saves between
// whole updates, weights alone, and a training that goes on where a save fails.

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/format.h"
#include "data/safetensors.h"
#include "hvd/accumulate.h"
#include "hvd/checkpoint_folder.h"
#include "small_training.h"

// ---- Folders.

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
    fit_and_save(&s, (Checkpoint){.folder = folder});
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
    s.plan.steps_per_epoch = p->steps;
    fit_and_save(&s, p->plan);
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
    Small s = small();
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
    fit_and_save(&s,
                 (Checkpoint){.folder = in_scratch("weights"), .best = true, .weights_only = true});
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

// ---- Saves that fail, and those that are kept.

static void save_where_it_can_not_be(const void *unused)
{
    (void)unused;
    Small s = small();
    Training training = {.model = s.model, .steps = 5};
    CHECK(!save_checkpoint(&training, scratch, "no/place"));
    CHECK(!save_checkpoint(&training, scratch, "no/place"));
    CHECK(!save_checkpoint(&training, in_scratch("ckpt-1.safetensors"), "below a file"));
    CHECK(!write_checkpoint(&training, "/no/such/folder/x"));
    CHECK(mkfifo(in_scratch("pipe"), 0600) == 0); // to open it would wait for a reader
    CHECK(!write_checkpoint(&training, in_scratch("pipe")) && unlink(in_scratch("pipe")) == 0);
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
    Suite *suite = suite_create("checkpoint callback");
    TCase *tcase = tcase_create("checkpoint callback");
    tcase_add_checked_fixture(tcase, save_first, remove_scratch);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, a_restored_training_spares_the_folder_of_another);
    tcase_add_test(tcase, one_restored_inside_its_first_epoch_spares_it_too);
    tcase_add_test(tcase, a_save_inside_an_update_is_refused_before_training);
    tcase_add_test(tcase, a_moved_step_ends_an_update);
    tcase_add_test(tcase, restored_weights_have_no_gradients);
    tcase_add_test(tcase, a_callback_can_save_weights_only);
    tcase_add_test(tcase, weights_may_lie_beside_checkpoints);
    tcase_add_test(tcase, a_checkpoint_that_can_not_be_saved_does_not_end_the_program);
    tcase_add_test(tcase, the_one_just_saved_is_kept_beside_later_ones);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
