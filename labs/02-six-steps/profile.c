// Three trainings on four workers. Each loses time for another reason, which its timeline shows. The
// reasons follow from the seed.

#include "hvdlab.h"
#include "lessons/flaws.h"

#if STEP >= 1
// profile: what the timeline shows with this seed.
enum { SEED = 2026 };
#else
// TODO: profile: choose a seed from 1 to 999999.
enum { SEED = 0 };
#endif

// What the timeline shows of each training: the rank that loses time (EVERY_RANK: all of them, in the
// same way), the span in which it does, the milliseconds of a step that this span takes there, the
// pieces in which the gradients travel in a step, and what helps: REPLACE_DEVICE, CACHE_IMAGES or
// LARGER_PIECES.
static const Finding findings[TRAININGS] = {
#if STEP >= 1
    {.rank = 0, .span = "backward", .milliseconds = 35, .pieces = 1, .remedy = REPLACE_DEVICE},
    {.rank = EVERY_RANK, .span = "MPI_Allreduce", .pieces = 40, .remedy = LARGER_PIECES},
    {.rank = 2, .span = "wait for a batch", .milliseconds = 59, .pieces = 1, .remedy = CACHE_IMAGES},
#else
    // TODO: profile: one line for each training.
    {.rank = NO_RANK, .span = "", .milliseconds = 0, .pieces = 0, .remedy = NO_REMEDY},
    {.rank = NO_RANK, .span = "", .milliseconds = 0, .pieces = 0, .remedy = NO_REMEDY},
    {.rank = NO_RANK, .span = "", .milliseconds = 0, .pieces = 0, .remedy = NO_REMEDY},
#endif
};

int main(int argc, char **argv)
{
    hvd_init();
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);

    train_with_flaws(SEED, findings, &args);
    return 0;
}
