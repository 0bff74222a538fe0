// What HVD_TIMELINE promises, on as many ranks as mpirun started: a short training is recorded, and
// the root reads the file as a viewer would. Its structure; that spans nest; that a step is what
// was computed and waited for in it; that pieces are the gradients; and that clocks agree: no rank
// leaves an exchange before all have come to it. TIMELINE_SECONDS=S allows that by S seconds, for a
// test that makes the clocks differ.

#include <cjson/cJSON.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/launcher.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/format.h"
#include "hvd/hvd.h"
#include "models/models.h"
#include "run/args.h"
#include "run/device.h"
#include "train/fit.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            exit(EXIT_FAILURE);                                                                    \
        }                                                                                          \
    } while (0)

enum { EPOCHS = 2, STEPS = 6, VALIDATION_STEPS = 3, EXCHANGES = 5, BATCH = 16 };

// ---- The training.

static size_t gradient_bytes;
static bool on_gpu;

static void train(void)
{
    char *words[] = {"test_timeline", "--data", "synthetic", "--images", "200"};
    Args args = parse_args(5, words);
    Dataset data = load_data(&args, TRAIN);
    Statistics statistics = image_statistics(&data);
    Batches *batches = augmented_batches(&data, statistics, BATCH);
    Batches *validation = plain_batches(&data, statistics, BATCH);
    ModelShape shape = {28, 28, 1, {4, 8, 32, 10}, false};
    Model *model =
        compile(lenet(shape), CATEGORICAL_CROSSENTROPY, hvd_distributed_optimizer(sgd(0.01f)));
    hvd_broadcast_model(model, 0);
    gradient_bytes = model_parameters(model)->length * sizeof(float);
    on_gpu = device_is_gpu();
    Callbacks callbacks = {0};
    callbacks_add(&callbacks, hvd_broadcast_variables(0));
    callbacks_add(&callbacks, hvd_metric_average());
    fit(model, &(Fit){.train = batches,
                      .epochs = EPOCHS,
                      .steps_per_epoch = STEPS,
                      .validation = validation,
                      .validation_steps = VALIDATION_STEPS,
                      .callbacks = &callbacks});
    callbacks_free(&callbacks);
    model_free(model);
    batches_free(batches);
    batches_free(validation);
    dataset_free(&data);
}

// What a program calls itself: exchanges, which no rank can leave before all have come to them; and
// a message.
static void call_mpi(void)
{
    int rank = hvd_rank(), size = hvd_size(), numbers[3] = {0}, received[3];
    int *sent = allocate((size_t)size, sizeof *sent);
    int *from_all = allocate((size_t)size, sizeof *from_all);
    for (int i = 0; i < EXCHANGES; i++) {
        usleep(1000 * (unsigned)((rank + i) % size));
        MPI_Alltoall(sent, 1, MPI_INT, from_all, 1, MPI_INT, MPI_COMM_WORLD);
    }
    MPI_Sendrecv(numbers, 3, MPI_INT, (rank + 1) % size, 0, received, 3, MPI_INT,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    free(sent);
    free(from_all);
}

// ---- The file.

typedef struct {
    const cJSON *json;
    const char *name, *category;
    int rank, thread;
    int64_t begin, end; // nanoseconds
    int place;          // in the file
    int parent;         // -1: none
} Event;

static Event *events;
static int event_count;

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    EXPECT(cJSON_IsNumber(item));
    return item->valuedouble;
}

static const char *text(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    EXPECT(cJSON_IsString(item));
    return item->valuestring;
}

static double argument(const Event *event, const char *name)
{
    return number(cJSON_GetObjectItemCaseSensitive(event->json, "args"), name);
}

