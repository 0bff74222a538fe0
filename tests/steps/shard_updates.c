// Reads updates of shards, and judges them; shard_updates.h says what is promised.

#include "shard_updates.h"
#include "diagnoses/shard_updates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

#define TOLERANCE 1e-4 // of differences of fingerprints, relative to the largest of a worker

bool is_allreduce(const cJSON *event)
{
    const char *function = event_text(event, "function");
    return strstr(function, "llreduce") || strcmp(function, "two_levels") == 0;
}

bool moves_values(const cJSON *event)
{
    const double words = 64; // bytes
    const char *function = event_text(event, "function");
    return (event_is(event, "collective_begin") &&
            (strncmp(function, "MPI_", 4) == 0 || strcmp(function, "two_levels") == 0) &&
            (event_number(event, "bytes") > words || strstr(function, "educe_scatter"))) ||
           (event_is(event, "message_begin") &&
            (event_number(event, "bytes") > words || event_number(event, "room") > words));
}

// A ring's all-reduce is a reduce-scatter and an all-gather.
double bytes_received(const Run *run, const cJSON *event, int rank)
{
    if (event_is(event, "message_begin"))
        return event_int(event, "from") == rank ? 0 : fmax(event_number(event, "room"), 0);
    double bytes = event_number(event, "bytes");
    const char *function = event_text(event, "function");
    bool is_root = event_int(event, "root") == rank;
    if (strstr(function, "llgather") || strcmp(function, "MPI_Alltoall") == 0 ||
        strcmp(function, "MPI_Ialltoall") == 0)
        return bytes * (run->ranks - 1);
    if (is_allreduce(event))
        return 2 * bytes * (run->ranks - 1) / run->ranks;
    if (strstr(function, "cast"))
        return is_root ? 0 : bytes;
    if (strstr(function, "ather"))
        return is_root ? bytes * (run->ranks - 1) : 0;
    return bytes;
}

int pieces_of(const Run *run)
{
    int pieces = 0;
    EACH (at, &run->traces.of[0], "piece_updated") {
        int number = event_int(run->traces.of[0].items[at], "number");
        pieces = number >= pieces ? number + 1 : pieces;
    }
    return pieces;
}

static PieceOf *piece_of(ShardUpdate *update, int rank, const cJSON *event, const char *field)
{
    double number = event_number(event, field);
    if (!(number >= 0 && number < MAX_PIECES))
        return NULL;
    if ((int)number >= update->pieces)
        update->pieces = (int)number + 1;
    return &update->of[rank][(int)number];
}

// What a rank exchanged in the function of a piece, or after it; `piece` NULL: between the passes. That is, and sums
// in the update are, of any piece that is not updated yet.
static void take_exchange(ShardUpdate *update, int rank, PieceOf *piece, bool updating,
                          const cJSON *event)
{
    bool sums = strstr(event_text(event, "function"), "educe");
    WhenExchanged when = !updating ? BEFORE_UPDATE : sums ? SUMMED_IN_UPDATE : IN_UPDATE;
    for (PieceOf *of = update->of[rank]; of < update->of[rank] + update->pieces; of++)
        if (piece && !updating ? of == piece : of->updates == 0 && (sums || !piece))
            of->exchanged = of->exchanged > when ? of->exchanged : when;
    if (piece && updating)
        piece->exchanged_after = true;
    if (piece && is_allreduce(event))
        *(updating ? &piece->summed_after : &piece->whole_sums) += event_number(event, "bytes");
}

static void count_bytes(ShardUpdate *update, int rank, bool ready, bool updating,
                        const cJSON *event)
{
    double bytes = bytes_received(update->run, event, rank);
    if (!ready)
        *(updating ? &update->in_updates : &update->in_passes) += bytes;
    else if (!strstr(event_text(event, "function"), "educe"))
        update->in_ready += bytes;
}

// Reads the update of a rank that begins at event `at`; returns the place after it, or -1.
static int read_update(const Events *events, int at, ShardUpdate *update, int rank)
{
    PieceOf *piece = NULL;                // whose function runs, or ran last
    bool updating = false, aside = false; // aside: in a function for a pass
    bool ready = false;                   // in one that gets gradients
    for (int i = at; i < events->count; i++) {
        const cJSON *event = events->items[i];
        if (event_is(event, "pass_begin") || event_is(event, "pass_computed")) {
            aside = true;
        } else if (event_is(event, "pass_weights") || event_is(event, "pass_end")) {
            aside = false;
        } else if (event_is(event, "piece")) {
            if (!(piece = piece_of(update, rank, event, "number")))
                return -1;
            piece->length = event_int(event, "count");
            piece->gradients = event_number(event, "value");
            update->all += rank == 0 ? piece->length * (double)sizeof(float) : 0;
            ready = true;
        } else if (event_is(event, "piece_end")) {
            ready = false;
        } else if (event_is(event, "gradient")) {
            updating = true;
            piece = NULL;
        } else if (event_is(event, "shard_update")) {
            if (!(piece = piece_of(update, rank, event, "piece")))
                return -1;
            piece->updates++;
            piece->begin = event_int(event, "begin");
            piece->count = event_int(event, "count");
            piece->kept = event_number(event, "value");
        } else if (event_is(event, "shard_updated") && piece) {
            piece->part = event_number(event, "weights");
        } else if (event_is(event, "piece_updated")) {
            if (!(piece = piece_of(update, rank, event, "number")))
                return -1;
            piece->weights = event_number(event, "weights");
        } else if (event_is(event, "step")) {
            return i + 1;
        } else if (moves_values(event)) {
            count_bytes(update, rank, ready, updating, event);
            if (!aside)
                take_exchange(update, rank, piece, updating, event);
        }
    }
    return -1;
}

