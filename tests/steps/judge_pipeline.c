// Pipeline: what the trainer got, batch by batch, on each rank, and what the stages did for it:
// from the events "images" and "taken". Which stages there are, and in which order, names a
// mistake; that there is one, the batches themselves prove.

#include "end.h"
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READ      "training images are read from the disk once"
#define PASSES    "a pass brings each image at most once, in whole batches"
#define ORDER     "each pass has an order and batches of its own"
#define AUGMENTED "images are shifted and flipped in another way in each pass"
#define BUFFER    "the shuffle buffer has the size that was asked for"
#define MEMORY    "the cache keeps each image once, as bytes"
#define AHEAD     "threads have training batches ready, at most 4 ahead"
#define GOES_ON   "they go on between epochs"
#define EACH_ONCE "validation brings each image once, as it is"
#define TEST_READ "validation images are read from the disk once"
#define TEST_OWN  "threads have validation batches ready"

enum { IMAGE_BYTES = 28 * 28, LARGEST_BATCH = 64, MOST_BATCHES_AHEAD = 4 };

// ---- What a rank got.

typedef struct {
    int size; // images
    int image[LARGEST_BATCH];
    char hash[LARGEST_BATCH][9];
    int begun;          // calls of batches_begin by then
    const cJSON *taken; // what else is known of it
} Taken;

// All batches of the training set, or of the test set.
typedef struct {
    Taken *items;
    int count;
    const char *stages; // "" where none are known
    bool goes_on;
} Stream;

typedef struct {
    const Run *run;
    int rank;
    Stream train, test;
    int share;      // of training images; of test images it is the same
    int batch_size; // that was asked for
    int steps;      // of an epoch
} Worker;

static void add_batch(Stream *stream, const cJSON *images, const cJSON *taken)
{
    stream->items = enlarge(stream->items, (size_t)stream->count + 1, sizeof *stream->items);
    Taken *batch = &stream->items[stream->count++];
    *batch = (Taken){.begun = (int)event_number(images, "permutation"), .taken = taken};
    const char *number = event_text(images, "drawn"), *hash = event_text(taken, "pixels");
    while (*number && *hash && batch->size < LARGEST_BATCH) {
        batch->image[batch->size] = atoi(number);
        memcpy(batch->hash[batch->size++], hash, 8); // zeroed above
        number += strcspn(number, ",");
        number += *number == ',';
        hash += strcspn(hash, ",");
        hash += *hash == ',';
    }
}

static void find_stages(const Events *events, double batches, Stream *stream)
{
    for (int at = -1; (at = event_find(events, "pipeline", at + 1)) >= 0;)
        if (event_number(events->items[at], "batches") == batches) {
            stream->stages = event_text(events->items[at], "stages");
            stream->goes_on = event_number(events->items[at], "goes_on") == 1;
        }
}

static Stream stream_of(const Events *events, const char *split)
{
    Stream stream = {.stages = ""};
    for (int at = -1; (at = event_find(events, "images", at + 1)) >= 0;) {
        const cJSON *images = events->items[at];
        int after = event_find(events, "taken", at);
        if (after < 0 || strcmp(event_text(images, "split"), split) != 0)
            continue;
        find_stages(events, event_number(images, "batches"), &stream);
        add_batch(&stream, images, events->items[after]);
    }
    return stream;
}

static Worker worker_of(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int images = (int)run_flag(run, "--images ");
    return (Worker){.run = run,
                    .rank = rank,
                    .train = stream_of(events, "train"),
                    .test = stream_of(events, "test"),
                    .share = (images - rank + run->ranks - 1) / run->ranks,
                    .batch_size = (int)run_flag(run, "--batch-size "),
                    .steps = (int)event_number(event_nth(events, "fit", 0), "steps")};
}

// The largest value of a field over all batches.
static double most(const Stream *stream, const char *field)
{
    double largest = 0;
    for (int i = 0; i < stream->count; i++)
        largest = fmax(largest, event_number(stream->items[i].taken, field));
    return largest;
}

static int pass_count(const Worker *worker)
{
    return worker->steps > 0 ? worker->train.count / worker->steps : 0;
}

static const Taken *pass_of(const Worker *worker, int pass)
{
    return worker->train.items + (size_t)pass * (size_t)worker->steps;
}

