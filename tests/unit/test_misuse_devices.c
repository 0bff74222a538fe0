// What a program can get wrong with the devices of one process, replicas and stages: each mistake
// ends it with one line and status 2.

#include <string.h>
#include "child.h"
#include "hvdlab.h"
#include "base/format.h"

static Batches *batches;

static void setup(void)
{
    static Dataset data;
    data = load_data(&(Args){.data = DATA_SYNTHETIC, .images = 64}, TRAIN);
    batches = plain_batches(&data, image_statistics(&data), 32);
}

static Batch first_batch(void)
{
    batches_begin(batches, 1);
    return batches_next(batches);
}

static Model *two_layers(void)
{
    Tensor image = input(28, 28, 1);
    return model(image, softmax(dense(flatten(image), 10)));
}

// ---- Replicas.

static Optimizer *plain(void)
{
    return sgd(0.1f);
}

static Mirrored *replicas(void)
{
    return mirrored(two_layers, CATEGORICAL_CROSSENTROPY, plain, NULL, 0);
}

static void devices_nowhere(void)
{
    mirrored(two_layers, CATEGORICAL_CROSSENTROPY, plain, NULL, 2);
}

static void more_devices_than_there_are(void)
{
    mirrored(two_layers, CATEGORICAL_CROSSENTROPY, plain, &(int){0}, 1000000);
}

static void free_own_replicas(Replica *replica, void *unused)
{
    (void)unused;
    mirrored_free(replica->mirrored);
}

static void free_from_within(void)
{
    on_each_device(replicas(), free_own_replicas, NULL);
}

static void average_of_no_replicas(void)
{
    average_gradients(&(Replica){.count = 1}, 1);
}

static void average_of_another(Replica *replica, void *unused)
{
    (void)unused;
    Replica other = {replica->count, replica->count, replica->model, replica->mirrored};
    average_gradients(&other, 1);
}

static void replica_that_is_not_there(void)
{
    on_each_device(replicas(), average_of_another, NULL);
}

static void keep(Replica *replica, void *kept)
{
    if (replica->index == 0)
        *(Replica *)kept = *replica;
}

static void sum_outside(void)
{
    Replica kept;
    float value = 1;
    on_each_device(replicas(), keep, &kept);
    sum_among_replicas(&kept, &value, 1);
}

static void average_at(Replica *replica, const Batch *batch)
{
    Batch part = part_of_batch(replica, batch);
    compute_gradients(replica->model, &part);
    average_gradients(replica, 1.7e308);
}

static void weights_too_large(void)
{
    Batch batch = first_batch();
    batch_on_each_device(replicas(), average_at, &batch);
}

static void part_of_no_images(void)
{
    Batch batch = first_batch();
    batch.images = NULL;
    batch_on_each_device(replicas(), average_at, &batch);
}

static void no_model(void)
{
    mirrored(NULL, CATEGORICAL_CROSSENTROPY, plain, NULL, 0);
}

static void no_device(void)
{
    mirrored(two_layers, CATEGORICAL_CROSSENTROPY, plain, (int[]){0, 7}, 2);
}

static void twice(void)
{
    mirrored(two_layers, CATEGORICAL_CROSSENTROPY, plain, (int[]){1, 1}, 2);
}

static void empty_list(void)
{
    mirrored(two_layers, CATEGORICAL_CROSSENTROPY, plain, (int[]){0}, 0);
}

static Model *another_each_time(void)
{
    static int units = 8;
    Tensor image = input(28, 28, 1);
    Tensor x = relu(dense(flatten(image), units++));
    return model(image, softmax(dense(x, 10)));
}

static void other_models(void)
{
    mirrored(another_each_time, CATEGORICAL_CROSSENTROPY, plain, NULL, 0);
}

static Optimizer *wrapped(void)
{
    Optimizer *wrapper = sgd(0.1f);
    wrapper->inner = sgd(0.1f);
    return wrapper;
}

static void wrapping(void)
{
    mirrored(two_layers, CATEGORICAL_CROSSENTROPY, wrapped, NULL, 0);
}

static void run(void (*function)(Replica *, void *))
{
    static float shared[8];
    on_each_device(replicas(), function, shared);
}

static void one_only(Replica *replica, void *argument)
{
    if (replica->index == 0)
        sum_among_replicas(replica, argument, 8);
}

static void average_by_one(void)
{
    run(one_only);
}

static void each_its_own(Replica *replica, void *argument)
{
    float own[8] = {0};
    (void)argument;
    if (replica->index == 0)
        sum_among_replicas(replica, own, 8);
    else
        average_gradients(replica, 0);
}

static void different_calls(void)
{
    run(each_its_own);
}

static void the_same(Replica *replica, void *argument)
{
    sum_among_replicas(replica, argument, 8);
}

static void same_array(void)
{
    run(the_same);
}

static void other_lengths(Replica *replica, void *argument)
{
    float own[8] = {0};
    (void)argument;
    sum_among_replicas(replica, own, (size_t)(replica->index + 4));
}

static void different_lengths(void)
{
    run(other_lengths);
}

static void nobodys(Replica *replica, void *argument)
{
    (void)argument;
    average_gradients(replica, 0);
}

static void no_weights(void)
{
    run(nobodys);
}

static void no_weight_of_one(void)
{
    setenv("HVDLAB_DEVICES", "1", 1);
    on_each_device(replicas(), nobodys, NULL);
}

