// The workers' answers about their host, the right answers, and the likely mistakes.

#ifndef HVDLAB_STEPS_PLACEMENTS_H
#define HVDLAB_STEPS_PLACEMENTS_H

#include "judge.h"

// Some ranks, as seen from one of them: those of its host, with it and without, the first of each
// host, none.
RankSet of_host(const Run *run, int rank);
RankSet others_of_host(const Run *run, int rank);
RankSet first_of_hosts(const Run *run, int rank);
RankSet of_nobody(const Run *run, int rank);

// What the rank says, the last time; a field of it.
const cJSON *claim_of(const Run *run, int rank);
int claimed(const Run *run, int rank, const char *field);

// True where a worker's claim is what these workers would make it.
typedef bool (*Fits)(const Run *run, int rank, RankSet workers);
bool fits_size(const Run *run, int rank, RankSet workers);
bool fits_rank(const Run *run, int rank, RankSet workers);
bool fits_members(const Run *run, int rank, RankSet workers);
bool fits_everywhere(const Runs *runs, Fits fits, RankSet (*workers)(const Run *run, int rank));

// What explains the claims on all ranks; NULL: nothing does. Where another part is wrong, too, only
// what explains both.
const Diagnosis *theory_of(const Runs *runs, Fits fits, const Diagnosis *other);
extern const Diagnosis d_all_on_one_host_hosts_not_told_apart, d_ranks_in_a_row;

#endif
