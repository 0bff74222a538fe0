// Resume: a training that was killed and resumed makes the same steps as an uninterrupted one. What
// is restored is judged in resumed.c, and the steps in resumed_steps.c; here it is where the
// training goes on, what is said of it, and how it ends early.

#include "end.h"
#include "resumed.h"
#include "diagnoses/judge_resume.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define PLACE "the training goes on where it was saved"
#define SAID  "the root prints how it begins, and no other rank does"

// ---- Where it goes on.

static bool judge_places(const Runs *runs, Report *report)
{
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
            report_failure(report, PLACE, &d_begins_elsewhere, evidence_in(runs, run, evidence));
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
    for (int r = 1; r < run->ranks; r++)
        if (line_with(run, r, right) || line_with(run, r, wrong))
            return &d_said_by_others;
    const char *line = line_with(run, 0, right);
    if (line_with(run, 0, wrong) || (line && name && !strstr(line, name)))
        return &d_said_wrong;
    return line ? NULL : &d_not_said;
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

// By what the root does before fit, right or wrong: that is judged elsewhere.
static void judge_words(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        if (restored_late(run))
            return;
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
    if (!refused && !begins_differently(&run->output) && !all_began(run)) {
        crashed_before_fit(run, report);
        return;
    }
    const Diagnosis *diagnosis = !ranks                           ? &d_not_restored
                                 : ranks != all_ranks(run->ranks) ? &d_restored_by_some
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
OWN_ENDS("resume", .crashed = crashed,
         EXPLAINED({REFUSED, &d_begins_anew},
                   {"begin with epoch", &d_begins_elsewhere_plans_differ},
                   {"begins with epoch", &d_begins_elsewhere_plans_differ},
                   {"begin after ", &d_begins_elsewhere_plans_differ},
                   {"begins after ", &d_begins_elsewhere_plans_differ},
                   {"uses learning rate", &d_rates_differ}, {"use learning rate", &d_rates_differ},
                   {"/.safetensors", &d_restores_no_name},
                   {"/(null).safetensors", &d_restores_no_name},
                   {".safetensors: No such file", &d_no_such_checkpoint},
                   {"MPI_ERR_TRUNCATE", &d_name_cut}))
