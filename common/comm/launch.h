// Starts mpirun as a child of this process, for programs that start jobs, and reports how the job
// ended. Sets for Open MPI what this machine needs (as `make -s env` does), unless the environment
// sets it.

#ifndef HVDLAB_LAUNCH_H
#define HVDLAB_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

// How a job ended.
typedef struct {
    int status; // mpirun's: that of the first rank that failed, 128 and the number of a signal that
                // ended it; 1 where a host was lost
    int rank;   // that failed first, by the fields of another rank; -1: not known
    bool lost;  // a host was, with its ranks, or it was not reached in the first place
    int mpirun_signal; // that ended mpirun itself; 0: none did
    int sent;          // SIGINT, SIGTERM or SIGHUP, which came for this process; 0: none did
} JobEnd;

// Where a job's ranks may be, and whether rank 0 reads this process's standard input: as mpirun has
// it, or on this machine alone, also in a batch system's job, and without input.
typedef enum { JOB_ANYWHERE, JOB_HERE } JobPlace;

// Adds to mpirun's words that ranks print fields for run_job: a line with the rank that failed.
#define JOB_END_FIELDS "HVDLAB_END_FIELDS" // set: they do
#define JOB_END_RANK   "hvdlab-end: rank="
void launch_ask_fields(const char **words, size_t *count);

// Runs mpirun with these words, the first of which is "mpirun" and the last NULL, and waits for its
// end. Its standard error passes through this process, which keeps the lines of fields for itself.
// Signals that come for this process alone meanwhile are sent on to mpirun, which also gets SIGTERM
// should this process die. One that has lost a rank or a host and hangs is killed after 10 seconds.
// A mpirun that can't be started makes the program exit with an error message.
JobEnd run_job(char *const words[], JobPlace place);

// Adds to mpirun's words that ranks get "NAME=VALUE": -x, or a list of a setting of Open MPI, beside
// which mpirun takes no -x.
void launch_pass(const char **words, size_t *count, const char *variable);

// "rank 1 was ended by signal 9 (Killed)", "the job ended with status 3". The caller frees it.
char *job_end_text(const JobEnd *end);

#endif
