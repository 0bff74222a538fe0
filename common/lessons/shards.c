// The optimizer that passes layers to the program (shards.h). It computes updates of parts of
// arrays by the backend's own arithmetic, and counts the memory that the parts take.

#include "lessons/shards.h"

#include <stdlib.h>
#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "observe/trace.h"

typedef struct Shards Shards;

struct Piece {
    Shards *shards;
    int number;            // of the piece, in the order of the backward pass
    size_t offset, length; // in the arena
    float *kept;           // gradients
    int kept_count;        // of them
    int begin, count;      // of the weights that have state; count -1: no update yet
    float *slots[2];       // the state
};

struct Shards {
    Optimizer optimizer;
    int slot_count; // arrays of state for each weight
    const Parameters *parameters;
    Piece **pieces;
    int piece_count;
    Piece *ready_piece; // whose gradients are there now
    void (*ready)(Piece *piece);
    void (*update)(Piece *piece);
};

static void check_piece(const Piece *piece, const char *caller)
{
    if (!piece)
        die("%s: there is no piece (NULL)", caller);
}

int piece_count(const Piece *piece)
{
    check_piece(piece, __func__);
    return (int)piece->length;
}

float *piece_weights(const Piece *piece)
{
    check_piece(piece, __func__);
    return piece->shards->parameters->weights + piece->offset;
}

const float *piece_gradients(const Piece *piece)
{
    check_piece(piece, __func__);
    if (piece->shards->ready_piece != piece)
        die("%s: the gradients of this piece are gone: their memory belongs to the next piece when "
            "the function that gets them returns; keep a part with kept_gradients()",
            __func__);
    return piece->shards->parameters->gradients;
}

float *kept_gradients(Piece *piece, int count)
{
    check_piece(piece, __func__);
    if (count < 0 || (size_t)count > piece->length)
        die("%s: %d gradients of a piece that has %zu", __func__, count, piece->length);
    if (!piece->kept || count != piece->kept_count) {
        size_t *total = &piece->shards->optimizer.gradient_bytes;
        *total += (size_t)count * sizeof(float);
        *total -= (size_t)piece->kept_count * sizeof(float);
        free(piece->kept);
        piece->kept = allocate(count > 0 ? (size_t)count : 1, sizeof *piece->kept);
        piece->kept_count = count;
    }
    return piece->kept;
}

