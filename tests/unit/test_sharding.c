// What the library offers to lab 10: a layer of the program's own, a dense layer without bias, the
// memory of a model, an optimizer that gets the gradients piece by piece, and weights that are freed
// between the passes. (On several ranks: tests/mpi/hvd_training.c.)

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/format.h"
#include "base/memory.h"
#include "child.h"
#include "hvdlab.h"
#include "lessons/shard_file.h"
#include "lessons/shards.h"
#include "lessons/shards_state.h"
#include "normal_batch.h"
#include "operation.h"

enum { IMAGES = 8, PIXELS = 28 * 28 };

static Batch random_batch(int count)
{
    return normal_batch(count, 28, 1);
}

static void train(Model *model, int updates)
{
    Batch batch = random_batch(IMAGES);
    for (int i = 0; i < updates; i++)
        train_on_batch(model, &batch);
}

// ---- Layers.

static size_t forward_count, backward_count;

static void doubled(float *values, size_t count)
{
    forward_count += count;
    for (size_t i = 0; i < count; i++)
        values[i] *= 2;
}

static void doubled_back(float *gradients, size_t count)
{
    backward_count += count;
    for (size_t i = 0; i < count; i++)
        gradients[i] *= 2;
}

static Model *with_kernel_twice(bool custom)
{
    seed_process(1);
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense(flatten(image), 12));
    if (custom)
        x = custom_layer(x, doubled, doubled_back);
    Model *m = compile(model(image, softmax(dense(x, 10))), CATEGORICAL_CROSSENTROPY, sgd(0.05f));
    float kernel[12 * 10];
    model_read_variable(m, 2, kernel);
    for (int i = 0; i < 12 * 10 && !custom; i++)
        kernel[i] *= 2;
    model_write_variable(m, 2, kernel);
    return m;
}

// Values that are doubled are those of a kernel that is: so are the loss and the first layer's
// gradients. On a GPU, too, each step calls each function once.
START_TEST(a_custom_layer_computes_by_its_functions)
{
    Model *custom = with_kernel_twice(true), *plain = with_kernel_twice(false);
    Batch batch = random_batch(5);
    for (int step = 0; step < 3; step++) {
        forward_count = backward_count = 0;
        compute_gradients(custom, &batch);
        compute_gradients(plain, &batch);
        ck_assert_uint_eq(forward_count, 5 * 12);
        ck_assert_uint_eq(backward_count, 5 * 12);
    }
    ck_assert_double_eq_tol(model_metrics(custom).loss, model_metrics(plain).loss, 1e-5);
    static float a[PIXELS * 12], b[PIXELS * 12];
    model_read_gradient(custom, 0, a);
    model_read_gradient(plain, 0, b);
    for (int i = 0; i < PIXELS * 12; i++)
        ck_assert_float_eq_tol(a[i], b[i], 1e-5f);
    model_free(custom);
    model_free(plain);
}
END_TEST

START_TEST(a_dense_layer_without_bias_has_a_kernel_alone)
{
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense_without_bias(flatten(image), 12));
    Model *m = compile(model(image, softmax(dense(x, 10))), CATEGORICAL_CROSSENTROPY, adam(0.001f));
    ck_assert_int_eq(model_variable_count(m), 3);
    ck_assert_str_eq(model_variable(m, 0)->name, "dense/kernel");
    ck_assert_str_eq(model_variable(m, 1)->name, "dense_1/kernel");
    ck_assert_ptr_nonnull(strstr(model_parameters(m)->description, "without bias"));
    Batch batch = random_batch(IMAGES);
    train_on_batch(m, &batch);
    double first = model_metrics(m).loss;
    train(m, 300); // other weights in each run
    model_reset_metrics(m);
    test_on_batch(m, &batch);
    ck_assert_double_lt(model_metrics(m).loss, first / 2);
    model_free(m);
}
END_TEST

// ---- Memory.

