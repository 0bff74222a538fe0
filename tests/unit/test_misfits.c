// What does not fit makes the program exit with one clear line: layers, what a model is given, and
// what it is asked for.

#include <check.h>
#include "child.h"
#include "hvdlab.h"
#include "models/models.h"
#include "operation.h"

static Model *compiled(Model *model)
{
    return compile(model, CATEGORICAL_CROSSENTROPY, sgd(0.01f));
}

static Model *three_words(void)
{
    return compiled(bag_of_words((ModelShape){.width = 3, .widths = {10, 4}}));
}

static const Batch two_sentences = {(float[]){0, 9, NO_TOKEN, 3, 3, 9}, (int[]){1, 2}, 2};

// Each is the body of a process of its own.
static void conv_of_even_size(const void *unused)
{
    (void)unused;
    (void)!conv2d(input(28, 28, 1), 8, 2);
}

static void dense_of_an_image(const void *unused)
{
    (void)unused;
    (void)!dense(input(28, 28, 1), 10);
}

static void sum_of_two_shapes(const void *unused)
{
    (void)unused;
    Tensor x = input(28, 28, 1);
    (void)!add(conv2d(x, 8, 3), conv2d(x, 16, 3));
}

static void pool_larger_than_the_image(const void *unused)
{
    (void)unused;
    (void)!max_pool(input(4, 4, 1), 5);
}

static void pool_of_too_many_pixels(const void *unused)
{
    (void)unused;
    (void)!max_pool(input(28, 28, 1), 16);
}

static void dropout_of_everything(const void *unused)
{
    (void)unused;
    (void)!dropout(input(4, 4, 1), 1);
}

static void model_without_softmax(const void *unused)
{
    (void)unused;
    Tensor x = input(4, 4, 1);
    compiled(model(x, dense(flatten(x), 10)));
}

static void three_readers_of_a_tensor(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1), x = conv2d(image, 8, 3);
    Tensor sum = add(add(conv2d(x, 8, 1), conv2d(x, 8, 1)), conv2d(x, 8, 1));
    compiled(model(image, softmax(dense(flatten(sum), 10))));
}

static void layer_that_nobody_reads(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1), x = conv2d(image, 8, 3);
    (void)!relu(conv2d(x, 8, 3));
    compiled(model(image, softmax(dense(flatten(x), 10))));
}

static void softmax_of_an_image(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1);
    compiled(model(image, softmax(conv2d(image, 10, 3))));
}

static void pool_of_a_vector(const void *unused)
{
    (void)unused;
    Tensor image = input(4, 4, 1), x = max_pool(relu(dense(flatten(image), 10)), 1);
    compiled(model(image, softmax(dense(flatten(x), 10))));
}

static void sum_of_two_graphs(const void *unused)
{
    (void)unused;
    (void)!add(conv2d(input(4, 4, 1), 8, 3), conv2d(input(4, 4, 1), 8, 3));
}

// Evaluates a model of this input and output on ten classes of 28x28 images.
static void evaluate_on_synthetic_data(int size, int channels, int classes)
{
    Tensor image = input(size, size, channels);
    Model *m = compiled(model(image, softmax(dense(flatten(image), classes))));
    Dataset dataset = synthetic_data(TEST, 1, 0);
    evaluate(m, plain_batches(&dataset, image_statistics(&dataset), 32), 0);
}

static void labels_beyond_the_classes(const void *unused)
{
    (void)unused;
    evaluate_on_synthetic_data(28, 1, 4);
}

static void images_of_another_size(const void *unused)
{
    (void)unused;
    evaluate_on_synthetic_data(32, 3, 10);
}

static void embedding_of_an_image(const void *unused)
{
    (void)unused;
    (void)!embedding(input(4, 4, 1), 10, 4);
}

static void embedding_of_no_rows(const void *unused)
{
    (void)unused;
    (void)!embedding(input_tokens(4), 0, 4);
}

static void flattened_tokens(const void *unused)
{
    (void)unused;
    Tensor words = input_tokens(4);
    compiled(model(words, softmax(dense(flatten(words), 10))));
}

static void rows_of_a_kernel(const void *unused)
{
    (void)unused;
    Model *m = three_words();
    compute_gradients(m, &two_sentences);
    model_sparse_gradient(m, 1);
}

