// The parts of a model in a row, and their training and evaluation. The model computes; thread_pool.h
// has the threads.

#include "train/stages_inside.h"

#include <stdlib.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/share.h"
#include "observe/trace.h"

static void check_parts(const StagePart *parts, int count, const char *caller)
{
    if (count < 1 || count > MAX_STAGES)
        die("%s: %d stages; there are 1 to %d", caller, count, MAX_STAGES);
    for (int s = 0; s < count; s++) {
        if (!parts[s].model || !parts[s].optimizer)
            die("%s: a model or an optimizer is not there (NULL)", caller);
        for (int before = 0; before < s; before++)
            if (parts[before].model == parts[s].model ||
                parts[before].optimizer == parts[s].optimizer)
                die("%s: each stage has a model of its own, with an optimizer of its own", caller);
        if (parts[s].optimizer->gradient_ready)
            die("%s: the gradients of stages are not exchanged between workers: give it "
                "optimizers that are not distributed",
                caller);
        int passed_on = s > 0 ? model_output_size(parts[s - 1].model) : 0;
        if (s > 0 &&
            (!model_reads_vector(parts[s].model) || passed_on != model_input_size(parts[s].model)))
            die("%s: stage %d hands over %d numbers for an image; the model of stage %d has to "
                "begin with input_vector(%d)",
                caller, s - 1, passed_on, s, passed_on);
    }
}

static void compile_part(int number, void *argument)
{
    Stages *stages = argument;
    Stage *stage = &stages->stage[number];
    if (number != stages->compiled)
        return;
    stage->thread = pthread_self();
    compile(stage->model,
            is_last(stage) ? CATEGORICAL_CROSSENTROPY : CATEGORICAL_CROSSENTROPY_FROM_LOGITS,
            stage->optimizer);
}

static Stages *make_stages(const StagePart *parts, int count, const char *caller)
{
    check_parts(parts, count, caller);
    Stages *stages = allocate(1, sizeof *stages);
    *stages = (Stages){
        .stage = allocate((size_t)count, sizeof *stages->stage), .count = count, .batches = -1};
    pthread_mutex_init(&stages->lock, NULL);
    pthread_cond_init(&stages->change, NULL);
    int devices[MAX_STAGES], variables = 0;
    for (int s = 0; s < count; s++) {
        stages->stage[s] = (Stage){.stages = stages,
                                   .number = s,
                                   .model = parts[s].model,
                                   .optimizer = parts[s].optimizer};
        model_follow(parts[s].model, variables);
        variables += model_variable_count(parts[s].model);
        devices[s] = parts[s].device;
    }
    lives_until_exit(stages);
    stages->pool = thread_pool_start("stage", devices, count);
    // One after the other: errors of the first one are reported first.
    for (stages->compiled = 0; stages->compiled < count; stages->compiled++)
        thread_pool_run(stages->pool, caller, compile_part, stages);
    return stages;
}

Stages *stages_in_a_row(const StagePart *parts, int count)
{
    if (!parts)
        die("%s: the parts are not there (NULL)", __func__);
    return make_stages(parts, count, __func__);
}

Stages *two_stages(Model *first, Optimizer *first_optimizer, Model *second,
                   Optimizer *second_optimizer, const int devices[2])
{
    if (!devices)
        die("%s: the devices are not there (NULL)", __func__);
    const StagePart parts[] = {{first, first_optimizer, devices[0]},
                               {second, second_optimizer, devices[1]}};
    Stages *stages = make_stages(parts, 2, __func__);
    stages->halves = true;
    return stages;
}

static void need_stages(const Stages *stages, const char *caller)
{
    if (!stages)
        die("%s: there are no stages (NULL)", caller);
}

void stages_free(Stages *stages)
{
    if (!stages)
        return;
    thread_pool_free(stages->pool, __func__);
    for (int s = 0; s < stages->count; s++)
        model_free(stages->stage[s].model);
    pthread_mutex_destroy(&stages->lock);
    pthread_cond_destroy(&stages->change);
    free(stages->stage);
    free(stages);
}

// ---- A batch.

static void begin_batch(Stages *stages, const Batch *batch, int micro_batches)
{
    stages->batch = batch;
    stages->batches++;
    stages->micro_batches = micro_batches < batch->count ? micro_batches : batch->count;
    for (int s = 0; s < stages->count; s++) {
        Stage *stage = &stages->stage[s];
        stage->micros = allocate((size_t)stages->micro_batches, sizeof *stage->micros);
        stage->used = allocate((size_t)stages->micro_batches, sizeof *stage->used);
        stage->waits_for = -1;
        for (int k = 0; k < stages->micro_batches; k++) {
            Share part = share_of((size_t)batch->count, k, stages->micro_batches);
            stage->micros[k] = (Micro){.begin = (int)part.begin, .count = (int)part.count};
        }
    }
}

static void end_batch(Stages *stages)
{
    for (int s = 0; s < stages->count; s++) {
        Stage *stage = &stages->stage[s];
        for (int k = 0; k < stages->micro_batches; k++) {
            free(stage->micros[k].arrived[VALUES]);
            free(stage->micros[k].arrived[GRADIENT]);
            free(stage->micros[k].gradient);
        }
        free(stage->micros);
        free(stage->used);
        model_drop_sum(stage->model);
    }
}

