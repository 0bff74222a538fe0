// Resume: a training that was killed and resumed makes the same steps as an uninterrupted one. Here it is
// judged what is restored, where the training goes on, what is said of it, and how it ends early; the steps
// are judged in resumed_steps.c.

#include "end.h"
#include "resumed_steps.h"
#include "saved.h"
#include "diagnoses/judge_resume.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define FOUND "all ranks restore the latest checkpoint, the same one; where there is none, nothing"
#define FALLS "the learning rate falls with every batch of a training"
#define PLACE "the training goes on where it was saved"
#define SAME  "every later step equals that of an uninterrupted training, bit for bit"
#define SAID  "the root prints how it begins, and no other rank does"

// ---- Checkpoints.

// How far a training was: epochs that are done, and steps of the next.
typedef struct {
    int epoch, step;
} Reached;

// Of the file "ckpt-1-6.safetensors", "ckpt-2.safetensors"; false for any other.
static bool read_place(const char *file, Reached *place)
{
    int whole = 0, inside = 0;
    *place = (Reached){0};
    sscanf(file, "ckpt-%d" ENDING "%n", &place->epoch, &whole);
    sscanf(file, "ckpt-%d-%d" ENDING "%n", &place->epoch, &place->step, &inside);
    return (whole > 0 && !file[whole]) || (inside > 0 && !file[inside]);
}

static bool is_before(Reached a, Reached b)
{
    return a.epoch < b.epoch || (a.epoch == b.epoch && a.step < b.step);
}

// The furthest checkpoint that a run has left; false: there is none.
static bool latest_of(const Run *run, Reached *latest)
{
    struct dirent **files;
    int count = list_files(run, &files);
    bool found = false;
    for (int i = 0; i < count; i++) {
        Reached place;
        if (read_place(files[i]->d_name, &place) && !(found && is_before(place, *latest)) &&
            find_file(run, files[i]->d_name).there) {
            *latest = place;
            found = true;
        }
        free(files[i]);
    }
    free(files);
    return found;
}

// What the run finds where it begins; false: nothing.
static bool finds_checkpoint(const Runs *runs, const Run *run, Reached *place)
{
    return run->plan.after && latest_of(run_named(runs, run->plan.after), place);
}

// ---- What is restored.

// The rank's last restored checkpoint before fit; NULL: none.
static const cJSON *restored_by(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int fit = event_find(events, "fit", 0);
    return event_before(events, "restored", fit < 0 ? events->count : fit);
}

static RankSet ranks_that_restored(const Run *run)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        ranks |= restored_by(run, r) ? 1u << r : 0;
    return ranks;
}

// What the rank restored last before fit.
static const char *name_restored(const Run *run, int rank)
{
    const cJSON *restored = restored_by(run, rank);
    return restored ? last_part(event_text(restored, "path")) : "nothing";
}

static bool all_restored_the_same(const Run *run)
{
    for (int r = 1; r < run->ranks; r++)
        if (strcmp(name_restored(run, r), name_restored(run, 0)) != 0)
            return false;
    return true;
}

// What the rank restored when fit had begun, or was over; NULL: nothing.
static const cJSON *restored_late(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int at = event_find(events, "restored", event_find(events, "fit", 0));
    return at < 0 ? NULL : events->items[at];
}

// At the first batch the root has the weights of the step before that place, however it came by them.
static bool begins_with_weights(const Runs *runs, const Run *run, Reached place)
{
    const Events *before = &run_named(runs, run->plan.after)->traces.of[0];
    double weights = NAN;
    EACH (at, before, "step") {
        Reached step = {event_int(before->items[at], "epoch"),
                        event_int(before->items[at], "step")};
        weights = is_before(step, place) ? event_number(before->items[at], "weights") : weights;
    }
    return event_number(event_nth(&run->traces.of[0], "first_batch", 0), "weights") == weights;
}

// Of some ranks that restored a checkpoint. They may have restored different ones; or the third host,
// and it alone, has none: the check has it see none (arranged.h).
static const Diagnosis *restored_apart(const Run *run, RankSet ranks)
{
    RankSet seeing = 0;
    const char *name = NULL;
    for (int r = 0; r < run->ranks; r++) {
        seeing |= run_node(run, r) - run_node(run, 0) < 2 ? 1u << r : 0;
        if (!has_rank(ranks, r))
            continue;
        if (name && strcmp(name_restored(run, r), name) != 0)
            return &d_different_checkpoints;
        name = name_restored(run, r);
    }
    return ranks == seeing ? &d_restored_by_some_where_one_is_seen : &d_restored_by_some;
}

