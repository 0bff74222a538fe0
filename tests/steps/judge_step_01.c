// Step 1: every rank joins the job, and works on a device of its own.

#include "hypotheses.h"

#include <stdlib.h>
#include <string.h>
#include "six_steps.h"
#include "diagnoses/judge_step_01.h"

#define JOINS "every rank joins the job"
#define OWN   "every rank works on the device with its local rank"
#define ASKS  "every rank asks for the device with its local rank"
#define STAYS "and computes there"

// ---- Which device.

static const cJSON *device_event(const Run *run, int rank)
{
    return event_nth(&run->traces.of[rank], "device", 0);
}

static int device_number(const Run *run, int rank, const char *field)
{
    return event_int(device_event(run, rank), field);
}

// On a GPU machine there may be fewer devices than workers. Then those beyond the last one share,
// and what counts is the device that each would take where there are enough.
static bool devices_are_shared(const Run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (device_number(run, r, "devices") < run_local_size(run, r))
            return true;
    return false;
}

// The number that the rank asked for, or -1.
static int wanted_device(const Run *run, int rank)
{
    const cJSON *use = event_last(&run->traces.of[rank], "device_use");
    return use ? event_int(use, "device") : -1;
}

// Where the rank asked only after something had used a device, nothing changed.
static bool asked_too_late(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int asked = event_find(events, "device_use", 0);
    return asked >= 0 && asked > event_find(events, "device", 0);
}

static int device_of(const Run *run, int rank)
{
    if (devices_are_shared(run))
        return wanted_device(run, rank) < 0 ? 0 : wanted_device(run, rank);
    return device_number(run, rank, "device");
}

// The cores of a device on the rank's machine, as "0-3"; the caller frees it.
static char *cores_of_device(const Run *run, int rank, int device)
{
    const char *at = event_text(device_event(run, rank), "shares");
    for (int i = 0; i < device && *at; i++)
        at += strcspn(at, ";") + (at[strcspn(at, ";")] == ';');
    return format_text("%.*s", (int)strcspn(at, ";"), at);
}

// Whether the program has moved itself, by the operating system's means and after the library did,
// to the cores of the device with its local rank: then it is where it should be.
static bool moved_itself_there(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int moved = event_find(events, "affinity", 0);
    if (moved < 0 || moved < event_find(events, "device", 0))
        return false;
    char *cores = cores_of_device(run, rank, run_local_rank(run, rank));
    const char *at = event_text(event_nth(events, "first_step", 0), "cores");
    bool there = *cores && strcmp(cores, at) == 0;
    free(cores);
    return there;
}

static bool is_right(const Run *run, int rank)
{
    return device_of(run, rank) == run_local_rank(run, rank) || moved_itself_there(run, rank);
}

// How the rank came by its device, where that isn't plain; the caller frees it.
static char *choice_words(const Run *run, int rank)
{
    int calls = event_count(&run->traces.of[rank], "device_use"), wanted = wanted_device(run, rank);
    if (calls == 0)
        return format_text(", not chosen by the program");
    int devices = event_int(device_event(run, rank), "devices");
    if (wanted != device_of(run, rank) && wanted >= devices)
        return format_text(" (it called device_use(%d), and its host has %d device%s)", wanted,
                           devices, devices == 1 ? "" : "s");
    if (wanted != device_of(run, rank))
        return format_text(" (it called device_use(%d))", wanted);
    return calls > 1 ? format_text(" (by the last of %d calls)", calls) : format_text("%s", "");
}

static char *device_evidence(const Run *run)
{
    char *evidence = NULL;
    int hosts = 0;
    RankSet heads = first_on_hosts(run, all_ranks(run->ranks));
    for (int first = 0; first < run->ranks; first++) {
        if (!has_rank(heads, first))
            continue; // its host has had its line
        const char *separator = ": ";
        text_add(&evidence, "%shost %c, as the check simulates it", hosts ? "\n" : "", 'A' + hosts);
        hosts++;
        for (int r = first; r < run->ranks; r++) {
            if (!same_host(run, r, first))
                continue;
            char *choice = choice_words(run, r);
            text_add(&evidence, "%srank %d (local rank %d) %s device %d%s", separator, r,
                     run_local_rank(run, r), devices_are_shared(run) ? "asks for" : "on",
                     device_of(run, r), choice);
            free(choice);
            separator = ", ";
        }
    }
    return evidence;
}

