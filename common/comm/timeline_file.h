// The timeline's file: HVD_TIMELINE asks for it, the root writes it.

#ifndef HVDLAB_TIMELINE_FILE_H
#define HVDLAB_TIMELINE_FILE_H

// Begins the recording where HVD_TIMELINE asks for it; the first call counts.
void timeline_start(void);
// Joins the other ranks: their timelines are gathered before MPI ends. Collective, after MPI's
// start.
void timeline_join(void);
// At exit (start.c): the root writes its own part if the job did not end by MPI_Finalize.
void timeline_finish(void);
// In a child that was forked: its parent writes the file.
void timeline_forget(void);

#endif
