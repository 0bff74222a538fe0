// Inside the library: --show-ranks, a small table on the root after each epoch: what every rank has
// become. Figures of one rank hide that others differ.

#ifndef HVDLAB_RANK_TABLE_H
#define HVDLAB_RANK_TABLE_H

#include "callbacks.h"

// Every rank calls it at the end of an epoch; the root prints the table. Without hvd_init each
// process prints its own line, if `verbose`.
void rank_table_epoch(const Training *training, int verbose);

// Every rank calls it at the end of its training, so that the root no longer waits for its line.
void rank_table_end(void);

#endif
