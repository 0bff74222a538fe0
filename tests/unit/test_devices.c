// What devices promise: each thread has its own; two threads of one process train two models on two
// devices at the same time, each with the bits that it has alone, on cores of its own; a model
// stays on its device, whichever thread uses it; and a thread that works on a device keeps it.
//
// All of it on the CPU, and with HVDLAB_TEST_DEVICE=gpu on GPUs, where there are two. Each run is a
// process of its own, since devices are never given back.

#include <cjson/cJSON.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include "child.h"
#include "base/hash.h"
#include "hvdlab.h"
#include "models/models.h"
#include "operation.h"
#include "scratch.h"
#include "base/error.h"
#include "base/memory.h"

#define DEVICES 2
#define NEVER   -1 // a device that is not chosen

enum { SIZE = 8, IMAGES = 48, BATCH_SIZE = 16, EPOCHS = 2, CLASSES = 10 };

// What one training has come to.
typedef struct {
    uint64_t bits;         // of all variables
    double loss, accuracy; // of the last epoch,
    Score score;           // and of the evaluation behind it
    int device, threads;
    char shares[DEVICES][256]; // what the devices' cores should be
    char cores[256];
    cpu_set_t team; // where OpenMP's threads may run
} Result;

// A training, in a thread of its own.
typedef struct {
    int device;
    bool wide; // a small wide residual network with dropout, else a plain CNN
    Model *model;
    Dataset dataset;
    Result *result;
    pthread_barrier_t *start; // all threads begin at once; NULL: there is one
} Task;

// Images that are the task's own.
static Dataset random_dataset(bool wide)
{
    static uint8_t images[2][IMAGES * SIZE * SIZE], labels[2][IMAGES];
    Rng rng = rng_stream_of(wide, RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < IMAGES * SIZE * SIZE; i++)
        images[wide][i] = (uint8_t)rng_below(&rng, 256);
    for (int i = 0; i < IMAGES; i++)
        labels[wide][i] = (uint8_t)rng_below(&rng, CLASSES);
    return (Dataset){.images = images[wide],
                     .labels = labels[wide],
                     .count = IMAGES,
                     .height = SIZE,
                     .width = SIZE,
                     .channels = 1,
                     .classes = CLASSES};
}

static Model *network(bool wide)
{
    ModelShape plain = {SIZE, SIZE, 1, {8, 16, 32, CLASSES}, false};
    ModelShape blocks = {SIZE, SIZE, 1, {8, 8, 16, 16, CLASSES}, true};
    return compile(wide ? wide_resnet(blocks) : cifar_cnn(plain), CATEGORICAL_CROSSENTROPY,
                   wide ? sgd_momentum(0.05f, 0.9f, false) : adam(0.001f));
}

// OpenMP as programs leave it. The convolutions are some that oneDNN plans for a number of threads,
// and with fewer it waits forever.
static double loss_of_batches(Model *model, Dataset *data)
{
    Batches *batches = plain_batches(data, image_statistics(data), BATCH_SIZE);
    History history = fit(model, &(Fit){.train = batches, .epochs = 1, .steps_per_epoch = 2});
    return history.logs[0].loss;
}

static Model *wide_network(void)
{
    ModelShape shape = {28, 28, 1, {16, 16, 32, 64, CLASSES}, true};
    return compile(wide_resnet(shape), CATEGORICAL_CROSSENTROPY, sgd(0.01f));
}

