// Checkpoints of all ranks: saves them so that one of them is complete at every moment; finds and
// restores them. (The callback: checkpoint_callback.c.)

#include "hvd/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/output.h"
#include "base/format.h"
#include "data/batches.h"
#include "hvd/accumulate.h"
#include "comm/agreement.h"
#include "hvd/checkpoint_folder.h"
#include "hvd/checkpoint_inside.h"
#include "run/args.h"
#include "observe/trace.h"
#include "comm/world.h"
#include "train/checkpoint_file.h"

void checkpoint_need_ranks(const char *caller)
{
    if (launcher_size() > 1)
        world_need(caller);
}

// The same for a function that a program calls: the trace gets an event of the call.
static void checkpoint_called(const char *caller)
{
    checkpoint_need_ranks(caller);
    trace_call_by(caller);
}

static void check_path(const char *caller, const char *folder, const char *name)
{
    checkpoint_dir_is_used();
    if (!folder || !name)
        die("%s: there is no %s (NULL)", caller, folder ? "name" : "folder");
    if (!*folder)
        die("%s: the folder's name is empty; \".\" is the current one", caller);
}

void checkpoint_broadcast(void *bytes, size_t count)
{
    if (world_size() > 1)
        MPI_Bcast(bytes, (int)count, MPI_BYTE, 0, world_comm(WORLD_VARIABLES));
}

void checkpoint_begin_call(const char *caller, const char *name)
{
    if (world_size() > 1)
        agree(&(Collective){.name = caller,
                            .channel = "variables",
                            .terms = {text_term("name", "", name, NULL)}},
              world_comm(WORLD_VARIABLES));
}

void checkpoint_end_call(void)
{
    if (world_size() > 1)
        agreed_call_ends();
}

// ---- Saving.

// One save under way.
typedef struct {
    const Training *training;
    const char *folder, *name;
    char token[TOKEN_LENGTH + 1];
    Safetensors *state; // this rank's main file, to compare
    bool parts;         // ranks have parts
} Save;

// A failed checkpoint must not end the training.
static void say_lost(const char *path, int fault)
{
    static bool said;
    warn("cannot save the checkpoint %s: %s; the training goes on", path,
         safetensors_fault_text(fault));
    if (!said)
        ends_incomplete("not all checkpoints could be saved: %s: %s", path,
                        safetensors_fault_text(fault));
    said = true;
}

static void draw_token(char token[TOKEN_LENGTH + 1])
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        die("the operating system gives no random numbers: %s", strerror(errno));
    snprintf(token, TOKEN_LENGTH + 1, "%016" PRIx64, number);
}

// The root writes the main file under a temporary name; meanwhile the others check their own state.
static int write_beside(const Save *save)
{
    for (int i = 0; i < safetensors_count(save->state) && world_rank() != 0; i++)
        safetensors_hash(save->state, i);
    int fault = 0;
    if (world_rank() == 0) {
        char *beside = main_path(save->folder, save->name, save->token);
        fault = safetensors_write(save->state, beside);
        if (fault)
            say_lost(beside, fault);
        free(beside);
    }
    checkpoint_broadcast(&fault, sizeof fault);
    return fault;
}

// The hashes of the root's tensors, which the caller frees.
static uint64_t *roots_hashes(Safetensors *state)
{
    size_t count = (size_t)safetensors_count(state);
    uint64_t *hashes = allocate(count, sizeof *hashes);
    for (size_t i = 0; i < count && world_rank() == 0; i++)
        hashes[i] = safetensors_hash(state, (int)i);
    checkpoint_broadcast(hashes, count * sizeof *hashes);
    return hashes;
}

static int write_part(const Save *save)
{
    uint64_t *hashes = roots_hashes(save->state);
    Safetensors *part = make_part(save->training, world_rank(), save->token, hashes, save->state);
    char *path = part_path(save->folder, save->name, world_rank(), save->token);
    int fault = safetensors_write(part, path);
    if (fault)
        say_lost(path, fault);
    safetensors_free(part);
    free(hashes);
    free(path);
    return fault;
}

// The outcome of a save. Parts whose main file may exist are never removed.
typedef enum {
    NOT_SAVED, // the main file was not renamed
    RENAMED,   // it was, and after a power cut it, or the one before, may be there
    SAVED      // and is on the disk
} Outcome;

