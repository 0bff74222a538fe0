// Reads what workers with parts of two dense layers train; divided.h says what is promised.

#include "divided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 16 };

const char *trained_model(const Run *run, int rank)
{
    return event_text(event_last(&run->traces.of[rank], "compile"), "model");
}

const char *undivided_model(const Run *run)
{
    return event_text(event_nth(&run->traces.of[0], "compile", 0), "model");
}

// The units of the dense layers of a model, in their order; returns how many.
static int dense_units(const char *line, int units[MAX_LAYERS])
{
    int count = 0;
    for (const char *end; *line && count < MAX_LAYERS; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        const char *dense = strstr(line, ": dense");
        if (!dense || dense > end)
            continue;
        const char *shape = end;
        while (shape > line && strncmp(shape, "1x1x", 4) != 0)
            shape--;
        units[count++] = atoi(shape + 4);
    }
    return count;
}

char *units_text(const char *model)
{
    int units[MAX_LAYERS], count = dense_units(model, units);
    char *text = NULL;
    for (int i = 0; i < count; i++)
        text_add(&text, "%s%d", i ? ", " : "", units[i]);
    return text ? text : format_text("none");
}

const Run *undivided_run(const Runs *runs)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (run->ranks == 1)
            return run;
    return NULL;
}

int parts_of_units(const Run *run, int rank, const Run *one)
{
    int all[MAX_LAYERS] = {0}, own[MAX_LAYERS] = {0};
    int count = dense_units(undivided_model(one), all);
    bool alike = dense_units(trained_model(run, rank), own) == count &&
                 memcmp(own + 1, all + 1, (MAX_LAYERS - 1) * sizeof *own) == 0;
    for (int parts = 1; alike && parts <= MAX_RANKS; parts++)
        if (own[0] == all[0] / parts)
            return parts;
    return 0;
}

int input_length(const Run *run)
{
    const char *flatten = strstr(trained_model(run, 0), ": flatten"),
               *end = flatten ? strchr(flatten, '\n') : NULL;
    const char *shape = flatten ? strstr(flatten, "1x1x") : NULL;
    return shape && shape < end ? atoi(shape + 4) : 0;
}

int output_length(const Run *run)
{
    int units[MAX_LAYERS] = {0};
    dense_units(trained_model(run, 0), units);
    return units[1];
}

bool relu_before_sum(const Run *run)
{
    const char *model = trained_model(run, 0);
    for (const char *at = model; (at = strstr(at, ": custom_layer of layer ")) != NULL;) {
        int read = 0, length = 0;
        sscanf(at, ": custom_layer of layer %d, 1x1x%d", &read, &length);
        char *layer = format_text("layer %d: relu ", read);
        bool relu = length == output_length(run) && strstr(model, layer);
        free(layer);
        if (relu)
            return true;
        at++;
    }
    return false;
}

const cJSON *trained_batch(const Events *events, int n)
{
    EACH (at, events, "answers")
        if (event_number(events->items[at], "training") > 0 && n-- == 0)
            return events->items[at];
    return NULL;
}

double loss_of(const Run *run, int rank, int n)
{
    const cJSON *batch = trained_batch(&run->traces.of[rank], n);
    return event_number(batch, "loss") / event_number(batch, "images");
}

bool other_optimizer(const Run *run, const Run *one)
{
    const cJSON *own = event_last(&run->traces.of[0], "compile");
    const cJSON *alone = event_last(&one->traces.of[0], "compile");
    return strcmp(event_text(own, "optimizer"), event_text(alone, "optimizer")) != 0 ||
           event_number(own, "learning_rate") != event_number(alone, "learning_rate");
}
