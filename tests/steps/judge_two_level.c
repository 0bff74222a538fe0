// two_level: the values are added up within each host, then between the hosts, and the sums are
// distributed within each host. So no host sends more to the others than one rank in a ring of
// hosts.

#include "sums.h"
#include "diagnoses/judge_two_level.h"

#include <stdlib.h>
#include <string.h>
#include "base/layout.h"

#define MESSAGES "between hosts values travel by messages, or in an all-reduce of first workers"
#define AMOUNT   "no host sends others more than 2 (H - 1) / H of the data, of H hosts"

// ---- Hosts. A host stands for itself by its first rank.

static bool is_first(const Run *run, int rank)
{
    return run_local_rank(run, rank) == 0;
}

// Bytes that a rank sends to other hosts. An all-reduce of ranks of different hosts counts as a ring.
static double sent_away_by(const SumCall *call, int rank)
{
    double bytes = call->as_ring[rank];
    for (int to = 0; to < call->run->ranks; to++)
        if (!same_host(call->run, rank, to))
            bytes += call->sent[rank][to];
    return bytes;
}

typedef struct {
    double bytes;  // that it sends to other hosts
    RankSet ranks; // that are on it,
    RankSet away;  // and those of them that send to other hosts
    int messages;  // all that they send
} Host;

static Host host_of(const SumCall *call, int first)
{
    Host host = {0};
    for (int r = 0; r < call->run->ranks; r++) {
        if (!same_host(call->run, first, r))
            continue;
        double bytes = sent_away_by(call, r);
        host.bytes += bytes;
        host.ranks |= 1u << r;
        host.away |= bytes > 0 ? 1u << r : 0;
        host.messages += call->messages[r];
    }
    return host;
}

static double sent_between_hosts(const SumCall *call)
{
    double bytes = 0;
    for (int r = 0; r < call->run->ranks; r++)
        bytes += sent_away_by(call, r);
    return bytes;
}

// What a ring of all ranks in their order sends to other hosts.
static double flat_between_hosts(const SumCall *call)
{
    const Run *run = call->run;
    double ranks = run->ranks, bytes = 0;
    for (int r = 0; r < run->ranks; r++)
        if (!same_host(run, r, (r + 1) % run->ranks))
            bytes += 2 * (ranks - 1) / ranks * bytes_of_values(call);
    return bytes;
}

// ---- Wrong sums.

// `own`: of its own host, each rank so often; `others`: of the others.
static bool has_host_times(const SumCall *call, const SumParts *parts, int rank, int own,
                           int others)
{
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != (same_host(call->run, r, rank) ? own : others))
            return false;
    return !parts->divisor;
}

static bool is_of_own_host(const SumCall *call, const SumParts *parts, int rank)
{
    return has_host_times(call, parts, rank, 1, 0);
}

static bool lacks_own_host(const SumCall *call, const SumParts *parts, int rank)
{
    return has_host_times(call, parts, rank, 0, 1);
}

static bool is_of_own_host_or_of_own(const SumCall *call, const SumParts *parts, int rank)
{
    bool own = !parts->divisor;
    for (int r = 0; r < call->run->ranks; r++)
        own = own && parts->times[r] == (r == rank);
    return own || is_of_own_host(call, parts, rank);
}

// The sum of the first ranks; or the others have kept their own.
static bool is_of_firsts(const SumCall *call, const SumParts *parts, int rank)
{
    bool firsts = !parts->divisor, own = firsts;
    for (int r = 0; r < call->run->ranks; r++) {
        firsts = firsts && parts->times[r] == is_first(call->run, r);
        own = own && parts->times[r] == (r == rank);
    }
    return firsts || (own && !is_first(call->run, rank));
}

// Of the first ranks, and of the others of its own host.
static bool is_of_firsts_and_own_host(const SumCall *call, const SumParts *parts, int rank)
{
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != (is_first(call->run, r) || same_host(call->run, r, rank)))
            return false;
    return !parts->divisor;
}