// All parts exist under their token: renaming the main file now completes the checkpoint, or fails.
static Outcome rename_main(const Save *save)
{
    Outcome outcome = NOT_SAVED;
    char *beside = main_path(save->folder, save->name, save->token);
    char *path = main_path(save->folder, save->name, NULL);
    int fault = sync_names(save->folder);
    if (!fault && rename(beside, path) != 0)
        fault = errno;
    if (!fault) {
        fault = sync_names(save->folder);
        outcome = fault ? RENAMED : SAVED;
    }
    if (fault)
        say_lost(path, fault);
    else
        trace("saved", TEXT("path", path));
    free(beside);
    free(path);
    return outcome;
}

// Renames the part, or removes it. A part is found under its token, too: it keeps that name if the
// part with the final name may belong to another main file.
static void end_part(const Save *save, Outcome outcome)
{
    char *beside = part_path(save->folder, save->name, world_rank(), save->token);
    char *path = part_path(save->folder, save->name, world_rank(), NULL);
    if (outcome == SAVED)
        (void)!rename(beside, path);
    else if (outcome == NOT_SAVED)
        unlink(beside);
    free(beside);
    free(path);
}

// For a main file that was not renamed.
static void remove_beside(const Save *save)
{
    char *beside = main_path(save->folder, save->name, save->token);
    unlink(beside);
    free(beside);
}

static bool write_files(const Save *save)
{
    int any = write_beside(save);
    if (!any && save->parts)
        any = write_part(save) != 0;
    if (world_size() > 1)
        MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, world_comm(WORLD_VARIABLES));
    Outcome outcome = NOT_SAVED;
    if (!any && world_rank() == 0)
        outcome = rename_main(save);
    checkpoint_broadcast(&outcome, sizeof outcome);
    if (save->parts)
        end_part(save, outcome);
    if (world_rank() == 0 && outcome == NOT_SAVED)
        remove_beside(save);
    if (world_rank() == 0 && outcome == SAVED)
        remove_unfinished(save->folder, save->name, save->token, save->parts ? world_size() : 0);
    return outcome == SAVED;
}

static void check_model(const char *caller, const Model *model)
{
    model_check_compiled(model, caller);
    if (model_optimizer(model)->pass)
        die("%s: with weights_in_shards() no worker has all weights, and checkpoints of such a model "
            "are not supported",
            caller);
}

static void check_training(const char *caller, const Training *training, bool weights_only)
{
    if (!training || !training->model)
        die("%s: there is no training (NULL)", caller);
    check_model(caller, training->model);
    int passes, held = hvd_gradients_held(model_optimizer(training->model), &passes);
    if (held > 0 && !weights_only)
        die("%s: %d of the %d gradients of an update are there, and a checkpoint keeps none: save "
            "after whole updates, steps that are a multiple of %d",
            caller, held, passes, passes);
}

bool checkpoint_save_as(const char *caller, const Training *training, const char *folder,
                        const char *name, bool weights_only)
{
    checkpoint_need_ranks(caller);
    check_training(caller, training, weights_only);
    check_path(caller, folder, name);
    Save save = {.training = training, .folder = folder, .name = name, .parts = !weights_only};
    if (world_rank() == 0) {
        try_folders(folder); // where it is missing the save fails, and the training goes on
        draw_token(save.token);
    }
    checkpoint_begin_call(caller, name);
    checkpoint_broadcast(save.token, sizeof save.token);
    save.state = weights_only ? make_weights_file(training->model)
                              : make_main_file(training, world_size(), save.token);
    bool saved = write_files(&save);
    checkpoint_end_call();
    safetensors_free(save.state);
    return saved;
}

bool save_checkpoint(const Training *training, const char *folder, const char *name)
{
    checkpoint_called(__func__);
    return checkpoint_save_as(__func__, training, folder, name, false);
}

static void trace_written(const Training *training, const char *path)
{
    struct stat written = {0};
    int file = trace_on() ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    fstat(file, &written);
    trace("saved", TEXT("path", path), NUMBER("epoch", training->epochs_done),
          NUMBER("step", training->steps_done),
          NUMBER("weights", model_fingerprints(training->model).weights),
          NUMBER("inode", written.st_ino), TEXT("bits", file_hash(file).digits));
    close(file);
}

