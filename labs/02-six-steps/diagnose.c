// Five runs of a program with the six steps. In each of them one step is broken, or none: you say
// which, by what is measured. The seed decides what is broken.

#include "hvdlab.h"
#include "lessons/broken.h"

#if STEP >= 1
// diagnose: what is measured with this seed.
enum { SEED = 2001 };
#else
// TODO: diagnose: choose a seed from 1 to 999999.
enum { SEED = 0 };
#endif

// Of each run: the step that is broken (1 to 6, or NO_STEP), and one name that shows it: a column of
// --show-ranks or of the page, a span of the timeline, or the first word of a line that is printed.
static const Symptom symptoms[RUNS] = {
#if STEP >= 1
    {.step = 1, .shown = "device"},
    {.step = 6, .shown = "val_accuracy"},
    {.step = 3, .shown = "weights"},
    {.step = 4, .shown = "weights"},
    {.step = NO_STEP},
#else
    // TODO: diagnose: one line for each run.
    {.step = NOT_ANSWERED, .shown = ""},
    {.step = NOT_ANSWERED, .shown = ""},
    {.step = NOT_ANSWERED, .shown = ""},
    {.step = NOT_ANSWERED, .shown = ""},
    {.step = NOT_ANSWERED, .shown = ""},
#endif
};

int main(int argc, char **argv)
{
    train_broken(SEED, symptoms, argc, argv);
    return 0;
}
