// An optimizer in equal shards: which part of each piece a worker keeps, where the arrays of its
// state lie, and hashes of them for a check.

#include "lessons/shards_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "lessons/exercises.h"
#include "lessons/shards_inside.h"
#include "nn/weights.h"
#include "observe/trace.h"

static Slice equal_part(const Piece *piece)
{
    int length = (int)piece->length, size = hvd_size(), rank = hvd_rank();
    int each = length / size, longer = length % size;
    return (Slice){rank * each + (rank < longer ? rank : longer), each + (rank < longer)};
}

static void keep_equal_part(Piece *piece)
{
    hvd_reduce_scatter(piece_gradients(piece), piece->length,
                       kept_gradients(piece, equal_part(piece).count), HVD_AVERAGE);
}

static void update_equal_part(Piece *piece)
{
    Slice own = equal_part(piece);
    size_t total;
    update_weights(piece, own.begin, own.count);
    float *all = hvd_allgather(piece_weights(piece) + own.begin, (size_t)own.count, &total);
    memcpy(piece_weights(piece), all, total * sizeof *all);
    free(all);
}

// ---- Arrays.

static Shards *equal_shards(Model *model, const char *caller)
{
    model_check_compiled(model, caller);
    Optimizer *optimizer = model_optimizer(model);
    Shards *shards = optimizer->takes_pieces ? (Shards *)optimizer : NULL;
    if (!shards || shards->ready != keep_equal_part)
        die("%s: the model is not trained by optimizer_in_equal_shards(), but by %s", caller,
            optimizer->name);
    shards_make_pieces(shards, model_parameters(model));
    return shards;
}

// This worker's state of the piece that a variable is in.
static const StatePart *part_with(Shards *shards, const Variable *variable)
{
    Piece *piece = shards->pieces;
    while (variable->offset < piece->offset || variable->offset >= piece->offset + piece->length)
        piece++;
    Slice own = equal_part(piece);
    shards_need_state(piece, own.begin, own.count);
    return &shards->optimizer.parts[piece->part];
}

int state_array_count(Model *model)
{
    int count = 0;
    equal_shards(model, __func__);
    for (int i = 0; i < state_count(model); i++)
        count += model_variable(model, state_tensor(model, i).variable)->trainable;
    return count;
}

// Statistics are no arrays.
static StateTensor trained_tensor(const Model *model, int number)
{
    StateTensor tensor;
    int i = 0;
    do
        tensor = state_tensor(model, i++);
    while (!model_variable(model, tensor.variable)->trainable || number-- > 0);
    return tensor;
}

StateArray state_array(Model *model, int number)
{
    Shards *shards = equal_shards(model, __func__);
    if (number < 0 || number >= state_array_count(model))
        die("%s: there is no array %d; the state has %d, from 0", __func__, number,
            state_array_count(model));
    StateTensor tensor = trained_tensor(model, number);
    const Variable *v = model_variable(model, tensor.variable);
    const StatePart *part = part_with(shards, v);
    size_t begin, count = state_in_part(part, v, &begin);
    StateArray array = {.length = (int)v->length};
    snprintf(array.name, sizeof array.name, "%s", tensor.name);
    if (count > 0)
        array.own = (Slice){(int)(begin - v->offset), (int)count};
    array.needed = tensor.slot < 0 ? (Slice){0, array.length} : array.own;
    array.values =
        tensor.slot < 0 ? shards->parameters->weights + v->offset : part->slots[tensor.slot];
    if (tensor.slot >= 0 && count > 0)
        array.values += begin - part->offset;
    return array;
}

// ---- A training.

uint64_t shards_hash(float value, int place)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return hash_number((uint64_t)place + 1, bits);
}

enum { BLOCKS = 16 }; // of an array, so that a check sees where two differ

static void trace_array(StateArray array, int number)
{
    uint64_t blocks[BLOCKS] = {0};
    char text[BLOCKS * 17 + 1] = "";
    for (int i = 0; i < array.needed.count; i++) {
        int place = array.needed.begin + i;
        blocks[(int64_t)place * BLOCKS / array.length] += shards_hash(array.values[i], place);
    }
    for (int b = 0; b < BLOCKS; b++)
        snprintf(text + 17 * b, sizeof text - 17 * (size_t)b, "%016" PRIx64 " ", blocks[b]);
    trace("state_array", NUMBER("number", number), TEXT("name", array.name),
          NUMBER("length", array.length), NUMBER("begin", array.needed.begin),
          NUMBER("count", array.needed.count), TEXT("bits", text));
}

static void trace_state(Model *model)
{
    int count = state_array_count(model);
    trace("state", NUMBER("updates", optimizer_iterations(model_optimizer(model))),
          NUMBER("arrays", count));
    for (int i = 0; i < count && trace_on(); i++)
        trace_array(state_array(model, i), i);
}

void train_in_equal_shards(Model *model, const Args *args)
{
    Dataset images = load_data(args, TRAIN);
    Batches *batches = plain_batches(&images, image_statistics(&images), args->batch_size);
    trace_state(model);
    for (int epoch = 1; epoch <= args->epochs; epoch++) {
        Metrics metrics = pass_of_all(model, batches, train_on_batch);
        if (hvd_rank() == 0)
            printf("Epoch %d/%d, after update %lld - loss: %.6f\n", epoch, args->epochs,
                   (long long)optimizer_iterations(model_optimizer(model)),
                   metrics.loss / metrics.images);
    }
    trace_state(model);
}

Optimizer *optimizer_in_equal_shards(Optimizer *optimizer)
{
    trace_call();
    return optimizer_in_shards(optimizer, keep_equal_part, update_equal_part);
}
