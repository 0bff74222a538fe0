// Resume: a training that was killed and resumed makes the same steps as an uninterrupted one. What
// is restored is judged in resumed.c, and the steps in resumed_steps.c; here it is where the
// training goes on, what is said of it, and how it ends early.

#include "end.h"
#include "resumed.h"
#include "waiting.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define PLACE "the training goes on where it was saved"
#define SAID  "the root prints how it begins, and no other rank does"

// ---- Where it goes on.

static bool judge_places(const Runs *runs, Report *report)
{
    static const Diagnosis elsewhere = {
        "begins-elsewhere",
        "the training begins at another step than the one after the checkpoint. restore_checkpoint "
        "has set that step in the plan: do not change it afterwards, and pass this plan to fit, "
        "not a copy from before.",
        NULL};
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        Reached place = {0};
        bool done =
            finds_checkpoint(runs, run, &place) && place.epoch >= run_flag(run, "--epochs ");
        for (int r = 0; r < run->ranks && !done; r++) {
            const cJSON *step = event_nth(&run->traces.of[r], "step", 0);
            double epoch = event_number(step, "epoch"), number = event_number(step, "step");
            if (epoch == place.epoch && number == place.step)
                continue;
            char *evidence =
                format_text("%d epochs and %d steps were done\n", place.epoch, place.step);
            if (step)
                text_add(&evidence, "rank %d begins with step %g of epoch %g", r, number + 1,
                         epoch + 1);
            else
                text_add(&evidence, "rank %d makes no step", r);
            report_failure(report, PLACE, &elsewhere, evidence_in(runs, run, evidence));
            return false;
        }
    }
    report_held(runs, report, PLACE);
    return true;
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
    static const Diagnosis unsaid = {
        "not-said",
        "the root says \"" OLD_MODEL " NAME\", or \"" NEW_MODEL "\", as the TODO has it.", NULL};
    static const Diagnosis others_say = {"said-by-others",
                                         "one line is enough: it is the root's, rank 0's.", NULL};
    static const Diagnosis untrue = {"said-wrong", "the root's message differs from what it does.",
                                     NULL};
    for (int r = 1; r < run->ranks; r++)
        if (line_with(run, r, right) || line_with(run, r, wrong))
            return &others_say;
    const char *line = line_with(run, 0, right);
    if (line_with(run, 0, wrong) || (line && name && !strstr(line, name)))
        return &untrue;
    return line ? NULL : &unsaid;
}

static char *words_evidence(const Run *run, const char *words, const char *name)
{
    char *evidence =
        format_text("the root is to say: %s%s%s", words, name ? " ... " : "", name ? name : "");
    for (int r = 0; r < run->ranks; r++) {
        const char *line = line_with(run, r, OLD_MODEL);
        line = line ? line : line_with(run, r, NEW_MODEL);
        text_add(&evidence, "\nrank %d says %.200s", r, line ? line : "nothing of it");
    }
    return evidence;
}

// By what the root does, right or wrong: that is judged elsewhere.
static void judge_words(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        bool there = has_rank(ranks_that_restored(run), 0);
        const char *file = there ? name_restored(run, 0) : "";
        char *name = there ? format_text("%.*s", (int)strcspn(file, "."), file) : NULL;
        const char *right = there ? OLD_MODEL : NEW_MODEL, *other = there ? NEW_MODEL : OLD_MODEL;
        const Diagnosis *wrong = wrong_words(run, right, other, name);
        if (wrong)
            report_failure(report, SAID, wrong,
                           evidence_in(runs, run, words_evidence(run, right, name)));
        free(name);
        if (wrong)
            return;
    }
    report_held(runs, report, SAID);
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(&(Runs){.items = runs->items, .count = 1}, FOUND, report))
        return;
    judge_resumed_rates(runs, report);
    if (judge_restored(runs, report) && judge_places(runs, report))
        judge_resumed_steps(runs, report);
    if (runs->all || !report_passed(report))
        judge_words(runs, report);
}

// ---- The library ends a training that would overwrite the one that is there, and ranks that set
// out for different ones.

#define REFUSED "holds checkpoints of another training"

