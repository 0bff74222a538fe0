// Three trainings on four workers. Each loses time for another reason, which its timeline shows. The
// reasons follow from the seed.

#include "hvdlab.h"
#include "lessons/flaws.h"

// TODO: profile: choose a seed from 1 to 999999.
enum { SEED = 0 };

// What the timeline shows of each training: the rank that loses time (EVERY_RANK: all of them, in the
// same way), the span in which it does, the milliseconds of a step that this span takes there, the
// pieces in which the gradients travel in a step, and what helps: REPLACE_DEVICE, CACHE_IMAGES or
// LARGER_PIECES.
static const Finding findings[TRAININGS] = {
    // TODO: profile: one line for each training.
    {.rank = NO_RANK, .span = "", .milliseconds = 0, .pieces = 0, .remedy = NO_REMEDY},
    {.rank = NO_RANK, .span = "", .milliseconds = 0, .pieces = 0, .remedy = NO_REMEDY},
    {.rank = NO_RANK, .span = "", .milliseconds = 0, .pieces = 0, .remedy = NO_REMEDY},
};

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    train_with_flaws(SEED, findings, &args);
    return 0;
}
