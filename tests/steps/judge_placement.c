// placement: every worker knows the workers of its host. The trace has its answer, by
// show_placement; placements.c has the likely mistakes.

#include "end.h"
#include "placements.h"
#include "diagnoses/judge_placement.h"

#include <stdlib.h>
#include <string.h>
#include "base/layout.h"
#include "base/format.h"

#define SHOWN  "every worker says where it is"
#define SIZE   "its local size is the number of workers on its host"
#define RANK   "its local rank is its number among them, in the order of their ranks"
#define GROUP  "its group is these workers, in the order of their ranks"
#define DEVICE "it asks for the device with its local rank"

// ---- Sizes, ranks, groups, one after another.

static char *host_words(const Run *run, int rank)
{
    return format_text("rank %d, on %s with %s", rank, node_name(run_node(run, rank)).text,
                       run_local_size(run, rank) == 1 ? "no other"
                                                      : rank_names(others_of_host(run, rank)).text);
}

// The group is these workers, in their order.
static bool fits_group(const Run *run, int rank, RankSet workers)
{
    char *expected = format_text("%s", "");
    for (int r = 0; r < run->ranks; r++)
        if (has_rank(workers, r)) {
            char *longer = format_text("%s%s%d", expected, *expected ? "," : "", r);
            free(expected);
            expected = longer;
        }
    bool fits = strcmp(event_text(claim_of(run, rank), "group"), expected) == 0;
    free(expected);
    return fits;
}

typedef struct {
    const char *property, *field;
    Fits fits;
    const Diagnosis *(*wrong)(const Runs *runs, const Diagnosis *other);
} Part;

static char *part_evidence(const Run *run, const Part *part)
{
    char *evidence = NULL;
    for (int r = 0; r < run->ranks; r++) {
        if (part->fits(run, r, of_host(run, r)))
            continue;
        char *host = host_words(run, r);
        text_add(&evidence, "%s%s: ", evidence ? "\n" : "", host);
        free(host);
        if (part->field)
            text_add(&evidence, "says %d", claimed(run, r, part->field));
        else
            text_add(&evidence, "%s%s",
                     *event_text(claim_of(run, r), "group") ? "has a group of " : "has no group",
                     event_text(claim_of(run, r), "group"));
    }
    return evidence;
}

// Its diagnosis; NULL: it is right. `other` is that of another part.
static const Diagnosis *judge_part(const Runs *runs, const Part *part, const Diagnosis *other,
                                   Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        char *evidence = part_evidence(run, part);
        if (!evidence)
            continue;
        const Diagnosis *diagnosis = part->wrong(runs, other);
        report_failure(report, part->property, diagnosis, evidence_in(runs, run, evidence));
        return diagnosis;
    }
    report_ok(report, part->property);
    return NULL;
}

// No claimed size is on that side of the true one, -1 below it, 1 above it.
static bool no_size_is(const Runs *runs, int side)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            int difference = claimed(run, r, "local_size") - run_local_size(run, r);
            if (difference * side > 0)
                return false;
        }
    return true;
}

static const Diagnosis *wrong_size(const Runs *runs, const Diagnosis *other)
{
    const Diagnosis *theory = theory_of(runs, fits_size, other);
    if (theory)
        return theory;
    return no_size_is(runs, 1)    ? &d_workers_missed
           : no_size_is(runs, -1) ? &d_other_hosts_counted
                                  : &d_local_size_wrong;
}

static bool fits_one_more(const Run *run, int rank, RankSet workers)
{
    return claimed(run, rank, "local_rank") == rank_count(workers & all_ranks(rank)) + 1;
}

typedef int (*Formula)(const Run *run, int rank);

static int rank_modulo_size(const Run *run, int rank)
{
    return rank % run_local_size(run, rank);
}

static int hosts_of(const Run *run)
{
    return rank_count(first_of_hosts(run, 0));
}

static int rank_by_hosts(const Run *run, int rank)
{
    return rank / hosts_of(run);
}

static int rank_modulo_hosts(const Run *run, int rank)
{
    return rank % hosts_of(run);
}

static int rank_modulo_even_share(const Run *run, int rank)
{
    return rank % (run->ranks / hosts_of(run));
}

static int rank_after_first(const Run *run, int rank)
{
    int first = 0;
    while (!same_host(run, first, rank))
        first++;
    return rank - first;
}

