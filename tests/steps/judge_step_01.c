// Step 1: every rank joins the job, and works on a device of its own.

#include "judge.h"

#include <string.h>

#define JOINS   "every rank joins the job"
#define CHOOSES "every rank chooses its device before it uses one"
#define OWN     "every rank works on the device with its local rank"
#define ASKS    "every rank asks for the device with its local rank"
#define STAYS   "and computes there"

static bool judge_init(const Run *run, Report *report)
{
    static const Diagnosis init_missing = {
        "init-missing",
        "hvd_init() is missing. Without it the processes that mpirun started know "
        "nothing of each other.",
        0};
    RankSet joined = ranks_with(run->events, "init");
    if (joined == ALL_RANKS) {
        report_ok(report, JOINS);
        return true;
    }
    char *evidence = NULL;
    text_add(&evidence, "%s of %d called hvd_init()", rank_names(joined).text, RANKS);
    report_failure(report, JOINS, &init_missing, evidence);
    return false;
}

// The ranks whose first device_use comes before the first use of a device.
static RankSet ranks_in_time(const Run *run)
{
    RankSet ranks = 0;
    for (int r = 0; r < RANKS; r++) {
        int chosen = event_find(&run->events[r], "device_use", 0);
        int used = event_find(&run->events[r], "device", 0);
        if (chosen >= 0 && used >= 0 && chosen < used)
            ranks |= 1u << r;
    }
    return ranks;
}

static void judge_choice(const Run *run, Report *report)
{
    static const Diagnosis missing = {
        "pin-missing",
        "device_use() is missing. A process that doesn't choose works on device 0, "
        "whoever else does.",
        0};
    static const Diagnosis too_late = {
        "pinned-too-late",
        "device_use() comes after something has already used a device (compile() "
        "does). Choose the device right after hvd_init().",
        0};
    RankSet choosing = ranks_with(run->events, "device_use"), in_time = ranks_in_time(run);
    char *evidence = NULL;
    if (in_time == ALL_RANKS) {
        report_ok(report, CHOOSES);
    } else if (choosing != ALL_RANKS) {
        text_add(&evidence, "%s chose no device", rank_names(ALL_RANKS & ~choosing).text);
        report_failure(report, CHOOSES, &missing, evidence);
    } else {
        text_add(&evidence, "%s called device_use() after the device was in use",
                 rank_names(ALL_RANKS & ~in_time).text);
        report_failure(report, CHOOSES, &too_late, evidence);
    }
}

// ---- Which device.

static int used_number(const Run *run, int rank, const char *field)
{
    return (int)event_number(event_nth(&run->events[rank], "device", 0), field);
}

static int start_number(const Run *run, int rank, const char *field)
{
    return (int)event_number(event_nth(&run->events[rank], "start", 0), field);
}

// On a GPU machine there may be fewer devices than workers. Then those beyond the last one share,
// and what counts is the device that each would take where there are enough.
static bool devices_are_shared(const Run *run)
{
    for (int r = 0; r < RANKS; r++)
        if (used_number(run, r, "devices") < start_number(run, r, "local_size"))
            return true;
    return false;
}

static int wanted_device(const Run *run, int rank)
{
    const cJSON *use = event_last(&run->events[rank], "device_use");
    return use ? (int)event_number(use, "device") : 0;
}

static int device_of(const Run *run, int rank)
{
    return devices_are_shared(run) ? wanted_device(run, rank) : used_number(run, rank, "device");
}

static char *device_evidence(const Run *run)
{
    char *evidence = NULL;
    int nodes = start_number(run, 0, "nodes");
    for (int node = 0; node < nodes; node++) {
        const char *separator = ": ";
        text_add(&evidence, "%smachine %d of %d, as the check pretends", node ? "\n" : "", node,
                 nodes);
        for (int r = 0; r < RANKS; r++) {
            if (start_number(run, r, "node") != node)
                continue;
            text_add(&evidence, "%srank %d (local rank %d) %s device %d", separator, r,
                     start_number(run, r, "local_rank"),
                     devices_are_shared(run) ? "asks for" : "on", device_of(run, r));
            separator = ", ";
        }
    }
    return evidence;
}

// True where every rank asked for the device that `expected` gives for it.
static bool all_asked_for(const Run *run, int (*expected)(int rank, int local_size))
{
    for (int r = 0; r < RANKS; r++) {
        const cJSON *use = event_last(&run->events[r], "device_use");
        if (!use ||
            (int)event_number(use, "device") != expected(r, start_number(run, r, "local_size")))
            return false;
    }
    return true;
}

static int by_rank(int rank, int local_size)
{
    (void)local_size;
    return rank;
}

static int by_rank_modulo(int rank, int local_size)
{
    return rank % local_size;
}

static bool all_on_device_0(const Run *run)
{
    for (int r = 0; r < RANKS; r++)
        if (device_of(run, r) != 0)
            return false;
    return true;
}

static const Diagnosis *wrong_device(const Run *run)
{
    static const Diagnosis by_rank_diagnosis = {
        "pinned-by-rank",
        "the device comes from hvd_rank(), or another number that counts through all "
        "machines. The devices of each machine are numbered from 0, as its ranks are by "
        "hvd_local_rank(). (The check pretends two machines, by HVD_RANKS_PER_NODE=2.)",
        0};
    static const Diagnosis on_0 = {"every-rank-on-device-0",
                                   "all ranks work on device 0, and share it. The file is the same "
                                   "for all of them; hvd_local_rank() is not.",
                                   0};
    static const Diagnosis wrong = {
        "wrong-device", "a rank's device is the one whose number is hvd_local_rank().", 0};
    if (all_on_device_0(run))
        return &on_0;
    if (all_asked_for(run, by_rank) || all_asked_for(run, by_rank_modulo))
        return &by_rank_diagnosis;
    return &wrong;
}

static void judge_device(const Run *run, Report *report)
{
    const char *property = devices_are_shared(run) ? ASKS : OWN;
    for (int r = 0; r < RANKS; r++)
        if (device_of(run, r) != start_number(run, r, "local_rank")) {
            report_failure(report, property, wrong_device(run), device_evidence(run));
            return;
        }
    report_ok(report, property);
}

static void judge_cores(const Run *run, Report *report)
{
    static const Diagnosis left = {
        "left-its-device",
        "something moved the process to other cores after the device was chosen.", 0};
    char *evidence = NULL;
    for (int r = 0; r < RANKS; r++) {
        const char *device = event_text(event_nth(&run->events[r], "device", 0), "cores");
        const char *step = event_text(event_nth(&run->events[r], "first_step", 0), "cores");
        if (strcmp(device, step) != 0)
            text_add(&evidence, "%srank %d: device %d has cores %s, the first step ran on %s",
                     evidence ? "\n" : "", r, used_number(run, r, "device"), device, step);
    }
    if (evidence)
        report_failure(report, STAYS, &left, evidence);
    else
        report_ok(report, STAYS);
}

static void note_sharing(const Run *run, Report *report)
{
    int devices = used_number(run, 0, "devices"), workers = start_number(run, 0, "local_size");
    if (devices_are_shared(run))
        report_note(
            report,
            "each machine that the check pretends has %d GPU%s for %d workers, who share: that "
            "each works\non a device of its own can't be seen here",
            devices, devices == 1 ? "" : "s", workers);
}

void judge_step_1(const Run *run, Report *report)
{
    if (!judge_init(run, report))
        return;
    judge_choice(run, report);
    judge_device(run, report);
    judge_cores(run, report);
    note_sharing(run, report);
}