static void rows_before_gradients(const void *unused)
{
    (void)unused;
    model_sparse_gradient(three_words(), 0);
}

static void all_gradients_before_gradients(const void *unused)
{
    (void)unused;
    model_read_gradients(three_words(), (float[1]){0});
}

static void row_beyond_the_table(const void *unused)
{
    (void)unused;
    Model *m = three_words();
    compute_gradients(m, &two_sentences);
    model_write_sparse_gradient(m, 0, &(SparseGradient){1, 4, (int[]){10}, (float[4]){0}});
}

static void rows_of_another_length(const void *unused)
{
    (void)unused;
    Model *m = three_words();
    compute_gradients(m, &two_sentences);
    model_write_sparse_gradient(m, 0, &(SparseGradient){.dimension = 3});
}

// Trains on two sentences of three words, of a vocabulary of 10, the last of them this one.
static void train_on_token(float token)
{
    train_on_batch(three_words(),
                   &(Batch){(float[]){0, 9, NO_TOKEN, 3, 3, token}, (int[]){1, 2}, 2});
}

static void token_beyond_the_vocabulary(const void *unused)
{
    (void)unused;
    train_on_token(10);
}

static void token_below_none(const void *unused)
{
    (void)unused;
    train_on_token(-2);
}

static void half_a_token(const void *unused)
{
    (void)unused;
    train_on_token(1.5f);
}

static void images_for_tokens(const void *unused)
{
    (void)unused;
    Dataset dataset = synthetic_data(TEST, 1, 10);
    evaluate(compiled(bag_of_words((ModelShape){.width = 28})),
             plain_batches(&dataset, image_statistics(&dataset), 10), 0);
}

static const struct {
    void (*body)(const void *);
    const char *message;
} misfits[] = {
    {embedding_of_an_image, "embedding: it reads tokens"},
    {embedding_of_no_rows, "embedding: a table of 0 rows of 4"},
    {flattened_tokens, "only embedding can read tokens"},
    {token_beyond_the_vocabulary, "a token of the batch is 10, and the embedding has 10, from 0"},
    {token_below_none, "a token of the batch is -2,"},
    {half_a_token, "a token of the batch is 1.5,"},
    {rows_of_a_kernel, "dense/kernel is no embedding's table"},
    {rows_before_gradients, "model_sparse_gradient: there are no gradients"},
    {all_gradients_before_gradients, "model_read_gradients: there are no gradients"},
    {row_beyond_the_table, "there is no row 10 in a table of 10"},
    {rows_of_another_length, "the rows have 3 values, those of embedding/embeddings have 4"},
    {images_for_tokens, "is of images, the model reads tokens"},
    {conv_of_even_size, "conv2d: 8 filters of size 2"},
    {dense_of_an_image, "dense: its input is 28x28x1, not flat"},
    {sum_of_two_shapes, "add: the shapes 28x28x8 and 28x28x16 differ"},
    {pool_larger_than_the_image, "max_pool: a window of 5 does not fit into 4x4"},
    {pool_of_too_many_pixels, "max_pool: a window of 16 has more than 255 pixels"},
    {dropout_of_everything, "dropout: the rate 1"},
    {model_without_softmax, "a model that ends in softmax"},
    {three_readers_of_a_tensor, "is read by 3 layers"},
    {layer_that_nobody_reads, "is read by 0 layers"},
    {softmax_of_an_image, "softmax reads a vector"},
    {pool_of_a_vector, "conv2d and pooling read images, not vectors"},
    {sum_of_two_graphs, "add: the tensors come from two different inputs"},
    {labels_beyond_the_classes, "10 classes, the model has 4"},
    {images_of_another_size, "28x28x1, the model reads 32x32x3"},
};

START_TEST(what_does_not_fit_ends_with_one_line)
{
    assert_refused(misfits[_i].body, NULL, misfits[_i].message);
}
END_TEST

int main(void)
{
    use_test_device();
    Suite *suite = suite_create("misfits");
    TCase *misfit = tcase_create("misfits");
    tcase_add_loop_test(misfit, what_does_not_fit_ends_with_one_line, 0, COUNT(misfits));
    suite_add_tcase(suite, misfit);
    return run_suite(suite);
}
