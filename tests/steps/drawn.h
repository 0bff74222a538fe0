// Which images the ranks drew to train on.

#ifndef HVDLAB_STEPS_DRAWN_H
#define HVDLAB_STEPS_DRAWN_H

#include "judge.h"

// Judges that no two ranks of a run train on the same batches; true where that is so.
bool judge_drawn_images(const Runs *runs, const char *property, Report *report);

// Judges that each image comes with the label that it was loaded with, and that the statistics are
// those of all training images, of which the command line says how many there are.
bool judge_labels(const Runs *runs, Report *report);
bool judge_statistics(const Runs *runs, Report *report);

#endif
