// What a program can get wrong in calling the library: each mistake ends it with one line and
// status 2. (hvd's own calls: tests/mpi/test_misuse.sh; those about several devices of one process:
// test_misuse_devices.c.)

#include <math.h>
#include <string.h>
#include "child.h"
#include "hvdlab.h"
#include "base/format.h"

static Args args = {.data = DATA_SYNTHETIC, .images = 64};
static Dataset data;
static Batches *batches;

static Model *uncompiled(void)
{
    Tensor image = input(28, 28, 1);
    return model(image, softmax(dense(flatten(image), 10)));
}

static Model *compiled(void)
{
    return compile(uncompiled(), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

static void setup(void)
{
    data = load_data(&args, TRAIN);
    batches = plain_batches(&data, image_statistics(&data), 32);
}

static void train(Model *model)
{
    fit(model, &(Fit){.train = batches, .epochs = 1, .steps_per_epoch = 1});
}

static Batch first_batch(void)
{
    batches_begin(batches, 1);
    return batches_next(batches);
}

static void fit_before_compile(void)
{
    train(uncompiled());
}

static void fit_of_nothing(void)
{
    train(NULL);
}

static void fit_without_fit(void)
{
    fit(compiled(), NULL);
}

static void fit_without_batches(void)
{
    fit(compiled(), &(Fit){.epochs = 1, .steps_per_epoch = 1});
}

static void fit_of_negative_epochs(void)
{
    fit(compiled(), &(Fit){.train = batches, .epochs = -1, .steps_per_epoch = 1});
}

static void fit_of_negative_steps(void)
{
    fit(compiled(), &(Fit){.train = batches, .epochs = 1, .steps_per_epoch = -3});
}

static void evaluate_before_compile(void)
{
    evaluate(uncompiled(), batches, 0);
}

static void evaluate_nothing(void)
{
    evaluate(compiled(), NULL, 0);
}

static void compile_twice(void)
{
    compile(compiled(), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

static void compile_without_optimizer(void)
{
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, NULL);
}

static void compile_nothing(void)
{
    compile(NULL, CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

// The inner one belongs to a model, too.
static void compile_with_anothers_inner_optimizer(void)
{
    static Optimizer wrapper = {.name = "wrapper"};
    wrapper.inner = sgd(0.1f);
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, &wrapper);
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, wrapper.inner);
}

static void compile_with_an_optimizer_without_name(void)
{
    static Optimizer wrapper;
    wrapper.inner = sgd(0.1f);
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, &wrapper);
}

static void compile_with_anothers_optimizer(void)
{
    Optimizer *optimizer = sgd(0.1f);
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, optimizer);
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, optimizer);
}

static void penalty_after_compile(void)
{
    l2_penalty(compiled(), 0.1f);
}

static void callback_of_nothing(void)
{
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, NULL);
}

static void callback_twice(void)
{
    Callbacks callbacks = {0};
    Callback *callback = print_total_time();
    callbacks_add(&callbacks, callback);
    callbacks_add(&callbacks, callback);
}

static void callback_without_list(void)
{
    callbacks_add(NULL, print_total_time());
}

static void schedule_of_nothing(void)
{
    (void)!learning_rate_schedule(NULL, 0.1f);
}

static void logs_nowhere(void)
{
    (void)!tensorboard(NULL);
}

static void train_on_nothing(void)
{
    train_on_batch(compiled(), NULL);
}

static void train_without_labels(void)
{
    Batch batch = first_batch();
    train_on_batch(compiled(), &(Batch){.images = batch.images, .count = batch.count});
}

static void train_on_strange_labels(void)
{
    Batch batch = first_batch();
    train_on_batch(compiled(), &(Batch){.images = batch.images, .labels = (int[]){10}, .count = 1});
}

static void predict_nowhere(void)
{
    Batch batch = first_batch();
    predict_on_batch(compiled(), &batch, NULL);
}

static void predict_before_compile(void)
{
    float probabilities[32 * 10];
    Batch batch = first_batch();
    predict_on_batch(uncompiled(), &batch, probabilities);
}

static void apply_nothing(void)
{
    apply_gradients(compiled());
}