static cJSON *read_json(const char *path)
{
    FILE *file = fopen(path, "rb");
    EXPECT(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *content = allocate(size + 1, 1);
    EXPECT(fread(content, 1, size, file) == size);
    fclose(file);
    const char *end;
    cJSON *root = cJSON_ParseWithOpts(content, &end, true);
    EXPECT(root);
    free(content);
    return root;
}

// Each event has what the format asks for; metadata come first to whom they name.
static void read_events(const cJSON *list)
{
    const cJSON *json;
    EXPECT(cJSON_IsArray(list));
    events = allocate((size_t)cJSON_GetArraySize(list), sizeof *events);
    cJSON_ArrayForEach (json, list) {
        Event event = {.json = json, .place = event_count, .parent = -1};
        event.name = text(json, "name");
        event.rank = (int)number(json, "pid");
        event.thread = (int)number(json, "tid");
        EXPECT(event.rank >= 0 && event.rank < launcher_size());
        if (strcmp(text(json, "ph"), "M") == 0)
            continue;
        EXPECT(strcmp(text(json, "ph"), "X") == 0);
        event.category = text(json, "cat");
        event.begin = llround(1000 * number(json, "ts"));
        event.end = event.begin + llround(1000 * number(json, "dur"));
        EXPECT(event.begin >= 0 && event.end >= event.begin);
        EXPECT(!cJSON_HasObjectItem(cJSON_GetObjectItem(json, "args"), "unfinished"));
        events[event_count++] = event;
    }
    EXPECT(event_count > 0);
}

// Within a thread those that begin first; of those that begin together, as the file has them.
static int compare(const void *a, const void *b)
{
    const Event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (x->thread != y->thread)
        return x->thread - y->thread;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : x->place - y->place;
}

static bool same_thread(const Event *a, const Event *b)
{
    return a->rank == b->rank && a->thread == b->thread;
}

// Finds what each span is a part of: none overlaps another in part.
static void check_nesting(void)
{
    qsort(events, (size_t)event_count, sizeof *events, compare);
    for (int i = 1; i < event_count; i++) {
        int parent = i - 1;
        while (parent >= 0 && same_thread(&events[i], &events[parent]) &&
               events[i].begin >= events[parent].end)
            parent = events[parent].parent;
        if (parent < 0 || !same_thread(&events[i], &events[parent]))
            continue;
        EXPECT(events[i].end <= events[parent].end);
        events[i].parent = parent;
    }
}

// On a GPU the name of what is computed ends in "(queued)".
static bool is_called(const Event *event, const char *name)
{
    size_t length = strlen(name);
    return strncmp(event->name, name, length) == 0 &&
           (event->name[length] == '\0' || strcmp(event->name + length, " (queued)") == 0);
}

// How many spans of that name are in `parent` itself; -1: in any.
static int count(int rank, const char *name, int parent)
{
    int found = 0;
    for (int i = 0; i < event_count; i++)
        found += events[i].rank == rank && is_called(&events[i], name) &&
                 (parent < 0 || events[i].parent == parent);
    return found;
}

// The value of a metadata event, as a text; the last one that is there. NULL: none.
static const cJSON *metadata(const cJSON *list, const char *name, int rank, int thread)
{
    const cJSON *json, *found = NULL;
    cJSON_ArrayForEach (json, list) {
        if (strcmp(text(json, "ph"), "M") == 0 && strcmp(text(json, "name"), name) == 0 &&
            (int)number(json, "pid") == rank && (int)number(json, "tid") == thread)
            found = cJSON_GetObjectItemCaseSensitive(json, "args");
    }
    return found;
}

static void check_names(const cJSON *list)
{
    for (int rank = 0; rank < launcher_size(); rank++) {
        char *begin = format_text("rank %d (", rank);
        EXPECT(strncmp(text(metadata(list, "process_name", rank, 0), "name"), begin,
                       strlen(begin)) == 0);
        EXPECT(number(metadata(list, "process_sort_index", rank, 0), "sort_index") == rank);
        free(begin);
    }
    for (int i = 0; i < event_count; i++) {
        const Event *event = &events[i];
        const char *name = text(metadata(list, "thread_name", event->rank, event->thread), "name");
        bool loads = strcmp(name, "loading") == 0, piece = strcmp(name, "gradients") == 0;
        EXPECT(loads || piece || strcmp(name, "training") == 0);
        EXPECT(!loads || strcmp(event->category, "loading") == 0);
        EXPECT(piece == (strcmp(event->category, "gradients") == 0));
    }
}

// ---- What is in it.

static void check_counts(int rank)
{
    bool several = launcher_size() > 1; // alone, a call waits for no other rank
    EXPECT(count(rank, "load the data", -1) == 1);
    EXPECT(count(rank, "compile", -1) == 1);
    EXPECT(count(rank, "hvd_broadcast_model", -1) == several);
    EXPECT(count(rank, "epoch", -1) == EPOCHS);
    EXPECT(count(rank, "step", -1) == EPOCHS * STEPS);
    EXPECT(count(rank, "validation", -1) == EPOCHS);
    EXPECT(count(rank, "validation step", -1) == EPOCHS * VALIDATION_STEPS);
    EXPECT(count(rank, "augment a batch", -1) == EPOCHS * STEPS);
    EXPECT(count(rank, "load a batch", -1) == EPOCHS * VALIDATION_STEPS);
    EXPECT(count(rank, "forward", -1) == EPOCHS * (STEPS + VALIDATION_STEPS));
    EXPECT(count(rank, "hvd_broadcast_variables", -1) == 1 + several);
    EXPECT(count(rank, "hvd_metric_average", -1) == EPOCHS * (1 + several));
    EXPECT(count(rank, "MPI_Alltoall", -1) == EXCHANGES);
    EXPECT(count(rank, "MPI_Sendrecv", -1) == 1);
    EXPECT(count(rank, "wait for the gradients", -1) == (several ? EPOCHS * STEPS : 0));
    for (int i = 0; i < event_count; i++) {
        if (events[i].rank != rank || strcmp(events[i].name, "MPI_Sendrecv") != 0)
            continue;
        EXPECT(argument(&events[i], "bytes") == 3 * sizeof(int));
        EXPECT(argument(&events[i], "rank") == (rank + 1) % launcher_size());
    }
}

// Between machines, and from GPUs, several pieces are under way.
static bool several_at_once(void)
{
    return simulates_nodes() || on_gpu;
}

// Pieces of a step, by the thread's side of it: they lie within the step, and are the gradients.
static void check_pieces(const Event *step)
{
    double bytes = 0;
    int pieces = 0;
    for (int i = 0; i < event_count; i++) {
        const Event *piece = &events[i];
        if (piece->rank != step->rank || strcmp(piece->category, "gradients") != 0 ||
            piece->begin < step->begin || piece->begin > step->end)
            continue;
        EXPECT(piece->end <= step->end);
        EXPECT(piece->parent < 0 || several_at_once());
        EXPECT(argument(piece, "offset") * sizeof(float) == bytes);
        bytes += argument(piece, "bytes");
        pieces++;
    }
    EXPECT(launcher_size() > 1 ? bytes == (double)gradient_bytes && pieces >= 2 : pieces == 0);
}

// How long the parts of a step took; each is a wait, or was computed.
static int64_t sum_of_parts(int step)
{
    int64_t sum = 0;
    for (int i = 0; i < event_count; i++) {
        const char *category = events[i].category;
        if (events[i].parent != step)
            continue;
        EXPECT(strcmp(category, "wait") == 0 || strcmp(category, "compute") == 0);
        sum += events[i].end - events[i].begin;
    }
    return sum;
}

// Waits and what was computed add up to a step: there is next to nothing between them. The machine
// may give the core to others just there, but not in nearly all of the steps.
static void check_steps(int rank)
{
    int complete = 0;
    for (int i = 0; i < event_count; i++) {
        if (events[i].rank != rank || strcmp(events[i].name, "step") != 0)
            continue;
        EXPECT(events[i].parent >= 0 && strcmp(events[events[i].parent].name, "epoch") == 0);
        EXPECT(count(rank, "wait for a batch", i) == 1 && count(rank, "forward", i) == 1);
        EXPECT(count(rank, "backward", i) + count(rank, "forward and backward", i) == 1);
        EXPECT(count(rank, "update", i) == 1);
        check_pieces(&events[i]);
        int64_t whole = events[i].end - events[i].begin, parts = sum_of_parts(i);
        EXPECT(parts <= whole);
        complete += (double)parts >= 0.98 * (double)whole;
    }
    EXPECT(4 * complete > EPOCHS * STEPS);
}

// The n-th exchange of a rank.
static const Event *exchange(int rank, int n)
{
    for (int i = 0; i < event_count; i++)
        if (events[i].rank == rank && strcmp(events[i].name, "MPI_Alltoall") == 0 && n-- == 0)
            return &events[i];
    EXPECT(false);
    return NULL;
}

static void check_clocks(void)
{
    const char *seconds = getenv("TIMELINE_SECONDS");
    int64_t allowed = seconds ? (int64_t)(1e9 * strtod(seconds, NULL)) : 0;
    for (int n = 0; n < EXCHANGES; n++)
        for (int a = 0; a < launcher_size(); a++)
            for (int b = 0; b < launcher_size(); b++)
                EXPECT(exchange(a, n)->end + allowed >= exchange(b, n)->begin);
}

static void check_file(const char *path)
{
    cJSON *root = read_json(path);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "traceEvents");
    read_events(list);
    check_nesting();
    check_names(list);
    for (int rank = 0; rank < launcher_size(); rank++) {
        check_counts(rank);
        check_steps(rank);
    }
    check_clocks();
    EXPECT(!on_gpu || count(0, "wait for the GPU", -1) > 0);
    free(events);
    cJSON_Delete(root);
}

int main(int argc, char **argv)
{
    (void)argc;
    char *path = format_text("%s.%d-ranks.json", argv[0], launcher_size());
    setenv("HVD_TIMELINE", path, 1);
    setenv("HVD_FUSION_THRESHOLD", "4096", 1);
    hvd_init();
    device_use(hvd_local_rank());
    train();
    if (getenv("TIMELINE_SECONDS"))
        sleep(1); // while the clocks drift apart
    call_mpi();
    int rank = hvd_rank();
    hvd_shutdown();
    if (rank == 0) {
        check_file(path);
        unlink(path);
        printf("%d ranks: %d spans, as promised\n", launcher_size(), event_count);
    }
    free(path);
    return 0;
}
