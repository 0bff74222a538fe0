// What a schedule does wrong, stages that wait for each other, and parts that don't fit together make
// the program exit with an error message.
//
// On the CPU, and with HVDLAB_TEST_DEVICE=gpu on GPUs, where there are two.

#include <string.h>
#include "child.h"
#include "hvdlab.h"
#include "operation.h"
#include "staged_models.h"
#include "base/error.h"
#include "base/format.h"

// ---- What a schedule can't do.

static Stage *seen; // another thread's

static void twice(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_forward(stage, 1);
    stage_forward(stage, 1);
}

static void too_far(Stage *stage, int micro_batches)
{
    stage_forward(stage, micro_batches);
}

static void sends_nothing(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_send(stage, 2);
}

static void backward_at_once(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_forward(stage, 0);
    stage_backward(stage, 0);
}

static void applies_nothing(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_apply(stage);
}

static void null_stage(Stage *stage, int micro_batches)
{
    (void)stage;
    stage_receive(NULL, micro_batches);
}

static void waits_first(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_receive(stage, 1);
}

static void computes_unreceived(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_forward(stage, 0);
}

static void sends_too_early(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_receive(stage, 0);
    stage_forward(stage, 0);
    stage_send(stage, 0);
}

static void shows_itself(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    seen = stage;
    stage_forward(stage, 0);
    stage_send(stage, 0);
}

static void calls_for_the_other(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_receive(stage, 0); // the other one has come so far
    stage_forward(seen, 1);
}

static const struct {
    Schedule first, second;
    const char *line;
} faults[] = {
    {twice, does_nothing,
     "stage_forward: stage 0 has done that for micro-batch 1 of this batch already"},
    {too_far, does_nothing, "stage_forward: there is no micro-batch 3; this batch has 3, from 0"},
    {sends_nothing, does_nothing,
     "stage_send: stage 0 has not called stage_forward for micro-batch 2"},
    {backward_at_once, does_nothing,
     "stage_backward: stage 0 has not called stage_receive for micro-batch 0"},
    {applies_nothing, does_nothing,
     "stage_apply: stage 0 has no gradients; stage_backward() comes before"},
    {null_stage, does_nothing, "stage_receive: there is no stage (NULL)"},
    {does_nothing, computes_unreceived,
     "stage_forward: stage 1 has not called stage_receive for micro-batch 0"},
    {shows_itself, sends_too_early,
     "stage_send: stage 1 has not called stage_backward for micro-batch 0"},
    {shows_itself, calls_for_the_other,
     "stage_forward: stage 0 is not this thread's: a schedule calls it for its own stage"},
    {waits_first, at_once,
     "the stages hang: stage 0 waits for the gradient of micro-batch 1, and stage 1 for the values "
     "of micro-batch 0; each would have to be sent by the other"},
    {forgets_one, at_once,
     "the stages hang: stage 1 waits for the values of micro-batch 2, and the schedule of stage 0 "
     "has returned without sending it"},
    {one_at_a_time, does_nothing,
     "the stages hang: stage 0 waits for the gradient of micro-batch 0, and the schedule of stage "
     "1 has returned without sending it"},
};

static void sends_without_choice(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    if (stage_index(stage) == 1)
        stage_send(stage, 0);
}

static void computes_before_it_receives(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    if (stage_index(stage) == 2)
        stage_forward(stage, 0);
}

static void backward_without_gradient(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    row_forward(stage, 0);
    if (stage_index(stage) == 1)
        stage_backward(stage, 0);
}

// The middle one waits for a gradient before it has sent the values.
static void waits_for_gradient_first(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    stage_receive_values(stage, 0);
    stage_forward(stage, 0);
    if (stage_index(stage) == 1)
        stage_receive_gradient(stage, 0);
    stage_send_values(stage, 0);
}

static void sends_no_gradient(Stage *stage, int micro_batches)
{
    (void)micro_batches;
    row_forward(stage, 0);
    if (stage_index(stage) == 2)
        stage_backward(stage, 0);
    else
        row_backward(stage, 0);
}

static const struct {
    Schedule schedule;
    const char *line;
} faults_in_a_row[] = {
    {sends_without_choice, "stage_send: stage 1 has two neighbours; stage_send_values() and "
                           "stage_send_gradient() are for any number of stages"},
    {computes_before_it_receives,
     "stage_forward: stage 2 has not called stage_receive_values for micro-batch 0"},
    {backward_without_gradient,
     "stage_backward: stage 1 has not called stage_receive_gradient for micro-batch 0"},
    {waits_for_gradient_first,
     "the stages hang: stage 1 waits for the gradient of micro-batch 0, and stage 2 for the values "
     "of micro-batch 0; each would have to be sent by the other"},
    {sends_no_gradient,
     "the stages hang: stage 1 waits for the gradient of micro-batch 0, and the schedule of stage "
     "2 has returned without sending it"},
};

