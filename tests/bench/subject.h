// What is trained in the race: a model at a batch size, on a kind of device, in a precision.

#ifndef BENCH_SUBJECT_H
#define BENCH_SUBJECT_H

#include "sys/args.h"

typedef struct {
    const char *model; // wrn or lenet
    int width;         // of wrn
    int batch;
    DeviceKind device;
    Precision precision;
} Subject;

// As a command line and records have them.
extern const char *const device_names[DEVICE_GPU + 1];
extern const char *const precision_names[PRECISION_BF16 + 1];

// Reads MODEL:WIDTH:BATCH, such as wrn:10:512. Ends the program with
// one line where it is something else.
Subject parse_subject(const char *text);

// The place of a word among `count` names. Ends the program where it is none of them.
int find_name(const char *word, const char *const *names, int count);

// Prints "Wide ResNet 16-10".
void print_model(const Subject *subject);

// Prints "Wide ResNet 16-10, batch 512".
void print_subject(const Subject *subject);

#endif
