// Checks that all ranks make the same collective call. Ranks compare one hash; only if the hashes
// differ do they exchange the full description and report the first difference.

#include "comm/agreement.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/numbers.h"
#include "observe/span.h"
#include "observe/trace.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "base/memory.h"
#include "base/format.h"
#include "comm/world.h"

enum {
    MAXIMUM,       // hash of a call
    INVERTED,      // complement of the min hash
    JOINED,        // whether some rank has
    EXTREMES,      // numbers in the all-reduce
    MAX_PARTS = 4, // groups of ranks that an error message lists
};

// The state of agreement on one communicator.
typedef struct {
    MPI_Comm comm;
    int rank, size;
    int64_t number; // of calls so far
} Agreement;

// ---- Numbers.

static uint64_t signature_of(const Collective *call)
{
    uint64_t hash = hash_text(call->name);
    for (const Term *term = call->terms; term->verb; term++) {
        uint64_t value = term->hash;
        if (value == 0 && term->text)
            value = hash_text(term->text);
        else if (value == 0)
            value = (uint64_t)term->number;
        hash = hash_number(hash, value);
    }
    return hash;
}

// ---- State.

static int free_agreement(MPI_Comm comm, int key, void *value, void *unused)
{
    (void)comm, (void)key, (void)unused;
    Agreement *agreement = value;
    MPI_Comm_free(&agreement->comm);
    free(agreement);
    return MPI_SUCCESS;
}

static Agreement *new_agreement(MPI_Comm comm)
{
    Agreement *agreement = allocate(1, sizeof *agreement);
    agreement->comm = comm;
    MPI_Comm_rank(comm, &agreement->rank);
    MPI_Comm_size(comm, &agreement->size);
    return agreement;
}

// A group's state is made by its first call, and freed with its communicator.
static Agreement *agreement_of_group(MPI_Comm comm)
{
    static int key = MPI_KEYVAL_INVALID;
    if (key == MPI_KEYVAL_INVALID)
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_agreement, &key, NULL);
    Agreement *agreement;
    int found;
    MPI_Comm_get_attr(comm, key, (void *)&agreement, &found);
    if (found)
        return agreement;
    MPI_Comm own;
    PMPI_Comm_dup(comm, &own);
    agreement = new_agreement(own);
    MPI_Comm_set_attr(comm, key, agreement);
    return agreement;
}

static Agreement *agreement_of_job(void)
{
    static Agreement *job;
    if (!job)
        job = new_agreement(world_comm(WORLD_AGREEMENT));
    return job;
}

// ---- Descriptions, if the hashes differ. Not freed: the program exits.

#define SEPARATOR "\x1e"

// The description of a rank's call: texts[0] is its rank in the job, [1] the call's name, [2] its
// name in a list of calls, then the value of each term.
enum { RANK, NAME, SENTENCE, VALUES, TEXTS = VALUES + MAX_TERMS };
typedef struct {
    char *texts[TEXTS];
} Statement;

static char *statement_of(const Collective *call)
{
    char *list = format_text("%d" SEPARATOR "%s" SEPARATOR "%s", world_rank(), call->name,
                             call->object ? call->object : call->name);
    for (const Term *term = call->terms; term->verb; term++)
        if (term->text)
            text_add(&list, SEPARATOR "%s", term->text);
        else
            text_add(&list, SEPARATOR "%" PRId64, term->number);
    return list;
}

static Statement split(char *list)
{
    static char nothing[] = "";
    Statement statement;
    for (int i = 0; i < TEXTS; i++)
        statement.texts[i] = list ? strsep(&list, SEPARATOR) : nothing;
    return statement;
}

