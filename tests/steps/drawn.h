// Which images the ranks drew to train on.

#ifndef HVDLAB_STEPS_DRAWN_H
#define HVDLAB_STEPS_DRAWN_H

#include "judge.h"

// Judges that no two ranks of a run train on the same batches; true where that is so.
bool judge_drawn_images(const Runs *runs, const char *property, Report *report);

#endif
