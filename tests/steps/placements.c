// Likely mistakes in finding the workers of a host; placements.h has the contract.

#include "placements.h"
#include "diagnoses/placements.h"

#include <string.h>
#include "base/layout.h"

// ---- Theories: whom a worker takes for those of its host.

static const Diagnosis *const diagnoses[THEORIES] = {
    [OF_JOB] = &d_all_on_one_host_hosts_not_told_apart,
    [ITSELF] = &d_each_alone,
    [OF_LONGER_NAMES] = &d_names_cut,
    [OF_SHORTER_NAMES] = &d_names_cut,
    [OF_LIKE_NAMES] = &d_names_cut,
    [OTHERS_OF_HOST] = &d_itself_not_counted,
    [UP_TO_ITSELF] = &d_counted_up_to_itself,
    [IN_A_ROW] = &d_ranks_in_a_row,
    [OF_SAME_LOCAL_RANK] = &d_group_across_hosts,
    [FIRSTS_FOR_FIRSTS] = &d_group_across_hosts,
    [FIRSTS_OF_HOSTS] = &d_hosts_counted,
    [HOST_OF_ROOT] = &d_host_of_the_root,
};

int first_on_host(const Run *run, int rank)
{
    int first = 0;
    while (!same_host(run, first, rank))
        first++;
    return first;
}

// Whether the name of the other rank's host begins with that of this one's.
static bool name_begins(const Run *run, int rank, int other)
{
    NodeName own = node_name(run_node(run, rank)), others = node_name(run_node(run, other));
    return strncmp(own.text, others.text, strlen(own.text)) == 0;
}

static bool belongs(Theory theory, const Run *run, int rank, int other)
{
    bool same = same_host(run, rank, other), is_first = run_local_rank(run, other) == 0;
    switch (theory) {
    case OF_HOST:
        return same;
    case OF_JOB:
        return true;
    case ITSELF:
        return other == rank;
    case OF_LONGER_NAMES:
        return name_begins(run, rank, other);
    case OF_SHORTER_NAMES:
        return name_begins(run, other, rank);
    case OF_LIKE_NAMES:
        return name_begins(run, rank, other) || name_begins(run, other, rank);
    case OTHERS_OF_HOST:
        return same && other != rank;
    case UP_TO_ITSELF:
        return same && other <= rank;
    case IN_A_ROW:
        return same && other - first_on_host(run, other) == run_local_rank(run, other);
    case OF_SAME_LOCAL_RANK:
        return same_local_rank(run, rank, other);
    case FIRSTS_FOR_FIRSTS:
        return is_first && run_local_rank(run, rank) == 0;
    case FIRSTS_OF_HOSTS:
        return is_first;
    case HOST_OF_ROOT:
        return same_host(run, 0, other);
    case OF_NOBODY:
    case THEORIES:
        break;
    }
    return false;
}

RankSet workers_by(Theory theory, const Run *run, int rank)
{
    RankSet ranks = 0;
    for (int r = 0; r < run->ranks; r++)
        ranks |= belongs(theory, run, rank, r) ? 1u << r : 0;
    return ranks;
}

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

bool fits_everywhere(const Runs *runs, Fits fits, Theory theory)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            if (!fits(run, r, workers_by(theory, run, r)))
                return false;
    return true;
}

// Right on rank 0 of every run, and wrong on all others where they are not alone.
static bool right_on_root_only(const Runs *runs, Fits fits)
{
    bool any = false;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++) {
            bool right = fits(run, r, workers_by(OF_HOST, run, r));
            if (r == 0 ? !right : right && run_local_size(run, r) > 1)
                return false;
            any = any || !right;
        }
    return any;
}

const Diagnosis *theory_of(const Runs *runs, Fits fits, const Diagnosis *other)
{
    for (Theory theory = OF_JOB; theory < THEORIES; theory++)
        if ((!other || diagnoses[theory] == other) && fits_everywhere(runs, fits, theory))
            return diagnoses[theory];
    return (!other || other == &d_only_on_the_root) && right_on_root_only(runs, fits)
               ? &d_only_on_the_root
               : NULL;
}
