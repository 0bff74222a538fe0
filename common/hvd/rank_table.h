// The table of ranks (--show-ranks).

#ifndef HVDLAB_RANK_TABLE_H
#define HVDLAB_RANK_TABLE_H

// Before main (start.c): every training prints the table where the flag asks for it.
void rank_table_watch(void);

#endif