// ---- The stages, as they were asked for.

static bool is_stage(const char *text, const char *kind)
{
    size_t length = strlen(kind);
    return strncmp(text, kind, length) == 0 && strchr(", ", text[length]);
}

// The place of the first stage of a kind ("cache": in memory or in a file), and of the last one,
// from 0; -1: there is none.
static int place(const char *stages, const char *kind, bool last)
{
    int found = -1;
    for (int at = 0; *stages; at++) {
        bool same = is_stage(stages, kind) ||
                    (strcmp(kind, "cache") == 0 && is_stage(stages, "cache_in_file"));
        if (same && (last || found < 0))
            found = at;
        stages += strcspn(stages, ",");
        stages += *stages == ',';
    }
    return found;
}

static bool has(const Stream *stream, const char *kind)
{
    return place(stream->stages, kind, false) >= 0;
}

// True where there are both, and some stage of the first kind comes before some of the second.
static bool comes_before(const Stream *stream, const char *first, const char *second)
{
    int from = place(stream->stages, first, false), to = place(stream->stages, second, true);
    return from >= 0 && to >= 0 && from < to;
}

// ---- What can be wrong: a diagnosis, and evidence; no diagnosis where nothing is.

typedef struct {
    const Diagnosis *diagnosis;
    char *evidence;
} Finding;

static Finding found(const Diagnosis *diagnosis, char *evidence, const Stream *stream)
{
    if (*stream->stages)
        text_add(&evidence, "\nits stages: %s", stream->stages);
    return (Finding){diagnosis, evidence};
}

#define NOTHING ((Finding){NULL, NULL})

// ---- Reading.

static const Diagnosis *why_read_again(const Stream *stream)
{
    static const Diagnosis no_cache = {"not-cached",
                                       "images are read from the disk again in each pass. A cache "
                                       "keeps what came in the first one.",
                                       NULL};
    static const Diagnosis after_repeat = {
        "cached-after-repeat",
        "the cache comes after pipeline_repeat: the pass that it keeps never ends, so it asks for "
        "more and more, and grows with every pass.",
        NULL};
    static const Diagnosis again = {"read-again",
                                    "images that have been read come from the disk again.", NULL};
    if (!has(stream, "cache"))
        return &no_cache;
    return comes_before(stream, "repeat", "cache") ? &after_repeat : &again;
}

static Finding read_once(const Worker *worker, const Stream *stream)
{
    double read = most(stream, "read");
    if (read <= worker->share)
        return NOTHING;
    return found(why_read_again(stream),
                 format_text("%.0f images were read of a share of %d", read, worker->share),
                 stream);
}

static Finding train_read_once(const Worker *worker)
{
    return read_once(worker, &worker->train);
}

static Finding test_read_once(const Worker *worker)
{
    return read_once(worker, &worker->test);
}

// ---- Passes.

static Finding other_batch_size(const Worker *worker)
{
    static const Diagnosis kept = {"remainder-kept",
                                   "a batch is shorter than was asked for: the last one of a pass, "
                                   "which is to be left out.",
                                   NULL};
    static const Diagnosis wrong = {"batch-size-wrong",
                                    "training batches have args->batch_size images.", NULL};
    const Stream *stream = &worker->train;
    int largest = 0;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size > largest)
            largest = stream->items[i].size;
    for (int i = 0; i < stream->count; i++)
        if (stream->items[i].size != worker->batch_size)
            return found(largest == worker->batch_size ? &kept : &wrong,
                         format_text("batch %d has %d images, and %d were asked for", i + 1,
                                     stream->items[i].size, worker->batch_size),
                         stream);
    return NOTHING;
}

static const Diagnosis *why_twice(const Stream *stream)
{
    static const Diagnosis shuffled = {
        "shuffled-after-repeat",
        "the buffer is filled from pipeline_repeat, so that images of the next pass are in it "
        "before "
        "this one has ended: some come twice, before others have come once.",
        NULL};
    static const Diagnosis batched = {
        "batched-after-repeat",
        "batches are made of what pipeline_repeat gives, which has no ends of passes any more: a "
        "batch goes on with images of the next pass, and nothing is left out.",
        NULL};
    static const Diagnosis twice = {"images-twice", "an image comes again before the pass is over.",
                                    NULL};
    if (comes_before(stream, "repeat", "shuffle"))
        return &shuffled;
    return comes_before(stream, "repeat", "batch") ? &batched : &twice;
}

