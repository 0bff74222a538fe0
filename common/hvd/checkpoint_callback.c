// The callback that saves checkpoints while fit trains: when, under which names, and in which folders
// it refuses to.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "hvd/accumulate.h"
#include "hvd/checkpoint.h"
#include "hvd/checkpoint_folder.h"
#include "hvd/checkpoint_inside.h"
#include "nn/weights.h"
#include "run/args.h"
#include "observe/trace.h"
#include "comm/world.h"

typedef struct {
    Callback callback;
    Checkpoint plan; // folder: owned
    double best[2];  // the epoch, from 1 (0: none yet), and its accuracy
    bool begins;     // before the first epoch
} Saver;

enum { EPOCH, ACCURACY };

static bool names_token(const char *path, const char *token)
{
    Safetensors *file = read_weights(path); // which may have weights only
    const char *named = safetensors_metadata(file, "token");
    bool same = named && strcmp(named, token) == 0;
    safetensors_free(file);
    return same;
}

// Whether a checkpoint has another model or kind of optimizer; one of weights names no optimizer.
static bool is_foreign(const char *folder, const char *name, const Model *model)
{
    char *path = main_path(folder, name, NULL);
    Safetensors *file = safetensors_read_header(path);
    const char *saved = safetensors_metadata(file, "model"),
               *optimizer = safetensors_metadata(file, "optimizer");
    bool other =
        (saved && strcmp(saved, model_parameters(model)->description) != 0) ||
        (optimizer && strcmp(optimizer, optimizer_innermost(model_optimizer(model))->name) != 0);
    safetensors_free(file);
    free(path);
    return other;
}

// Refuses a folder if checkpoints would be lost or confused.
static void check_folder(const Saver *s, const Training *training)
{
    make_folders(s->plan.folder);
    char *missing, *latest = furthest_checkpoint(s->plan.folder, &missing);
    bool begins = training->epochs_done == 0 && training->steps_done == 0;
    // Else the program has set the epoch.
    bool restored = training->history.epochs > 0 || (training->epochs_done == 0 && !begins);
    bool other = latest && restored && is_foreign(s->plan.folder, latest, training->model);
    if (!latest && missing)
        latest = format_text("one without %s", missing);
    free(missing);
    if (other || (latest && begins))
        die("%s holds checkpoints of another training (%s): %sname another folder, or remove "
            "this one",
            s->plan.folder, latest,
            other || s->plan.weights_only ? "" : "--resume goes on with it; else ");
    free(latest);
    char *path = format_text("%s/.try-%ld", s->plan.folder, (long)getpid());
    FILE *file = fopen(path, "wbe");
    if (!file)
        die("cannot write to the folder %s: %s", s->plan.folder, strerror(errno));
    fclose(file);
    unlink(path);
    free(path);
    remove_orphans(s->plan.folder, names_token);
}

// Each save must come after a whole update: refuses the training at its beginning, not at the save.
// After two epochs saves find the same numbers of gradients again.
static void check_whole_updates(const Saver *s, const Training *training)
{
    int passes;
    int64_t steps = training->steps, step = training->steps_done;
    int64_t every = s->plan.every > 0 && !s->plan.best_only ? s->plan.every : steps;
    int64_t held = hvd_gradients_held(model_optimizer(training->model), &passes) - step;
    for (int epoch = training->epochs_done;
         passes > 1 && epoch < training->epochs && epoch < training->epochs_done + 2; epoch++) {
        while (step < steps) {
            step += every - step % every;
            step = step < steps ? step : steps;
            if ((held + step) % passes != 0)
                die("%s: a save after step %lld of epoch %d would find %lld of the %d gradients of "
                    "an update, and a checkpoint keeps none: steps_per_epoch, and `every` where it "
                    "is set, must be multiples of %d; or save weights_only",
                    s->callback.name, (long long)step, epoch + 1,
                    (long long)((held + step) % passes), passes, passes);
        }
        held += steps;
        step = 0;
    }
}

static void saver_train_begin(Callback *self, Training *training)
{
    Saver *s = (Saver *)self;
    checkpoint_need_ranks(self->name);
    model_check_compiled(training->model, self->name);
    s->best[EPOCH] = 0;
    s->begins = true;
    if (world_rank() == 0)
        check_folder(s, training);
}

// Not in train_begin: a later callback may broadcast.
static void saver_epoch_begin(Callback *self, Training *training)
{
    Saver *s = (Saver *)self;
    if (s->begins && !s->plan.weights_only)
        check_whole_updates(s, training);
    s->begins = false;
}

// Whether this epoch is the best so far, as the root sees it.
static bool is_best(Saver *s, const Training *training)
{
    const Logs *logs = &training->logs;
    double accuracy = logs->val_images > 0 ? logs->val_accuracy : logs->accuracy;
    bool best = s->best[EPOCH] < 1 || accuracy > s->best[ACCURACY];
    checkpoint_begin_call(s->callback.name, "the best epoch");
    checkpoint_broadcast(&best, sizeof best);
    checkpoint_end_call();
    if (best) {
        s->best[EPOCH] = training->epochs_done;
        s->best[ACCURACY] = accuracy;
    }
    return best;
}

static void save_latest(const Saver *s, const Training *training)
{
    char *name = training->steps_done > 0 ? format_text("ckpt-%d-%lld", training->epochs_done,
                                                        (long long)training->steps_done)
                                          : format_text("ckpt-%d", training->epochs_done);
    bool saved =
        checkpoint_save_as(s->callback.name, training, s->plan.folder, name, s->plan.weights_only);
    if (saved && s->plan.keep > 0 && world_rank() == 0)
        remove_older(s->plan.folder, s->plan.keep, name);
    free(name);
}

// The best one first: if the program is killed between the two, the epoch is trained again.
static void saver_at_rest(Callback *self, Training *training)
{
    Saver *s = (Saver *)self;
    bool epoch_ends = training->steps_done == 0;
    if (epoch_ends && (s->plan.best || s->plan.best_only) && is_best(s, training))
        checkpoint_save_as(s->callback.name, training, s->plan.folder, "best",
                           s->plan.weights_only);
    if (s->plan.best_only)
        return;
    if (epoch_ends || (s->plan.every > 0 && training->steps_done % s->plan.every == 0))
        save_latest(s, training);
}

static void saver_train_end(Callback *self, Training *training)
{
    const Saver *s = (const Saver *)self;
    if (training->verbose && s->best[EPOCH] > 0)
        printf("Best epoch: %.0f (%s: %.4f)\n", s->best[EPOCH],
               training->validation ? "val_accuracy" : "accuracy", s->best[ACCURACY]);
}

static void saver_release(Callback *self)
{
    free((void *)(uintptr_t)((Saver *)self)->plan.folder);
}

Callback *checkpoint(const Checkpoint *plan)
{
    trace_call();
    if (!plan || !plan->folder)
        die("%s: there is no folder (NULL)", __func__);
    if (plan->every < 0 || plan->keep < 0)
        die("%s: every %d steps, %d kept: neither can be below 0", __func__, plan->every,
            plan->keep);
    Saver *s = allocate(1, sizeof *s);
    *s = (Saver){.callback = {.name = "checkpoint",
                              .train_begin = saver_train_begin,
                              .epoch_begin = saver_epoch_begin,
                              .at_rest = saver_at_rest,
                              .train_end = saver_train_end,
                              .release = saver_release,
                              .kept = s->best,
                              .kept_count = 2},
                 .plan = *plan};
    s->plan.folder = format_text("%s", plan->folder);
    checkpoint_dir_is_used(); // also by a training of no epochs
    return &s->callback;
}