// The descriptions of all ranks, in their order.
static Statement *gather_statements(const Agreement *agreement, const Collective *call)
{
    const char *own = statement_of(call);
    int room = (int)strlen(own) + 1;
    PMPI_Allreduce(MPI_IN_PLACE, &room, 1, MPI_INT, MPI_MAX, agreement->comm);
    char *all = allocate((size_t)agreement->size, (size_t)room);
    strcpy(all + agreement->rank * room, own);
    PMPI_Allgather(MPI_IN_PLACE, 0, MPI_CHAR, all, room, MPI_CHAR, agreement->comm);
    Statement *statements = allocate((size_t)agreement->size, sizeof *statements);
    for (int r = 0; r < agreement->size; r++)
        statements[r] = split(all + r * room);
    return statements;
}

// What one rank or several say of a term, such as " gives 4 values"; NULL: in which call they are.
static char *words_of(const Term *term, const char *value, bool one)
{
    if (!term)
        return format_text(" %s in %s", one ? "is" : "are", value);
    const char *after = term->after ? term->after : "";
    bool singular = strcmp(value, "1") == 0 && *after && after[strlen(after) - 1] == 's';
    return format_text(" %s%s %s%s%.*s", term->verb, one ? "s" : "",
                       term->before ? term->before : "", value,
                       (int)strlen(after) - (singular ? 1 : 0), after);
}

// "rank 0 gives 4 values, ranks 1-3 give 8 values", in the order of the first rank of each.
static char *differences_text(const Agreement *agreement, const Term *term,
                              const Statement *statements, int text)
{
    char *line = format_text("%s", "");
    bool *told = allocate((size_t)agreement->size, sizeof *told);
    int *ranks = allocate((size_t)agreement->size, sizeof *ranks);
    for (int first = 0, parts = 0; first < agreement->size; first++) {
        if (told[first])
            continue;
        if (parts++ == MAX_PARTS) {
            text_add(&line, ", ...");
            break;
        }
        const char *value = statements[first].texts[text];
        int count = 0;
        for (int r = first; r < agreement->size; r++)
            if (!told[r] && strcmp(statements[r].texts[text], value) == 0) {
                told[r] = true;
                ranks[count++] = (int)whole_number(statements[r].texts[RANK], INT_MAX);
            }
        text_add(&line, "%s%s%s", *line ? ", " : "", ranks_text(ranks, count),
                 words_of(term, value, count == 1));
    }
    return line;
}

static bool all_say_the_same(const Agreement *agreement, const Statement *statements, int text)
{
    for (int r = 1; r < agreement->size; r++)
        if (strcmp(statements[r].texts[text], statements[0].texts[text]) != 0)
            return false;
    return true;
}

// Cuts texts of several lines to the first line that differs, or to the end of some.
static void keep_first_difference(const Agreement *agreement, Statement *statements, int text)
{
    static char nothing[] = "nothing further";
    char **lines = allocate((size_t)agreement->size, sizeof *lines);
    for (bool same = true, more = true; same && more;) {
        more = false;
        for (int r = 0; r < agreement->size; r++) {
            char **rest = &statements[r].texts[text], *line = strsep(rest, "\n");
            lines[r] = line && *line ? line : nothing;
            same = same && strcmp(lines[r], lines[0]) == 0;
            more = more || *rest;
        }
    }
    for (int r = 0; r < agreement->size; r++)
        statements[r].texts[text] = lines[r];
}

// "name root", "begin with epoch"; "" where the calls differ.
static char *term_words(const Term *term)
{
    char *words = format_text("%s", term ? term->verb : "");
    if (term && term->before && *term->before)
        text_add(&words, " %.*s", (int)strlen(term->before) - 1, term->before); // no blank, no "="
    return words;
}

// Every rank with a statement (NULL: every rank) knows the mismatch. The lowest of them reports it
// and aborts the job before the others report it, too. `term`: NULL where the calls differ.
static _Noreturn void abort_mismatch(const Agreement *agreement, const Statement *statements,
                                     const char *name, const char *line, const Term *term)
{
    const char *advice = term ? term->advice : NULL;
    char *whole = format_text("%s: %s (call %lld)%s%s", name, line, (long long)agreement->number,
                              advice ? "; " : "", advice ? advice : "");
    char *words = term_words(term);
    trace("disagreement", TEXT("term", words), TEXT("text", whole));
    free(words);
    for (int r = 0; statements && r < agreement->size; r++)
        if (whole_number(statements[r].texts[RANK], INT_MAX) < world_rank()) {
            sleep_seconds(MISMATCH_WAIT);
            break;
        }
    die("%s", whole);
}