bool write_checkpoint(const Training *training, const char *path)
{
    checkpoint_called(__func__);
    check_training(__func__, training, false);
    if (state_is_in_parts(training->model))
        die("%s: optimizer_in_shards() leaves the optimizer's state in parts, and each worker has its "
            "own: save with checkpoint() or save_checkpoint()",
            __func__);
    if (!path)
        die("%s: there is no path (NULL)", __func__);
    checkpoint_dir_is_used();
    Safetensors *file = make_main_file(training, world_size(), "");
    int fault = safetensors_write(file, path);
    if (fault)
        say_lost(path, fault);
    else
        trace_written(training, path);
    safetensors_free(file);
    return !fault;
}

bool sync_folder(const char *folder)
{
    check_path(__func__, folder, "");
    int fault = sync_names(folder);
    if (fault)
        say_lost(folder, fault);
    return !fault;
}

// ---- Restoring.

// The latest complete checkpoint; warns of a later incomplete one. If no checkpoint is complete, a
// new training would overwrite the remains.
static char *furthest_whole(const char *folder)
{
    char *missing, *name = furthest_checkpoint(folder, &missing);
    if (missing && !name)
        die("%s is missing; its checkpoint is not whole without it, and %s holds no other", missing,
            folder);
    if (missing)
        warn_on_root("%s is missing; its checkpoint is not whole without it, so %s is the latest",
                     missing, name);
    free(missing);
    return name;
}

char *latest_checkpoint(const char *folder)
{
    trace_call();
    check_path(__func__, folder, "");
    return furthest_whole(folder);
}

// Sets the values with which fit() continues.
typedef struct {
    Resume resume;
    char *path;        // of `file`
    Safetensors *file; // this rank's part, or the main file
    bool mine;         // it is this rank's part
    bool exact;        // all batches continue
    bool same_ranks;
} Restored;

// True if they continue; otherwise they begin again.
static bool go_on(Batches *batches, const Restored *r, const char *key)
{
    const char *position = safetensors_metadata(r->file, key);
    if (!batches || !position)
        return false;
    if (r->same_ranks && batches_go_to(batches, position))
        return true;
    batches_begin_after(batches, position);
    return false;
}

static bool apply(const Resume *resume, Training *training)
{
    const Restored *r = (const Restored *)resume;
    Model *model = training->model;
    if (r->mine)
        put_origin(r->path, r->file);
    if (r->same_ranks)
        put_tensors(r->file, model);
    put_optimizer(r->path, r->file, model);
    put_callbacks(r->path, r->file, training->callbacks);
    go_on(training->validation, r, "validation");
    if (!go_on(training->train, r, "train") || !r->exact)
        return false;
    put_metrics(r->path, r->file, model);
    return true;
}

// A rank's part, under its token or its final name.
static Safetensors *read_part(char **path, const char *folder, const char *name, int rank,
                              const char *of_token)
{
    *path = find_part(folder, name, rank, of_token);
    if (!*path)
        *path = part_path(folder, name, rank, NULL);
    if (access(*path, F_OK) != 0)
        die("%s: %s; it belongs to %s/%s, which is not whole without it", *path, strerror(errno),
            folder, name);
    Safetensors *part = read_checkpoint_file(*path);
    const char *token = safetensors_metadata(part, "token");
    if (!token || strcmp(token, of_token) != 0)
        die("%s: it belongs to another checkpoint than the %s/%s that is there", *path, folder,
            name);
    if (whole_number(safetensors_metadata(part, "rank"), MAX_LAUNCHED) != rank)
        die("%s: it is another rank's part", *path);
    return part;
}

// The optimizer's state from the parts of all ranks that saved it, however many there are now. That of
// weights that no rank had updated is in none of them, and stays 0.
static void restore_shards(Model *model, const char *folder, const char *name, const Saved *saved)
{
    optimizer_drop_state(optimizer_innermost(model_optimizer(model)));
    for (int r = 0; r < saved->ranks; r++) {
        char *path;
        Safetensors *part = read_part(&path, folder, name, r, saved->token);
        put_shards(path, part, model);
        safetensors_free(part);
        free(path);
    }
}

// The step with which the training continues: the same step; or, if the number of steps of an epoch
// has changed, the proportional one, after a whole update, but not the epoch's end.
static int64_t step_in(const Saved *saved, const Fit *fit, const Model *model, bool exact)
{
    if (exact || saved->step == 0)
        return saved->step;
    int passes;
    hvd_gradients_held(model_optimizer(model), &passes);
    int64_t steps = fit->steps_per_epoch;
    if (steps < 1)
        return 0;                                                        // fit() refuses it
    long double product = (long double)saved->step * (long double)steps; // exact
    int64_t step = (int64_t)(product / (long double)saved->steps);
    step = step < steps ? step : steps - 1;
    return step - step % passes;
}

