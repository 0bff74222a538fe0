// By hand: what the distributed optimizer does, without it. Each training of the program begins
// with its compile event: there may be several, one optimizer after another. What is known of any
// rate that goes by the number of workers is in rates.c.

#include "end.h"
#include "hypotheses.h"
#include "mean.h"
#include "rates.h"
#include "diagnoses/judge_by_hand.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define BOTH  "all ranks make both trainings, in the same order"
#define RATES "the learning rate is that of one device, times the number of workers"
#define START "all ranks start each training from the same weights"
#define ONCE  "weights are not handed out while a training goes on"
#define FILES "the root writes the weights, and no other rank"

// ---- The learning rates.

static const struct {
    const char *optimizer;
    double rate; // for one device
} rates[] = {{"RMSprop", 0.001}, {"Adagrad", 0.01}};

static double rate_of(const cJSON *apply)
{
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (strcasecmp(event_text(apply, "optimizer"), rates[i].optimizer) == 0)
            return rates[i].rate;
    return NAN;
}

// A row for each update of each rank: by what its learning rate was multiplied.
static Rows factors_of(const Runs *runs)
{
    Rows rows = {NULL, 0};
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            EACH (at, &run->traces.of[r], "apply") {
                const cJSON *apply = run->traces.of[r].items[at];
                double rate = event_number(apply, "learning_rate");
                Row row = row_of_rank(run, r, rate / rate_of(apply));
                row.of = apply;
                row.relative = 1e-4;
                rows_add(&rows, &row);
            }
    return rows;
}

// hvd_broadcast_model hands the root's learning rate out with the weights.
FORMULA(local_size_of_root, run_local_size(cell.row->run, 0))

static const Hypothesis by_size = {constant_one, NULL, .by_ranks = -1};
static const Hypothesis known[] = {
    {constant_one, &d_rate_not_scaled, .by_ranks = 0},
    {constant_one, &d_rate_by_local_size, .by_local_size = -1},
    {local_size_of_root, &d_rate_by_local_size, .by_ranks = 0},
    {its_rank, &d_rate_by_rank, .by_ranks = 0},
    {constant_zero, &d_rate_zero, .by_ranks = 0},
    {constant_one, &d_rate_scaled_twice, .by_ranks = -2},
    {constant_one, &d_rate_divided, .by_ranks = 1},
    {0},
};

static char *rate_evidence(const Row *row)
{
    const cJSON *apply = row->of;
    char *evidence =
        format_text("rank %d: the update by %s has learning rate %g", rank_of_row(row),
                    event_text(apply, "optimizer"), event_number(apply, "learning_rate"));
    if (isfinite(rate_of(apply)))
        text_add(&evidence, "\n%d workers: %d * %g = %g", row->ranks, row->ranks, rate_of(apply),
                 row->ranks * rate_of(apply));
    return evidence;
}

static void judge_rates(const Runs *runs, Report *report)
{
    Rows rows = factors_of(runs);
    const Row *wrong = first_unexplained(&by_size, &rows);
    const Diagnosis *diagnosis = diagnosis_of_rows(known, &rows);
    report_property(report, RATES, diagnosis ? diagnosis : &d_rate_wrong,
                    wrong ? evidence_in(runs, wrong->run, rate_evidence(wrong)) : NULL);
    free(rows.items);
}

// ---- The trainings.

// "RMSprop, Adagrad": the optimizers that update, one after another.
static char *trainings_of(const Events *events)
{
    char *text = NULL;
    const char *last = "";
    EACH (at, events, "apply") {
        const char *name = event_text(events->items[at], "optimizer");
        if (strcmp(name, last) != 0)
            text_add(&text, "%s%s", text ? ", then " : "", name);
        last = name;
    }
    return text ? text : format_text("none");
}

static bool has_both(const char *trainings)
{
    bool both = true;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        both = both && strcasestr(trainings, rates[i].optimizer);
    return both;
}

static Fault trainings_fault(const Run *run)
{
    char *root = trainings_of(&run->traces.of[0]), *evidence = NULL;
    bool same = true, both = has_both(root);
    for (int r = 0; r < run->ranks; r++) {
        char *own = trainings_of(&run->traces.of[r]);
        same = same && strcmp(own, root) == 0;
        text_add(&evidence, "%srank %d: %s", r ? "\n" : "", r, own);
        free(own);
    }
    free(root);
    if (!same || !both)
        return (Fault){same ? &d_training_missing : &d_trainings_differ, evidence};
    free(evidence);
    return NO_FAULT;
}

// ---- The weights.

// The place of the first gradient of training `number`, from 0, or -1.
static int first_gradient(const Events *events, int number)
{
    int at = -1;
    for (int i = 0; i <= number; i++)
        if ((at = event_find(events, "compile", at + 1)) < 0)
            return -1;
    return event_find(events, "gradient", at);
}