// What each rank tells if some ranks have joined.
typedef struct {
    int64_t since; // its call number when it joined; 0: it has not
    Sum sum;
    char name[48]; // of its call
} Attendance;

// Keeps only the statements of ranks that have not joined. Returns their number.
static int drop_joined(Statement *statements, const Attendance *attendances, int size)
{
    int kept = 0;
    for (int r = 0; r < size; r++)
        if (attendances[r].since == 0)
            statements[kept++] = statements[r];
    return kept;
}

// `attendances`: NULL if no rank has joined.
static _Noreturn void name_difference(const Agreement *all, const Collective *call,
                                      const Attendance *attendances)
{
    Statement *statements = gather_statements(all, call);
    Agreement working = *all, *agreement = &working;
    if (attendances)
        working.size = drop_joined(statements, attendances, all->size);
    if (!all_say_the_same(agreement, statements, NAME)) {
        char *line = differences_text(agreement, NULL, statements, SENTENCE);
        abort_mismatch(agreement, statements, "the workers make different calls", line, NULL);
    }
    const Term *term = call->terms;
    for (int text = VALUES; text < TEXTS && term->verb; text++, term++) {
        if (all_say_the_same(agreement, statements, text))
            continue;
        keep_first_difference(agreement, statements, text);
        char *line = differences_text(agreement, term, statements, text);
        abort_mismatch(agreement, statements, call->name, line, term);
    }
    CHECK(false); // the hashes differ, the terms do not
    abort();
}

// ---- The agreement.

// Records the call for the stall watch. A group's calls have no number: only its ranks count them.
static void begin_call(const Collective *call, bool of_job)
{
    bool counted = call->terms[0].unit == UNIT_VALUES;
    span_begin_call(&(SpanCall){.name = call->name,
                                .number = of_job ? agreement_of_job()->number + 1 : 0,
                                .count = counted ? call->terms[0].number : NO_VALUES,
                                .peer = -1,
                                .bytes = -1,
                                .partner = -1});
}

static int64_t joined_since; // of this rank, as in Attendance

static Attendance *take_attendance(const Agreement *agreement, const Collective *call)
{
    Attendance *all = allocate((size_t)agreement->size, sizeof *all), *own = &all[agreement->rank];
    own->since = joined_since;
    own->sum = call->sum;
    snprintf(own->name, sizeof own->name, "%s", call->name);
    PMPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, all, sizeof *all, MPI_BYTE, agreement->comm);
    return all;
}

static int count_working(const Agreement *agreement, const Attendance *all)
{
    int working = 0;
    for (int r = 0; r < agreement->size; r++)
        working += all[r].since == 0;
    return working;
}

// The sum that all ranks that have not joined compute; they have agreed on it. Aborts the job if
// their call is no sum.
static Sum agreed_sum(const Agreement *agreement, const Attendance *all)
{
    int worker = 0, count = 0;
    int *joined = allocate((size_t)agreement->size, sizeof *joined);
    for (int r = 0; r < agreement->size; r++)
        if (all[r].since == 0)
            worker = r;
        else
            joined[count++] = r;
    if (!all[worker].sum.open) {
        char *who = ranks_text(joined, count);
        char *line = format_text("%s %s joined", who, count == 1 ? "has" : "have");
        const Term term = {
            .verb = "join",
            .advice =
                "until all workers have (hvd_join), nothing but sums and averages can be made"};
        abort_mismatch(agreement, NULL, all[worker].name, line, &term);
    }
    free(joined);
    return all[worker].sum;
}

