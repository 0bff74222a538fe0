// Reads passes from the images events: training takes a batch and computes a gradient from it,
// validation takes one and doesn't.

#include "passes.h"

#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"

#define SHOWN 8 // numbers of a list

static void add_batch(Pass *pass, const cJSON *event, const char *split)
{
    bool known = event_has(event, "split", split);
    int images = 0;
    const char *at = event_text(event, "drawn");
    for (int number; (number = next_listed(&at)) >= 0; images++) {
        if (!known)
            continue;
        pass->images = enlarge(pass->images, (size_t)pass->count + 1, sizeof *pass->images);
        pass->images[pass->count++] = number;
    }
    pass->foreign += known ? 0 : images;
    pass->first = pass->batches++ == 0 ? images : pass->first;
}

static Pass *add_pass(Passes *passes, int rank)
{
    int count = passes->count[rank]++;
    passes->of[rank] = enlarge(passes->of[rank], (size_t)count + 1, sizeof(Pass));
    passes->of[rank][count] = (Pass){0};
    return &passes->of[rank][count];
}

static Passes passes_of(const Run *run, void (*read)(Passes *passes, int rank))
{
    Passes passes = {.run = run, .total = (int)run_flag(run, "--images ")};
    for (int r = 0; r < run->ranks; r++)
        (*read)(&passes, r);
    return passes;
}

// True where a loop of the program's own has begun a pass between the two batches.
static bool begins_pass(const cJSON *before, const cJSON *batch)
{
    return !before || event_number(before, "batches") != event_number(batch, "batches") ||
           event_number(before, "permutation") != event_number(batch, "permutation");
}

static void read_trained(Passes *passes, int rank)
{
    const Events *events = &passes->run->traces.of[rank];
    bool by_fit = event_count(events, "step") > 0;
    const cJSON *batch = NULL, *before = NULL;
    EACH_EVENT (event, events) {
        if (event_is(event, "images"))
            batch = event;
        if (!batch || !event_is(event, by_fit ? "step" : "gradient"))
            continue;
        bool begins = by_fit ? event_number(event, "step") == 0 : begins_pass(before, batch);
        if (begins || passes->count[rank] == 0)
            add_pass(passes, rank);
        add_batch(&passes->of[rank][passes->count[rank] - 1], batch, "train");
        before = batch;
        batch = NULL;
    }
}

Passes passes_trained(const Run *run)
{
    return passes_of(run, read_trained);
}

// True where no gradient is computed from the batch that is taken at this place.
static bool is_only_looked_at(const Events *events, int at)
{
    for (int i = at + 1; i < events->count; i++) {
        const cJSON *event = events->items[i];
        if (event_is(event, "gradient"))
            return false;
        if (event_is(event, "images") || event_is(event, "epoch"))
            return true;
    }
    return true;
}

static void read_validated(Passes *passes, int rank)
{
    const Events *events = &passes->run->traces.of[rank];
    for (int begin = 0, end; (end = event_find(events, "epoch", begin)) >= 0; begin = end + 1) {
        Pass *pass = add_pass(passes, rank);
        for (int i = begin; i < end; i++)
            if (event_is(events->items[i], "images") && is_only_looked_at(events, i))
                add_batch(pass, events->items[i], "test");
    }
}

Passes passes_validated(const Run *run)
{
    return passes_of(run, read_validated);
}

void passes_free(Passes *passes)
{
    for (int r = 0; r < passes->run->ranks; r++) {
        for (int p = 0; p < passes->count[r]; p++)
            free(passes->of[r][p].images);
        free(passes->of[r]);
    }
    *passes = (Passes){.run = passes->run};
}

static int pass_times(const Pass *pass, int image)
{
    int times = 0;
    for (int i = 0; i < pass->count; i++)
        times += pass->images[i] == image;
    return times;
}

int pass_distinct(const Pass *pass, int total)
{
    int distinct = 0;
    for (int image = 0; image < total; image++)
        distinct += pass_times(pass, image) > 0;
    return distinct;
}

bool ever_drawn(const Passes *passes, int rank, int image)
{
    for (int p = 0; p < passes->count[rank]; p++)
        if (pass_times(&passes->of[rank][p], image) > 0)
            return true;
    return false;
}

int distinct_ever(const Passes *passes, int rank)
{
    int distinct = 0;
    for (int image = 0; image < passes->total; image++)
        distinct += ever_drawn(passes, rank, image);
    return distinct;
}

int times_drawn(const Passes *passes, int pass, int image)
{
    int times = 0;
    for (int r = 0; r < passes->run->ranks; r++)
        times += pass_times(&passes->of[r][pass], image);
    return times;
}

char *images_text(const Passes *passes, int pass, ImageTest is_meant, int *count)
{
    char *text = NULL;
    *count = 0;
    for (int image = 0; image < passes->total; image++) {
        if (!is_meant(passes, pass, image))
            continue;
        if ((*count)++ < SHOWN)
            text_add(&text, "%s%d", text ? ", " : "", image);
    }
    if (*count > SHOWN)
        text_add(&text, ", ...");
    return text ? text : format_text("none");
}

void add_passes(char **evidence, const Passes *passes, int pass)
{
    for (int r = 0; r < passes->run->ranks; r++) {
        const Pass *own = &passes->of[r][pass];
        if (!run_is_one_process(&passes->run->plan))
            text_add(evidence, "\nrank %d:", r);
        text_add(evidence,
                 " %d images in %d batches, %d different ones; %d different ones over all epochs",
                 own->count, own->batches, pass_distinct(own, passes->total),
                 distinct_ever(passes, r));
    }
}
