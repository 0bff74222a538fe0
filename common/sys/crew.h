// Threads that work on several devices of this process at a time, one on each. A thread stays on
// its device until the crew is freed.

#ifndef HVDLAB_CREW_H
#define HVDLAB_CREW_H

typedef struct Crew Crew;

// Starts a thread on each of these devices. `word` is what a member is called: in traces its events
// have a field of that name, its number; where the crew ends the program, it is named so.
Crew *crew_start(const char *word, const int *devices, int count);

// Ends the threads.
void crew_free(Crew *crew);

// Has all members call work(member, argument), at the same time, and returns when all have. Ends
// the program with one line, which names `caller`, where a member calls it.
void crew_run(Crew *crew, const char *caller, void (*work)(int member, void *argument),
              void *argument);

// Inside `work`: returns when all members have called it. Ends the program with one line where that
// can't happen: another member is at the end of its work, or has made another call.
void crew_meet(Crew *crew, int member, const char *call);

#endif
