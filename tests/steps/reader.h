// What reads a submission's output and files does so in a process of its own, which has no rights:
// it reads the folders that it is given and answers, and can do nothing else. It has a limit of
// time and of memory. So a file that makes no sense harms nobody, and ends nothing but its reader.

#ifndef HVDLAB_STEPS_READER_H
#define HVDLAB_STEPS_READER_H

// Reads, and prints its answer to standard output. `folders`: those of reader_ask, open.
typedef void (*Reading)(const int *folders, void *argument);

typedef struct {
    char *text;  // the answer; NULL: the reader did not come to its end. Owned
    char *fault; // then: how it ended: "was ended by signal 11 (Segmentation fault)". Owned
} Answer;

// Calls `reading` so, with a list of folders that NULL ends, for some seconds at most. Nothing that
// it does to this program's memory stays.
Answer reader_ask(Reading reading, const char *const *folders, void *argument, double seconds);
void answer_free(Answer *answer);

#endif
