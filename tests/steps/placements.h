// The workers' answers about their host, the right answers, and the likely mistakes.

#ifndef HVDLAB_STEPS_PLACEMENTS_H
#define HVDLAB_STEPS_PLACEMENTS_H

#include "judge.h"

// Whom a worker may take for the workers of its host.
typedef enum {
    OF_HOST, // as it should
    OF_NOBODY,
    OF_JOB,
    ITSELF,
    OF_LONGER_NAMES, // node-1 takes those of node-12, too
    OF_SHORTER_NAMES,
    OF_LIKE_NAMES, // ... and the other way round
    OTHERS_OF_HOST,
    UP_TO_ITSELF,
    IN_A_ROW, // from the first of its host on, until a rank of another one
    OF_SAME_LOCAL_RANK,
    FIRSTS_FOR_FIRSTS, // the first worker of each host those of all others, and nobody else anybody
    FIRSTS_OF_HOSTS,
    HOST_OF_ROOT,
    THEORIES
} Theory;

int first_on_host(const Run *run, int rank); // of this rank

// What the rank says, the last time; a field of it.
const cJSON *claim_of(const Run *run, int rank);
int claimed(const Run *run, int rank, const char *field);

// True where a worker's claim is what these workers would make it.
typedef bool (*Fits)(const Run *run, int rank, RankSet workers);
bool fits_size(const Run *run, int rank, RankSet workers);
bool fits_rank(const Run *run, int rank, RankSet workers);
bool fits_members(const Run *run, int rank, RankSet workers);

RankSet workers_by(Theory theory, const Run *run, int rank);
bool fits_everywhere(const Runs *runs, Fits fits, Theory theory);

// What explains the claims on all ranks; NULL: nothing does. Where another part is wrong, too, only
// what explains both.
const Diagnosis *theory_of(const Runs *runs, Fits fits, const Diagnosis *other);
extern const Diagnosis d_all_on_one_host_hosts_not_told_apart, d_ranks_in_a_row;

#endif
