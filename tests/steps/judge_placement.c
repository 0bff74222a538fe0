// placement: every worker knows the workers of its host. The trace has its answer, by
// show_placement; placements.c has the likely mistakes.

#include "end.h"
#include "hypotheses.h"
#include "placements.h"
#include "diagnoses/judge_placement.h"

#include <stdlib.h>
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
                       run_local_size(run, rank) == 1
                           ? "no other"
                           : rank_names(workers_by(OTHERS_OF_HOST, run, rank)).text);
}

// The group is these workers, in their order.
static bool fits_group(const Run *run, int rank, RankSet workers)
{
    char *expected = format_text("%s", "");
    for (int r = 0; r < run->ranks; r++)
        if (has_rank(workers, r))
            text_add(&expected, "%s%d", *expected ? "," : "", r);
    bool fits = event_has(claim_of(run, rank), "group", expected);
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
        if (part->fits(run, r, workers_by(OF_HOST, run, r)))
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
            int size = claimed(run, r, "local_size"), right = run_local_size(run, r);
            if (side < 0 ? size < right : size > right)
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

FORMULA(rank_modulo_even_share, cell.rank % (cell.row->ranks / run_nodes(cell.row->run)))

FORMULA(rank_after_first, cell.rank - first_on_host(cell.row->run, cell.rank))

static int claimed_local_rank(const Run *run, int rank)
{
    return claimed(run, rank, "local_rank");
}

static const Diagnosis *wrong_formula(const Runs *runs)
{
    int most = 0; // beyond it a remainder is the rank itself
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        most = run->ranks > most ? run->ranks : most;
    const Hypothesis known[] = {
        {rank_modulo_number, &d_computed_from_rank, .from = 2, .to = most - 1},
        {rank_modulo_local_size, &d_computed_from_rank, .by_ranks = 0},
        {rank_by_nodes, &d_computed_from_rank, .by_ranks = 0},
        {rank_modulo_nodes, &d_computed_from_rank, .by_ranks = 0},
        {rank_modulo_even_share, &d_computed_from_rank, .by_ranks = 0},
        {rank_after_first, &d_ranks_in_a_row, .by_ranks = 0},
        {0},
    };
    Rows rows = rows_of_ranks(runs, claimed_local_rank);
    const Diagnosis *diagnosis = diagnosis_of_rows(known, &rows);
    free(rows.items);
    return diagnosis;
}

static const Diagnosis *wrong_rank(const Runs *runs, const Diagnosis *other)
{
    const Diagnosis *formula = wrong_formula(runs);
    if (formula)
        return formula;
    const Diagnosis *theory = theory_of(runs, fits_rank, other);
    if (theory)
        return theory;
    return fits_everywhere(runs, fits_one_more, OF_HOST) ? &d_counted_from_one
                                                         : &d_local_rank_wrong;
}

static const Diagnosis *wrong_group(const Runs *runs, const Diagnosis *other)
{
    const Diagnosis *theory = theory_of(runs, fits_members, other);
    if (!other && theory == &d_all_on_one_host_hosts_not_told_apart)
        return &d_all_on_one_host;
    if (fits_everywhere(runs, fits_members, OF_HOST))
        return &d_other_order;
    if (fits_everywhere(runs, fits_members, OF_NOBODY))
        return &d_no_group;
    return theory ? theory : &d_group_wrong;
}

// ---- Devices.

static Fault device_fault(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const cJSON *use = event_last(&run->traces.of[r], "device_use");
        if (!use)
            return fault_with(&d_other_device, "rank %d asks for none", r);
        if (event_int(use, "device") != run_local_rank(run, r))
            return fault_with(&d_other_device, "rank %d, with local rank %d, asks for device %.0f",
                              r, run_local_rank(run, r), event_number(use, "device"));
    }
    return NO_FAULT;
}

static void judge(const Runs *runs, Report *report)
{
    static const Part size = {SIZE, "local_size", fits_size, wrong_size},
                      rank = {RANK, "local_rank", fits_rank, wrong_rank},
                      group = {GROUP, NULL, fits_group, wrong_group};
    if (!all_ranks_have(runs, "placement", SHOWN, &d_not_shown, "called it", report))
        return;
    report_ok(report, SHOWN);
    const Diagnosis *of_size = judge_part(runs, &size, NULL, report),
                    *of_rank = judge_part(runs, &rank, of_size, report);
    judge_part(runs, &group, of_size ? of_size : of_rank, report);
    if (!of_rank)
        judge_property(runs, DEVICE, device_fault, report);
}

JUDGE("placement", judge)
OWN_ENDS("placement",
         EXPLAINED({"MPI_ERR_ARG", &d_crashed_argument}, {"MPI_ERR_TRUNCATE", &d_crashed_too_long}))
