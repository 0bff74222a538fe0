// What staged_models.h declares.

#include "staged_models.h"

#include "base/error.h"
#include "child.h"
#include "normal_batch.h"

const int two_devices[] = {0, 1};

static Tensor front(Tensor x, bool images)
{
    if (!images)
        return relu(dense(flatten(x), 24));
    x = max_pool(relu(conv2d(x, 8, 3)), 2);
    return flatten(relu(conv2d(x, 6, 3)));
}

static int between(bool images)
{
    return images ? SIZE / 2 * (SIZE / 2) * 6 : 24;
}

Tensor classes_behind(Tensor x)
{
    return softmax(dense(relu(dense(x, 20)), CLASSES));
}

Model *whole_model(bool images)
{
    Tensor x = input(SIZE, SIZE, 1);
    return l2_penalty(model(x, classes_behind(front(x, images))), 0.01f);
}

Model *first_half(bool images)
{
    Tensor x = input(SIZE, SIZE, 1);
    return l2_penalty(model(x, front(x, images)), 0.01f);
}

Model *second_half(bool images)
{
    Tensor x = input_vector(between(images));
    return l2_penalty(model(x, classes_behind(x)), 0.01f);
}

Batch random_batch(int count, uint64_t seed)
{
    return normal_batch(count, SIZE, seed);
}

Stages *small_stages(void)
{
    return two_stages(first_half(false), sgd(0.1f), second_half(false), sgd(0.1f), two_devices);
}

void one_at_a_time(Stage *stage, int micro_batches)
{
    for (int k = 0; k < micro_batches; k++) {
        stage_forward(stage, k);
        stage_send(stage, k);
        stage_receive(stage, k);
        stage_backward(stage, k);
    }
    stage_apply(stage);
}

void fill_and_drain(Stage *stage, int micro_batches)
{
    CHECK(device_index() == 0);
    for (int k = 0; k < micro_batches; k++) {
        stage_forward(stage, k);
        stage_send(stage, k);
    }
    for (int k = 0; k < micro_batches; k++) {
        stage_receive(stage, k);
        stage_backward(stage, k);
    }
    stage_apply(stage);
}

void at_once(Stage *stage, int micro_batches)
{
    CHECK(device_index() == 1 % device_count());
    for (int k = 0; k < micro_batches; k++) {
        stage_receive(stage, k);
        stage_forward(stage, k);
        stage_backward(stage, k);
        stage_send(stage, k);
    }
    stage_apply(stage);
}

void does_nothing(Stage *stage, int micro_batches)
{
    (void)stage;
    (void)micro_batches;
}

void forgets_one(Stage *stage, int micro_batches)
{
    for (int k = 0; k + 1 < micro_batches; k++) {
        stage_forward(stage, k);
        stage_send(stage, k);
    }
}

// A layer for each stage, and the classes in the last one.
Model *part_of_row(int index, int count)
{
    Tensor in = index == 0 ? input(SIZE, SIZE, 1) : input_vector(24);
    Tensor x = relu(dense(index == 0 ? flatten(in) : in, 24));
    return l2_penalty(model(in, index == count - 1 ? softmax(dense(x, CLASSES)) : x), 0.01f);
}

Stages *row_of(int count, Model *models[])
{
    StagePart parts[MAX_STAGES] = {{0}};
    for (int s = 0; s < count; s++) {
        models[s] = part_of_row(s, count);
        parts[s] = (StagePart){models[s], sgd(0.1f), s % device_count()};
    }
    return stages_in_a_row(parts, count);
}

void row_forward(Stage *stage, int k)
{
    stage_receive_values(stage, k);
    stage_forward(stage, k);
    stage_send_values(stage, k);
}

void row_backward(Stage *stage, int k)
{
    stage_receive_gradient(stage, k);
    stage_backward(stage, k);
    stage_send_gradient(stage, k);
}
