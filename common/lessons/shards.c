// The optimizer that passes layers to the program (shards.h). It computes updates of parts of
// arrays by the backend's own arithmetic, and counts the memory that the parts take.

#include "lessons/shards_inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "observe/trace.h"

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

static float *weights_of(const Piece *piece)
{
    return piece->shards->parameters->weights + piece->offset;
}

static float *whole_weights(const Piece *piece, const char *caller)
{
    check_piece(piece, caller);
    if (!piece->whole)
        die("%s: the weights of this piece are not there: they were freed; allocate_weights() gives "
            "memory for them",
            caller);
    return weights_of(piece);
}

float *piece_weights(const Piece *piece)
{
    return whole_weights(piece, __func__);
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

// What a checkpoint has restored, if any, is in the optimizer's slots until the next update.
static void take_restored(const Piece *piece)
{
    const Optimizer *optimizer = &piece->shards->optimizer;
    const StatePart *part = &optimizer->parts[piece->part];
    for (int i = 0; i < optimizer->slot_count && optimizer->slots[i]; i++)
        memcpy(part->slots[i], optimizer->slots[i] + part->offset, part->count * sizeof(float));
}

static void make_state(Piece *piece, int begin, int count)
{
    Optimizer *optimizer = &piece->shards->optimizer;
    piece->begin = begin;
    piece->count = count;
    piece->part = optimizer->part_count++;
    optimizer->parts =
        enlarge(optimizer->parts, (size_t)optimizer->part_count, sizeof *optimizer->parts);
    StatePart *part = &optimizer->parts[piece->part];
    *part = (StatePart){piece->offset + (size_t)begin, (size_t)count, {NULL}};
    for (int i = 0; i < optimizer->slot_count; i++)
        part->slots[i] = allocate(count > 0 ? (size_t)count : 1, sizeof(float));
    optimizer->state_bytes += (size_t)optimizer->slot_count * part->count * sizeof *part->slots[0];
    take_restored(piece);
}

void shards_need_state(Piece *piece, int begin, int count)
{
    if (piece->count < 0)
        make_state(piece, begin, count);
    else
        take_restored(piece);
}

static double print_of(const Piece *piece, const float *values, int begin, int count)
{
    const Parameters shard = {.device = piece->shards->parameters->device,
                              .gradients = (float *)(uintptr_t)values,
                              .first_gradient = piece->offset + (size_t)begin};
    return gradient_fingerprint(&shard, shard.first_gradient, (size_t)count);
}

// ---- Weights in shards.

static void need_shards(const Piece *piece, const char *caller)
{
    check_piece(piece, caller);
    if (!piece->shards->divide)
        die("%s: weights are not in shards: call weights_in_shards() before compile()", caller);
}

// The most weights at a time, since the first piece was divided.
static void count_weights(Shards *shards)
{
    size_t bytes = (shards->own_length + shards->whole_length) * sizeof(float);
    if (bytes > shards->optimizer.weight_bytes)
        shards->optimizer.weight_bytes = bytes;
}

void keep_weights(Piece *piece, int begin, int count)
{
    need_shards(piece, __func__);
    if (begin < 0 || count < 0 || (size_t)begin + (size_t)count > piece->length)
        die("%s: %d weights from number %d on, of a piece that has %zu", __func__, count, begin,
            piece->length);
    const float *from = whole_weights(piece, __func__) + begin;
    Shards *shards = piece->shards;
    shards->own_length += (size_t)count - (size_t)piece->own_count;
    free(piece->own);
    piece->own = allocate(count > 0 ? (size_t)count : 1, sizeof *piece->own);
    memcpy(piece->own, from, (size_t)count * sizeof *from);
    piece->own_begin = begin;
    piece->own_count = count;
    if (trace_on())
        trace("weights_kept", NUMBER("piece", piece->number), NUMBER("begin", begin),
              NUMBER("count", count), NUMBER("weights", print_of(piece, from, begin, count)));
}

const float *kept_weights(const Piece *piece)
{
    need_shards(piece, __func__);
    if (!piece->own)
        die("%s: no weights of this piece are kept; call keep_weights() when the piece is divided",
            __func__);
    return piece->own;
}

Piece *next_piece(const Piece *piece)
{
    need_shards(piece, __func__);
    Shards *shards = piece->shards;
    int next = piece->number + shards->towards_next;
    return next >= 0 && next < shards->piece_count ? &shards->pieces[next] : NULL;
}

static void become_whole(Piece *piece, bool whole)
{
    Shards *shards = piece->shards;
    piece->whole = whole;
    shards->whole += whole ? 1 : -1;
    shards->whole_length += whole ? piece->length : -piece->length;
    trace(whole ? "weights_allocated" : "weights_freed", NUMBER("piece", piece->number),
          NUMBER("whole", shards->whole));
}

float *allocate_weights(Piece *piece)
{
    need_shards(piece, __func__);
    if (!piece->whole) {
        become_whole(piece, true);
        count_weights(piece->shards);
    }
    return weights_of(piece);
}

// Pages that hold other pieces' weights, too, stay.
static void free_pages(float *from, size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)from + page - 1) / page * page;
    uintptr_t end = (uintptr_t)(from + length) / page * page;
    memset(from, 0, length * sizeof *from);
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void free_weights(Piece *piece)
{
    need_shards(piece, __func__);
    if (piece->whole) {
        become_whole(piece, false);
        free_pages(weights_of(piece), piece->length);
    }
}