// ---- Ways to get a wrong number.

FORMULA(rank_by_local_size, cell.rank / run_local_size(cell.row->run, cell.rank))

static const Hypothesis by_rank[] = {
    {its_rank, &d_pinned_by_rank, .by_ranks = 0},
    {rank_modulo_local_size, &d_pinned_by_rank, .by_ranks = 0},
    {rank_modulo_nodes, &d_pinned_by_rank, .by_ranks = 0},
    {rank_by_nodes, &d_pinned_by_rank, .by_ranks = 0},
    {rank_by_local_size, &d_pinned_by_rank, .by_ranks = 0},
    {rank_modulo_number, &d_pinned_by_rank, .from = 2, .to = 8},
    {rank_by_number, &d_pinned_by_rank, .from = 2, .to = 8},
    {0},
};
static const Hypothesis all_on_0 = {.of = constant_zero};

// True where ranks with the same local rank asked for the same device, on all machines.
static bool depends_on_local_rank(const Runs *runs)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            for (int other = 0; other < r; other++)
                if (run_local_rank(run, r) == run_local_rank(run, other) &&
                    wanted_device(run, r) != wanted_device(run, other))
                    return false;
    return true;
}

static const Diagnosis *wrong_device(const Runs *runs, const Run *run, int rank)
{
    if (wanted_device(run, rank) < 0)
        return event_find(&run->traces.of[rank], "affinity", 0) < 0 ? &d_pin_missing
                                                                    : &d_pin_missing_bound_before;
    if (asked_too_late(run, rank))
        return &d_pinned_too_late;
    Rows rows = rows_of_ranks(runs, wanted_device);
    const Diagnosis *diagnosis = explains_rows(&all_on_0, &rows) ? &d_every_rank_on_device_0
                                 : depends_on_local_rank(runs)   ? NULL
                                                               : diagnosis_of_rows(by_rank, &rows);
    free(rows.items);
    return diagnosis ? diagnosis : &d_wrong_device;
}

// True where all are on the right one.
static bool judge_device(const Runs *runs, Report *report)
{
    bool shared = false;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        shared = shared || devices_are_shared(run);
        for (int r = 0; r < run->ranks; r++)
            if (!is_right(run, r))
                return report_failure(report, shared ? ASKS : OWN, wrong_device(runs, run, r),
                                      evidence_in(runs, run, device_evidence(run)));
    }
    return report_ok(report, shared ? ASKS : OWN);
}

static Fault cores_fault(const Run *run)
{
    char *evidence = NULL;
    for (int r = 0; r < run->ranks; r++) {
        const char *device = event_text(device_event(run, r), "cores");
        const char *step = event_text(event_nth(&run->traces.of[r], "first_step", 0), "cores");
        if (*step && strcmp(device, step) != 0 && !moved_itself_there(run, r))
            text_add(&evidence, "%srank %d: device %d has cores %s, the first step ran on %s",
                     evidence ? "\n" : "", r, device_number(run, r, "device"), device, step);
    }
    return evidence ? (Fault){&d_left_its_device, evidence} : NO_FAULT;
}

static bool leaves_early(const Events *events)
{
    int first_step = event_find(events, "first_step", 0);
    EACH (at, events, "call")
        if (at < first_step && event_has(events->items[at], "function", "hvd_shutdown"))
            return true;
    return false;
}

static Fault membership_fault(const Run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (leaves_early(&run->traces.of[r]))
            return fault_with(&d_left_the_job,
                              "rank %d called hvd_shutdown() before its first step", r);
    return NO_FAULT;
}

static void note_sharing(const Run *run, Report *report)
{
    int devices = device_number(run, 0, "devices");
    if (devices_are_shared(run))
        report_note(report,
                    "each machine that the check simulates has %d GPU%s for up to %d workers, who "
                    "share: that each works\non a device of its own can't be seen here",
                    devices, devices == 1 ? "" : "s", run_local_size(run, 0));
}

static void judge(const Runs *runs, Report *report)
{
    if (!all_ranks_have(runs, "init", JOINS, &d_init_missing, "called hvd_init()", report))
        return;
    judge_property(runs, JOINS, membership_fault, report);
    if (judge_device(runs, report))
        judge_property(runs, STAYS, cores_fault, report);
    note_sharing(&runs->items[0], report);
}

JUDGE("step_01", judge)
ENDS("step_01", &six_steps)