// rank % 2, rank % 3, ...: a number that stands in the program.
static bool is_modulo_of_a_number(const Runs *runs)
{
    for (int number = 2; number <= MAX_RANKS; number++) {
        bool fits = true, wraps = false;
        for (const Run *run = runs->items; run < runs_end(runs); run++)
            for (int r = 0; r < run->ranks; r++) {
                fits = fits && claimed(run, r, "local_rank") == r % number;
                wraps = wraps || r >= number;
            }
        if (fits && wraps)
            return true;
    }
    return false;
}

static bool is_formula(const Runs *runs, Formula formula)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            if (claimed(run, r, "local_rank") != formula(run, r))
                return false;
    return true;
}

// Among the workers of each host the local ranks are 0, 1, ... in some order.
static bool is_another_order(const Runs *runs)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            RankSet taken = 0;
            for (int other = 0; other < run->ranks; other++)
                if (same_host(run, r, other) && claimed(run, other, "local_rank") >= 0 &&
                    claimed(run, other, "local_rank") < MAX_RANKS)
                    taken |= 1u << claimed(run, other, "local_rank");
            if (taken != all_ranks(run_local_size(run, r)))
                return false;
        }
    return true;
}

static const Diagnosis *wrong_rank(const Runs *runs, const Diagnosis *other)
{
    static const Formula formulas[] = {rank_modulo_size, rank_by_hosts, rank_modulo_hosts,
                                       rank_modulo_even_share};
    if (is_modulo_of_a_number(runs))
        return &d_computed_from_rank;
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        if (is_formula(runs, formulas[i]))
            return &d_computed_from_rank;
    if (is_formula(runs, rank_after_first))
        return &d_ranks_in_a_row;
    const Diagnosis *theory = theory_of(runs, fits_rank, other);
    if (theory)
        return theory;
    if (fits_everywhere(runs, fits_one_more, of_host))
        return &d_counted_from_one;
    return is_another_order(runs) ? &d_other_order_of_numbers : &d_local_rank_wrong;
}

static const Diagnosis *wrong_group(const Runs *runs, const Diagnosis *other)
{
    const Diagnosis *theory = theory_of(runs, fits_members, other);
    if (!other && theory == &d_all_on_one_host_hosts_not_told_apart)
        return &d_all_on_one_host;
    if (fits_everywhere(runs, fits_members, of_host))
        return &d_other_order_of_the_group;
    if (fits_everywhere(runs, fits_members, of_nobody))
        return &d_no_group;
    return theory ? theory : &d_group_wrong;
}

static bool none_shown(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet shown = ranks_with(&run->traces, "placement");
        if (shown == all_ranks(run->ranks))
            continue;
        report_failure_in(report, runs, run, SHOWN, &d_not_shown, "%s of %d called it",
                          rank_names(shown).text, run->ranks);
        return true;
    }
    report_ok(report, SHOWN);
    return false;
}

// ---- Devices.

static bool judge_devices(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            const cJSON *use = event_last(&run->traces.of[r], "device_use");
            if (use && event_int(use, "device") == run_local_rank(run, r))
                continue;
            char *evidence =
                use ? format_text("rank %d, with local rank %d, asks for device %.0f", r,
                                  run_local_rank(run, r), event_number(use, "device"))
                    : format_text("rank %d asks for none", r);
            return report_failure(report, DEVICE, &d_other_device,
                                  evidence_in(runs, run, evidence));
        }
    return report_ok(report, DEVICE);
}

static void judge(const Runs *runs, Report *report)
{
    static const Part size = {SIZE, "local_size", fits_size, wrong_size},
                      rank = {RANK, "local_rank", fits_rank, wrong_rank},
                      group = {GROUP, NULL, fits_group, wrong_group};
    if (none_shown(runs, report))
        return;
    const Diagnosis *of_size = judge_part(runs, &size, NULL, report),
                    *of_rank = judge_part(runs, &rank, of_size, report);
    judge_part(runs, &group, of_size ? of_size : of_rank, report);
    if (!of_rank)
        judge_devices(runs, report);
}

// ---- Where a run ends early.

static const Explanation explanations[] = {
    {"MPI_ERR_ARG", &d_crashed_argument},
    {"MPI_ERR_TRUNCATE", &d_crashed_too_long},
    {"MPI_ERR_COMM", &d_crashed_no_communicator},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("placement", judge)
ENDS("placement", &ends)