static Model *three_layers(Optimizer *optimizer)
{
    seed_process(1);
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense(relu(dense(flatten(image), 64)), 64));
    return compile(model(image, softmax(dense(x, 10))), CATEGORICAL_CROSSENTROPY, optimizer);
}

START_TEST(memory_is_that_of_weights_gradients_state_and_activations)
{
    Model *m = three_layers(adam(0.001f));
    size_t weights = sizeof(float) * (784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10);
    size_t padding = sizeof(float) * 64 * 6;
    MemoryUse before = model_memory(m);
    ck_assert(before.weights >= weights && before.weights <= weights + padding);
    ck_assert_uint_eq(before.gradients, before.weights);
    ck_assert_uint_eq(before.optimizer, 0);
    ck_assert_uint_eq(before.activations, 0);
    train(m, 1);
    MemoryUse after = model_memory(m);
    ck_assert_uint_eq(after.optimizer, 2 * before.weights);
    ck_assert_uint_ge(after.activations, sizeof(float) * IMAGES * (784 + 64 + 64 + 10));
    model_free(m);
}
END_TEST

// ---- Pieces.

static void keep_all(Piece *piece)
{
    int count = piece_count(piece);
    memcpy(kept_gradients(piece, count), piece_gradients(piece), (size_t)count * sizeof(float));
}

static void update_all(Piece *piece)
{
    update_weights(piece, 0, piece_count(piece));
}

// The same bits as without pieces, and the gradients of one layer at a time beside the kept ones.
START_TEST(pieces_are_updated_as_a_whole_model_is)
{
    Optimizer *(*const optimizers[])(float) = {sgd, adam, adadelta, adagrad, rmsprop};
    Model *pieces = three_layers(optimizer_in_shards(optimizers[_i](0.01f), keep_all, update_all));
    Model *whole = three_layers(optimizers[_i](0.01f));
    size_t largest = model_memory(pieces).gradients;
    ck_assert_uint_eq(largest, sizeof(float) * (784 * 64 + 64));
    train(pieces, 4);
    train(whole, 4);
    ck_assert_double_eq(model_fingerprints(pieces).weights, model_fingerprints(whole).weights);
    ck_assert_uint_le(model_memory(pieces).gradients, largest + model_memory(whole).gradients);
    ck_assert_uint_le(model_memory(pieces).optimizer, model_memory(whole).optimizer);
    ck_assert_uint_ge(model_memory(pieces).optimizer + 64 * 6 * 2 * sizeof(float),
                      model_memory(whole).optimizer);
    model_free(pieces);
    model_free(whole);
}
END_TEST

// ---- Weights in shards.

static void keep_own(Piece *piece)
{
    keep_weights(piece, 0, piece_count(piece));
    free_weights(piece);
}

static void copy_own(Piece *piece)
{
    memcpy(allocate_weights(piece), kept_weights(piece),
           (size_t)piece_count(piece) * sizeof(float));
}

// The piece whose pass comes next, as the pass before has said; so many passes were the last ones.
static Piece *announced;
static int last_passes;

static void copy_announced(Piece *piece)
{
    ck_assert(!announced || announced == piece);
    copy_own(piece);
    announced = next_piece(piece);
    last_passes += !announced;
}

static void free_announcing(Piece *piece)
{
    ck_assert_ptr_eq(next_piece(piece), announced);
    free_weights(piece);
}

static Optimizer *in_shards(Optimizer *optimizer)
{
    announced = NULL;
    last_passes = 0;
    return weights_in_shards(optimizer_in_shards(optimizer, keep_all, update_all), keep_own,
                             copy_announced, free_announcing);
}