// The next update of all ranks, which begins at these events; false: there is none.
static bool next_update(const Run *run, int at[MAX_RANKS], ShardUpdate *update)
{
    bool there = true;
    *update = (ShardUpdate){.run = run, .ranks = run->ranks, .number = update->number + 1};
    for (int r = 0; r < run->ranks; r++)
        there = (at[r] = read_update(&run->traces.of[r], at[r], update, r)) >= 0 && there;
    return there;
}

Fault each_update(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Fault found = NO_FAULT;
    ShardUpdate *update = allocate(1, sizeof *update);
    for (int at[MAX_RANKS] = {0}; !found.diagnosis && next_update(run, at, update);)
        found = (*fault)(update);
    free(update);
    return found;
}

// ---- Faults of an update.

// How many workers have this weight of a piece in their part.
static int owners(const ShardUpdate *update, int p, int weight)
{
    int count = 0;
    for (int r = 0; r < update->ranks; r++) {
        const PieceOf *piece = &update->of[r][p];
        count +=
            piece->updates > 0 && weight >= piece->begin && weight < piece->begin + piece->count;
    }
    return count;
}

// The first weight that is not in exactly one part, or -1. Only ends of parts have to be looked at.
static int first_not_in_one(const ShardUpdate *update, int p)
{
    int length = update->of[0][p].length, first = -1;
    for (int r = -1; r < update->ranks; r++)
        for (int end = 0; end < 2; end++) {
            int at = r < 0 ? 0 : update->of[r][p].begin + end * update->of[r][p].count;
            if (at < length && owners(update, p, at) != 1 && (first < 0 || at < first))
                first = at;
        }
    return first;
}

static const Diagnosis *wrong_parts(const ShardUpdate *update, int p, int weight)
{
    bool all = true, none = false;
    for (int r = 0; r < update->ranks; r++) {
        const PieceOf *piece = &update->of[r][p];
        all = all && piece->updates > 0 && piece->count == piece->length;
        none = none || piece->updates == 0;
    }
    if (all)
        return &d_not_sharded;
    if (none)
        return &d_not_updated;
    return owners(update, p, weight) == 0 ? &d_part_left_out : &d_parts_overlap;
}

Fault parts_fault(const void *item)
{
    const ShardUpdate *update = item;
    for (int p = 0; p < update->pieces; p++) {
        int length = update->of[0][p].length, weight = first_not_in_one(update, p);
        bool unequal = false; // a worker more or less in each part: however somebody rounds
        for (int r = 0; r < update->ranks; r++)
            unequal |= update->of[r][p].count > length / update->ranks + update->ranks;
        if (weight < 0 && !unequal)
            continue;
        char *text = format_text("piece %d of update %d has %d weights", p, update->number, length);
        for (int r = 0; r < update->ranks; r++)
            if (update->of[r][p].updates == 0)
                text_add(&text, "\nrank %d: updates none", r);
            else
                text_add(&text, "\nrank %d: %d weights from number %d on", r,
                         update->of[r][p].count, update->of[r][p].begin);
        if (weight < 0)
            return (Fault){&d_parts_unequal, text};
        text_add(&text, "\nweight %d is in %d parts", weight, owners(update, p, weight));
        return (Fault){wrong_parts(update, p, weight), text};
    }
    return NO_FAULT;
}

// Of a piece, over all ranks: the sum of their own gradients, and the largest one; the sum of what they
// keep.
typedef struct {
    double own, largest, kept;
} Sums;

static Sums sums_of(const ShardUpdate *update, int p)
{
    Sums sums = {0};
    for (int r = 0; r < update->ranks; r++) {
        sums.own += update->of[r][p].gradients;
        sums.largest = fmax(sums.largest, fabs(update->of[r][p].gradients));
        sums.kept += update->of[r][p].kept;
    }
    return sums;
}

