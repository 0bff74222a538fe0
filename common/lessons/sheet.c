// The seed of an answer sheet (sheet.h).

#include "lessons/sheet.h"

#include <stdio.h>
#include "base/error.h"
#include "comm/comm.h"
#include "observe/trace.h"

bool sheet_has_seed(const char *exercise, const char *caller, uint64_t seed, int workers)
{
    if (hvd_size() != workers)
        die("%s: the job has %d workers, and the trainings are for %d; use mpirun -np %d", caller,
            hvd_size(), workers, workers);
    if (seed > MAX_SHEET_SEED)
        die("%s: the seed is not a number from 1 to %d", caller, MAX_SHEET_SEED);
    trace("sheet", NUMBER("seed", seed));
    if (seed == 0 && hvd_rank() == 0)
        printf("%s: SEED is 0: choose a number, which the trainings follow from\n", exercise);
    return seed != 0;
}