// `file`: of the checkpoint that is there, and its place; NULL: there is none.
static const Diagnosis *wrong_restored(const Runs *runs, const Run *run, const char *file,
                                       Reached place)
{
    RankSet ranks = ranks_that_restored(run);
    for (int r = 0; r < run->ranks; r++)
        if (restored_late(run, r))
            return &d_restored_too_late;
    if (!file)
        return ranks ? &d_restored_unasked : NULL;
    if (!ranks)
        return begins_with_weights(runs, run, place) ? &d_not_restored_only_weights
                                                     : &d_not_restored;
    if (ranks != all_ranks(run->ranks))
        return restored_apart(run, ranks);
    if (!all_restored_the_same(run))
        return &d_different_checkpoints;
    return strcmp(name_restored(run, 0), file) == 0 ? NULL : &d_older_checkpoint;
}

static char *restored_evidence(const Run *run, const char *file)
{
    char *evidence = format_text("the latest checkpoint there is %.*s",
                                 file ? (int)strcspn(file, ".") : 4, file ? file : "none");
    for (int r = 0; r < run->ranks; r++) {
        const cJSON *late = restored_late(run, r);
        text_add(&evidence, "\nrank %d restored %s", r, name_restored(run, r));
        if (late)
            text_add(&evidence, ", and %s after fit had begun",
                     last_part(event_text(late, "path")));
    }
    return evidence;
}

static Fault restored_fault(const Runs *runs, const Run *run)
{
    Reached place = {0};
    char *file = NULL;
    if (finds_checkpoint(runs, run, &place))
        file = place.step > 0 ? format_text("ckpt-%d-%d" ENDING, place.epoch, place.step)
                              : format_text("ckpt-%d" ENDING, place.epoch);
    Fault fault = {wrong_restored(runs, run, file, place), NULL};
    if (fault.diagnosis)
        fault.evidence = restored_evidence(run, file);
    if (fault.diagnosis == &d_not_restored_only_weights)
        text_add(&fault.evidence,
                 "\nat the first batch the root has the weights of this checkpoint");
    free(file);
    return fault;
}

// ---- Where it goes on.

static Fault place_fault(const Runs *runs, const Run *run)
{
    Reached place = {0};
    bool done = finds_checkpoint(runs, run, &place) && place.epoch >= run_flag(run, "--epochs ");
    for (int r = 0; r < run->ranks && !done; r++) {
        const cJSON *step = event_nth(&run->traces.of[r], "step", 0);
        double epoch = event_number(step, "epoch"), number = event_number(step, "step");
        if (epoch == place.epoch && number == place.step)
            continue;
        Fault fault = fault_with(&d_begins_elsewhere, "%d epochs and %d steps were done\nrank %d ",
                                 place.epoch, place.step, r);
        if (step)
            text_add(&fault.evidence, "begins with step %g of epoch %g", number + 1, epoch + 1);
        else
            text_add(&fault.evidence, "makes no step");
        return fault;
    }
    return NO_FAULT;
}

// ---- What is said.

#define OLD_MODEL "Restoring from"
#define NEW_MODEL "Creating a new model"

// The rank's first line with these words; NULL: there is none.
static const char *line_with(const Run *run, int rank, const char *words)
{
    for (int i = 0; i < run->output.count; i++) {
        const Line *line = &run->output.lines[i];
        if (line->rank == rank && strcasestr(line->text, words))
            return line->text;
    }
    return NULL;
}

static const Diagnosis *wrong_words(const Run *run, const char *right, const char *wrong,
                                    const char *name)
{
    for (int r = 1; r < run->ranks; r++)
        if (line_with(run, r, right) || line_with(run, r, wrong))
            return &d_said_by_others;
    const char *line = line_with(run, 0, right);
    if (line_with(run, 0, wrong) || (line && !strstr(line, name)))
        return &d_said_wrong;
    return line ? NULL : &d_not_said;
}