// What the ranks start training `number` from; NULL: from the same, or it is not there.
static char *different_starts(const Run *run, int number)
{
    Row row = {.run = run, .ranks = run->ranks};
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        int at = first_gradient(events, number);
        if (at < 0)
            return NULL;
        row.shown[r] = event_number(events->items[at], "arena");
    }
    RankSet told = ranks_alike(&row, 0);
    if (told == all_ranks(run->ranks))
        return NULL;
    char *evidence = format_text("before the first update by %s, as fingerprints:\n%s: %.9g",
                                 number == 0 ? "the first optimizer" : "another optimizer",
                                 rank_names(told).text, row.shown[0]);
    for (int r = 1; r < run->ranks; r++) {
        RankSet alike = ranks_alike(&row, r);
        if (!has_rank(told, r))
            text_add(&evidence, "\n%s: %.9g", rank_names(alike).text, row.shown[r]);
        told |= alike;
    }
    return evidence;
}

// More than this many bytes.
static bool is_broadcast_of(const cJSON *event, double bytes)
{
    return event_is(event, "collective_begin") && event_has(event, "function", "MPI_Bcast") &&
           event_number(event, "bytes") > bytes;
}

static const Diagnosis *wrong_start(const Run *run, int number)
{
    EACH_EVENT (event, &run->traces.of[0])
        if (is_broadcast_of(event, 0))
            return number > 0 ? &d_start_differs_later_training : &d_start_differs;
    return &d_broadcast_missing;
}

static Fault start_fault(const Run *run)
{
    for (int t = 0; t < event_count(&run->traces.of[0], "compile"); t++) {
        char *evidence = different_starts(run, t);
        if (evidence)
            return (Fault){wrong_start(run, t), evidence};
    }
    return NO_FAULT;
}

// A broadcast in a training, after its second update (Horovod's texts broadcast after the first
// one, too): the library's of a model; or one of more than a few words between an update and the
// next gradient: of weights, then. (What else is sent between a gradient and its update are
// gradients.)
static bool broadcasts_in_training(const Events *events, int number)
{
    const double words = 64; // bytes
    int begin = first_gradient(events, number), next = event_find(events, "compile", begin);
    int updates = 0;
    bool updated = false, weights_sent = false;
    for (int at = begin; at >= 0 && at < (next < 0 ? events->count : next); at++) {
        const cJSON *event = events->items[at];
        if (event_is(event, "gradient")) {
            if (weights_sent)
                return true;
            updated = false;
        } else if (event_is(event, "apply")) {
            updates++;
            updated = true;
        } else if (updates > 1 && event_is(event, "broadcast")) {
            return true;
        } else if (updates > 1 && updated && is_broadcast_of(event, words)) {
            weights_sent = true;
        }
    }
    return false;
}

static Fault broadcast_fault(const Run *run)
{
    const Events *events = &run->traces.of[0];
    for (int t = 0; t < event_count(events, "compile"); t++)
        if (broadcasts_in_training(events, t))
            return fault_with(&d_broadcast_again_and_again,
                              "rank 0 takes part in a broadcast between two updates of a training");
    return NO_FAULT;
}

// ---- Files.

// Whether a training goes on after its last file. (One that is written on the way, too, does no
// harm.)
static bool saved_untrained(const Events *events)
{
    bool saved = false, trained = false; // since then
    EACH_EVENT (event, events) {
        if (event_is(event, "compile") && saved && trained)
            return true;
        saved = event_is(event, "saved") || (saved && !event_is(event, "compile"));
        trained = saved && (event_is(event, "gradient") || (trained && !event_is(event, "saved")));
    }
    return saved && trained;
}

static Fault files_fault(const Run *run)
{
    RankSet writers = ranks_with(&run->traces, "saved");
    int files = event_count(&run->traces.of[0], "saved"),
        trainings = event_count(&run->traces.of[0], "compile");
    if (writers != 1)
        return fault_with(!writers                           ? &d_file_missing
                          : writers == all_ranks(run->ranks) ? &d_file_by_all
                                                             : &d_file_by_others,
                          "written by %s", rank_names(writers).text);
    if (files < trainings)
        return fault_with(&d_file_missing, "written by rank 0: %d of %d files", files, trainings);
    return saved_untrained(&run->traces.of[0])
               ? fault_with(&d_saved_untrained,
                            "the last file of a training is written before its last update")
               : NO_FAULT;
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, MEAN_APPLIED, report))
        return;
    judge_mean(runs, report);
    judge_property(runs, START, start_fault, report);
    judge_property(runs, ONCE, broadcast_fault, report);
    if (judge_property(runs, BOTH, trainings_fault,
                       report)) // one of another optimizer says nothing of the rate
        judge_rates(runs, report);
    judge_property(runs, FILES, files_fault, report);
    judge_silence(runs, report);
}

JUDGE("by_hand", judge)
OWN_ENDS("by_hand", .disagreed = {"name root", &d_broadcast_root_differs},
         EXPLAINED({"has no weights before compile", &d_broadcast_too_early}))
