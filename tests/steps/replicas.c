// What replicas did with each batch, and how equal they are; replicas.h says what is promised.

#include "replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"

static void add_images(Images *images, const cJSON *event)
{
    const char *pixels = event_text(event, "pixels"), *labels = event_text(event, "labels");
    while (*pixels && *labels) {
        images->items = enlarge(images->items, (size_t)images->count + 1, sizeof *images->items);
        char *end, *last;
        images->items[images->count++] =
            (Image){(unsigned)strtoul(pixels, &end, 16), (int)strtol(labels, &last, 10)};
        pixels = end + (*end == ',');
        labels = last + (*last == ',');
    }
}

static BatchSeen *add_batch(Batches *batches, const cJSON *taken, bool trains)
{
    batches->items = enlarge(batches->items, (size_t)batches->count + 1, sizeof *batches->items);
    BatchSeen *batch = &batches->items[batches->count++];
    *batch = (BatchSeen){.trains = trains, .by_replica = !isnan(event_number(taken, "replica"))};
    add_images(&batch->images, taken);
    for (int r = 0; r < MAX_RANKS; r++)
        batch->parts[r].weights = NAN;
    return batch;
}

static void add_part(BatchSeen *batch, Part *part, const cJSON *event)
{
    bool trains = event_has(event, "purpose", "train");
    if (trains != batch->trains)
        return;
    add_images(&part->images, event);
    if (isnan(part->weights))
        part->weights = event_number(event, "arena");
}

// What a replica does; its last images are those of a gradient that follows.
static void add_deed(BatchSeen *batch, Part *part, const cJSON *event, double *images)
{
    const char *name = event_text(event, "event");
    if (strcmp(name, "part") == 0) {
        add_part(batch, part, event);
        *images = event_number(event, "images");
    } else if (strcmp(name, "gradient") == 0) {
        part->weighted += event_number(event, "value") * *images;
        part->sum += event_number(event, "value");
        part->gradients++;
    } else if (strcmp(name, "apply") == 0) {
        part->rate = event_number(event, "learning_rate");
        part->given += event_number(event, "value");
        part->applied += event_number(event, "value") * part->rate / PAGE_RATE;
        part->applies++;
    } else if (strcmp(name, "sum_begin") == 0 &&
               event_has(event, "function", "sum_among_replicas")) {
        part->sums = true;
    }
}

Batches replica_batches(const Runs *runs, const Run *run)
{
    const Events *events = &run->traces.of[0];
    Batches batches = {.runs = runs, .run = run};
    int replicas = list_length(event_text(event_last(events, "mirrored"), "devices"));
    batches.replicas = replicas < MAX_RANKS ? replicas : MAX_RANKS;
    BatchSeen *batch = NULL;
    bool trains = false;
    double images[MAX_RANKS] = {0};
    EACH_EVENT (event, events) {
        const char *name = event_text(event, "event");
        double replica = event_number(event, "replica");
        if (strcmp(name, "images") == 0)
            trains = event_has(event, "split", "train");
        if (strcmp(name, "taken") == 0)
            batch = add_batch(&batches, event, trains);
        if (batch && isnan(replica))
            batch->outside += strcmp(name, "gradient") == 0;
        else if (batch && replica < MAX_RANKS)
            add_deed(batch, &batch->parts[(int)replica], event, &images[(int)replica]);
    }
    return batches;
}

void replica_batches_free(Batches *batches)
{
    for (int b = 0; b < batches->count; b++) {
        free(batches->items[b].images.items);
        for (int r = 0; r < MAX_RANKS; r++)
            free(batches->items[b].parts[r].images.items);
    }
    free(batches->items);
}

char *replica_batch_text(const Batches *batches, const BatchSeen *batch)
{
    int number = 0;
    for (int b = 0; &batches->items[b] <= batch; b++)
        number += batches->items[b].trains == batch->trains;
    return format_text("%s batch %d, of %d images:", batch->trains ? "training" : "test", number,
                       batch->images.count);
}

double replicas_apart(const Batches *batches, const BatchSeen *batch, int replica, int *first)
{
    *first = 0;
    while (*first < batches->replicas - 1 && isnan(batch->parts[*first].weights))
        ++*first;
    double reference = batch->parts[*first].weights, own_weights = batch->parts[replica].weights;
    return isnan(own_weights) ? 0 : fabs(own_weights - reference) / fmax(1, fabs(reference));
}

static bool are_equal(const Batches *batches, double tolerance)
{
    for (int b = 0; b < batches->count; b++)
        for (int r = 0, first; r < batches->replicas; r++)
            if (!(replicas_apart(batches, &batches->items[b], r, &first) <= tolerance))
                return false;
    return true;
}

bool replicas_are_equal(const Runs *runs, double tolerance)
{
    bool equal = true;
    for (const Run *run = runs->items; run < runs_end(runs) && equal; run++) {
        Batches batches = replica_batches(runs, run);
        equal = are_equal(&batches, tolerance);
        replica_batches_free(&batches);
    }
    return equal;
}