// By what the root does before fit.
static Fault words_fault(const Runs *runs, const Run *run)
{
    (void)runs;
    bool there = has_rank(ranks_that_restored(run), 0);
    const char *file = there ? name_restored(run, 0) : "";
    const char *right = there ? OLD_MODEL : NEW_MODEL, *other = there ? NEW_MODEL : OLD_MODEL;
    char *name = format_text("%.*s", (int)strcspn(file, "."), file);
    Fault fault = {wrong_words(run, right, other, name), NULL};
    if (fault.diagnosis)
        text_add(&fault.evidence, "the root is to say: %s%s%s", right, there ? " ... " : "", name);
    for (int r = 0; r < run->ranks && fault.diagnosis; r++) {
        const char *line = line_with(run, r, OLD_MODEL);
        line = line ? line : line_with(run, r, NEW_MODEL);
        text_add(&fault.evidence, "\nrank %d says %.200s", r, line ? line : "nothing of it");
    }
    free(name);
    return fault;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(&(Runs){.items = runs->items, .count = 1}, FOUND, report))
        return;
    judge_each(runs, FALLS, resumed_rates_fault, report);
    if (!judge_each(runs, FOUND, restored_fault, report)) // then there is nothing right to say
        return;
    if (judge_each(runs, PLACE, place_fault, report))
        judge_each(runs, SAME, resumed_steps_fault, report);
    if (runs->all || !report_passed(report))
        judge_each(runs, SAID, words_fault, report);
}

// ---- The library ends a training that would overwrite the one that is there, and ranks that set
// out for different ones.

#define REFUSED "holds checkpoints of another training"

// All ranks have come to fit, so that what they have not restored by then they never will.
static bool all_began(const Run *run)
{
    return ranks_with(&run->traces, "fit") == all_ranks(run->ranks);
}

static bool ended_by_signal(const Run *run)
{
    return run->status > 128 || strstr(output_failed_rank(&run->output, -1).how, "signal");
}

// What it hands to the call is at fault then.
static bool ends_in_collective(const Events *events)
{
    return events->count > 0 && event_is(events->items[events->count - 1], "collective_begin");
}

// Before fit, where there is no checkpoint: what is not proven is said as a guess.
static void crashed_before_fit(const Run *run, Report *report)
{
    int rank = output_failed_rank(&run->output, -1).rank;
    bool in_call = rank >= 0 && rank < run->ranks && ends_in_collective(&run->traces.of[rank]);
    if (!run->plan.after && !ranks_with(&run->traces, "fit") && ended_by_signal(run) && !in_call)
        report_failure(report, FOUND, &d_crashed,
                       evidence_of_run(run, format_text("no rank has come to fit")));
}

static void crashed(const Run *run, Report *report)
{
    RankSet ranks = ranks_that_restored(run);
    bool refused = output_says(&run->output, REFUSED);
    if (!refused && strncmp(event_text(disagreement(run), "term"), "begin", 5) != 0 &&
        !all_began(run)) {
        crashed_before_fit(run, report);
        return;
    }
    const Diagnosis *diagnosis = !ranks                           ? &d_not_restored
                                 : ranks != all_ranks(run->ranks) ? restored_apart(run, ranks)
                                 : !all_restored_the_same(run)    ? &d_different_checkpoints
                                 : refused                        ? &d_plan_not_told
                                                                  : NULL;
    if (!diagnosis || !run->plan.after)
        return;
    char *evidence = format_text("%s restored a checkpoint", rank_names(ranks).text);
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d restored %s", r, name_restored(run, r));
    report_failure(report, diagnosis == &d_plan_not_told ? PLACE : FOUND, diagnosis,
                   evidence_of_run(run, evidence));
}

JUDGE("resume", judge)
OWN_ENDS("resume", .crashed = crashed, .rates_differ = &d_rates_differ,
         .disagreed = {"begin", &d_begins_elsewhere},
         EXPLAINED({REFUSED, &d_begins_anew}, {"/.safetensors", &d_restores_no_name},
                   {"/(null).safetensors", &d_restores_no_name},
                   {".safetensors: No such file", &d_no_such_checkpoint},
                   {"MPI_ERR_TRUNCATE", &d_name_cut}))
