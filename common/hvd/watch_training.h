// Inside hvd: compares the ranks of a training.

#ifndef HVDLAB_WATCH_TRAINING_H
#define HVDLAB_WATCH_TRAINING_H

// Before main (start.c): every training is compared among its workers.
void training_watch(void);

#endif