// ---- Updates.

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
    if (piece->shards->divide && (begin != piece->own_begin || count != piece->own_count))
        die("%s: %d weights from number %d on, but keep_weights() has kept %d from number %d on",
            caller, count, begin, piece->own_count, piece->own_begin);
}

void update_weights(Piece *piece, int begin, int count)
{
    check_piece(piece, __func__);
    check_update(piece, begin, count);
    if (piece->count < 0)
        make_state(piece, begin, count);
    const Shards *shards = piece->shards;
    const Parameters *parameters = shards->parameters;
    float *weights = shards->divide ? piece->own : weights_of(piece) + begin;
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
    memcpy(update.slots, shards->optimizer.parts[piece->part].slots, sizeof update.slots);
    backend_of(parameters->device)->update(parameters->device, &update, segments, segment_count);
    free(segments);
    if (trace_on())
        trace("shard_updated", NUMBER("piece", piece->number),
              NUMBER("weights", print_of(piece, weights, begin, count)));
}

void shards_make_pieces(Shards *shards, const Parameters *parameters)
{
    shards->parameters = parameters;
    if (shards->pieces)
        return;
    shards->piece_count = shards->whole = parameters->piece_count;
    shards->pieces = allocate((size_t)shards->piece_count, sizeof(Piece));
    for (int i = 0; i < shards->piece_count; i++) {
        const Segment *of = &parameters->pieces[i];
        shards->pieces[i] = (Piece){.shards = shards,
                                    .number = i,
                                    .offset = of->offset,
                                    .length = of->length,
                                    .count = -1,
                                    .whole = true};
        shards->whole_length += of->length;
    }
}

static Piece *piece_at(Shards *shards, const Parameters *parameters, size_t offset)
{
    shards_make_pieces(shards, parameters);
    int i = 0;
    while (shards->pieces[i].offset != offset)
        i++;
    return &shards->pieces[i];
}

static void gradient_ready(Optimizer *self, const Parameters *parameters, size_t offset,
                           size_t length)
{
    Shards *shards = (Shards *)self;
    if (length == 0)
        return;
    Piece *piece = piece_at(shards, parameters, offset);
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
    for (int i = 0; i < shards->piece_count; i++)
        if (shards->pieces[i].count >= 0)
            take_restored(&shards->pieces[i]);
    self->iterations++;
    for (int i = 0; i < shards->piece_count; i++) {
        Piece *piece = &shards->pieces[i];
        shards->update(piece);
        if (trace_on())
            trace("piece_updated", NUMBER("number", i), NUMBER("count", piece->length),
                  NUMBER("kept", piece->kept_count), NUMBER("state", piece->count),
                  NUMBER("weights", print_of(piece, weights_of(piece), 0, (int)piece->length)));
    }
    optimizer_free_slots(self); // all parts have theirs
    if (shards->divide)
        trace("process_memory", NUMBER("bytes", resident_memory()));
}

