// Learns to tell ten kinds of sentences apart by their words: an embedding, the mean of a sentence's
// word vectors, two dense layers. A batch names few of the 20,000 words, so nearly all rows of the
// embedding's gradient are zero.

#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

enum { LENGTH = 16, WORDS = 20000, DIMENSION = 32, CLASSES = 10 };

// The embedding's table is the first of the model's variables.
enum { TABLE = 0 };

static Model *create_model(void)
{
    Tensor words = input_tokens(LENGTH);
    Tensor x = embedding(words, WORDS, DIMENSION);
    x = global_average_pool(x);
    x = relu(dense(x, 32));
    return model(words, softmax(dense(x, CLASSES)));
}

// Averages the gradient of a variable over all workers: model_read_gradient copies it from the
// model, model_write_gradient back.
static void average(Model *model, int variable)
{
    size_t size = variable_size(model_variable(model, variable));
    float *gradient = malloc(size * sizeof *gradient);
    model_read_gradient(model, variable, gradient);
    hvd_allreduce(gradient, size, HVD_AVERAGE);
    model_write_gradient(model, variable, gradient);
    free(gradient);
}

// The table's as a whole. Returns how many rows this worker contributes.
static int average_table(Model *model)
{
    average(model, TABLE);
    return WORDS;
}

// The table's by its rows: only those travel that some worker's sentences named. This worker's are
// own.count rows with the numbers own.rows; row i begins at own.values[i * DIMENSION].
static int average_rows(Model *model)
{
    SparseGradient own = model_sparse_gradient(model, TABLE);
#if STEP >= 1
    // sparse: gather the rows of all workers: their numbers, and their values.
    size_t rows, values;
    int *number = hvd_allgather_ints(own.rows, (size_t)own.count, &rows, NULL);
    float *value = hvd_allgather(own.values, (size_t)own.count * DIMENSION, &values);

    // sparse: add up the rows with the same number, and divide by the number of workers.
    float *table = calloc((size_t)WORDS * DIMENSION, sizeof *table);
    for (size_t i = 0; i < rows; i++)
        for (size_t d = 0; d < DIMENSION; d++)
            table[(size_t)number[i] * DIMENSION + d] +=
                value[i * DIMENSION + d] / (float)hvd_size();

    // sparse: this is the table's gradient; a row that no worker named is zero.
    model_write_gradient(model, TABLE, table);
    free(number);
    free(value);
    free(table);
#else
    // TODO: sparse: gather the rows of all workers, their numbers and their values
    // (hvd_allgather_ints, hvd_allgather).

    // TODO: sparse: add up the rows with the same number, in a table of all words, and divide by the
    // number of workers. Rows that no worker named are zero.

    // TODO: sparse: put the result in the place of the table's gradient (model_write_gradient).
#endif
    int count = own.count;
    sparse_gradient_free(&own);
    return count;
}

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    int verbose = hvd_rank() == 0;

    TextDataset text = load_text(&args, TRAIN, LENGTH, WORDS);
    Model *model = compile(create_model(), CATEGORICAL_CROSSENTROPY, adam(args.base_lr));
    hvd_broadcast_model(model, 0);

    // Every sentence once: the workers take turns in taking a batch.
    int steps = text.count / (args.batch_size * hvd_size());
    for (int step = 0; step < steps; step++) {
        Batch batch = text_batch(&text, step * hvd_size() + hvd_rank(), args.batch_size);
        compute_gradients(model, &batch);
        average_rows(model);
        for (int variable = TABLE + 1; variable < model_variable_count(model); variable++)
            average(model, variable);
        apply_gradients(model);

        Metrics metrics = model_metrics(model);
        if (verbose && (step + 1) % 20 == 0) {
            printf("Step %d/%d: loss %.4f, accuracy %.4f\n", step + 1, steps,
                   metrics.loss / metrics.images, metrics.correct / metrics.images);
            model_reset_metrics(model);
        }
    }

    // One batch more: the root prints what both ways cost, with as many floats for each row.
    Batch batch = text_batch(&text, hvd_rank(), args.batch_size);
    compute_gradients(model, &batch);
    measure_exchange("table", average_table, DIMENSION, model);
    measure_exchange("rows", average_rows, DIMENSION + 1, model);
    return 0;
}