START_TEST(openmp_may_give_fewer_threads)
{
    setenv("HVDLAB_DEVICES", "1", 1); // of several cores
    Args args = {.data = DATA_SYNTHETIC, .images = 2 * BATCH_SIZE};
    Dataset data = load_data(&args, TEST);
    Model *model = wide_network();
    double before = loss_of_batches(model, &data), loss = 0;
    if (_i == 0)
        omp_set_dynamic(1);
    if (_i == 1)
        omp_set_num_threads(1);
    if (_i == 2)
        omp_set_max_active_levels(0);
    if (_i == 3) // one thread makes the plan, and two use it afterwards
        model = wide_network();
    if (_i < 3)
        loss = loss_of_batches(model, &data);
    else
#pragma omp parallel num_threads(2)
#pragma omp single
        loss = loss_of_batches(model, &data);
    ck_assert(loss > 0 && loss < 2 * before);
    ck_assert(loss_of_batches(model, &data) < 2 * before);
}
END_TEST

static uint64_t bits_of(const Model *model)
{
    uint64_t hash = 0;
    for (int i = 0; i < model_variable_count(model); i++) {
        size_t size = variable_size(model_variable(model, i));
        float *values = allocate(size, sizeof *values);
        model_read_variable(model, i, values);
        hash = hash_bytes(hash, values, size * sizeof *values);
        free(values);
    }
    return hash;
}

static cpu_set_t processors_of_team(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
#pragma omp parallel
    {
        cpu_set_t mine;
        CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
#pragma omp critical
        CPU_OR(&all, &all, &mine);
    }
    return all;
}

static void note_device(Result *result)
{
    char *cores = device_cores();
    snprintf(result->cores, sizeof result->cores, "%s", cores);
    free(cores);
    result->device = device_index();
    result->threads = device_threads();
    result->team = processors_of_team();
}

static void *train(void *argument)
{
    Task *task = argument;
    Result *result = task->result;
    if (task->device != NEVER)
        device_use(task->device);
    Batches *batches =
        augmented_batches(&task->dataset, image_statistics(&task->dataset), BATCH_SIZE);
    if (!task->model)
        task->model = network(task->wide);
    if (task->start)
        pthread_barrier_wait(task->start);
    History history = fit(task->model, &(Fit){.train = batches,
                                              .epochs = EPOCHS,
                                              .steps_per_epoch = IMAGES / BATCH_SIZE,
                                              .validation = batches,
                                              .validation_steps = 1});
    const Logs *last = &history.logs[history.epochs - 1];
    result->loss = last->loss;
    result->accuracy = last->accuracy;
    result->score = evaluate(task->model, batches, 0);
    result->bits = bits_of(task->model);
    note_device(result);
    free(history.logs);
    batches_free(batches);
    return NULL;
}

static Task task_of(bool wide, int device, Result *result)
{
    return (Task){
        .device = device, .wide = wide, .dataset = random_dataset(wide), .result = result};
}

static void train_in_thread(Task *task)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, train, task) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void train_together(Task *tasks)
{
    pthread_t threads[DEVICES];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        tasks[i].start = &start;
        CHECK(pthread_create(&threads[i], NULL, train, &tasks[i]) == 0);
    }
    for (int i = 0; i < DEVICES; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    pthread_barrier_destroy(&start);
}

// ---- Runs, each in a process.

static int which; // of the networks, and which device