static void release(Optimizer *self)
{
    Shards *shards = (Shards *)self;
    for (int i = 0; i < shards->piece_count; i++) {
        free(shards->pieces[i].kept);
        free(shards->pieces[i].own);
    }
    for (int i = 0; i < self->part_count; i++) {
        free(self->parts[i].slots[0]);
        free(self->parts[i].slots[1]);
    }
    free(self->parts);
    free(shards->pieces);
}

static void divide_all(Shards *shards)
{
    // A huge page would hold many pieces.
    const Parameters *p = shards->parameters;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)p->weights + page - 1) / page * page;
    madvise((void *)begin, (uintptr_t)(p->weights + p->length) - begin, MADV_NOHUGEPAGE);
    for (int i = 0; i < shards->piece_count; i++)
        shards->divide(&shards->pieces[i]);
    count_weights(shards);
}

static void pass(Optimizer *self, const Parameters *parameters, size_t offset, size_t length,
                 PassMoment moment)
{
    (void)length;
    Shards *shards = (Shards *)self;
    bool first = !shards->parameters;
    Piece *piece = piece_at(shards, parameters, offset);
    if (first)
        divide_all(shards);
    const char *name = moment < BACKWARD_BEGINS ? "forward" : "backward";
    shards->towards_next = moment < BACKWARD_BEGINS ? -1 : 1;
    if (moment == FORWARD_ENDS || moment == BACKWARD_ENDS) {
        trace("pass_computed", NUMBER("piece", piece->number), TEXT("pass", name));
        shards->after(piece);
        trace("pass_end", NUMBER("piece", piece->number), NUMBER("whole", shards->whole));
        return;
    }
    trace("pass_begin", NUMBER("piece", piece->number), TEXT("pass", name));
    shards->before(piece);
    if (!piece->whole)
        die("weights_in_shards: the %s pass of a layer begins, and its weights are not there: the "
            "function that gets it before the pass must collect them",
            name);
    if (trace_on())
        trace("pass_weights", NUMBER("piece", piece->number), NUMBER("whole", shards->whole),
              NUMBER("weights", print_of(piece, weights_of(piece), 0, (int)piece->length)));
}

Optimizer *weights_in_shards(Optimizer *optimizer, void (*divide)(Piece *piece),
                             void (*before)(Piece *piece), void (*after)(Piece *piece))
{
    if (!optimizer || !divide || !before || !after)
        die("%s: it needs an optimizer and three functions, not NULL", __func__);
    if (optimizer->apply != apply || optimizer->compiled)
        die("%s: it needs an optimizer of optimizer_in_shards(), before compile()", __func__);
    Shards *shards = (Shards *)optimizer;
    shards->divide = divide;
    shards->before = before;
    shards->after = after;
    optimizer->pass = pass;
    return optimizer;
}

Optimizer *optimizer_in_shards(Optimizer *optimizer, void (*ready)(Piece *piece),
                               void (*update)(Piece *piece))
{
    if (!optimizer || !ready || !update)
        die("%s: it needs an optimizer and two functions, not NULL", __func__);
    if (optimizer->inner || optimizer->takes_pieces)
        die("%s: %s is wrapped already; it takes a plain one, such as adam()", __func__,
            optimizer->name);
    device_need_cpu(__func__);
    Shards *shards = allocate(1, sizeof *shards);
    *shards = (Shards){
        .optimizer = {.name = optimizer->name,
                      .rule = optimizer->rule,
                      .slot_count = optimizer->slot_count,
                      .takes_pieces = true,
                      .gradient_ready = gradient_ready,
                      .apply = apply,
                      .release = release},
        .ready = ready,
        .update = update,
    };
    optimizer_free(optimizer);
    lives_until_exit(shards);
    return &shards->optimizer;
}