// The sum of a host has come in once for each of its ranks, or for each of this rank's host.
static bool counts_hosts_again(const SumCall *call, const SumParts *parts, int rank)
{
    bool of_each = !parts->divisor, of_own = of_each;
    for (int r = 0; r < call->run->ranks; r++) {
        of_each = of_each && parts->times[r] == run_local_size(call->run, r);
        of_own = of_own && parts->times[r] == run_local_size(call->run, rank);
    }
    return of_each || of_own;
}

// Wrong sums are on ranks only that are not the first of their host.
static bool right_on_firsts(const SumCalls *calls)
{
    EACH_CALL (call, calls)
        for (int r = 0; r < call->run->ranks; r++)
            if (call->wrong[r] > 0 && is_first(call->run, r))
                return false;
    return true;
}

static bool has_firsts_twice(const SumCall *call, const SumParts *parts, int rank)
{
    (void)rank;
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != 1 + is_first(call->run, r))
            return false;
    return !parts->divisor;
}

// The others have come in with the sum of their host, and by themselves.
static bool has_others_twice(const SumCall *call, const SumParts *parts, int rank)
{
    (void)rank;
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != 2 - is_first(call->run, r))
            return false;
    return !parts->divisor;
}

// The sum has those of its own host once more, all but the first: they had brought their values.
static bool has_own_others_twice(const SumCall *call, const SumParts *parts, int rank)
{
    for (int r = 0; r < call->run->ranks; r++)
        if (parts->times[r] != 1 + (same_host(call->run, r, rank) && !is_first(call->run, r)))
            return false;
    return !parts->divisor;
}

// The whole sum, or before they were joined those of the hosts.
static bool is_divided_by_its_host(const SumCall *call, const SumParts *parts, int rank)
{
    return parts->divisor == HOST_MEANS || parts->divisor == run_local_size(call->run, rank);
}

static const Diagnosis *known_sums(const SumCalls *calls)
{
    if (wrong_sums_are(calls, is_divided_by_its_host))
        return &d_divided_by_host;
    if (right_on_firsts(calls))
        return &d_not_handed_out;
    if (some_values_are_right(calls))
        return NULL;
    if (wrong_sums_are(calls, is_of_own_host))
        return &d_hosts_not_joined;
    if (wrong_sums_are(calls, is_of_firsts))
        return &d_host_not_summed;
    if (wrong_sums_are(calls, is_of_firsts_and_own_host))
        return &d_hosts_joined_too_early;
    if (wrong_sums_are(calls, is_of_own_host_or_of_own))
        return &d_hosts_not_joined;
    if (wrong_sums_are(calls, lacks_own_host))
        return &d_own_host_missing;
    if (wrong_sums_are(calls, has_firsts_twice))
        return &d_own_part_twice;
    if (wrong_sums_are(calls, has_others_twice))
        return &d_others_counted_twice;
    if (wrong_sums_are(calls, has_own_others_twice))
        return &d_host_added_again;
    return wrong_sums_are(calls, counts_hosts_again) ? &d_hosts_counted_again : NULL;
}

// ---- Ways.

static bool is_allreduce(const cJSON *event)
{
    const char *function = event_text(event, "function");
    return strcmp(function, "MPI_Allreduce") == 0 || strcmp(function, "MPI_Iallreduce") == 0 ||
           strncmp(function, "MPI_Reduce_scatter", strlen("MPI_Reduce_scatter")) == 0;
}

static const Diagnosis *wrong_way(const SumCall *call)
{
    if (call->across_hosts > SLACK)
        return is_allreduce(call->across) ? &d_library_did_it : &d_collective_between_hosts;
    double least = 2 * (run_nodes(call->run) - 1) * bytes_of_values(call);
    return sent_between_hosts(call) + 1 < least && call->across_hosts == 0 ? &d_not_by_messages
                                                                           : NULL;
}