// True where the parts of a piece are those that hvd_reduce_scatter() gives: the first ones are
// longer.
static bool are_its_parts(const ShardUpdate *update, int p)
{
    int begin = 0;
    for (int r = 0; r < update->ranks; r++) {
        const PieceOf *piece = &update->of[r][p];
        int count = piece->length / update->ranks + (r < piece->length % update->ranks);
        if (piece->begin != begin || piece->count != count)
            return false;
        begin += count;
    }
    return true;
}

static const Diagnosis *wrong_mean(const ShardUpdate *update, int p, Sums sums)
{
    const int ranks = update->ranks;
    const double allowed = TOLERANCE * sums.largest;
    for (int r = 0; r < ranks; r++)
        if (ranks > 1 && update->of[r][p].exchanged == NEVER)
            return &d_gradients_not_averaged;
    if (fabs(sums.kept - sums.own) <= allowed * ranks)
        return &d_gradients_summed;
    if (sums.kept == 0)
        return &d_nothing_kept;
    if (ranks > 1 && fabs(sums.kept - sums.own / ranks / ranks) <= allowed)
        return &d_averaged_twice;
    bool scattered = ranks_that_called(update->run, "hvd_reduce_scatter") != 0;
    return scattered && !are_its_parts(update, p) ? &d_remainder_elsewhere : &d_not_the_mean;
}

Fault mean_fault(const void *item)
{
    const ShardUpdate *update = item;
    for (int p = 0; p < update->pieces; p++) {
        Sums sums = sums_of(update, p);
        double mean = sums.own / update->ranks;
        if (fabs(sums.kept - mean) <= TOLERANCE * sums.largest)
            continue;
        char *text = format_text("piece %d of update %d, as fingerprints:", p, update->number);
        for (int r = 0; r < update->ranks; r++)
            text_add(&text, "\nrank %d: computed %9.5f, keeps %9.5f", r, update->of[r][p].gradients,
                     update->of[r][p].kept);
        text_add(&text, "\nmean of the gradients %9.5f, sum of what is kept %9.5f", mean,
                 sums.kept);
        return (Fault){wrong_mean(update, p, sums), text};
    }
    return NO_FAULT;
}

// The mean of a piece of which nothing was exchanged before the update, which adds values up: its
// gradients were kept, in memory of the program's own.
Fault kept_fault(const void *item)
{
    const ShardUpdate *update = item;
    for (int p = 0; p < update->pieces; p++)
        for (int r = 0; r < update->ranks && update->ranks > 1; r++)
            if (update->of[r][p].exchanged == SUMMED_IN_UPDATE)
                return fault_with(&d_kept_until_the_update,
                                  "piece %d of update %d: rank %d exchanges its gradients only in "
                                  "the update",
                                  p, update->number, r);
    return NO_FAULT;
}

Fault sums_fault(const void *item)
{
    const ShardUpdate *update = item;
    for (int p = 0; p < update->pieces; p++)
        for (int r = 0; r < update->ranks && update->ranks > 1; r++) {
            const PieceOf *piece = &update->of[r][p];
            if (piece->whole_sums >= piece->length / 2.0 * (double)sizeof(float))
                return fault_with(&d_all_reduced,
                                  "piece %d of update %d, %d gradients (%d bytes)\nrank %d gives "
                                  "%.0f bytes to all-reduces",
                                  p, update->number, piece->length,
                                  piece->length * (int)sizeof(float), r, piece->whole_sums);
        }
    return NO_FAULT;
}

bool in_shards(const Runs *runs, Report *report)
{
    if (!all_ranks_have(runs, "piece_updated", PARTS, &d_not_in_shards,
                        "updated pieces of the model", report))
        return false;
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        const char *name = event_text(event_last(&run->traces.of[0], "compile"), "optimizer");
        if (strcmp(name, "Adam") != 0)
            return report_failure_in(report, runs, run, PARTS, &d_optimizer_changed,
                                     "rank 0 trains by %s", name);
    }
    return true;
}

static const Explanation explanations[] = {
    {"gradients of this piece were kept", &d_part_differs},
    {"but the state of this piece is for", &d_part_changes},
    {"the backward pass still reads weights", &d_updated_too_early},
    {"the gradients of this piece are gone", &d_gradients_gone},
    {"on, of a piece that has", &d_part_too_long_its_piece},
    {"gradients of a piece that has", &d_part_too_long_too_many_gradients},
    {"and its weights are not there", &d_not_there},
    {"keep_weights: the weights of this piece are not there", &d_read_after_free_kept_too_late},
    {"the weights of this piece are not there", &d_read_after_free},
    {"but keep_weights() has kept", &d_kept_another_part},
    {"no weights of this piece are kept", &d_nothing_divided},
    {"weights are not in shards", &d_not_in_shards_weights},
    {0},
};
const Ends shard_ends = {.explanations = explanations};