static bool begins_differently(const Output *output)
{
    static const char *const words[] = {"begin with epoch", "begins with epoch", "begin after ",
                                        "begins after "};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (output_says(output, words[i]))
            return true;
    return false;
}

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
    static const Diagnosis null = {
        "crashed",
        "there is no checkpoint here, and something before fit goes to a place in memory that is "
        "none: often it is the answer of latest_checkpoint, which is NULL then.",
        NULL};
    int rank = output_failed_rank(&run->output, -1).rank;
    bool in_call = rank >= 0 && rank < run->ranks && ends_in_collective(&run->traces.of[rank]);
    if (!run->plan.after && !ranks_with(&run->traces, "fit") && ended_by_signal(run) && !in_call)
        report_failure(report, FOUND, &null,
                       evidence_of_run(run, format_text("no rank has come to fit")));
}

static void crashed(const Run *run, Report *report)
{
    static const Diagnosis untold = {
        "plan-not-told",
        "the checkpoint is restored, and fit begins with the first epoch all the same: often "
        "restore_checkpoint got no plan (NULL), or another one than fit.",
        NULL};
    RankSet ranks = ranks_that_restored(run);
    bool refused = output_says(&run->output, REFUSED);
    if (!refused && !begins_differently(&run->output) && !all_began(run)) {
        crashed_before_fit(run, report);
        return;
    }
    const Diagnosis *diagnosis = !ranks                           ? &restored_nothing
                                 : ranks != all_ranks(run->ranks) ? &restored_by_some
                                 : !all_restored_the_same(run)    ? &restored_different
                                 : refused                        ? &untold
                                                                  : NULL;
    if (!diagnosis || !run->plan.after)
        return;
    char *evidence = format_text("%s restored a checkpoint", rank_names(ranks).text);
    for (int r = 0; r < run->ranks; r++)
        text_add(&evidence, "\nrank %d restored %s", r, name_restored(run, r));
    report_failure(report, diagnosis == &untold ? PLACE : FOUND, diagnosis,
                   evidence_of_run(run, evidence));
}

#define ANOTHER_PLACE                                                                              \
    {                                                                                              \
        "begins-elsewhere",                                                                        \
            "the ranks' plans say different places where the training goes on. "                   \
            "restore_checkpoint has said in each where it does.",                                  \
            NULL                                                                                   \
    }
#define RATES_DIFFER                                                                               \
    {                                                                                              \
        "rates-differ",                                                                            \
            "ranks come to an update with different learning rates: each worker restores what "    \
            "its "                                                                                 \
            "own callback kept, and so each one's says what that is, in `kept` and `kept_count`.", \
            NULL                                                                                   \
    }
#define NO_NAME                                                                                    \
    {                                                                                              \
        "restores-no-name",                                                                        \
            "a checkpoint without a name is to be restored: where there is none, nothing is "      \
            "restored.",                                                                           \
            NULL                                                                                   \
    }
static const Explanation explanations[] = {
    {REFUSED,
     {"begins-anew",
      "there are checkpoints of a training, and fit begins another one, which would overwrite "
      "them: fit's plan has to say where it goes on.",
      NULL}},
    {"begin with epoch", ANOTHER_PLACE},
    {"begins with epoch", ANOTHER_PLACE},
    {"begin after ", ANOTHER_PLACE},
    {"begins after ", ANOTHER_PLACE},
    {"uses learning rate", RATES_DIFFER},
    {"use learning rate", RATES_DIFFER},
    {"/.safetensors", NO_NAME},
    {"/(null).safetensors", NO_NAME},
    {".safetensors: No such file",
     {"no-such-checkpoint",
      "a checkpoint is to be restored that is not there: often its name was cut on the way from "
      "the root (by the size of a pointer, say, and not of the array), or was never set.",
      NULL}},
    {"MPI_ERR_TRUNCATE",
     {"name-cut",
      "a message is longer than the room that a worker has for it: the root sends as many "
      "characters as all expect, sizeof name, say, and not as many as its name has.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations, .crashed = crashed};

JUDGE("resume", judge)
ENDS("resume", &ends)
