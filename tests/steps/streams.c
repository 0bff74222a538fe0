// Reads the batches and the stages that they came through; streams.h says what is promised.

#include "streams.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"
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

double most_of(const Stream *stream, const char *field)
{
    double largest = 0;
    for (int i = 0; i < stream->count; i++)
        largest = fmax(largest, event_number(stream->items[i].taken, field));
    return largest;
}

double sum_of(const Stream *stream, const char *field)
{
    double sum = 0;
    for (int i = 0; i < stream->count; i++)
        sum += event_number(stream->items[i].taken, field);
    return sum;
}

int images_of(const Stream *stream)
{
    int images = 0;
    for (int i = 0; i < stream->count; i++)
        images += stream->items[i].size;
    return images;
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

// The first stage of a kind, from a place in the list on; NULL: there is none.
static const char *find_stage(const char *at, const char *kind)
{
    size_t length = strlen(kind);
    for (; *at; at += strspn(at, ",")) {
        bool same = strncmp(at, kind, length) == 0;
        if (same && (strchr(", ", at[length]) || strncmp(at + length, "_in_file", 8) == 0))
            return at;
        at += strcspn(at, ",");
    }
    return NULL;
}

bool has_stage(const Stream *stream, const char *kind)
{
    return find_stage(stream->stages, kind) != NULL;
}

bool comes_before(const Stream *stream, const char *first, const char *second)
{
    const char *at = find_stage(stream->stages, first);
    return at && find_stage(at + 1, second);
}

Fault found_wrong(const Stream *stream, const Diagnosis *diagnosis, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    Fault fault = {diagnosis, format_arguments(format, arguments)};
    va_end(arguments);
    if (*stream->stages)
        text_add(&fault.evidence, "\nits stages: %s", stream->stages);
    return fault;
}
