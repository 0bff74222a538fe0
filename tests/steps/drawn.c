// Images that ranks drew, compared.

#include "drawn.h"
#include "diagnoses/drawn.h"

#include <math.h>
#include <string.h>

#define BATCHES 8 // of the first ones, that are compared
// Fewer images than this two ranks may well draw alike by chance: a run that short proves nothing.
// (Of 40 images, two ranks in five draw the same two once in 160 runs, the same five once in ten
// million.)
#define IMAGES 5

// The n-th batch that the rank trained on: the first that fit() takes, or, without one, the first
// of all, tells whose they are.
static const char *drawn(const Run *run, int rank, int n)
{
    const Events *events = &run->traces.of[rank];
    int at = event_find(events, "fit", 0);
    at = event_find(events, "images", at < 0 ? 0 : at);
    if (at < 0)
        return "";
    double batches = event_number(events->items[at], "batches");
    for (; at >= 0; at = event_find(events, "images", at + 1))
        if (event_number(events->items[at], "batches") == batches && n-- == 0)
            return event_text(events->items[at], "drawn");
    return "";
}

static bool draw_the_same(const Run *run, int a, int b)
{
    int images = 0;
    for (int n = 0; n < BATCHES; n++) {
        if (strcmp(drawn(run, a, n), drawn(run, b, n)) != 0)
            return false;
        images += list_length(drawn(run, a, n));
    }
    return images >= IMAGES;
}

static Fault drawn_fault(const Run *run)
{
    for (int a = 0; a < run->ranks; a++) {
        RankSet same = 1u << a;
        for (int b = a + 1; b < run->ranks; b++)
            same |= draw_the_same(run, a, b) ? 1u << b : 0;
        if (rank_count(same) > 1)
            return fault_with(&d_seeds_equal,
                              "%s began with a batch of the images %s, and one of %s",
                              rank_names(same).text, drawn(run, a, 0), drawn(run, a, 1));
    }
    return NO_FAULT;
}

bool judge_drawn_images(const Runs *runs, const char *property, Report *report)
{
    return judge_property(runs, property, drawn_fault, report);
}

// ---- What belongs to the images.

static Fault labels_fault(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        EACH (at, events, "images") {
            const cJSON *batch = events->items[at];
            if (event_number(batch, "mislabeled") > 0)
                return fault_with(&d_labels_mixed_up,
                                  "rank %d: %.0f of the images %s of the %s set have another label "
                                  "than in the file",
                                  r, event_number(batch, "mislabeled"), event_text(batch, "drawn"),
                                  event_text(batch, "split"));
        }
    }
    return NO_FAULT;
}

bool judge_labels(const Runs *runs, Report *report)
{
    return judge_property(runs, "every image comes with its own label", labels_fault, report);
}

static Fault statistics_fault(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        double images = event_number(event_last(&run->traces.of[r], "statistics"), "images");
        if (fabs(images - run_flag(run, "--images ")) > 0)
            return fault_with(&d_other_statistics,
                              "rank %d took those of %.0f images; there are %.0f to train on", r,
                              images, run_flag(run, "--images "));
    }
    return NO_FAULT;
}

bool judge_statistics(const Runs *runs, Report *report)
{
    return judge_property(runs, "images are standardized by the statistics of all training images",
                          statistics_fault, report);
}