// The first image that comes a second time in these batches; -1: none.
static int twice_in(const Taken *batches, int count)
{
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++)
            for (int j = 0; j <= i; j++)
                for (int other = 0; other < (j == i ? at : batches[j].size); other++)
                    if (batches[j].image[other] == batches[i].image[at])
                        return batches[i].image[at];
    return -1;
}

// In all runs the shares of all ranks make the same number of whole batches.
static Finding other_length(const Worker *worker)
{
    static const Diagnosis changed = {"epoch-changed",
                                      "an epoch is one pass, as many whole batches as the smallest "
                                      "share has: steps_per_epoch was "
                                      "right as it was.",
                                      NULL};
    int whole = worker->share / worker->batch_size;
    if (worker->steps == whole)
        return NOTHING;
    return found(
        &changed,
        format_text("an epoch has %d steps, and a pass %d whole batches", worker->steps, whole),
        &worker->train);
}

static Finding whole_passes(const Worker *worker)
{
    Finding finding = other_length(worker);
    if (!finding.diagnosis)
        finding = other_batch_size(worker);
    if (finding.diagnosis)
        return finding;
    for (int pass = 0; pass < pass_count(worker); pass++) {
        int image = twice_in(pass_of(worker, pass), worker->steps);
        if (image >= 0)
            return found(why_twice(&worker->train),
                         format_text("image %d comes twice among the %d batches of epoch %d", image,
                                     worker->steps, pass + 1),
                         &worker->train);
    }
    return NOTHING;
}

// ---- Order.

static bool same_order(const Taken *a, const Taken *b, int batches)
{
    for (int i = 0; i < batches; i++)
        if (a[i].size != b[i].size || memcmp(a[i].image, b[i].image, sizeof a[i].image) != 0)
            return false;
    return true;
}

static bool same_images(const Taken *a, const Taken *b)
{
    int shared = 0;
    for (int i = 0; i < a->size; i++)
        for (int j = 0; j < b->size; j++)
            shared += a->image[i] == b->image[j];
    return a->size == b->size && shared == a->size;
}

// True where each batch of one pass is one of the other pass, too.
static bool same_batches(const Taken *a, const Taken *b, int batches)
{
    int found_again = 0;
    for (int i = 0; i < batches; i++)
        for (int j = 0; j < batches; j++)
            found_again += same_images(&a[i], &b[j]);
    return batches > 1 && found_again >= batches;
}

static const Diagnosis *why_same_order(const Stream *stream)
{
    static const Diagnosis unshuffled = {
        "not-shuffled", "images come in the files' order, one class after another, in every pass.",
        NULL};
    static const Diagnosis cached = {
        "cached-after-shuffle",
        "the order was drawn before the cache, which keeps it: each later pass repeats the first.",
        NULL};
    static const Diagnosis repeats = {"order-repeats", "a pass has the order of an earlier one.",
                                      NULL};
    if (!has(stream, "shuffle"))
        return &unshuffled;
    return comes_before(stream, "shuffle", "cache") ? &cached : &repeats;
}

static const Diagnosis *why_same_batches(const Stream *stream)
{
    static const Diagnosis shuffled = {
        "shuffled-batches",
        "the shuffle comes after pipeline_batch, so that whole batches change places. Which images "
        "are together in one is always the same, here those of one class.",
        NULL};
    static const Diagnosis fixed = {
        "batches-fixed", "the same images are together in a batch in more than one pass.", NULL};
    return comes_before(stream, "batch", "shuffle") ? &shuffled : &fixed;
}

static Finding compare_passes(const Worker *worker, int earlier, int later)
{
    const Taken *a = pass_of(worker, earlier), *b = pass_of(worker, later);
    if (same_order(a, b, worker->steps))
        return found(
            why_same_order(&worker->train),
            format_text("epochs %d and %d bring the same images in the same order: %d, %d, "
                        "%d, ...",
                        earlier + 1, later + 1, a->image[0], a->image[1], a->image[2]),
            &worker->train);
    if (same_batches(a, b, worker->steps))
        return found(why_same_batches(&worker->train),
                     format_text("each batch of epoch %d has the images of one of epoch %d",
                                 later + 1, earlier + 1),
                     &worker->train);
    return NOTHING;
}

