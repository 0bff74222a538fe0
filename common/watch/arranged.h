// What a check arranges: a kill, a full disk, names that come late, sends that wait. It stands in
// the environment, is read once, before main, and is then out of the program's reach. Nothing of it
// is known to the layers below: they write events, and call MPI and the system.
//
//     HVDLAB_KILL=RANK:EVENT:N     that rank is killed when it has written its N-th event of this name
//     HVDLAB_FULL=N                the N-th call of write_checkpoint finds the disk full
//     HVDLAB_LATE_NAMES=N          of several simulated hosts, the first of which is number N - 1,
//                                  only this one sees the last checkpoint's name, and only the
//                                  first two see any, as can happen with a network file system
//     HVDLAB_SYNCHRONOUS_SENDS=1   a send ends only when it is received

#ifndef HVDLAB_ARRANGED_H
#define HVDLAB_ARRANGED_H

#include <dirent.h>
#include <stdbool.h>

// Called by start.c. A rank's environment, or that of a process with a role, has none of it
// afterwards; a launcher's keeps it, for its ranks.
void arranged_read(void);

// True in a check, which arranges something in each run.
bool is_arranged(void);

// The hook event_written: kills this rank, fills the disk.
void arranged_by_event(const char *event, const char *text);

// Whether a sync of this open file is to fail.
bool disk_is_full(int file);

// Whether this name in a folder is not to be seen yet.
bool name_is_late(DIR *folder, const char *name);

bool sends_are_synchronous(void);

#endif
