// How long the trainer takes to learn: from the start of its process until it has stopped at the
// accuracy that it was to reach.

#ifndef BENCH_ACCURACY_H
#define BENCH_ACCURACY_H

#include <cjson/cJSON.h>

// Runs the trainer on the GPU, once in each precision, as the lab has it but for batches of 512;
// prints a line for each run, and adds it to the results. HVDLAB_FLAGS are for the trainer.
void time_to_accuracy(cJSON *results, const char *trainer);

#endif