static Finding other_orders(const Worker *worker)
{
    for (int later = 1; later < pass_count(worker); later++)
        for (int earlier = 0; earlier < later; earlier++) {
            Finding finding = compare_passes(worker, earlier, later);
            if (finding.diagnosis)
                return finding;
        }
    return NOTHING;
}

// ---- Augmentation.

static const Diagnosis *why_same_pixels(const Stream *stream)
{
    static const Diagnosis cached = {
        "cached-after-augment",
        "images are shifted and flipped before the cache, which keeps them so: each later pass has "
        "the pictures of the first.",
        NULL};
    static const Diagnosis once = {
        "augmented-once", "an image comes with the same shift in more than one pass.", NULL};
    return comes_before(stream, "augment", "cache") ? &cached : &once;
}

// The first time that an image comes as it has come before.
static Finding same_pixels(const Stream *stream)
{
    for (int i = 1; i < stream->count; i++)
        for (int at = 0; at < stream->items[i].size; at++)
            for (int j = 0; j < i; j++)
                for (int other = 0; other < stream->items[j].size; other++) {
                    const Taken *a = &stream->items[j], *b = &stream->items[i];
                    if (a->image[other] == b->image[at] && strcmp(a->hash[other], b->hash[at]) == 0)
                        return found(
                            why_same_pixels(stream),
                            format_text("image %d has the same pixels in batches %d and %d",
                                        b->image[at], j + 1, i + 1),
                            stream);
                }
    return NOTHING;
}

static int changed_images(const Stream *stream, int *images)
{
    double changed = 0;
    *images = 0;
    for (int i = 0; i < stream->count; i++) {
        changed += event_number(stream->items[i].taken, "changed");
        *images += stream->items[i].size;
    }
    return (int)changed;
}

static Finding augmented_anew(const Worker *worker)
{
    static const Diagnosis not_augmented = {
        "not-augmented", "training images reach the trainer as they were read.", NULL};
    static const Diagnosis twice = {"augmented-twice",
                                    "images are shifted twice, further than they should be.", NULL};
    int images, changed = changed_images(&worker->train, &images);
    if (images > 0 && changed < images)
        return found(&not_augmented,
                     format_text("%d of %d images are neither shifted nor flipped",
                                 images - changed, images),
                     &worker->train);
    if (place(worker->train.stages, "augment", false) !=
        place(worker->train.stages, "augment", true))
        return found(&twice, format_text("pipeline_augment is called more than once"),
                     &worker->train);
    return same_pixels(&worker->train);
}

// ---- What is held.

static Finding buffer_size(const Worker *worker)
{
    static const Diagnosis large = {"buffer-too-large",
                                    "more images wait in shuffle buffers than "
                                    "args->shuffle_buffer. After pipeline_batch a place "
                                    "holds a whole batch.",
                                    NULL};
    static const Diagnosis small = {
        "buffer-too-small",
        "the next image is drawn among fewer than args->shuffle_buffer: "
        "the smaller the buffer, the nearer to the files' order.",
        NULL};
    const Stream *stream = &worker->train;
    double asked = run_flag(worker->run, "--shuffle-buffer "), held = most(stream, "buffered");
    if (held == fmin(asked, worker->share))
        return NOTHING;
    return found(
        held > asked ? &large : &small,
        format_text("%.0f images have a place in the buffer, and --shuffle-buffer asks for "
                    "%.0f",
                    held, asked),
        stream);
}

static Finding cache_size(const Worker *worker)
{
    static const Diagnosis twice = {"cached-twice",
                                    "caches keep more images than there are: one is enough.", NULL};
    static const Diagnosis floats = {
        "cached-as-floats",
        "the cache keeps floats, four times the bytes. Images become floats when they are "
        "augmented, "
        "or prepared by pipeline_prefetch; before that they are bytes.",
        NULL};
    const Stream *stream = &worker->train;
    double images = most(stream, "cached") + most(stream, "filed"),
           bytes = most(stream, "cached_bytes") + most(stream, "filed_bytes");
    // In batches the last one has room for as many as the others.
    if (images >= worker->share + worker->batch_size)
        return found(&twice,
                     format_text("%.0f images are kept of a share of %d", images, worker->share),
                     stream);
    if (images > 0 && bytes / images > 1.5 * IMAGE_BYTES)
        return found(&floats,
                     format_text("an image takes %.0f bytes in the cache, and %d as it was read",
                                 bytes / images, IMAGE_BYTES),
                     stream);
    return NOTHING;
}

