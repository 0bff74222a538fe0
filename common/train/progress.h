// Inside the library: the progress of fit() and evaluate(). On a terminal it is a bar as Keras
// draws it; elsewhere only the line at the end of an epoch is printed.

#ifndef HVDLAB_PROGRESS_H
#define HVDLAB_PROGRESS_H

#include "base/types.h"

typedef struct {
    bool bar; // draw a bar
    int64_t steps;
    double begin; // when the work began
    double drawn; // when the bar was last drawn
} ProgressBar;

// Begins a stretch of `steps` steps. Where `verbose` is 0 nothing is ever shown.
ProgressBar progress_begin(int64_t steps, int verbose);

// True when it is time to draw the bar again: a few times a second.
bool progress_due(const ProgressBar *progress);

// Draws the bar after `done` steps, with the running loss and accuracy.
void progress_draw(ProgressBar *progress, int64_t done, const Metrics *metrics);

// Takes the bar off the line, so that other lines can be printed.
void progress_clear(const ProgressBar *progress);

// Begins the last line of a stretch: "1875/1875 - 39.2s", or the full bar with the same metrics.
void progress_end(const ProgressBar *progress);

// Appends " - NAME: VALUE" to that line, formatted as Keras does.
void progress_metric(const char *name, double value);

#endif