// The same bits as without, in training and in a test; between the passes no weights are there.
START_TEST(weights_are_there_in_passes_alone)
{
    Model *pieces = three_layers(in_shards(adam(0.01f))), *whole = three_layers(adam(0.01f));
    Batch batch = random_batch(IMAGES);
    ck_assert_double_eq(model_fingerprints(pieces).weights, model_fingerprints(whole).weights);
    float a[IMAGES * 10], b[IMAGES * 10];
    for (int updates = 0; updates < 4; updates++) {
        predict_on_batch(pieces, &batch, a);
        predict_on_batch(whole, &batch, b);
        ck_assert_mem_eq(a, b, sizeof a);
        ck_assert_double_eq(model_fingerprints(pieces).weights, 0);
        train(pieces, 1);
        train(whole, 1);
    }
    ck_assert_int_eq(last_passes, 4 * 3); // of a test, and of both passes of a training step
    size_t all = model_memory(whole).weights, largest = sizeof(float) * (784 * 64 + 64);
    ck_assert_uint_le(model_memory(pieces).weights, all + largest);
    ck_assert_uint_ge(model_memory(pieces).weights + 64 * 6 * sizeof(float), all + largest);
    model_free(pieces);
    model_free(whole);
}
END_TEST

// A tenth of each piece, of weights that are zeros from then on.
static void keep_tenth(Piece *piece)
{
    keep_weights(piece, 0, piece_count(piece) / 10);
    free_weights(piece);
}

static void write_zeros(Piece *piece)
{
    memset(allocate_weights(piece), 0, (size_t)piece_count(piece) * sizeof(float));
}

START_TEST(freed_weights_are_the_systems)
{
    enum { UNITS = 2048, LAYERS = 6 };
    Optimizer *optimizer = optimizer_in_shards(sgd(0.01f), keep_all, update_all);
    Tensor image = input(28, 28, 1), x = flatten(image);
    for (int layer = 0; layer < LAYERS; layer++)
        x = relu(dense(x, UNITS));
    Model *m = compile(model(image, softmax(dense(x, 10))), CATEGORICAL_CROSSENTROPY,
                       weights_in_shards(optimizer, keep_tenth, write_zeros, free_weights));
    size_t all = model_memory(m).weights, before = resident_memory();
    Batch batch = random_batch(1);
    float probabilities[10];
    predict_on_batch(m, &batch, probabilities);
    ck_assert_uint_gt(before, all);
    ck_assert_uint_lt(resident_memory(), before - all / 2);
    ck_assert_uint_lt(model_memory(m).weights, all / 2);
    model_free(m);
}
END_TEST

static void read_gradients(Piece *piece)
{
    (void)piece_gradients(piece);
}

static void update_too_far(Piece *piece)
{
    update_weights(piece, 1, piece_count(piece));
}

static void update_fewer(Piece *piece)
{
    update_weights(piece, 0, piece_count(piece) - 1);
}

static void keep_too_many(Piece *piece)
{
    kept_gradients(piece, piece_count(piece) + 1);
}

static void keep_one(Piece *piece)
{
    kept_gradients(piece, 1)[0] = 0;
}

static void update_another(Piece *piece)
{
    static int calls;
    update_weights(piece, calls++ / 3, 1);
}

static void update_at_once(Piece *piece)
{
    keep_all(piece);
    update_all(piece);
}

static void nothing(Piece *piece)
{
    (void)piece;
}

static void train_pieces(void (*ready)(Piece *), void (*update)(Piece *))
{
    train(three_layers(optimizer_in_shards(adam(0.01f), ready, update)), 3);
}

static void gradients_later(void)
{
    train_pieces(keep_all, read_gradients);
}

static void part_beyond_the_end(void)
{
    train_pieces(keep_all, update_too_far);
}

static void part_shorter_than_kept(void)
{
    train_pieces(keep_all, update_fewer);
}

static void more_than_a_piece(void)
{
    train_pieces(keep_too_many, update_all);
}

static void another_part(void)
{
    train_pieces(keep_one, update_another);
}

static void update_in_the_backward_pass(void)
{
    train_pieces(update_at_once, nothing);
}

static void pieces_of_pieces(void)
{
    (void)!optimizer_in_shards(optimizer_in_shards(adam(0.01f), keep_all, update_all), keep_all,
                               update_all);
}