static void allocate_state(Piece *piece, int begin, int count)
{
    piece->begin = begin;
    piece->count = count;
    for (int i = 0; i < piece->shards->slot_count; i++) {
        piece->slots[i] = allocate(count > 0 ? (size_t)count : 1, sizeof(float));
        piece->shards->optimizer.state_bytes += (size_t)count * sizeof(float);
    }
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

// The variables, or parts of them, among the weights at begin ... end - 1 of the arena; offsets
// count from `begin`. Returns their number.
static int segments_between(const Parameters *parameters, size_t begin, size_t end, Segment *to)
{
    int count = 0;
    for (int i = 0; i < parameters->segment_count; i++) {
        Segment s = parameters->segments[i];
        size_t first = max_size(s.offset, begin), last = min_size(s.offset + s.length, end);
        if (first >= last)
            continue;
        s.offset = first - begin;
        s.length = last - first;
        to[count++] = s;
    }
    return count;
}

static void check_update(const Piece *piece, int begin, int count)
{
    const char *caller = "update_weights";
    if (piece->shards->ready_piece)
        die("%s: the backward pass still reads weights; call it in the function for the update",
            caller);
    if (begin < 0 || count < 0 || (size_t)begin + (size_t)count > piece->length)
        die("%s: %d weights from number %d on, of a piece that has %zu", caller, count, begin,
            piece->length);
    if (!piece->kept || count != piece->kept_count)
        die("%s: %d weights, but %d gradients of this piece were kept", caller, count,
            piece->kept_count);
    if (piece->count >= 0 && (begin != piece->begin || count != piece->count))
        die("%s: %d weights from number %d on, but the state of this piece is for %d from number "
            "%d on",
            caller, count, begin, piece->count, piece->begin);
}

static double print_of(const Piece *piece, const float *values, int begin, int count)
{
    const Parameters shard = {.device = piece->shards->parameters->device,
                              .gradients = (float *)(uintptr_t)values,
                              .first_gradient = piece->offset + (size_t)begin};
    return gradient_fingerprint(&shard, shard.first_gradient, (size_t)count);
}

void update_weights(Piece *piece, int begin, int count)
{
    check_piece(piece, __func__);
    check_update(piece, begin, count);
    if (piece->count < 0)
        allocate_state(piece, begin, count);
    const Shards *shards = piece->shards;
    const Parameters *parameters = shards->parameters;
    float *weights = piece_weights(piece) + begin;
    if (trace_on())
        trace("shard_update", NUMBER("piece", piece->number), NUMBER("begin", begin),
              NUMBER("count", count), NUMBER("value", print_of(piece, piece->kept, begin, count)));
    Segment *segments = allocate((size_t)parameters->segment_count, sizeof *segments);
    size_t first = piece->offset + (size_t)begin;
    int segment_count = segments_between(parameters, first, first + (size_t)count, segments);
    Update update = shards->optimizer.rule;
    update.step = shards->optimizer.iterations;
    update.weights = weights;
    update.gradients = piece->kept;
    update.slots[0] = piece->slots[0];
    update.slots[1] = piece->slots[1];
    backend_of(parameters->device)->update(parameters->device, &update, segments, segment_count);
    free(segments);
    if (trace_on())
        trace("shard_updated", NUMBER("piece", piece->number),
              NUMBER("weights", print_of(piece, weights, begin, count)));
}

// The piece at an offset, which the first backward pass makes.
static Piece *piece_at(Shards *shards, size_t offset, size_t length)
{
    for (int i = 0; i < shards->piece_count; i++)
        if (shards->pieces[i]->offset == offset)
            return shards->pieces[i];
    int number = shards->piece_count++;
    shards->pieces = enlarge(shards->pieces, (size_t)shards->piece_count, sizeof *shards->pieces);
    Piece *piece = shards->pieces[number] = allocate(1, sizeof *piece);
    *piece = (Piece){
        .shards = shards, .number = number, .offset = offset, .length = length, .count = -1};
    return piece;
}

static void gradient_ready(Optimizer *self, const Parameters *parameters, size_t offset,
                           size_t length)
{
    Shards *shards = (Shards *)self;
    if (length == 0)
        return;
    shards->parameters = parameters;
    Piece *piece = piece_at(shards, offset, length);
    if (trace_on())
        trace("piece", NUMBER("count", length), NUMBER("number", piece->number),
              NUMBER("value", gradient_fingerprint(parameters, offset, length)));
    shards->ready_piece = piece;
    shards->ready(piece);
    shards->ready_piece = NULL;
    trace("piece_end", NUMBER("count", length));
}

static void apply(Optimizer *self, const Parameters *parameters)
{
    Shards *shards = (Shards *)self;
    if (shards->parameters != parameters)
        die("optimizer_in_shards: the model does not pass its gradients on: give this optimizer to "
            "compile() itself, and wrap it in no other one");
    self->iterations++;
    for (int i = 0; i < shards->piece_count; i++) {
        Piece *piece = shards->pieces[i];
        shards->update(piece);
        if (trace_on())
            trace("piece_updated", NUMBER("number", i), NUMBER("count", piece->length),
                  NUMBER("kept", piece->kept_count), NUMBER("state", piece->count),
                  NUMBER("weights", print_of(piece, piece_weights(piece), 0, (int)piece->length)));
    }
}

static void release(Optimizer *self)
{
    Shards *shards = (Shards *)self;
    for (int i = 0; i < shards->piece_count; i++) {
        free(shards->pieces[i]->kept);
        free(shards->pieces[i]->slots[0]);
        free(shards->pieces[i]->slots[1]);
        free(shards->pieces[i]);
    }
    free(shards->pieces);
}

Optimizer *optimizer_in_shards(Optimizer *optimizer, void (*ready)(Piece *piece),
                               void (*update)(Piece *piece))
{
    if (!optimizer || !ready || !update)
        die("%s: it needs an optimizer and two functions, not NULL", __func__);
    if (optimizer->inner || optimizer->apply == apply)
        die("%s: %s is wrapped already; it takes a plain one, such as adam()", __func__,
            optimizer->name);
    device_need_cpu(__func__);
    Shards *shards = allocate(1, sizeof *shards);
    *shards = (Shards){
        .optimizer = {.name = optimizer->name,
                      .rule = optimizer->rule,
                      .takes_pieces = true,
                      .gradient_ready = gradient_ready,
                      .apply = apply,
                      .release = release},
        .slot_count = optimizer->slot_count,
        .ready = ready,
        .update = update,
    };
    optimizer_free(optimizer);
    lives_until_exit(shards);
    return &shards->optimizer;
}
