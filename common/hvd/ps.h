// Parameter servers: a job without mpirun, in which some processes keep the weights, and others
// compute gradients, each at its own pace (Li et al., "Scaling Distributed Machine Learning with
// the Parameter Server", 2014; Dean et al., "Large Scale Distributed Deep Networks", 2012).
//
// Every process is started by itself, by hand or by a script, and runs the same program. Its
// environment says who belongs to the job:
//
//     HVD_SERVERS=127.0.0.1:7001,127.0.0.1:7002   where each server listens
//     HVD_WORKERS=3                               how many workers there are
//     HVD_ROLE=server:0                           what this process is: server:N or worker:N
//     HVD_JOB=any-word                            the same in the whole job, and nowhere else
//
// They find each other over TCP, in any order of starts. After HVD_STALL_SECONDS (10; 0: never) a
// warning names a missing process; after HVD_START_SECONDS (60) the process exits with status 2. A
// connection without HVD_JOB's word, or with an unexpected message, is closed with a warning and
// does not affect the others. The word keeps jobs apart; it is no secret from those who can read
// the network.
//
// The model's weights, without its moving statistics, are cut into one part for each server, of
// equal sizes up to a remainder. A server keeps one part, and its optimizer updates it. A worker
// never uses its model's initial weights or its optimizer.
//
// A slow, stopped or lost worker does not stop the others, unless the server's loop waits for it. A
// server that has lost a worker goes on, and exits with status 1. A lost server aborts the job:
// every process names it and exits with status 2.
//
// A wrong call (a number that does not exist, a call out of order) exits with status 2.

#ifndef HVDLAB_PS_H
#define HVDLAB_PS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nn/model.h"

#pragma GCC visibility push(default) // a step may call what follows

// What this process is, its number among its kind, from 0, and how many there are of each.
bool ps_is_server(void);
int ps_number(void);
int ps_servers(void);
int ps_workers(void);

// ---- A server.

typedef struct PsServer PsServer;

typedef enum {
    PS_PULL, // the worker wants this server's weights, and waits until they are sent
    PS_PUSH, // the worker has sent gradients, and goes on
    PS_DONE, // the worker has done its work
    PS_LOST, // the worker has ended without PS_DONE
} PsKind;

typedef struct {
    PsKind kind;
    int worker;             // the worker that asks
    const float *gradients; // of PS_PUSH: of this server's part, until the next ps_next
    int64_t version;        // of PS_PUSH: that of the weights that they were computed from
} PsRequest;

// Listens at this server's address, and returns when all workers have come. The model must be
// compiled; it gives the first weights, and the optimizer, whose state and number of updates begin
// new.
PsServer *ps_server_start(Model *model);

// The number of floats in this server's part.
size_t ps_length(const PsServer *server);

// The number of updates so far: the version of its weights.
int64_t ps_version(const PsServer *server);

// Waits for the next request of any worker. The requests of one worker come in the order in which
// it made them; PS_DONE or PS_LOST is the last one. A call after the last request of all workers
// makes the program exit.
PsRequest ps_next(PsServer *server);

// Answers a worker's PS_PULL, now or later, with the present weights of this server's part. Does
// not wait until they have arrived. Does nothing for a worker that is gone.
void ps_send_weights(PsServer *server, int worker);

// One update of this server's part by the model's optimizer, from ps_length() gradients.
void ps_apply(PsServer *server, const float *gradients);

// Prints the numbers of pulls, pushes and updates; the staleness of the pushes (the number of
// updates between a worker's pull and its push); and the pushes per second, from the time when
// every worker had pushed once until the first one left. Then leaves the job and frees everything
// but the model; also frees its optimizer's state.
void ps_server_stop(PsServer *server);

// ---- A worker.

typedef struct PsWorker PsWorker;

// Reaches all servers, and returns when the whole job is there. The model must be compiled.
PsWorker *ps_worker_start(Model *model);

// Asks that server for its part of the weights, waits until it sends them, and writes them into the
// model. Returns their version: how many updates that server has made of them.
int64_t ps_pull(PsWorker *worker, int server);

// Sends that server its part of the model's gradients, and returns while they are on their way. A
// pull from that server and compute_gradients() must have come before.
void ps_push(PsWorker *worker, int server);

// Tells all servers that this worker's work is done, leaves the job and frees all but the model.
void ps_worker_stop(PsWorker *worker);

#pragma GCC visibility pop

#endif