static char *way_evidence(const SumCall *call)
{
    char *evidence = call_words(call);
    if (call->across)
        text_add(&evidence, "\n%s is called with %.0f bytes among %s",
                 event_text(call->across, "function"), event_number(call->across, "bytes"),
                 rank_names(event_ranks(call->across, "ranks")).text);
    for (int r = 0; r < call->run->ranks; r++) {
        Host host = host_of(call, r);
        if (is_first(call->run, r))
            text_add(&evidence, "\n%s, with %s, sends %.0f bytes to other hosts",
                     node_name(run_node(call->run, r)).text, rank_names(host.ranks).text,
                     host.bytes);
    }
    return evidence;
}

// ---- Amounts.

// All ranks, in whatever order: each sends to one other, and the circle comes back to rank 0 when
// it has been everywhere.
static bool is_one_ring(const SumCall *call)
{
    int rank = 0, hops = 0;
    do {
        RankSet receivers = receivers_from(call, rank);
        if (rank_count(receivers) != 1)
            return false;
        for (rank = 0; !has_rank(receivers, rank);)
            rank++;
    } while (++hops < call->run->ranks && rank != 0);
    return rank == 0 && hops == call->run->ranks;
}

// What goes from host to host comes from one of them, or goes to it.
static bool is_star(const SumCall *call, int host)
{
    bool sent = false;
    for (int r = 0; r < call->run->ranks; r++)
        for (int to = 0; to < call->run->ranks; to++) {
            int from_host = run_node(call->run, r), to_host = run_node(call->run, to);
            if (from_host == to_host || call->sent[r][to] <= 0)
                continue;
            if (from_host != host && to_host != host)
                return false;
            sent = true;
        }
    return sent;
}

static bool goes_through_one_host(const SumCall *call)
{
    for (int r = 0; r < call->run->ranks; r++)
        if (is_star(call, run_node(call->run, r)))
            return true;
    return false;
}

static const Diagnosis *wrong_amount(const SumCall *call)
{
    double hosts = run_nodes(call->run), values = bytes_of_values(call);
    bool over = false, shared = false;
    for (int r = 0; r < call->run->ranks; r++) {
        Host host = host_of(call, r);
        double slack = 1 + (double)sizeof(float) * host.messages; // 1: for rounding
        over = over || host.bytes > 2 * (hosts - 1) / hosts * values + slack;
        shared = shared || rank_count(host.away) > 1;
    }
    if (!over)
        return NULL;
    if (is_one_ring(call))
        return &d_one_ring;
    if (hosts > 2 && goes_through_one_host(call) &&
        sent_between_hosts(call) <= 2 * (hosts - 1) * (values + SLACK))
        return &d_through_one_host;
    return shared ? &d_several_workers_between : &d_too_much_between_hosts;
}

static char *amount_evidence(const SumCall *call)
{
    double hosts = run_nodes(call->run);
    char *evidence = way_evidence(call);
    text_add(&evidence, "\n2 (H - 1) / H of the data, with %.0f hosts: %.0f bytes", hosts,
             2 * (hosts - 1) / hosts * bytes_of_values(call));
    text_add(&evidence,
             "\nall hosts together: %.0f bytes; a ring of all ranks in their order sends %.0f",
             sent_between_hosts(call), flat_between_hosts(call));
    if (call->as_ring[0] > 0)
        text_add(&evidence, "\nMPI_Allreduce is counted as what a ring of its ranks sends");
    return evidence;
}

static const CallRule way = {MESSAGES, wrong_way, way_evidence};
static const CallRule amount = {AMOUNT, wrong_amount, amount_evidence};

static void judge(const Runs *runs, Report *report)
{
    SumCalls calls = sum_calls(runs);
    if (judge_sums(runs, &calls, known_sums, report) && judge_use(runs, &calls, report) &&
        judge_calls(runs, &calls, &way, report))
        judge_calls(runs, &calls, &amount, report);
    sum_calls_free(&calls);
}

JUDGE("two_level", judge)
ENDS("two_level", &ends_of_sums)