static void negative(Replica *replica, void *argument)
{
    (void)argument;
    average_gradients(replica, -1);
}

static void negative_weight(void)
{
    run(negative);
}

static void uncomputed(Replica *replica, void *argument)
{
    (void)argument;
    average_gradients(replica, 1);
}

static void no_gradients(void)
{
    run(uncomputed);
}

static void again(Replica *replica, void *argument)
{
    on_each_device(replica->mirrored, the_same, argument);
}

static void inside(void)
{
    run(again);
}

// ---- Stages, and what their schedules may not call.

static Stages *halves;

static Stages *two_halves(void)
{
    Tensor image = input(28, 28, 1), between = input_vector(4);
    return two_stages(model(image, dense(flatten(image), 4)), sgd(0.1f),
                      model(between, softmax(dense(between, 10))), sgd(0.1f), (int[]){0, 1});
}

static void idle(Stage *stage, int micro_batches)
{
    (void)stage, (void)micro_batches;
}

static void train_within(Stage *stage, int micro_batches)
{
    (void)stage;
    Batch batch = first_batch();
    train_in_stages(halves, &batch, micro_batches, idle, idle);
}

static void evaluate_within(Stage *stage, int micro_batches)
{
    (void)stage, (void)micro_batches;
    evaluate_in_stages(halves, batches);
}

static void free_within(Stage *stage, int micro_batches)
{
    (void)stage, (void)micro_batches;
    stages_free(halves);
}

static void in_a_schedule(Schedule schedule)
{
    Batch batch = first_batch();
    halves = two_halves();
    train_in_stages(halves, &batch, 1, schedule, idle);
}

static void stages_trained_within(void)
{
    in_a_schedule(train_within);
}

static void stages_evaluated_within(void)
{
    in_a_schedule(evaluate_within);
}

static void stages_freed_within(void)
{
    in_a_schedule(free_within);
}

#define BY_A_THREAD ": it is called by one of the threads that are at work on the devices"

static const RefusedCall mistakes[] = {
    {devices_nowhere, "mirrored: there is no list of 2 devices (NULL); NULL and 0 mean all"},
    {more_devices_than_there_are, "mirrored: 1000000 devices in the list, and this process has 2"},
    {free_from_within, "mirrored_free" BY_A_THREAD},
    {average_of_no_replicas, "average_gradients: there is no replica (NULL)"},
    {replica_that_is_not_there, "average_gradients: there is no replica 2; there are 2, from 0"},
    {sum_outside, "sum_among_replicas: replica 0 is not this thread's: a function on each device"},
    {weights_too_large, "average_gradients: the sum of the replicas' weights is inf"},
    {part_of_no_images, "part_of_batch: there are no images in the batch"},
    {stages_trained_within, "train_in_stages" BY_A_THREAD},
    {stages_evaluated_within, "evaluate_in_stages" BY_A_THREAD},
    {stages_freed_within, "stages_free" BY_A_THREAD},
    {no_model, "mirrored: there is no function that makes the model (NULL)"},
    {no_device, "mirrored: there is no device 7; this process has 2, from 0"},
    {twice, "mirrored: device 1 is in the list twice"},
    {empty_list, "mirrored: there is no device in the list"},
    {other_models, "mirrored: create() made another model for replica 1 than for replica 0"},
    {wrapping, "mirrored: the optimizer SGD wraps another one; replicas exchange their "
               "gradients themselves"},
    {average_by_one, "sum_among_replicas: replica 0 waits in it for the others, and replica 1 has "
                     "come to the end of its work without; all of them call it, or none"},
    {same_array, "sum_among_replicas: replicas 0 and 1 pass the same array; each needs one of "
                 "its own"},
    {different_lengths, "sum_among_replicas: replica 0 passes 4 values, replica 1 5"},
    {no_weights, "average_gradients: the weights of all replicas are 0"},
    {no_weight_of_one, "average_gradients: the weights of all replicas are 0"},
    {negative_weight, "average_gradients: the weight of replica"},
    {no_gradients, "average_gradients: there are no gradients; call compute_gradients() before"},
    {inside, "on_each_device: it is called by one of the threads that are at work on the devices; "
             "the program's own calls it"},
};

static void make_mistake(const void *refused)
{
    setup();
    make_call(refused);
}

START_TEST(a_mistake_ends_in_one_line)
{
    char *line = format_text("test_misuse_devices: %s", mistakes[_i].words);
    Outcome outcome = assert_refused(make_mistake, &mistakes[_i], line);
    ck_assert_ptr_eq(strstr(outcome.err, line), outcome.err);
    free(line);
}
END_TEST

static void call_differently(const void *unused)
{
    (void)unused;
    different_calls();
}

// Which of the two speaks depends on which comes first.
START_TEST(different_calls_end_in_one_line)
{
    assert_refused(call_differently, NULL, "waits in it for the others, and replica");
}
END_TEST

int main(void)
{
    setenv("HVDLAB_DEVICES", "2", 1);
    Suite *suite = suite_create("misuse_devices");
    TCase *lines = tcase_create("lines");
    tcase_add_loop_test(lines, a_mistake_ends_in_one_line, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(lines, different_calls_end_in_one_line);
    suite_add_tcase(suite, lines);
    return run_suite(suite);
}
