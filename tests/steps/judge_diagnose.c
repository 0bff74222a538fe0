// Diagnose: the answer sheet says of each run which step is broken, and what shows it. Which step it
// is follows from the seed; the library traces what the sheet says.

#include "answer_sheet.h"
#include "diagnoses/judge_diagnose.h"

#include <stdlib.h>
#include <string.h>
#include "lessons/broken.h"

// The names by which a broken step is seen: columns of --show-ranks and of the page, lines that are
// printed, and all spans whose number was another one than in a run of a finished step 6.
static const char *const shown_by[1 + STEPS_OF_TRAINER][24] = {
    [1] = {"device", "cpu", "gpu", "cpu 0", "cpu 1", "gpu 0", "gpu 1"},
    [2] = {"Epoch", "Images/sec", "Cumulative", "print_throughput", "print_total_time", "N/N"},
    [3] = {"weights", "piece", "hvd_distributed_optimizer", "wait for the gradients",
           "MPI_Allreduce", "MPI_Iallreduce", "ncclAllReduce", "two_levels", "agree on the call",
           "gradients", "sent", "received", "given to collectives", "fit", "hvd"},
    [4] = {"weights", "hvd_broadcast_variables", "MPI_Bcast", "agree on the call", "fit", "hvd"},
    [5] = {"N/N",
           "steps",
           "step",
           "piece",
           "Images/sec",
           "Cumulative",
           "forward",
           "backward",
           "update",
           "gradients",
           "sent",
           "received",
           "two_levels",
           "MPI_Allreduce",
           "MPI_Iallreduce",
           "ncclAllReduce",
           "augment a batch",
           "wait for a batch",
           "agree on the call",
           "given to collectives",
           "wait for the gradients",
           "hvd_distributed_optimizer"},
    [6] = {"loss", "val_accuracy", "hvd_metric_average", "MPI_Allreduce", "agree on the call"},
};

// These differ among the ranks of a right run, too, or are the same on all in every run.
static const char *const of_every_run[] = {
    "rank",       "statistics", "accuracy",        "val_loss",   "lr",
    "host",       "doing",      "waits for",       "since",      "images/s",
    "in no call", "waits",      "moves",           "validation", "load a batch",
    "training",   "rank_table", "validation step", "machine",    "load the data",
    "compile",    "plan",       "MPI_Send",        "MPI_Recv",   "the row of a rank",
    NULL};

// What names a line: its first word, without a colon; "N/N", where that counts steps, as "15/15"
// does. Another name is itself.
static char *name_of(const char *shown)
{
    static const char *const lines[] = {"Epoch", "Images/sec", "Cumulative", NULL};
    size_t digits = strspn(shown, "0123456789");
    if (digits > 0 && shown[digits] == '/')
        return format_text("N/N");
    char *word = format_text("%.*s", (int)strcspn(shown, " :"), shown);
    if (is_one_of(word, lines))
        return word;
    free(word);
    return format_text("%s", shown);
}

static bool shows(int step, const char *name)
{
    return is_one_of(name, shown_by[step]);
}

static bool is_known(const char *name)
{
    bool known = is_one_of(name, of_every_run);
    for (int step = 1; step <= STEPS_OF_TRAINER; step++)
        known = known || shows(step, name);
    return known;
}

static Fault symptom_fault(int broken, int step, const char *shown)
{
    if (step == NOT_ANSWERED)
        return fault_with(&d_not_answered, ".step is still to be filled in");
    if (step < NO_STEP || step > STEPS_OF_TRAINER)
        return fault_with(&d_wrong_step_no_step, ".step = %d", step);
    if (step != broken)
        return fault_with(step == NO_STEP ? &d_wrong_step_none : &d_wrong_step, ".step = %d", step);
    if (step != NO_STEP && !*shown)
        return fault_with(&d_not_answered, ".shown is still to be filled in");
    char *name = name_of(shown);
    bool right = step == NO_STEP || shows(step, name), known = is_known(name);
    free(name);
    return right ? NO_FAULT
                 : fault_with(known ? &d_wrong_symptom : &d_wrong_symptom_unknown,
                              ".shown = \"%s\"", shown);
}

static Fault run_fault(const Run *run, int number)
{
    int steps[RUNS];
    broken_steps(sheet_seed(run), steps);
    const cJSON *symptom = event_nth(&run->traces.of[0], "symptom", number - 1);
    return symptom_fault(steps[number - 1], event_int(symptom, "step"),
                         event_text(symptom, "shown"));
}

static void judge(const Runs *runs, Report *report)
{
    judge_sheet(runs, "symptom", RUNS, "run", run_fault, report);
}

JUDGE("diagnose", judge)