// ---- Who works.

static const Diagnosis *why_own_work(const Stream *stream)
{
    static const Diagnosis no_prefetch = {
        "not-prefetched",
        "nothing is ready when the trainer asks: it reads and prepares each batch itself, and "
        "computes nothing meanwhile.",
        NULL};
    static const Diagnosis early = {
        "prefetched-too-early",
        "threads do what is before pipeline_prefetch. What is after it is left for the trainer.",
        NULL};
    return has(stream, "prefetch") ? &early : &no_prefetch;
}

static Finding work_left(const Stream *stream)
{
    double own = 0, waited = 0;
    for (int i = 0; i < stream->count; i++) {
        own += event_number(stream->items[i].taken, "own");
        waited += event_number(stream->items[i].taken, "waited");
    }
    if (own == 0)
        return NOTHING;
    return found(
        why_own_work(stream),
        format_text("the trainer's own thread took images through a stage, %.0f times in all, and "
                    "waited %.3f s for its batches",
                    own, waited),
        stream);
}

static Finding train_ahead(const Worker *worker)
{
    static const Diagnosis large = {
        "prefetch-too-large", "at most 4 batches are to be ready ahead of the trainer.", NULL};
    Finding work = work_left(&worker->train);
    double ahead = most(&worker->train, "ahead");
    if (work.diagnosis || ahead <= MOST_BATCHES_AHEAD * worker->batch_size)
        return work;
    return found(&large,
                 format_text("there is room for %.0f images, %.1f batches", ahead,
                             ahead / worker->batch_size),
                 &worker->train);
}

static Finding test_ahead(const Worker *worker)
{
    return work_left(&worker->test);
}

static Finding goes_on(const Worker *worker)
{
    static const Diagnosis not_repeated = {
        "not-repeated",
        "the pipeline ends with a pass. Each epoch begins a new one, and threads wait for that: "
        "what "
        "they have prepared is dropped, and the buffer is filled anew while the trainer waits.",
        NULL};
    static const Diagnosis before = {
        "repeated-after-prefetch",
        "pipeline_repeat comes after the last pipeline_prefetch: threads stop at the end of each "
        "pass, until the trainer asks for the next one.",
        NULL};
    const Stream *stream = &worker->train;
    if (!stream->goes_on)
        return found(&not_repeated, format_text("every epoch begins anew"), stream);
    if (comes_before(stream, "repeat", "prefetch"))
        return NOTHING;
    return found(&before, format_text("no prefetch goes over the end of a pass"), stream);
}

// ---- Validation.

// How often one image is among these batches.
static int times_in(const Taken *batches, int count, int image)
{
    int times = 0;
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++)
            times += batches[i].image[at] == image;
    return times;
}

static Finding one_validation(const Worker *worker, const Taken *batches, int count)
{
    static const Diagnosis dropped = {"validation-incomplete",
                                      "test images are left out. Often it is the short batch at "
                                      "the end: in validation it belongs "
                                      "to it.",
                                      NULL};
    static const Diagnosis twice = {"validation-twice",
                                    "a test image comes twice in one validation. Often batches "
                                    "are made of what pipeline_repeat gives.",
                                    NULL};
    int images = 0, different = 0;
    for (int i = 0; i < count; i++)
        for (int at = 0; at < batches[i].size; at++) {
            images++;
            int earlier = times_in(batches, i, batches[i].image[at]);
            for (int other = 0; other < at; other++)
                earlier += batches[i].image[other] == batches[i].image[at];
            different += earlier == 0;
        }
    if (different == worker->share && images == different)
        return NOTHING;
    return found(different < images ? &twice : &dropped,
                 format_text("%d images come in %d batches, %d different ones of a share of %d",
                             images, count, different, worker->share),
                 &worker->test);
}