static void run_schedule(int number, void *argument)
{
    Stages *stages = argument;
    Stage *stage = &stages->stage[number];
    trace("stage_ready", NUMBER("batch", stages->batches));
    stage->schedule(stage, stages->micro_batches);
    stage->returned = seconds_now();
    pthread_mutex_lock(&stages->lock);
    stage->schedule = NULL;
    pthread_cond_broadcast(&stages->change);
    pthread_mutex_unlock(&stages->lock);
}

static void train(Stages *stages, const Batch *batch, int micro_batches, const Schedule *schedules,
                  const char *caller)
{
    if (!batch || !batch->images || !batch->labels || batch->count < 1)
        die("%s: there are no images or labels in the batch", caller);
    if (micro_batches < 1)
        die("%s: a batch can't have %d micro-batches", caller, micro_batches);
    for (int s = 0; s < stages->count; s++)
        if (!schedules[s])
            die("%s: a schedule is not there (NULL)", caller);
    thread_pool_check_outside(caller);
    begin_batch(stages, batch, micro_batches);
    stages_trace_begin(stages);
    for (int s = 0; s < stages->count; s++)
        stages->stage[s].schedule = schedules[s];
    double begin = seconds_now();
    thread_pool_run(stages->pool, caller, run_schedule, stages);
    double now = seconds_now();
    stages->seconds += now - begin;
    for (int s = 0; s < stages->count; s++)
        stages->stage[s].waited += now - stages->stage[s].returned;
    stages_trace_end(stages);
    end_batch(stages);
}

void train_in_stages(Stages *stages, const Batch *batch, int micro_batches, Schedule first,
                     Schedule second)
{
    need_stages(stages, __func__);
    if (stages->count != 2)
        die("%s: there are %d stages; train_by_schedule() is for any number", __func__,
            stages->count);
    train(stages, batch, micro_batches, (Schedule[]){first, second}, __func__);
}

void train_by_schedule(Stages *stages, const Batch *batch, int micro_batches, Schedule schedule)
{
    need_stages(stages, __func__);
    Schedule schedules[MAX_STAGES];
    for (int s = 0; s < stages->count; s++)
        schedules[s] = schedule;
    train(stages, batch, micro_batches, schedules, __func__);
}

Metrics stages_metrics(const Stages *stages)
{
    need_stages(stages, __func__);
    return model_metrics(last_stage(stages)->model);
}

void stages_reset_metrics(Stages *stages)
{
    need_stages(stages, __func__);
    model_reset_metrics(last_stage(stages)->model);
    stages->seconds = 0;
    for (int s = 0; s < stages->count; s++) {
        stages->stage[s].waited = 0;
        stages->stage[s].most_kept = 0;
    }
}

StageUse stage_use(const Stages *stages, int stage)
{
    need_stages(stages, __func__);
    if (stage < 0 || stage >= stages->count)
        die("%s: there is no stage %d; there are %d, from 0", __func__, stage, stages->count);
    const Stage *of = &stages->stage[stage];
    return (StageUse){.kept = of->most_kept,
                      .megabytes = (double)model_memory(of->model).activations / 1e6,
                      .idle = stages->seconds > 0 ? of->waited / stages->seconds : 0};
}

static void check_images(const Model *first, const Dataset *data)
{
    int numbers = data->height * data->width * data->channels;
    if (numbers != model_input_size(first))
        die("evaluate_in_stages: the images are of %d numbers, the first stage reads %d", numbers,
            model_input_size(first));
}

float *stages_forward(const Stages *stages, Part part, const float *images, const int *labels,
                      bool training, float *between)
{
    for (int s = 0; s < stages->count; s++) {
        Model *m = stages->stage[s].model;
        bool last = s == stages->count - 1;
        model_forward_part(m, part, s == 0 ? images : between, last ? labels : NULL, training);
        if (last)
            continue;
        size_t floats = (size_t)part.count * (size_t)model_output_size(m);
        between = enlarge(between, floats, sizeof *between);
        model_read_output(m, part, between);
    }
    return between;
}

Score evaluate_in_stages(Stages *stages, Batches *batches)
{
    need_stages(stages, __func__);
    batches_need_one(batches, __func__);
    thread_pool_check_outside(__func__);
    Model *last = last_stage(stages)->model;
    check_images(stages->stage[0].model, batches_dataset(batches));
    Metrics before = model_metrics(last);
    float *between = NULL;
    model_reset_metrics(last);
    batches_begin(batches, batches_len(batches));
    for (int step = 0; step < batches_len(batches); step++) {
        Batch batch = batches_next(batches);
        between = stages_forward(stages, (Part){0, batch.count}, batch.images, batch.labels, false,
                                 between);
    }
    free(between);
    Metrics metrics = model_metrics(last);
    model_write_metrics(last, &before);
    return (Score){metrics.loss / metrics.images, metrics.correct / metrics.images};
}
