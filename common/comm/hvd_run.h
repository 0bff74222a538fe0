// A plain program that starts workers of its own, as Horovod's horovod.run does: it is started
// without mpirun, and has one of its functions run by N workers, as often as it likes.

#ifndef HVDLAB_HVD_RUN_H
#define HVDLAB_HVD_RUN_H

#pragma GCC visibility push(default) // a step may call what follows

// Starts `np` workers (at most 1024) on this machine, by mpirun, and has each call
// function(argument) in a job that is initialized already (hvd_init); returns what the root's
// function returned, a text from malloc() that the caller frees, or NULL. The results of the others
// are dropped.
//
// A worker is a new process of this program's file, which runs the function in place of main: from
// the program it gets only the argument, a text of any length, or NULL. The function is one of the
// program, not of a library. What workers print appears where the program prints; their standard
// input is empty.
//
// A worker that ends otherwise than by returning, or exit(0), ends the job, and the program with
// the job's status, after one line that says who ended how. So does a signal that the program gets
// meanwhile. In a program that mpirun started, or after hvd_init, the call makes the program exit
// with an error message.
char *hvd_run(int np, char *(*function)(const char *argument), const char *argument);

#pragma GCC visibility pop

// Before main (start.c): in a worker that hvd_run started, runs the function and exits.
void hvd_run_work(void);

#endif