// Results that a run leaves behind, one for each thread.
static Result *results_of(void (*run)(const void *results))
{
    Result *results = mmap(NULL, DEVICES * sizeof *results, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(results, MAP_FAILED);
    Outcome outcome = run_in_child(run, results);
    ck_assert_msg(outcome.status == 0, "status %d: %s", outcome.status, outcome.err);
    ck_assert_str_eq(outcome.err, "");
    return results;
}

// A run gets the results' memory as its argument.
static Result *results_in(const void *argument)
{
    return (Result *)(uintptr_t)argument;
}

static void one_alone(const void *argument)
{
    Result *results = results_in(argument);
    Task task = task_of(which, which, &results[which]);
    train_in_thread(&task);
    model_free(task.model);
}

static Result *alone(int network_and_device)
{
    which = network_and_device;
    return &results_of(one_alone)[which];
}

static void both_together(const void *argument)
{
    Result *results = results_in(argument);
    for (int i = 0; i < DEVICES; i++) {
        char *share = device_share(-1, DEVICES, i);
        snprintf(results->shares[i], sizeof results->shares[i], "%s", share);
        free(share);
    }
    Task tasks[] = {task_of(false, 0, &results[0]), task_of(true, 1, &results[1])};
    train_together(tasks);
    model_free(tasks[0].model);
    model_free(tasks[1].model);
}

static void assert_same(const Result *a, const Result *b)
{
    ck_assert_uint_eq(a->bits, b->bits);
    ck_assert_double_eq(a->loss, b->loss);
    ck_assert_double_eq(a->accuracy, b->accuracy);
    ck_assert_double_eq(a->score.loss, b->score.loss);
    ck_assert_double_eq(a->score.accuracy, b->score.accuracy);
}

START_TEST(two_threads_train_on_two_devices_as_each_does_alone)
{
    Result *together = results_of(both_together);
    for (int i = 0; i < DEVICES; i++) {
        const Result *single = alone(i);
        ck_assert_int_eq(together[i].device, i);
        ck_assert_int_eq(together[i].threads, single->threads);
        assert_same(&together[i], single);
    }
    ck_assert_uint_ne(together[0].bits, together[1].bits);
}
END_TEST

START_TEST(their_cores_do_not_overlap)
{
    Result *together = results_of(both_together);
    for (int i = 0; i < DEVICES; i++)
        ck_assert_str_eq(together[i].cores, together->shares[i]);
    if (strcmp(together->shares[0], together->shares[1]) == 0)
        return; // there is one core
    cpu_set_t common;
    CPU_AND(&common, &together[0].team, &together[1].team);
    ck_assert_int_eq(CPU_COUNT(&common), 0);
}
END_TEST

// ---- What they write.

static void both_traced(const void *argument)
{
    setenv("HVDLAB_TRACE", scratch, 1);
    both_together(argument);
}

START_TEST(a_trace_of_two_threads_has_whole_lines_and_both_devices)
{
    make_scratch();
    results_of(both_traced);
    FILE *file = fopen(in_scratch("rank-0.jsonl"), "r");
    ck_assert_ptr_nonnull(file);
    char line[4096];
    int devices = 0, steps = 0;
    while (fgets(line, sizeof line, file)) {
        cJSON *event = cJSON_Parse(line);
        ck_assert_msg(event != NULL, "%s", line);
        const char *name = cJSON_GetObjectItem(event, "event")->valuestring;
        if (strcmp(name, "device") == 0)
            devices |= 1 << cJSON_GetObjectItem(event, "device")->valueint;
        steps += strcmp(name, "step") == 0;
        cJSON_Delete(event);
    }
    ck_assert_int_eq(devices, 1 << 0 | 1 << 1);
    ck_assert_int_eq(steps, DEVICES * EPOCHS * IMAGES / BATCH_SIZE);
    fclose(file);
    remove_scratch();
}
END_TEST

// Both on device 0, as threads that never choose. They take turns.
static void both_on_one(const void *argument)
{
    Result *results = results_in(argument);
    Task tasks[] = {task_of(false, NEVER, &results[0]), task_of(true, NEVER, &results[1])};
    train_together(tasks);
    model_free(tasks[0].model);
    model_free(tasks[1].model);
}

START_TEST(two_threads_may_share_a_device)
{
    Result *together = results_of(both_on_one);
    ck_assert_int_eq(together[0].device, 0);
    ck_assert_int_eq(together[1].device, 0);
    assert_same(&together[0], alone(0));
}
END_TEST

// ---- A model, and the threads that use it.

static Batch one_image(void)
{
    static float image[SIZE * SIZE] = {1, 2, 3};
    return (Batch){.images = image, .count = 1};
}

static void model_of_another_thread(const void *argument)
{
    Result *results = results_in(argument);
    Task task = task_of(true, 1, &results[0]);
    train_in_thread(&task);
    Model *own = network(false); // from now on this thread works on device 0
    CHECK(device_index() == 0);
    CHECK(model_parameters(own)->device != model_parameters(task.model)->device);
    float before[CLASSES], there[CLASSES], after[CLASSES];
    const Batch batch = one_image();
    predict_on_batch(own, &batch, before);
    predict_on_batch(task.model, &batch, there);
    predict_on_batch(own, &batch, after);
    CHECK(memcmp(before, after, sizeof before) == 0 && memcmp(before, there, sizeof before) != 0);
    CHECK(bits_of(task.model) == results[0].bits);
    model_free(task.model);
    model_free(own);
}

START_TEST(a_model_stays_on_its_device_whichever_thread_uses_it)
{
    results_of(model_of_another_thread);
}
END_TEST

// A thread that has no device takes the model's, and so its cores and its number of threads.
static void given_model(const void *argument)
{
    Result *results = results_in(argument);
    Task task = task_of(true, NEVER, &results[0]);
    device_use(1);
    task.model = network(true);
    train_in_thread(&task);
    model_free(task.model);
}

START_TEST(a_thread_without_a_device_takes_that_of_the_model_it_is_given)
{
    Result *given = results_of(given_model);
    ck_assert_int_eq(given[0].device, 1);
    const Result *single = alone(1);
    ck_assert_uint_eq(given[0].bits, single->bits);
    ck_assert_str_eq(given[0].cores, single->cores);
}
END_TEST

// ---- Choosing.

static void main_thread_first(const void *argument)
{
    Result *results = results_in(argument);
    note_device(&results[0]); // this thread's, device 0
    Task task = task_of(true, 1, &results[1]);
    train_in_thread(&task);
    Result again;
    note_device(&again);
    CHECK(again.device == 0 && CPU_EQUAL(&again.team, &results[0].team));
    model_free(task.model);
}

START_TEST(a_thread_chooses_though_another_works_on_a_device)
{
    Result *results = results_of(main_thread_first);
    ck_assert_int_eq(results[0].device, 0);
    assert_same(&results[1], alone(1));
}
END_TEST

static void *move(void *unused)
{
    (void)unused;
    device_use(1);
    device_threads();
    device_use(1); // the same again
    device_use(0);
    return NULL;
}

static void moves_in_main(const void *unused)
{
    (void)unused;
    move(NULL);
}

static void moves_in_thread(const void *unused)
{
    (void)unused;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, move, NULL) == 0);
    pthread_join(thread, NULL);
}