// `group`: whose call it is, with its ranks in the trace; MPI_COMM_NULL: the job's.
static void trace_agreement(const Collective *call, MPI_Comm group)
{
    const size_t bytes = EXTREMES * sizeof(uint64_t);
    if (group == MPI_COMM_NULL)
        trace_collective(call->name, call->channel, bytes, "", -1);
    else if (trace_on())
        trace_call_among(call->name, call->channel, bytes, group);
}

static void exchange_extremes(const Agreement *agreement, uint64_t extremes[EXTREMES])
{
    span_begin(SPAN_WAIT, "agree on the call", -1, -1);
    PMPI_Allreduce(MPI_IN_PLACE, extremes, EXTREMES, MPI_UINT64_T, MPI_MAX, agreement->comm);
    span_end();
}

int agree(const Collective *call, MPI_Comm comm)
{
    if (world_size() == 1)
        return 1;
    bool of_job = world_owns(comm);
    begin_call(call, of_job);
    trace_agreement(call, of_job ? MPI_COMM_NULL : comm);
    // A group's first call waits here for all of its ranks.
    Agreement *agreement = of_job ? agreement_of_job() : agreement_of_group(comm);
    agreement->number++;
    uint64_t signature = signature_of(call);
    uint64_t extremes[EXTREMES] = {[MAXIMUM] = signature, [INVERTED] = ~signature};
    exchange_extremes(agreement, extremes);
    Attendance *attendances = extremes[JOINED] ? take_attendance(agreement, call) : NULL;
    if (extremes[MAXIMUM] != ~extremes[INVERTED])
        name_difference(agreement, call, attendances);
    int working = agreement->size;
    if (attendances) {
        agreed_sum(agreement, attendances);
        working = count_working(agreement, attendances);
    }
    free(attendances);
    trace_collective_end(call->name, call->channel);
    return working;
}

void agreed_call_ends(void)
{
    if (world_size() > 1)
        span_end();
}

int agree_only(const Collective *call, MPI_Comm comm)
{
    int working = agree(call, comm);
    agreed_call_ends();
    return working;
}

// ---- A rank that has joined.

// The ranks that have not joined have found that their calls differ: they abort the job, since only
// they have the descriptions.
static _Noreturn void wait_for_the_end(const Agreement *agreement, const Collective *call)
{
    gather_statements(agreement, call);
    PMPI_Barrier(agreement->comm);
    abort();
}

static int last_to_join(const Agreement *agreement, const Attendance *all)
{
    int last = 0;
    for (int r = 1; r < agreement->size; r++)
        if (all[r].since >= all[last].since)
            last = r;
    return last;
}

bool agree_as_joined(Sum *sum, int *last)
{
    const Collective call = {.name = "hvd_join", .channel = "values"};
    begin_call(&call, true);
    trace_agreement(&call, MPI_COMM_NULL);
    Agreement *agreement = agreement_of_job();
    agreement->number++;
    if (joined_since == 0)
        joined_since = agreement->number;
    uint64_t extremes[EXTREMES] = {[JOINED] = 1}; // the rest 0: never the max
    exchange_extremes(agreement, extremes);
    Attendance *all = take_attendance(agreement, &call);
    bool goes_on = count_working(agreement, all) > 0;
    if (goes_on && extremes[MAXIMUM] != ~extremes[INVERTED])
        wait_for_the_end(agreement, &call);
    if (goes_on)
        *sum = agreed_sum(agreement, all);
    else {
        *last = last_to_join(agreement, all);
        joined_since = 0;
    }
    free(all);
    trace_collective_end(call.name, call.channel);
    return goes_on;
}

// ---- Roots.

void hvd_check_root(const char *caller, int root, MPI_Comm comm)
{
    int size;
    MPI_Comm_size(comm, &size);
    if (root < 0 || root >= size)
        die("%s: there is no rank %d among %d to be the root", caller, root, size);
}

Term hvd_root_term(int root)
{
    Term term = number_term("name", "root ", root, NULL);
    term.advice = "all must name the same root";
    return term;
}