static void do_fault_in_a_row(const void *argument)
{
    int i = *(const int *)argument;
    Model *models[MAX_STAGES];
    Batch batch = random_batch(7, 1);
    train_by_schedule(row_of(3, models), &batch, 3, faults_in_a_row[i].schedule);
}

static void do_fault(const void *argument)
{
    int i = *(const int *)argument;
    Batch batch = random_batch(7, 1);
    train_in_stages(small_stages(), &batch, 3, faults[i].first, faults[i].second);
}

static void assert_line(Outcome outcome, const char *line)
{
    char *expected = format_text("test_stage_faults: %s\n", line);
    ck_assert_str_eq(outcome.err, expected);
    ck_assert_int_eq(outcome.status, 2);
    free(expected);
}

START_TEST(what_a_schedule_does_wrong_is_said_in_one_line)
{
    assert_line(run_in_child(do_fault, &_i), faults[_i].line);
}
END_TEST

START_TEST(what_a_schedule_does_wrong_in_a_row_is_said_in_one_line)
{
    assert_line(run_in_child(do_fault_in_a_row, &_i), faults_in_a_row[_i].line);
}
END_TEST

// ---- What can't be halves, or a batch.

static void wrong_width(const void *unused)
{
    (void)unused;
    Tensor x = input_vector(23);
    two_stages(first_half(false), sgd(0.1f), model(x, classes_behind(x)), sgd(0.1f), two_devices);
}

static void one_optimizer(const void *unused)
{
    (void)unused;
    Optimizer *both = sgd(0.1f);
    two_stages(first_half(false), both, second_half(false), both, two_devices);
}

static void read_by_two(const void *unused)
{
    (void)unused;
    Tensor x = input_vector(8);
    compile(model(x, classes_behind(add(dense(x, 8), x))), CATEGORICAL_CROSSENTROPY, sgd(0.1f));
}

static void empty_vector(const void *unused)
{
    (void)unused;
    input_vector(0);
}

static void no_micro_batches(const void *unused)
{
    (void)unused;
    Batch batch = random_batch(4, 1);
    train_in_stages(small_stages(), &batch, 0, fill_and_drain, at_once);
}

static void unknown_class(const void *unused)
{
    (void)unused;
    Batch batch = random_batch(4, 1);
    const int labels[] = {0, 1, CLASSES, 2};
    batch.labels = labels;
    train_in_stages(small_stages(), &batch, 2, fill_and_drain, at_once);
}

static void three_in_halves(const void *unused)
{
    (void)unused;
    Model *models[MAX_STAGES];
    Batch batch = random_batch(4, 1);
    train_in_stages(row_of(3, models), &batch, 2, fill_and_drain, at_once);
}

static void no_stages(const void *unused)
{
    (void)unused;
    stages_in_a_row(&(StagePart){0}, 0);
}

static void no_such_stage(const void *unused)
{
    (void)unused;
    stage_use(small_stages(), 2);
}

static void other_images(const void *unused)
{
    (void)unused;
    Dataset data = synthetic_data(TEST, 1, 20);
    evaluate_in_stages(small_stages(), plain_batches(&data, image_statistics(&data), 20));
}

static const struct {
    void (*body)(const void *);
    const char *line;
} refusals[] = {
    {wrong_width, "two_stages: stage 0 hands over 24 numbers for an image; the model of stage 1 "
                  "has to begin with input_vector(24)"},
    {one_optimizer, "two_stages: each stage has a model of its own, with an optimizer of its own"},
    {read_by_two, "compile: an input_vector is read by one layer, not by 2"},
    {empty_vector, "input_vector: 0 numbers are no vector"},
    {unknown_class, "the stages: a label of the batch is 10, and the model has 10 classes, from 0"},
    {other_images, "evaluate_in_stages: the images are of 784 numbers, the first stage reads 64"},
    {three_in_halves, "train_in_stages: there are 3 stages; train_by_schedule() is for any number"},
    {no_stages, "stages_in_a_row: 0 stages; there are 1 to 16"},
    {no_such_stage, "stage_use: there is no stage 2; there are 2, from 0"},
    {no_micro_batches, "train_in_stages: a batch can't have 0 micro-batches"},
};

START_TEST(what_does_not_fit_is_said_in_one_line)
{
    assert_line(run_in_child(refusals[_i].body, NULL), refusals[_i].line);
}
END_TEST

int main(void)
{
    if (!use_two_test_devices())
        return EXIT_SUCCESS;
    Suite *suite = suite_create("stage faults");
    TCase *tests = operation_case(suite, "two");
    tcase_add_loop_test(tests, what_a_schedule_does_wrong_in_a_row_is_said_in_one_line, 0,
                        COUNT(faults_in_a_row));
    tcase_add_loop_test(tests, what_a_schedule_does_wrong_is_said_in_one_line, 0, COUNT(faults));
    tcase_add_loop_test(tests, what_does_not_fit_is_said_in_one_line, 0, COUNT(refusals));
    return run_suite(suite);
}