static void say_what_is_new(const Restored *r, const Saved *saved, const Fit *fit, const char *path)
{
    if (r->exact)
        return;
    if (*saved->token == '\0' && saved->step == 0) // nothing, with a seed
        return;
    char *why =
        r->same_ranks || *saved->token == '\0'
            ? format_text("%s", r->same_ranks ? "by other batches" : "without the workers' parts")
            : format_text("by %d worker%s, and now there %s %d", saved->ranks,
                          saved->ranks == 1 ? "" : "s", world_size() == 1 ? "is" : "are",
                          world_size());
    char *moved = saved->step > 0
                      ? format_text("; step %lld of %lld has become %lld of %lld",
                                    (long long)saved->step, (long long)saved->steps,
                                    (long long)fit->initial_step, (long long)fit->steps_per_epoch)
                      : format_text("%s", "");
    note_on_root("%s was saved %s: the order of the images is new from here on%s", path, why,
                 moved);
    free(why);
    free(moved);
}

// Takes `file` over.
static Restored *read_own(const char *path, Safetensors *file, const Saved *saved, Model *model,
                          const char *folder, const char *name)
{
    Restored *r = allocate(1, sizeof *r);
    lives_until_exit(r);
    r->resume = (Resume){saved->history, saved->stop, apply};
    bool has_parts = *saved->token != '\0';
    r->mine = has_parts && world_rank() < saved->ranks;
    r->same_ranks = has_parts && world_size() == saved->ranks;
    r->file = r->mine ? read_part(&r->path, folder, name, world_rank(), saved->token) : file;
    if (r->mine)
        check_part(r->path, r->file, model);
    else
        r->path = format_text("%s", path);
    return r;
}

static void tell_fit(Fit *fit, Restored *r, const Saved *saved, const Model *model,
                     const char *path)
{
    const char *position = safetensors_metadata(r->file, "train");
    r->exact = r->same_ranks && fit->steps_per_epoch == saved->steps && fit->train && position &&
               batches_have_position(fit->train, position);
    fit->initial_epoch = saved->epoch;
    fit->initial_step = step_in(saved, fit, model, r->exact);
    fit->resume = &r->resume;
    say_what_is_new(r, saved, fit, path);
}

static void restore(Model *model, Fit *fit, const char *folder, const char *name)
{
    char *path = main_path(folder, name, NULL);
    Safetensors *file = read_checkpoint_file(path);
    Saved saved = check_main_file(path, file, model);
    Restored *r = fit ? read_own(path, file, &saved, model, folder, name) : NULL;
    put_tensors(file, model);
    if (saved.in_parts)
        restore_shards(model, folder, name, &saved);
    put_optimizer(path, file, model);
    hvd_drop_held_gradients(model_optimizer(model));
    trace("restored", TEXT("path", path), NUMBER("epoch", saved.epoch), NUMBER("step", saved.step));
    if (r) {
        if (r->mine)
            put_origin(r->path, r->file);
        if (r->same_ranks)
            put_tensors(r->file, model);
        tell_fit(fit, r, &saved, model, path);
    } else {
        free(saved.history.logs);
    }
    if (r && r->file == file)
        safetensors_drop_tensors(file);
    else
        safetensors_free(file);
    free(path);
}

void restore_checkpoint(Model *model, Fit *fit, const char *folder, const char *name)
{
    checkpoint_called(__func__);
    check_model(__func__, model);
    check_path(__func__, folder, name);
    restore(model, fit, folder, name);
}

bool restore_latest(Model *model, Fit *fit, const char *folder)
{
    checkpoint_called(__func__);
    check_model(__func__, model);
    check_path(__func__, folder, "");
    char name[64] = "";
    char *latest = world_rank() == 0 ? furthest_whole(folder) : NULL;
    if (latest)
        snprintf(name, sizeof name, "%s", latest);
    free(latest);
    checkpoint_begin_call(__func__, "the latest checkpoint");
    checkpoint_broadcast(name, sizeof name);
    checkpoint_end_call();
    if (world_rank() == 0 && *name)
        printf("Restoring from %s/%s\n", folder, name);
    else if (world_rank() == 0)
        printf("Creating a new model\n");
    if (*name)
        restore(model, fit, folder, name);
    return *name != '\0';
}
