// Five runs of a program with the six steps. In each of them one step is broken, or none: you say
// which, by what is measured. The seed decides what is broken.

#include "hvdlab.h"
#include "lessons/broken.h"

// diagnose: what is measured with this seed.
enum { SEED = 2001 };

// Of each run: the step that is broken (1 to 6, or NO_STEP), and one name that shows it: a column of
// --show-ranks or of the page, a span of the timeline, or the first word of a line that is printed.
static const Symptom symptoms[RUNS] = {
    {.step = 1, .shown = "device"},
    {.step = 6, .shown = "val_accuracy"},
    {.step = 3, .shown = "weights"},
    {.step = 4, .shown = "weights"},
    {.step = NO_STEP},
};

int main(int argc, char **argv)
{
    train_broken(SEED, symptoms, argc, argv);
    return 0;
}