START_TEST(a_thread_keeps_the_device_that_it_works_on)
{
    Outcome outcome = run_in_child(moves_in_main, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(outcome.err,
                     "test_devices: device_use(0): this process already works on device 1; choose "
                     "the device before anything uses one, right after hvd_init()\n");
    outcome = run_in_child(moves_in_thread, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_ptr_nonnull(strstr(outcome.err, "already works on device 1 in this thread;"));
}
END_TEST

int main(void)
{
    if (!use_two_test_devices())
        return EXIT_SUCCESS;
    Suite *suite = suite_create("devices");
    TCase *tests = operation_case(suite, "threads");
    tcase_add_loop_test(tests, openmp_may_give_fewer_threads, 0, 5);
    tcase_add_test(tests, two_threads_train_on_two_devices_as_each_does_alone);
    tcase_add_test(tests, their_cores_do_not_overlap);
    tcase_add_test(tests, a_trace_of_two_threads_has_whole_lines_and_both_devices);
    tcase_add_test(tests, two_threads_may_share_a_device);
    tcase_add_test(tests, a_model_stays_on_its_device_whichever_thread_uses_it);
    tcase_add_test(tests, a_thread_without_a_device_takes_that_of_the_model_it_is_given);
    tcase_add_test(tests, a_thread_chooses_though_another_works_on_a_device);
    tcase_add_test(tests, a_thread_keeps_the_device_that_it_works_on);
    return run_suite(suite);
}