static void gradients_that_nothing_keeps(void)
{
    Model *m = three_layers(optimizer_in_shards(adam(0.01f), keep_all, update_all));
    train(m, 1);
    static float values[784 * 64];
    model_read_gradient(m, 0, values);
}

static void train_weights(void (*divide)(Piece *), void (*before)(Piece *), void (*after)(Piece *))
{
    Optimizer *optimizer = optimizer_in_shards(adam(0.01f), keep_all, update_all);
    train(three_layers(weights_in_shards(optimizer, divide, before, after)), 2);
}

static void weights_not_gathered(void)
{
    train_weights(keep_own, nothing, free_weights);
}

static void weights_not_kept(void)
{
    train_weights(free_weights, copy_own, free_weights);
}

static void read_weights(Piece *piece)
{
    (void)piece_weights(piece);
}

static void weights_read_when_freed(void)
{
    train_weights(keep_own, read_weights, free_weights);
}

static void free_then_keep(Piece *piece)
{
    free_weights(piece);
    keep_own(piece);
}

static void weights_kept_when_freed(void)
{
    train_weights(free_then_keep, nothing, free_weights);
}

static void another_part_of_weights(void)
{
    train_weights(keep_tenth, write_zeros, free_weights);
}

static void weights_of_no_shards(void)
{
    train_pieces(free_weights, update_all);
}

static void weights_of_another_optimizer(void)
{
    (void)!weights_in_shards(adam(0.01f), nothing, nothing, nothing);
}

static void parts_in_one_file(void)
{
    Model *m = three_layers(optimizer_in_shards(adam(0.01f), keep_all, update_all));
    train(m, 1);
    (void)!write_checkpoint(&(Training){.model = m}, "build/parts");
}

static Model *with_weights_in_shards(void)
{
    Optimizer *optimizer = optimizer_in_shards(adam(0.01f), keep_all, update_all);
    return three_layers(weights_in_shards(optimizer, nothing, nothing, nothing));
}

static void weights_in_a_checkpoint(void)
{
    save_checkpoint(&(Training){.model = with_weights_in_shards()}, "build", "parts");
}

static void weights_from_a_checkpoint(void)
{
    restore_checkpoint(with_weights_in_shards(), NULL, "build", "parts");
}

static void arrays_of_another_optimizer(void)
{
    (void)!state_array_count(three_layers(optimizer_in_shards(adam(0.01f), keep_all, update_all)));
}

static void no_such_array(void)
{
    (void)state_array(three_layers(optimizer_in_equal_shards(adam(0.01f))), 18);
}

static void array_twice_in_a_shard(void)
{
    Shard *shard = shard_new();
    shard_add(shard, "m", (Slice){0, 1}, (float[]){1});
    shard_add(shard, "m", (Slice){1, 1}, (float[]){1});
}

static void slice_before_the_array(void)
{
    shard_add(shard_new(), "m", (Slice){-1, 1}, (float[]){1});
}

static void values_of_no_shard(void)
{
    Slice slice;
    (void)!shard_values(NULL, "m", &slice);
}

// ---- A shard as a file.

START_TEST(a_shard_is_read_as_it_was_written)
{
    char folder[] = "/tmp/hvdlab-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_ptr_null(shard_read(folder, 3));
    Shard *shard = shard_new();
    shard_add(shard, "m", (Slice){5, 2}, (float[]){1.5f, -2});
    shard_add(shard, "empty", (Slice){9, 0}, NULL);
    shard_add_number(shard, "updates", 1L << 40);
    shard_write(shard, folder, 3);
    shard_free(shard);
    Slice slice;
    shard = shard_read(folder, 3);
    const float *values = shard_values(shard, "m", &slice);
    ck_assert(slice.begin == 5 && slice.count == 2 && values[0] == 1.5f && values[1] == -2);
    shard_values(shard, "empty", &slice);
    ck_assert(slice.begin == 9 && slice.count == 0);
    ck_assert_ptr_null(shard_values(shard, "v", &slice));
    ck_assert_int_eq(slice.count, 0);
    ck_assert(shard_number(shard, "updates") == 1L << 40 && shard_number(shard, "m") == -1);
    shard_free(shard);
    char *path = format_text("%s/shard-3.safetensors", folder);
    ck_assert_int_eq(unlink(path) + rmdir(folder), 0);
    free(path);
}
END_TEST

