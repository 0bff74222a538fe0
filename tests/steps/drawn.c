// Images that ranks drew, compared.

#include "drawn.h"

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

// Of a list with commas between.
static int image_count(const char *images)
{
    int count = *images != '\0';
    while ((images = strchr(images, ',')) != NULL) {
        count++;
        images++;
    }
    return count;
}

static bool draw_the_same(const Run *run, int a, int b)
{
    int images = 0;
    for (int n = 0; n < BATCHES; n++) {
        if (strcmp(drawn(run, a, n), drawn(run, b, n)) != 0)
            return false;
        images += image_count(drawn(run, a, n));
    }
    return images >= IMAGES;
}

bool judge_drawn_images(const Runs *runs, const char *property, Report *report)
{
    static const Diagnosis seeds_equal = {"seeds-equal",
                                          "ranks draw the same images in the same order, and so do "
                                          "the same work. Often this means the "
                                          "same seed: without set_seed() each rank draws its own.",
                                          NULL};
    for (int i = 0; i < runs->count; i++) {
        const Run *run = &runs->items[i];
        for (int a = 0; a < run->ranks; a++) {
            RankSet same = 1u << a;
            for (int b = a + 1; b < run->ranks; b++)
                same |= draw_the_same(run, a, b) ? 1u << b : 0;
            if (rank_count(same) == 1)
                continue;
            report_failure(
                report, property, &seeds_equal,
                evidence_in(runs, run,
                            format_text("%s began with the images %s, %s", rank_names(same).text,
                                        drawn(run, a, 0), drawn(run, a, 1))));
            return false;
        }
    }
    report_ok(report, property);
    return true;
}
