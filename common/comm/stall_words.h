// Messages about waiting ranks, from the state that each rank reported. No I/O, so any job can be
// tested.

#ifndef HVDLAB_STALL_WORDS_H
#define HVDLAB_STALL_WORDS_H

#include <stddef.h>
#include "observe/activity.h"

// What is said of a rank whose process has ended unseen.
#define RANK_IS_GONE "gone, without a word (_exit, or a signal)"

// A rank's state, as sent.
typedef struct {
    int32_t rank, process; // its process's number on its machine
    int32_t in_call, peer, left, status, epoch;
    int32_t explained; // it ends by itself, and has said why
    int32_t ended_by;  // a signal that it ends by, 0: none
    int32_t all_left;  // by the root: no rank makes a further call
    int32_t ends;      // in order: it says nothing more
    int64_t number, count, step, last_of_hvd, last_of_comms;
    uint64_t moves, machine; // the same number: the same machine
    double seconds;          // since the last move
    char call[40], place[40];
} RankState;

RankState rank_state(const Doing *doing);

// What is known of a rank.
typedef struct {
    RankState says;
    bool known;          // it has said something
    bool gone;           // its process is no more, or can't be reached any more
    bool stopped;        // by a signal, or by a debugger
    double since, heard; // the last move, and when it spoke; by seconds_now()
    bool marked;         // for lists of ranks
    char phrase[160];    // its text in a list
} RankView;

// Takes what a rank says.
void view_take(RankView *view, const RankState *says, double now);

typedef struct {
    char text[4096];
    size_t length;
} Words;

// Ranks that have left, or are gone, while others wait in calls that they would have to make, too:
// "rank 1 has left main (exit status 0) while ranks 0, 2 and 3 wait in hvd_allreduce (call 12, 4
// values): they would wait forever". False where there are none; nothing is said that time could
// prove wrong.
bool words_of_leavers(RankView *ranks, int count, double now, Words *words);

// True where a rank waits for a call that `other` has not begun, or for a message from it, and both
// have waited long enough for what they sent before to arrive.
bool waits_for(const RankView *ranks, int waiting, int other, double now);

// Since when some rank has waited for at least `limit` seconds, by seconds_now(); 0: none has.
double stall_begin(const RankView *ranks, int count, double limit, double now);

// Lines about all ranks, those first that wait.
void words_of_stall(RankView *ranks, int count, double now, Words *words);

// "ranks 0 and 2 wait in hvd_allreduce (call 12, 4 values)": those that wait.
void words_of_waiting(RankView *ranks, int count, double now, Words *words);

// "rank 3 waits in hvd_allreduce (call 12, 4 values); rank 0 has not answered for 10 s: ...": a line
// of a rank that waits, and of the one that has been silent for so long.
void words_of_silence(const RankView *waiting, const RankView *silent, double seconds,
                      Words *words);

// "hvd_allreduce (call 12, 4 values)", "MPI_Recv for rank 3 (1 value)": the call that a rank is in.
void words_of_call(const RankState *says, Words *words);

// ", training, epoch 2, step 7", or nothing.
void words_of_place(const RankState *says, Words *words);

void words_add(Words *words, const char *format, ...) __attribute__((__format__(__printf__, 2, 3)));

#endif
