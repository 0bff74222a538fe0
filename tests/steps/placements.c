// Likely mistakes in finding the workers of a host; placements.h has the contract.

#include "placements.h"
#include "diagnoses/placements.h"

#include <string.h>
#include "base/layout.h"

// ---- The right answer and the likely mistakes, for each rank.

static RankSet all_that(const Run *run, int rank, bool (*holds)(const Run *, int, int))
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        ranks |= holds(run, rank, r) ? 1u << r : 0;
    return ranks;
}

RankSet of_host(const Run *run, int rank)
{
    return all_that(run, rank, same_host);
}

static RankSet of_job(const Run *run, int rank)
{
    (void)rank;
    return all_ranks(run->ranks);
}

static RankSet of_itself(const Run *run, int rank)
{
    (void)run;
    return 1u << rank;
}

RankSet of_nobody(const Run *run, int rank)
{
    (void)run, (void)rank;
    return 0;
}

// The names of hosts are "node-1" and "node-12": as long as this rank's, or as the other's, or as
// the shorter of both they are the same.
static bool name_begins(const Run *run, int rank, int other)
{
    NodeName own = node_name(run_node(run, rank)), others = node_name(run_node(run, other));
    return strncmp(own.text, others.text, strlen(own.text)) == 0;
}

static bool is_begun(const Run *run, int rank, int other)
{
    return name_begins(run, other, rank);
}

static bool either_begins(const Run *run, int rank, int other)
{
    return name_begins(run, rank, other) || is_begun(run, rank, other);
}

static RankSet of_longer_names(const Run *run, int rank)
{
    return all_that(run, rank, name_begins);
}

static RankSet of_shorter_names(const Run *run, int rank)
{
    return all_that(run, rank, is_begun);
}

static RankSet of_like_names(const Run *run, int rank)
{
    return all_that(run, rank, either_begins);
}

static RankSet of_same_local_rank(const Run *run, int rank)
{
    return all_that(run, rank, same_local_rank);
}

RankSet others_of_host(const Run *run, int rank)
{
    return of_host(run, rank) & ~(1u << rank);
}

static RankSet up_to_itself(const Run *run, int rank)
{
    return of_host(run, rank) & all_ranks(rank + 1);
}

static RankSet host_of_root(const Run *run, int rank)
{
    (void)rank;
    return of_host(run, 0);
}

// From the first of its host on, as long as no rank of another one comes in between.
static RankSet in_a_row(const Run *run, int rank)
{
    RankSet host = of_host(run, rank), row = 0;
    for (int r = 0; r < run->ranks; r++)
        if (has_rank(host, r))
            row |= 1u << r;
        else if (row)
            break;
    return row;
}

RankSet first_of_hosts(const Run *run, int rank)
{
    (void)rank;
    RankSet firsts = 0;
    for (int r = 0; r < run->ranks; r++)
        firsts |= run_local_rank(run, r) == 0 ? 1u << r : 0;
    return firsts;
}

static RankSet firsts_for_firsts(const Run *run, int rank)
{
    return run_local_rank(run, rank) == 0 ? first_of_hosts(run, rank) : 0;
}

// ---- Theories: the workers whom it takes for its own.

typedef struct {
    RankSet (*ranks)(const Run *run, int rank);
    const Diagnosis *diagnosis;
} Theory;

static const Theory theories[] = {{of_job, &d_all_on_one_host_hosts_not_told_apart},
                                  {of_itself, &d_each_alone},
                                  {of_longer_names, &d_names_cut},
                                  {of_shorter_names, &d_names_cut},
                                  {of_like_names, &d_names_cut},
                                  {others_of_host, &d_itself_not_counted},
                                  {up_to_itself, &d_counted_up_to_itself},
                                  {in_a_row, &d_ranks_in_a_row},
                                  {of_same_local_rank, &d_group_across_hosts},
                                  {firsts_for_firsts, &d_group_across_hosts},
                                  {first_of_hosts, &d_hosts_counted},
                                  {host_of_root, &d_host_of_the_root}};
enum { THEORIES = sizeof theories / sizeof *theories };

// ---- What the workers say.

const cJSON *claim_of(const Run *run, int rank)
{
    return event_last(&run->traces.of[rank], "placement");
}

int claimed(const Run *run, int rank, const char *field)
{
    return event_int(claim_of(run, rank), field);
}

bool fits_size(const Run *run, int rank, RankSet workers)
{
    return claimed(run, rank, "local_size") == rank_count(workers);
}

bool fits_rank(const Run *run, int rank, RankSet workers)
{
    return claimed(run, rank, "local_rank") == rank_count(workers & all_ranks(rank));
}

bool fits_members(const Run *run, int rank, RankSet workers)
{
    return event_ranks(claim_of(run, rank), "group") == workers;
}

bool fits_everywhere(const Runs *runs, Fits fits, RankSet (*workers)(const Run *run, int rank))
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            if (!fits(run, r, workers(run, r)))
                return false;
    return true;
}

// Right on rank 0 of every run, and wrong on all others where they are not alone.
static bool right_on_root_only(const Runs *runs, Fits fits)
{
    bool any = false;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            bool right = fits(run, r, of_host(run, r));
            if (r == 0 ? !right : right && run_local_size(run, r) > 1)
                return false;
            any = any || !right;
        }
    return any;
}

const Diagnosis *theory_of(const Runs *runs, Fits fits, const Diagnosis *other)
{
    for (int i = 0; i < THEORIES; i++)
        if ((!other || theories[i].diagnosis == other) &&
            fits_everywhere(runs, fits, theories[i].ranks))
            return theories[i].diagnosis;
    return (!other || other == &d_only_on_the_root) && right_on_root_only(runs, fits)
               ? &d_only_on_the_root
               : NULL;
}