static void apply_twice(void)
{
    Model *model = compiled();
    Batch batch = first_batch();
    compute_gradients(model, &batch);
    apply_gradients(model);
    apply_gradients(model);
}

static void metrics_before_compile(void)
{
    model_metrics(uncompiled());
}

static void variable_that_is_not_there(void)
{
    model_variable(compiled(), 2);
}

static void variable_read_nowhere(void)
{
    model_read_variable(compiled(), 0, NULL);
}

static void variable_of_nothing(void)
{
    model_write_variable(compiled(), 0, NULL);
}

static void gradient_read_nowhere(void)
{
    model_read_gradient(compiled(), 0, NULL);
}

static void gradients_of_nothing(void)
{
    model_write_gradients(compiled(), NULL);
}

static void image_too_large(void)
{
    input(65536, 65536, 3);
}

static void layer_too_large(void)
{
    (void)!conv2d(input(8, 8, 1), 2147483647, 3);
}

static void kernel_too_large(void)
{
    (void)!conv2d(input(28, 28, 1), 8, 9999);
}

static void layer_of_nothing(void)
{
    (void)!relu(NULL);
}

static void sum_of_nothing(void)
{
    (void)!add(input(28, 28, 1), NULL);
}

static void rate_of_nothing(void)
{
    optimizer_set_learning_rate(NULL, 0.1f);
}

static void batches_of_nothing(void)
{
    plain_batches(&(Dataset){.channels = 1}, (Statistics){{0}, {0}}, 32);
}

static void statistics_of_nothing(void)
{
    image_statistics(&(Dataset){.channels = 1});
}

static void selection_without_dataset(void)
{
    (void)dataset_select(NULL, &(int){0}, 1).count;
}

static void selection_without_numbers(void)
{
    (void)dataset_select(&data, NULL, 1).count;
}

static void share_without_dataset(void)
{
    (void)shard_dataset(NULL, 0, 1).count;
}

static void data_without_args(void)
{
    load_data(NULL, TRAIN);
}

static void one_batch_more(void)
{
    first_batch();
    batches_next(batches);
}

static void batches_of_negative_steps(void)
{
    batches_begin(batches, -1);
}

static void length_of_nothing(void)
{
    batches_len(NULL);
}

static void number_of_no_stream(void)
{
    rng_uniform(NULL);
}

static void skip_of_no_stream(void)
{
    rng_skip(NULL, 1);
}

static void number_below_zero(void)
{
    Rng rng = rng_stream(RNG_WEIGHTS, 0);
    rng_below(&rng, 0);
}

