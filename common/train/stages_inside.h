// What implements stages.h: the row in stages.c, what a schedule calls in stage_calls.c, what is
// traced of a batch in stages_trace.c.

#ifndef HVDLAB_STAGES_INSIDE_H
#define HVDLAB_STAGES_INSIDE_H

#include "train/stages.h"

#include <pthread.h>
#include "nn/parts.h"
#include "run/thread_pool.h"

// What stages hand over: values to the next one, and their gradient to the one before.
typedef enum { VALUES, GRADIENT, HANDOVERS } Handover;

// A micro-batch in one stage.
typedef struct {
    int begin, count; // images of the batch
    int slot;         // that has its activations, from forward to backward
    bool forward, backward, sent[HANDOVERS], received[HANDOVERS];
    float *arrived[HANDOVERS]; // from the other stages, until it is computed; NULL: nothing yet
    float *gradient;           // of the values that it received, until it is sent
} Micro;

struct Stage {
    Stages *stages;
    int number; // 0: the first one
    Model *model;
    Optimizer *optimizer; // the model's
    pthread_t thread;
    Schedule schedule; // that runs; NULL: it has returned
    Micro *micros;
    bool *used;    // slots: parts of the model in which a micro-batch's activations are
    int waits_for; // the micro-batch that has not arrived, or -1
    Handover waits_for_what;
    double returned; // when its schedule did
    double waited;   // seconds since the last reset: for others, or with nothing left to do
    int most_kept;   // micro-batches since then, at a time
};

struct Stages {
    Stage *stage;
    int count;
    bool halves; // made by two_stages(): schedules call stage_send and stage_receive
    ThreadPool *pool;
    int compiled; // the stage whose model is, now
    const Batch *batch;
    int64_t batches; // so far
    int micro_batches;
    double seconds;       // of all batches since the last reset
    pthread_mutex_t lock; // of schedules, of what arrives, and of waiting stages
    pthread_cond_t change;
};

static inline bool is_first(const Stage *stage)
{
    return stage->number == 0;
}

static inline bool is_last(const Stage *stage)
{
    return stage->number == stage->stages->count - 1;
}

static inline Stage *last_stage(const Stages *stages)
{
    return &stages->stage[stages->count - 1];
}

// The forward pass of a part of a batch through all stages, one after the other; these are its images
// and labels. Returns `between`, enlarged: what stages pass on.
float *stages_forward(const Stages *stages, Part part, const float *images, const int *labels,
                      bool training, float *between);

// Of the batch that begins, from which gradients are computed for it, and of the one that ends.
void stages_trace_begin(const Stages *stages);
void stages_trace_end(const Stages *stages);

#endif
