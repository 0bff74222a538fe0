// Checks, before the values of a collective call move, that all ranks make the same call: function,
// counts, operation and so on. If they don't, the job ends with one message that names both sides;
// MPI itself would wait forever, mix the values, or report an error that names neither side.
//
// A check is an all-reduce of 24 bytes among the ranks of the call, on a communicator of its own,
// so that it also pairs ranks that are in different calls. Calls with the same terms are the same
// call, as in MPI, where only their order counts (MPI 4.0, section 6.12). Horovod's coordinator
// compares requests by their names (Sergeev and Del Balso, 2018).

#ifndef HVDLAB_AGREEMENT_H
#define HVDLAB_AGREEMENT_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/setting.h"
#include "comm/world.h"

// A property of a call that must be the same on all ranks, reported as "rank 0 gives 4 values,
// ranks 1-3 give 8 values".
typedef struct {
    const char *verb;   // "give", an s for one rank; NULL ends a list of terms
    const char *before; // "root "
    const char *text;   // the value; an error names the first line that differs
    int64_t number;     // if text is NULL
    const char *after;  // " values", whose s one value loses; NULL: nothing
    const char *advice; // ends the line; NULL: none
    uint64_t hash;      // of the value; 0: to be computed
    // UNIT_VALUES: `number` is the call's count of values.
    enum { NO_UNIT, UNIT_VALUES } unit;
} Term;

enum { MAX_TERMS = 10 };

// A sum that follows the agreement; a rank that has joined (hvd_join) contributes zeros.
typedef struct {
    bool open; // false: aborts the job if some rank has joined
    bool doubles;
    WorldChannel channel;
    size_t count;
} Sum;

typedef struct {
    const char *name;    // "hvd_allreduce"; calls of one name have the same terms, values apart
    const char *channel; // the name of the communicator on which the values will move, for traces
    const char *object;  // where ranks make different calls: "rank 0 is in ..."; NULL: the name
    Term terms[MAX_TERMS + 1]; // room for the end of the list
    Sum sum;
} Collective;

// Terms that are texts, and terms that are numbers, such as ("give", "", 4, " values").
static inline Term text_term(const char *verb, const char *before, const char *text,
                             const char *advice)
{
    return (Term){.verb = verb, .before = before, .text = text, .advice = advice};
}

// What to do where a variable of the environment is not the same on all ranks, and a term for a
// choice (base/settings.def).
#define PASS_ON(setting) "mpirun -x " #setting " passes it on to other machines"
#define CHOICE_TERM(setting)                                                                       \
    text_term("find", #setting "=", setting_choice_text(setting), PASS_ON(setting))

static inline Term number_term(const char *verb, const char *before, int64_t number,
                               const char *after)
{
    return (Term){.verb = verb, .before = before, .number = number, .after = after};
}

static inline Term count_term(size_t count)
{
    Term term = number_term("give", "", (int64_t)count, " values");
    term.unit = UNIT_VALUES;
    return term;
}

// Begins a call among the ranks of a communicator, hvd's or a group's: returns when all of them
// have begun the same call; else aborts the job with an error message. agreed_call_ends marks the
// end of this rank's part. Does nothing in a 1-rank job. Returns the number of ranks that have not
// joined.
int agree(const Collective *call, MPI_Comm comm);
void agreed_call_ends(void);

// The same, for a call whose values do not move, or move in the background.
int agree_only(const Collective *call, MPI_Comm comm);

// The same for a rank that has joined: returns when all others have begun a call. True: `sum`
// describes their sum. False: all have joined, `last` last.
bool agree_as_joined(Sum *sum, int *last);

// Exits with an error message if `root` is no rank; the term: all name the same.
void hvd_check_root(const char *caller, int root, MPI_Comm comm);
Term hvd_root_term(int root);

#endif
