// Likely mistakes in finding the workers of a host; placements.h has the contract.

#include "placements.h"

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

const Diagnosis taken_together = {
    "all-on-one-host",
    "the workers of all hosts are taken together, as if they were on one. The names of the hosts "
    "tell them apart.",
    NULL};
static const Diagnosis alone = {
    "each-alone",
    "every worker is in a group of its own, even if others are on its host. Often names are "
    "compared as pointers, or each worker has a color of its own.",
    NULL};
static const Diagnosis cut = {
    "names-cut",
    "a host whose name begins with another host's name is taken for that host: node-1 and node-12. "
    "Compare the whole names, with the zero that ends them.",
    NULL};
static const Diagnosis itself_missing = {
    "itself-not-counted", "a worker counts the others of its host, and not itself.", NULL};
static const Diagnosis stopped = {"counted-up-to-itself",
                                  "a worker counts only up to its own rank, as for the local rank. "
                                  "Workers with higher ranks are on its host, too.",
                                  NULL};
static const Diagnosis of_root = {
    "host-of-the-root",
    "every worker counts those on the root's host. Each has to compare with the name of its own.",
    NULL};
static const Diagnosis across = {
    "group-across-hosts",
    "the group has one worker of each host, those with the same local rank. It should have the "
    "workers of one host: pass a color that they all share.",
    NULL};

const Diagnosis taken_in_a_row = {
    "ranks-in-a-row",
    "the workers of a host are taken for ranks that follow each other. Who starts a job may deal "
    "them in any order.",
    NULL};
static const Diagnosis hosts_counted = {
    "hosts-counted", "it is the number of hosts, not that of the workers on one of them.", NULL};

typedef struct {
    RankSet (*ranks)(const Run *run, int rank);
    const Diagnosis *diagnosis;
} Theory;

static const Theory theories[] = {{of_job, &taken_together},
                                  {of_itself, &alone},
                                  {of_longer_names, &cut},
                                  {of_shorter_names, &cut},
                                  {of_like_names, &cut},
                                  {others_of_host, &itself_missing},
                                  {up_to_itself, &stopped},
                                  {in_a_row, &taken_in_a_row},
                                  {of_same_local_rank, &across},
                                  {firsts_for_firsts, &across},
                                  {first_of_hosts, &hosts_counted},
                                  {host_of_root, &of_root}};
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

static const Diagnosis on_root = {
    "only-on-the-root",
    "it is right on rank 0, and wrong on the others. Often the names came to the root alone: all "
    "workers need all of them.",
    NULL};

const Diagnosis *theory_of(const Runs *runs, Fits fits, const Diagnosis *other)
{
    for (int i = 0; i < THEORIES; i++)
        if ((!other || theories[i].diagnosis == other) &&
            fits_everywhere(runs, fits, theories[i].ranks))
            return theories[i].diagnosis;
    return (!other || other == &on_root) && right_on_root_only(runs, fits) ? &on_root : NULL;
}
