// Which process prints the message when a job ends, and how long the others wait for it, in seconds.
// The process that prints it ends the job, so that there is one message, not one of each rank.
//
//     what ends the job                       prints at once                  the others
//
//     an error that any rank may find         the root                        wait OTHERS_WAIT; if the
//     (die, give_up)                                                          job still runs, print it
//     ranks that make different calls         the lowest rank that knows      wait MISMATCH_WAIT, then
//                                                                             the same
//     a signal from another process           the rank that receives it       nothing
//     mpirun's signal, after a rank failed    nobody: the failure is the      wait SIGNAL_WAIT, for the
//                                             reason; without one the root    root to look at them
//     a stall, a rank that has left           the root's watch; rank 1's if   wait for mpirun's signal
//                                             the root is gone
//     a root that does not answer             rank 1, if it waits             wait OTHERS_WAIT, then
//                                                                             the same
//     a lost parameter server                 each process, when it has told  print what they were told
//                                             the others: PARTNERS_WAIT

#ifndef HVDLAB_LAST_WORDS_H
#define HVDLAB_LAST_WORDS_H

#define OTHERS_WAIT   1.5 // above 1 s, in which mpirun ends the ranks after the root has exited
#define MISMATCH_WAIT 2.0
#define SIGNAL_WAIT   0.3
#define HANDLER_WAIT  2   // a signal's handler waits for the thread that ends the process
#define LOST_ROOT     5.0 // for mpirun to end a job whose root is gone; then a rank at its end leaves
#define PARTNERS_WAIT 5.0 // for messages about a lost server: a busy machine is slow to send them

#endif
