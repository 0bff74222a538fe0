// The tables of ranks (--show-ranks, --show-memory).

#ifndef HVDLAB_RANK_TABLE_H
#define HVDLAB_RANK_TABLE_H

// Before main (start.c): every training prints the tables that the flags ask for.
void rank_table_watch(void);

#endif
