// The training of this lab, and how it went: how accurate the model was after how many updates and
// seconds. Started by mpirun all workers make each update together, by an all-reduce. Started as a
// worker, HVD_ROLE=worker:N, it trains by parameter servers; a server is another program of this lab,
// such as build/lenet_ps.

#include <stdio.h>
#include <stdlib.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

// The model at some time of the training. What it is worth is found out when the training is over,
// so that nobody waits for it.
typedef struct {
    double seconds;
    long updates;
    float *weights;
} Moment;

enum { MOMENTS = 16 };

typedef struct {
    int number, workers; // this worker's number, and how many there are
    PsWorker *worker;    // NULL: under mpirun
    Moment moments[MOMENTS];
    int kept;
    double began;
    double first_step, last_step; // when they were over
} Course;

static void keep(Course *course, Model *model, long updates)
{
    Moment *moment = &course->moments[course->kept++];
    *moment = (Moment){.seconds = seconds_now() - course->began, .updates = updates};
    moment->weights = malloc(model_parameters(model)->length * sizeof(float));
    for (int i = 0; i < model_variable_count(model); i++)
        model_read_variable(model, i, moment->weights + model_variable(model, i)->offset);
}

// The newest weights; returns how many updates they have had.
static long fetch(Course *course, long step)
{
    return course->worker ? pull_weights(course->worker) : step;
}

static void hand_over(Course *course, Model *model)
{
    if (course->worker) {
        push_gradients(course->worker);
    } else {
        const Parameters *parameters = model_parameters(model);
        hvd_allreduce(parameters->gradients, parameters->length, HVD_AVERAGE);
        apply_gradients(model);
    }
}

static void train(Course *course, Model *model, Batches *batches, int steps)
{
    int every = (steps + MOMENTS - 1) / MOMENTS;
    batches_begin(batches, steps);
    course->began = seconds_now();
    for (int step = 0; step < steps; step++) {
        long updates = fetch(course, step);
        if (course->number == 0 && step % every == every - 1)
            keep(course, model, updates);
        Batch batch = batches_next(batches);
        compute_gradients(model, &batch);
        hand_over(course, model);
        course->last_step = seconds_now();
        if (step == 0)
            course->first_step = course->last_step;
    }
}

static void tell(const Course *course, Model *model, Batches *test_batches)
{
    for (int m = 0; m < course->kept; m++) {
        const Moment *moment = &course->moments[m];
        for (int i = 0; i < model_variable_count(model); i++)
            model_write_variable(model, i, moment->weights + model_variable(model, i)->offset);
        free(moment->weights);
        printf("after %ld updates, %.2f s: test accuracy %.4f\n", moment->updates, moment->seconds,
               evaluate(model, test_batches, 0).accuracy);
    }
}

int main(int argc, char **argv)
{
    Course course = {0};
    bool by_servers = getenv("HVD_ROLE") != NULL;
    if (!by_servers)
        hvd_init();
    Args args = parse_args(argc, argv);
    course.number = by_servers ? ps_number() : hvd_rank();
    course.workers = by_servers ? ps_workers() : hvd_size();

    // A worker trains on its shard, the same number of steps as all the others. A thousand test
    // images will do, the same ones whatever --images is.
    Dataset images = load_data(&args, TRAIN), test_images = load_data(&args, TEST);
    Statistics statistics = image_statistics(&images);
    Dataset shard = shard_dataset(&images, course.number, course.workers);
    Dataset some = dataset_range(&test_images, 0, test_images.count < 1000 ? test_images.count : 1000);
    Batches *batches = augmented_batches(&shard, statistics, args.batch_size);
    Batches *test_batches = plain_batches(&some, statistics, args.val_batch_size);
    int steps = args.epochs * (images.count / course.workers / args.batch_size);

    Model *model = compile(create_lenet(32, 512), CATEGORICAL_CROSSENTROPY, sgd(args.base_lr));
    if (by_servers)
        course.worker = ps_worker_start(model);
    else
        hvd_broadcast_model(model, 0);
    train(&course, model, batches, steps);
    if (by_servers)
        ps_worker_stop(course.worker);
    else if (course.number == 0 && steps > 1)
        printf("%d workers: %.2f batches a second\n", course.workers,
               course.workers * (steps - 1) / (course.last_step - course.first_step));
    tell(&course, model, test_batches);
    return 0;
}
