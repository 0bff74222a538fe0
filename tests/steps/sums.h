// What the checks of an all-reduce have in common: what each call of it did, in the sweep and in
// training, on every rank; and whether the sums are right, everywhere the same, and of use.

#ifndef HVDLAB_STEPS_SUMS_H
#define HVDLAB_STEPS_SUMS_H

#include "end.h"
#include "judge.h"

// One call of the all-reduce, on all ranks of a run.
typedef struct {
    const Run *run;
    int trial;                         // in the sweep, from 1; 0: in training
    int count;                         // floats on each rank
    int wrong[MAX_RANKS];              // of a trial: sums that are wrong,
    int behind[MAX_RANKS];             // values behind the array that were changed,
    const char *samples[MAX_RANKS];    // "PLACE:VALUE", some of the wrong sums,
    const char *bits[MAX_RANKS];       // a hash of all
    double sent[MAX_RANKS][MAX_RANKS]; // bytes, by whom and to whom
    int messages[MAX_RANKS];           // by whom they were sent
    RankSet from_any, from_named; // who received from MPI_ANY_SOURCE; from a rank that it names
    bool on_world;                // one of them was sent on MPI_COMM_WORLD
    double across_hosts;          // bytes that collective calls were made with, by one rank,
    const cJSON *across;          // among ranks of several hosts; the first such call
    double as_ring[MAX_RANKS];    // bytes that a ring would send in place of all-reduces in which
                                  // no two ranks share a host; across_hosts lacks these
    int first_request[MAX_RANKS]; // of what a rank began in the background; 0: none
    int unawaited[MAX_RANKS];     // of that, what it had not waited for when the call returned
} SumCall;

// Those of all runs, in their order.
typedef struct {
    SumCall *items;
    int count;
} SumCalls;

#define EACH_CALL(call, calls)                                                                     \
    for (const SumCall *call = (calls)->items, *end_##call = call ? call + (calls)->count : call;  \
         call < end_##call; call++)

SumCalls sum_calls(const Runs *runs);
void sum_calls_free(SumCalls *calls);

double bytes_sent_by(const SumCall *call, int rank);
double bytes_sent_to(const SumCall *call, int rank);
double bytes_of_values(const SumCall *call); // of one rank's

// A word beside the values, a length or a token, does no harm.
#define SLACK 64.0 // bytes

// True where values go from one rank to another past this one.
bool passes_by(const SumCall *call, int rank);

// Those that it sent something to.
RankSet receivers_from(const SumCall *call, int rank);

// "with 10007 values (40028 bytes)", and where that was in training.
char *call_words(const SumCall *call);

// True where all wrong sums are of a kind, each on its rank, or of `or_kind` (NULL: of no other one). A kind is three
// pairs of marks: how often a sum has the values of the rank that has it, of others of its host, and of ranks of other
// hosts; in each pair first those of a host's first rank. So "11 11 00" is the sum of the own host.
//     0 1 2  so often
//     ? +    at most once; at least once
//     s o    as often as the host of the values has ranks; as often as the host of the sum has
//     -      no sum is of this kind
// "/ranks" is the whole sum, divided by the number of ranks; "/host" is that divided by the number of ranks on its
// host, or made of the hosts' averages.
bool wrong_sums_are(const SumCalls *calls, const char *kind, const char *or_kind);

// A rank has right values among its wrong ones.
bool some_values_are_right(const SumCalls *calls);

// No rank of these has wrong sums.
bool right_on(const SumCalls *calls, RankSet (*ranks)(const Run *run));

// What an exercise knows of wrong sums beside what is known of any all-reduce's; NULL: nothing that
// explains all of these.
typedef const Diagnosis *(*KnownSums)(const SumCalls *calls);

// What must hold of any all-reduce; `known` may be NULL (wrong_sums.c). False where there is
// nothing more to judge: nothing was tried, or the sums are wrong.
bool judge_sums(const Runs *runs, const SumCalls *calls, KnownSums known, Report *report);

// What must hold of each call: which diagnosis it gets where it does not, and what shows it.
typedef struct {
    const char *property;
    const Diagnosis *(*broken)(const SumCall *call);
    char *(*evidence)(const SumCall *call);
} CallRule;
bool judge_calls(const Runs *runs, const SumCalls *calls, const CallRule *rule, Report *report);

// The diagnosis where ranks send less than any all-reduce needs, or one of them more than `most`.
const Diagnosis *wrong_bytes_sent(const SumCall *call,
                                  double (*most)(const SumCall *call, int rank),
                                  const Diagnosis *too_much);
extern const Diagnosis d_not_by_messages;

// Evidence: whom each rank sent to; how much.
char *ways_of_call(const SumCall *call);
char *amounts_of_call(const SumCall *call);

// The optimizer adds gradients up by it, and the ranks keep the same weights. No other property
// checks these sums, so it comes before those that suppose that they are right.
bool judge_use(const Runs *runs, const SumCalls *calls, Report *report);

// All of an all-reduce that is made of messages: which way they take, and how much they are.
void judge_messages(const Runs *runs, const CallRule *way, const CallRule *amount, Report *report);

// Around a ring (ring.c): what is wrong with the way of the values where ranks send to others
// than their neighbours, or NULL; and all of that exercise.
const Diagnosis *not_around(const SumCall *call);
void judge_ring(const Runs *runs, Report *report);

// Reports wrong sums of a run that ended with a failing status: they are mostly why a training that
// follows them fails.
void judge_crashed_sums(const Run *run, Report *report);

// Why ranks wait for each other in an all-reduce that is made of messages (sums_end.c).
extern const Ends ends_of_sums;

#endif
