// two_level: the values are added up within each host, then between the hosts, and the sums are
// distributed within each host. So no host sends more to the others than one rank in a ring of
// hosts.

#include "sums.h"
#include "diagnoses/judge_two_level.h"

#include <string.h>
#include "base/layout.h"

#define MESSAGES "between hosts values travel by messages, or in an all-reduce of first workers"
#define AMOUNT   "no host sends others more than 2 (H - 1) / H of the data, of H hosts"

// ---- Hosts. A host stands for itself by its first rank.

// Bytes that a rank sends to other hosts. An all-reduce of ranks of different hosts counts as a ring.
static double sent_away_by(const SumCall *call, int rank)
{
    double bytes = call->as_ring[rank];
    for (int to = 0; to < call->run->ranks; to++)
        bytes += same_host(call->run, rank, to) ? 0 : call->sent[rank][to];
    return bytes;
}

typedef struct {
    double bytes;  // that it sends to other hosts
    RankSet ranks; // that are on it,
    RankSet away;  // and those of them that send to other hosts
    int messages;  // all that they send
} Host;

static Host host_of(const SumCall *call, int rank)
{
    Host host = {0};
    for (int r = 0; r < call->run->ranks; r++) {
        if (!same_host(call->run, rank, r))
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
    double ranks = call->run->ranks, hops = 0;
    for (int r = 0; r < call->run->ranks; r++)
        hops += !same_host(call->run, r, (r + 1) % call->run->ranks);
    return hops * 2 * (ranks - 1) / ranks * bytes_of_values(call);
}

// ---- Wrong sums.

static RankSet firsts(const Run *run)
{
    return first_on_hosts(run, all_ranks(run->ranks));
}

static const struct {
    const char *kind, *or_kind; // how often each rank's values are in the sum (sums.h)
    const Diagnosis *diagnosis;
} kinds[] = {
    {"11 11 00", NULL, &d_hosts_not_joined},
    {"10 10 10", "-1 00 00", &d_host_not_summed}, // or a rank that is no first one has kept its own
    {"11 11 10", NULL, &d_hosts_joined_too_early},
    {"11 11 00", "11 00 00", &d_hosts_not_joined},
    {"00 00 11", NULL, &d_own_host_missing},
    {"21 21 21", NULL, &d_own_part_twice},
    {"12 12 12", NULL, &d_others_counted_twice},
    {"12 12 11", NULL, &d_host_added_again},
    {"ss ss ss", "oo oo oo", &d_hosts_counted_again},
};

static const Diagnosis *known_sums(const SumCalls *calls)
{
    if (wrong_sums_are(calls, "/host", NULL))
        return &d_divided_by_host;
    if (right_on(calls, firsts))
        return &d_not_handed_out;
    if (some_values_are_right(calls))
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (wrong_sums_are(calls, kinds[i].kind, kinds[i].or_kind))
            return kinds[i].diagnosis;
    return NULL;
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
    return sent_between_hosts(call) + 1 < least && call->across_hosts == 0
               ? &d_not_by_messages_between_hosts
               : NULL;
}

static char *way_evidence(const SumCall *call)
{
    char *evidence = call_words(call);
    if (call->across)
        text_add(&evidence, "\n%s is called with %.0f bytes among %s",
                 event_text(call->across, "function"), event_number(call->across, "bytes"),
                 rank_names(event_ranks(call->across, "ranks")).text);
    if (call->across_hosts > SLACK) // MPI decides what that call sends to other hosts
        return evidence;
    for (int r = 0; r < call->run->ranks; r++) {
        Host host = host_of(call, r);
        if (has_rank(firsts(call->run), r))
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

// What goes from host to host, of several, comes from one of them, or goes to it.
static bool goes_through_one_host(const SumCall *call)
{
    RankSet all = all_ranks(call->run->ranks), ends = all; // the ranks of hosts at an end of each
    for (int r = 0; r < call->run->ranks; r++)
        for (int to = 0; to < call->run->ranks; to++)
            if (!same_host(call->run, r, to) && call->sent[r][to] > 0)
                ends &= host_of(call, r).ranks | host_of(call, to).ranks;
    return ends != 0 && ends != all;
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