// ---- Custom layers.

static void custom_layer_of_an_image(void)
{
    Tensor image = input(28, 28, 1);
    Tensor x = custom_layer(relu(conv2d(image, 4, 3)), doubled, doubled_back);
    compile(model(image, softmax(dense(flatten(x), 10))), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

static void custom_layer_without_functions(void)
{
    (void)!custom_layer(flatten(input(28, 28, 1)), doubled, NULL);
}

static const RefusedCall mistakes[] = {
    {gradients_later, "piece_gradients: the gradients of this piece are gone"},
    {part_beyond_the_end, "weights from number 1 on, of a piece that has"},
    {part_shorter_than_kept, "gradients of this piece were kept"},
    {more_than_a_piece, "gradients of a piece that has"},
    {another_part, "but the state of this piece is for 1 from number 0 on"},
    {update_in_the_backward_pass, "update_weights: the backward pass still reads weights"},
    {weights_not_gathered, "the forward pass of a layer begins, and its weights are not there"},
    {weights_not_kept, "kept_weights: no weights of this piece are kept"},
    {weights_read_when_freed, "piece_weights: the weights of this piece are not there"},
    {weights_kept_when_freed, "keep_weights: the weights of this piece are not there"},
    {another_part_of_weights, "weights from number 0 on, but keep_weights() has kept"},
    {weights_of_no_shards, "free_weights: weights are not in shards"},
    {weights_of_another_optimizer, "it needs an optimizer of optimizer_in_shards()"},
    {pieces_of_pieces, "optimizer_in_shards: Adam is wrapped already"},
    {gradients_that_nothing_keeps,
     "model_read_gradient: this model's optimizer gets the gradients"},
    {weights_in_a_checkpoint,
     "save_checkpoint: with weights_in_shards() no worker has all weights"},
    {weights_from_a_checkpoint, "restore_checkpoint: with weights_in_shards() no worker has all"},
    {parts_in_one_file, "write_checkpoint: optimizer_in_shards() leaves the optimizer's state"},
    {arrays_of_another_optimizer, "not trained by optimizer_in_equal_shards(), but by Adam"},
    {no_such_array, "state_array: there is no array 18; the state has 18, from 0"},
    {array_twice_in_a_shard, "shard_add: the shard has m already"},
    {slice_before_the_array, "shard_add: 1 numbers from number -1 on of m"},
    {values_of_no_shard, "shard_values: there is no shard (NULL)"},
    {custom_layer_of_an_image, "compile: custom_layer reads a vector"},
    {custom_layer_without_functions, "custom_layer: it needs two functions"},
};

START_TEST(a_mistake_ends_in_one_line)
{
    assert_call_refused(&mistakes[_i]);
}
END_TEST

int main(void)
{
    use_test_device();
    Suite *suite = suite_create("sharding");
    TCase *layers = operation_case(suite, "layers"), *memory = operation_case(suite, "memory");
    tcase_add_test(layers, a_custom_layer_computes_by_its_functions);
    tcase_add_test(layers, a_dense_layer_without_bias_has_a_kernel_alone);
    tcase_add_test(memory, memory_is_that_of_weights_gradients_state_and_activations);
    tcase_add_loop_test(memory, pieces_are_updated_as_a_whole_model_is, 0, 5);
    tcase_add_test(memory, weights_are_there_in_passes_alone);
    tcase_add_test(memory, freed_weights_are_the_systems);
    tcase_add_test(memory, a_shard_is_read_as_it_was_written);
    TCase *lines = operation_case(suite, "lines");
    tcase_add_loop_test(lines, a_mistake_ends_in_one_line, 0, COUNT(mistakes));
    return run_suite(suite);
}