static void compile_no_layer(void)
{
    Tensor values = input_vector(10);
    compile(model(values, softmax(values)), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

static void compile_the_input(void)
{
    Tensor values = input_vector(10);
    compile(model(values, values), CATEGORICAL_CROSSENTROPY_FROM_LOGITS, sgd(0.1f));
}

static void parameters_before_compile(void)
{
    (void)model_parameters(uncompiled());
}

static void statistics_before_compile(void)
{
    size_t length;
    (void)model_statistics(uncompiled(), &length);
}

// Constants.

static void rate_not_a_number(void)
{
    sgd(NAN);
}

static void rate_below_zero(void)
{
    adam(-0.1f);
}

static void rate_without_end(void)
{
    optimizer_set_learning_rate(sgd(0), INFINITY);
}

static void momentum_below_zero(void)
{
    rmsprop_momentum(0.1f, -1);
}

static void momentum_not_a_number(void)
{
    optimizer_set_momentum(sgd(0), NAN);
}

static void beta_of_one(void)
{
    Optimizer *optimizer = adam(0.1f);
    optimizer->rule.beta_1 = 1;
    compile(uncompiled(), CATEGORICAL_CROSSENTROPY, optimizer);
}

static float no_rate(int epoch, float base_lr)
{
    return base_lr / (float)epoch;
}

static void schedule_without_end(void)
{
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, learning_rate_schedule(no_rate, 0.1f));
    fit(compiled(),
        &(Fit){.train = batches, .epochs = 1, .steps_per_epoch = 1, .callbacks = &callbacks});
}

static void penalty_not_a_number(void)
{
    l2_penalty(uncompiled(), NAN);
}

static void penalty_below_zero(void)
{
    l2_penalty(uncompiled(), -1);
}

static void no_accuracy(void)
{
    (void)!stop_at_accuracy(NAN, 1, 0);
}

static void no_patience(void)
{
    (void)!stop_at_accuracy(0.9f, NAN, 0);
}

static void throughput_below_zero(void)
{
    (void)!print_throughput(-1);
}

static void no_such_part(void)
{
    load_data(&args, (Split)2);
}

static void images_below_zero(void)
{
    load_data(&(Args){.data = DATA_SYNTHETIC, .images = -1}, TRAIN);
}

static void layers_of_another_model(void)
{
    Tensor image = input(28, 28, 1), end = softmax(dense(flatten(image), 10));
    Model *first = model(image, end), *second = model(image, end);
    compile(first, CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    model_free(first);
    compile(second, CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

static void fingerprint_before_compile(void)
{
    model_arena_fingerprint(uncompiled());
}

static void images_of_nothing(void)
{
    model_check_dataset(compiled(), NULL);
}

static void rows_nowhere(void)
{
    Tensor words = input_tokens(2);
    Model *bag = model(words, softmax(dense(global_average_pool(embedding(words, 9, 4)), 2)));
    compile(bag, CATEGORICAL_CROSSENTROPY, sgd(0.1f));
    compute_gradients(bag, &(Batch){.images = (float[]){1, 2}, .labels = &(int){1}, .count = 1});
    model_write_sparse_gradient(bag, 0, &(SparseGradient){.dimension = 4, .count = 1});
}

static const RefusedCall mistakes[] = {
    {fit_before_compile, "fit: the model is not compiled yet; call compile() first"},
    {fit_of_nothing, "fit: there is no model (NULL)"},
    {fit_without_fit, "fit: there is no Fit (NULL)"},
    {fit_without_batches, "fit: there is no train, the training batches (NULL)"},
    {fit_of_negative_epochs, "fit: epochs is -1"},
    {fit_of_negative_steps, "fit: steps_per_epoch is -3, but an epoch needs at least 1"},
    {evaluate_before_compile, "evaluate: the model is not compiled yet; call compile() first"},
    {evaluate_nothing, "evaluate: there are no batches (NULL)"},
    {compile_twice, "compile: the model is compiled already"},
    {compile_without_optimizer, "compile: there is no optimizer (NULL)"},
    {compile_nothing, "compile: there is no model (NULL)"},
    {compile_with_anothers_optimizer,
     "compile: the optimizer SGD belongs to another model; make one for each"},
    {compile_with_anothers_inner_optimizer,
     "compile: the optimizer SGD belongs to another model; make one for each"},
    {compile_with_an_optimizer_without_name, "compile: an optimizer has no name (NULL)"},
    {compile_no_layer, "compile: the model has no layer between its input and its output"},
    {compile_the_input, "compile: the model has no layer between its input and its output"},
    {parameters_before_compile, "model_parameters: the model is not compiled yet"},
    {statistics_before_compile, "model_statistics: the model is not compiled yet"},
    {penalty_after_compile, "l2_penalty: the model is compiled already; call it before compile()"},
    {callback_of_nothing, "callbacks_add: there is no callback (NULL)"},
    {callback_twice, "callbacks_add: print_total_time is in the list already"},
    {callback_without_list, "callbacks_add: there is no list (NULL)"},
    {schedule_of_nothing, "learning_rate_schedule: there is no schedule (NULL)"},
    {logs_nowhere, "tensorboard: there is no folder (NULL)"},
    {train_on_nothing, "train_on_batch: there are no images in the batch"},
    {train_without_labels, "train_on_batch: there are no labels in the batch"},
    {train_on_strange_labels,
     "train_on_batch: a label of the batch is 10, and the model has 10 classes, from 0"},
    {predict_nowhere, "predict_on_batch: there is no place for the predictions (NULL)"},
    {predict_before_compile, "predict_on_batch: the model is not compiled yet"},
    {apply_nothing, "apply_gradients: there are no gradients; call compute_gradients() before"},
    {apply_twice, "apply_gradients: there are no gradients; call compute_gradients() before"},
    {metrics_before_compile, "model_metrics: the model is not compiled yet"},
    {variable_that_is_not_there, "model_variable: there is no variable 2; the model has 2, from 0"},
    {variable_read_nowhere, "model_read_variable: the values are NULL"},
    {variable_of_nothing, "model_write_variable: the values are NULL"},
    {gradient_read_nowhere, "model_read_gradient: the values are NULL"},
    {gradients_of_nothing, "model_write_gradients: the values are NULL"},
    {image_too_large, "a layer of 65536x65536x3 values: more than 2147483647 cannot be counted"},
    {layer_too_large, "a layer of 8x8x2147483647 values: more than 2147483647 cannot be counted"},
    {layer_of_nothing, "relu: there is no tensor to read (NULL)"},
    {sum_of_nothing, "add: there is no tensor to read (NULL)"},
    {rate_of_nothing, "there is no optimizer (NULL)"},
    {batches_of_nothing, "there are no images to make batches of"},
    {statistics_of_nothing, "image_statistics: there are no images"},
    {selection_without_dataset, "dataset_select: there is no data set (NULL)"},
    {selection_without_numbers, "dataset_select: there are no numbers (NULL)"},
    {share_without_dataset, "shard_dataset: there is no data set (NULL)"},
    {data_without_args, "load_data: there are no Args (NULL)"},
    {one_batch_more, "batches_next: batches_begin has been asked for 1 batches, and they have"},
    {batches_of_negative_steps, "batches_begin: -1 steps"},
    {length_of_nothing, "batches_len: there are no batches (NULL)"},
    {kernel_too_large,
     "conv2d: 8 filters of size 9999: filters must be positive, the size odd and at most 255"},
    {number_of_no_stream, "random numbers of no stream (NULL)"},
    {skip_of_no_stream, "random numbers of no stream (NULL)"},
    {number_below_zero, "rng_below: no number is below 0"},
    {rate_not_a_number, "the learning rate of the optimizer SGD is nan, and not a finite number"},
    {rate_below_zero, "the learning rate of the optimizer Adam is -0.1, and not a finite number"},
    {rate_without_end, "the learning rate of the optimizer SGD is inf, and not a finite number"},
    {momentum_below_zero, "the momentum of the optimizer RMSprop is -1, and not a finite number"},
    {momentum_not_a_number, "the momentum of the optimizer SGD is nan, and not a finite number"},
    {beta_of_one,
     "the beta_1 of the optimizer Adam is 1, and not a finite number from 0 and below"},
    {schedule_without_end, "the learning rate of the optimizer SGD is inf, and not a finite"},
    {penalty_not_a_number, "l2_penalty: the penalty is nan, and not a finite number from 0"},
    {penalty_below_zero, "l2_penalty: the penalty is -1, and not a finite number from 0"},
    {no_accuracy, "stop_at_accuracy: target is nan; 0 to 1"},
    {no_patience, "stop_at_accuracy: patience is nan; above 0"},
    {throughput_below_zero, "print_throughput: -1 images"},
    {no_such_part, "load_data: there is no part 2 of the data; it is TRAIN or TEST"},
    {images_below_zero, "load_data: -1 images"},
    {layers_of_another_model, "compile: another model with these layers was compiled already"},
    {fingerprint_before_compile, "model_arena_fingerprint: the model is not compiled yet"},
    {images_of_nothing, "model_check_dataset: there is no data set (NULL)"},
    {rows_nowhere, "model_write_sparse_gradient: there is no gradient, or no rows or values in it"},
};

static void make_mistake(const void *refused)
{
    setup();
    make_call(refused);
}

START_TEST(a_mistake_ends_in_one_line)
{
    char *line = format_text("test_misuse: %s", mistakes[_i].words);
    Outcome outcome = assert_refused(make_mistake, &mistakes[_i], line);
    ck_assert_ptr_eq(strstr(outcome.err, line), outcome.err);
    free(line);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("misuse");
    TCase *lines = tcase_create("lines");
    tcase_add_loop_test(lines, a_mistake_ends_in_one_line, 0, sizeof mistakes / sizeof *mistakes);
    suite_add_tcase(suite, lines);
    return run_suite(suite);
}