static Finding each_once(const Worker *worker)
{
    static const Diagnosis changed_ones = {
        "validation-augmented",
        "test images are shifted and flipped. What is measured must be the same in each epoch.",
        NULL};
    static const Diagnosis size_wrong = {
        "batch-size-wrong", "validation batches have args->val_batch_size images.", NULL};
    static const Diagnosis none = {"validation-missing", "no test image reaches the trainer.",
                                   NULL};
    const Stream *stream = &worker->test;
    int images, changed = changed_images(stream, &images);
    if (images == 0)
        return found(&none, format_text("no test images were taken"), stream);
    int size = (int)run_flag(worker->run, "--val-batch-size ");
    if (stream->items[0].size != size)
        return found(&size_wrong,
                     format_text("the first batch has %d images, and %d were asked for",
                                 stream->items[0].size, size),
                     stream);
    if (changed > 0)
        return found(&changed_ones,
                     format_text("%d of %d test images are not as they were read", changed, images),
                     stream);
    for (int from = 0, to; from < stream->count; from = to) {
        for (to = from; to < stream->count && stream->items[to].begun == stream->items[from].begun;)
            to++;
        Finding finding = one_validation(worker, stream->items + from, to - from);
        if (finding.diagnosis)
            return finding;
    }
    return NOTHING;
}

// ---- All of it.

static const struct {
    const char *text;
    Finding (*look)(const Worker *worker);
} properties[] = {
    {READ, train_read_once},     {PASSES, whole_passes}, {AUGMENTED, augmented_anew},
    {ORDER, other_orders},       {MEMORY, cache_size},   {BUFFER, buffer_size},
    {AHEAD, train_ahead},        {GOES_ON, goes_on},     {EACH_ONCE, each_once},
    {TEST_READ, test_read_once}, {TEST_OWN, test_ahead},
};

static void judge_property(const Runs *runs, int property, Report *report)
{
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        for (int rank = 0; rank < run->ranks; rank++) {
            Worker worker = worker_of(run, rank);
            Finding finding = properties[property].look(&worker);
            free(worker.train.items);
            free(worker.test.items);
            if (!finding.diagnosis)
                continue;
            char *evidence = format_text("rank %d: %s", rank, finding.evidence);
            free(finding.evidence);
            report_failure(report, properties[property].text, finding.diagnosis,
                           evidence_in(runs, run, evidence));
            return;
        }
    }
    report_ok(report, properties[property].text);
}

// The first rank of a run that took no training image, -1 where all have.
static int idle_rank(const Run *run)
{
    for (int rank = 0; rank < run->ranks; rank++) {
        Worker worker = worker_of(run, rank);
        int passes = pass_count(&worker);
        free(worker.train.items);
        free(worker.test.items);
        if (passes < 2)
            return rank;
    }
    return -1;
}

static bool untrained(const Runs *runs, Report *report)
{
    static const Diagnosis idle = {"nothing-trained",
                                   "the training images of at least two epochs are judged.", NULL};
    for (int i = 0; i < runs->count; i++) {
        int rank = idle_rank(&runs->items[i]);
        if (rank < 0)
            continue;
        report_failure(
            report, PASSES, &idle,
            evidence_in(runs, &runs->items[i], format_text("rank %d trains on fewer", rank)));
        return true;
    }
    return false;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, PASSES, report) || untrained(runs, report))
        return;
    for (int i = 0; i < (int)(sizeof properties / sizeof *properties); i++)
        judge_property(runs, i, report);
}

static const Explanation explanations[] = {
    {"another stage takes these images already",
     {"stage-lost",
      "a stage is made of what the one before it gives, and the next one of that: each line begins "
      "with p = .",
      NULL}},
    {"a stage takes these batches already",
     {"stage-lost",
      "what the last stage gives is not what the batches are made from: each line begins with p = "
      ".",
      NULL}},
    {"gives single images",
     {"not-batched", "the trainer takes batches; single images come without pipeline_batch.",
      NULL}},
    {"these are batches already",
     {"batched-twice", "pipeline_batch is there twice: the second one gets batches.", NULL}},
    {"the pipeline's pass is over",
     {"pass-over",
      "an epoch asks for more batches than a pass has, and nothing begins another pass.", NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("pipeline", judge)
ENDS("pipeline", &ends)
