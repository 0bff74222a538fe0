// Reads the batches and the stages that they came through; streams.h says what is promised.

#include "streams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

static void add_batch(Stream *stream, const cJSON *images, const cJSON *taken)
{
    stream->items = enlarge(stream->items, (size_t)stream->count + 1, sizeof *stream->items);
    Taken *batch = &stream->items[stream->count++];
    *batch = (Taken){.begun = event_int(images, "permutation"), .taken = taken};
    const char *number = event_text(images, "drawn"), *hash = event_text(taken, "pixels");
    while (*number && *hash && batch->size < MAX_BATCH) {
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
    EACH (at, events, "pipeline")
        if (event_number(events->items[at], "batches") == batches) {
            stream->stages = event_text(events->items[at], "stages");
            stream->goes_on = event_number(events->items[at], "goes_on") == 1;
        }
}

static Stream stream_of(const Events *events, const char *split)
{
    Stream stream = {.stages = ""};
    EACH (at, events, "images") {
        const cJSON *images = events->items[at];
        int after = event_find(events, "taken", at);
        if (after < 0 || !event_has(images, "split", split))
            continue;
        find_stages(events, event_number(images, "batches"), &stream);
        add_batch(&stream, images, events->items[after]);
    }
    return stream;
}

Worker worker_of(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    int images = (int)run_flag(run, "--images ");
    return (Worker){.run = run,
                    .rank = rank,
                    .train = stream_of(events, "train"),
                    .test = stream_of(events, "test"),
                    .shard = (images - rank + run->ranks - 1) / run->ranks,
                    .batch_size = (int)run_flag(run, "--batch-size "),
                    .steps = event_int(event_nth(events, "fit", 0), "steps")};
}

void worker_free(Worker *worker)
{
    free(worker->train.items);
    free(worker->test.items);
}

// The largest value of a field over all batches.
double most_of(const Stream *stream, const char *field)
{
    double largest = 0;
    for (int i = 0; i < stream->count; i++)
        largest = fmax(largest, event_number(stream->items[i].taken, field));
    return largest;
}

int changed_images(const Stream *stream, int *images)
{
    double changed = 0;
    *images = 0;
    for (int i = 0; i < stream->count; i++) {
        changed += event_number(stream->items[i].taken, "changed");
        *images += stream->items[i].size;
    }
    return (int)changed;
}

int pass_count(const Worker *worker)
{
    return worker->steps > 0 ? worker->train.count / worker->steps : 0;
}

const Taken *pass_of(const Worker *worker, int pass)
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
int stage_place(const char *stages, const char *kind, bool last)
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

bool has_stage(const Stream *stream, const char *kind)
{
    return stage_place(stream->stages, kind, false) >= 0;
}

// True where there are both, and some stage of the first kind comes before some of the second.
bool comes_before(const Stream *stream, const char *first, const char *second)
{
    int from = stage_place(stream->stages, first, false),
        to = stage_place(stream->stages, second, true);
    return from >= 0 && to >= 0 && from < to;
}

Fault found_wrong(const Diagnosis *diagnosis, char *evidence, const Stream *stream)
{
    if (*stream->stages)
        text_add(&evidence, "\nits stages: %s", stream->stages);
    return (Fault){diagnosis, evidence};
}
