// What a run did, for graders and for whoever wants to look: with HVDLAB_TRACE=DIR in the
// environment every process writes DIR/rank-R.jsonl, one JSON object per event and line, each
// written at once. Every event has "event", its name, and "t", seconds on this machine's clock. A
// number that is not finite is null. What a thread of a mirrored model does also has "replica", its
// number from 0, and what that of a half of a model does "stage". With HVDLAB_KILL=RANK:EVENT:N,
// too, that rank is killed when it has written its N-th event of this name: SIGKILL, as from
// outside, but at a moment that is known.
//
//     event             fields                                 when
//     start             program, job, time, locked_on, pid,    first of all. All ranks of a run
//                       rank, size, local_rank, local_size,    have the same job, and no other
//                       node, nodes                            run has it; time: seconds since
//                                                              1970; the machine on which this file
//                                                              has a lock while the process lives,
//                                                              "": none can be had; rank and size
//                                                              as the launcher gave them
//     init              rank, size, local_rank, local_size     hvd_init is done
//     device_use        device                                 the program asked for a device
//     device            device, devices, node, cores, kind,    a device's first use; shares:
//                       shares                                 the cores of each of the node's
//                                                              devices, "0-1;2-3"
//     affinity                                                 the program called
//                                                              sched_setaffinity itself
//     call              function                               a ready-made function was called:
//                                                              each time, but of those of hvd that
//                                                              only ask (hvd_rank) the first time;
//                                                              or "getenv(NAME)", of a variable
//                                                              that says who is on this machine;
//                                                              or a function of MPI that moves
//                                                              data in another way than by
//                                                              messages or collective calls: the
//                                                              first time
//     placement         host, local_rank, local_size, group    show_placement: what the rank says;
//                                                              the ranks of the communicator, in
//                                                              its order, "0,2,4"
//     distributed       optimizer                              hvd_distributed_optimizer, of it
//     broadcast         root, weights                          a rank begins to broadcast a
//                                                              model; 0: it has no weights yet
//     transport         name, compression                      how hvd moves arenas is decided
//     compile           optimizer, learning_rate, weights,     the model has its weights; its
//                       statistics, model                      layers, a line for each
//     fit               verbose, epochs, steps,                fit was called; the lengths are
//                       validation_steps, train_len,           of one permutation, in batches;
//                       validation_len, train_images,          its images, and a batch's
//                       train_batch, validation_images,
//                       validation_batch, callbacks
//     train_begin       weights, statistics                    after the callbacks' train_begin
//     first_batch       weights, statistics                    before the first update
//     first_step        cores                                  where the first step computes
//     gradient          value, arena                           the local gradient is complete; the
//                                                              weights that it is to change
//     answers           training, images, loss, surprise,      a batch with labels went through the
//                       correct, surest                        model: sums over its images, of the
//                                                              loss, and of -log of the probability
//                                                              that the model's output gives to the
//                                                              label, whatever the loss is; right
//                                                              answers; the largest probability
//     table_gradient    table, dimension, table_rows, rows,    the local gradient of an
//                       values                                 embedding's table: the rows that the
//                                                              batch named, "3,17", and the
//                                                              fingerprint of each row's gradient
//     table_apply       the same fields                        an update begins: the rows
//                                                              whose gradient is not 0 by then
//     custom_begin      pass, length, sum                      a custom layer calls the program's
//                                                              function for the pass "forward" or
//                                                              "backward": values for each image,
//                                                              and the sum of the batch's ...
//     custom_end        the same fields                        ... and it returns
//     piece             count; in shards: number, value        the gradients of a layer are
//                                                              complete, so many, and a function of
//                                                              the program gets them; of shards the
//                                                              piece's number and the gradients ...
//     piece_end         count                                  ... and returns
//     pieces_finish     count                                  before an update: another function
//     pieces_finished   count                                  ... and returns
//     shard_update      piece, begin, count, value             update_weights: of which weights of
//                                                              a piece, by which gradients ...
//     shard_updated     piece, weights                         ... is done: these weights
//     piece_updated     number, count, kept, state, weights    the function for the update of a
//                                                              piece has returned: how many of its
//                                                              gradients are kept, how many weights
//                                                              have a state (-1: none yet), and all
//                                                              its weights
//     chain_begin       blocks, images                         a chain of blocks begins a batch
//     block_forward     block, held                            a block is computed; how many
//                                                              blocks have activations ...
//     block_forward_end the same fields                        ... and then
//     block_backward    the same fields                        a block's gradients are computed
//     block_drop        the same fields                        its activations have been dropped
//     chain_update      the same fields                        all weights have been updated
//     apply             optimizer, value, learning_rate,       a gradient reaches the optimizer
//                       momentum                               that changes the weights
//     step              epoch, step, weights, statistics,      after the update
//                       arena
//     epoch             epoch, and the figures below           the rank's own figures
//     callback          epoch, name, and the figures           what a callback's epoch_end gets
//     figures_read      epoch, name, and the figures           what stop_at_accuracy and
//                                                              reduce_lr_on_plateau decide by, and
//                                                              what tensorboard writes
//     history           epoch, and the figures                 after all callbacks
//     fit_end           epochs                                 of them trained
//     evaluate          verbose, steps                         evaluate was called
//     evaluate_end      loss, accuracy
//     collective_begin  function, name, bytes, op, root;       MPI or NCCL is called, or all ranks
//                       of MPI's: ranks                        are to agree on a call of hvd's;
//                                                              the ranks of the job among which it
//                                                              is made, "0,2,4" ...
//     collective_end    function, name, request                ... and returns; the number of what
//                                                              goes on in the background
//     disagreement      text                                   they don't: the line that follows
//     between_hosts     name, bytes                            an all-reduce in two levels, or a
//                                                              block of it, is done: what this rank
//                                                              has sent to another host for it
//     message_begin     function, name, to, to_tag, bytes,     MPI_Send, MPI_Recv or one of their
//                       from, from_tag, room, before           kind is called: whom it sends to,
//                                                              and whom it receives from, as ranks
//                                                              of the job, -1: any; null where it
//                                                              does only one of the two; how many
//                                                              bytes before the swept array its
//                                                              data begin, or null ...
//     message_end       function, request; of one that has     ... and returns; how many bytes
//                       received: received, source, tag        have come, and from which rank
//     wait_begin        function, requests                     MPI_Wait or one of its kind is
//                                                              called, with these numbers "3,4" ...
//     wait_end          function, requests, received           ... and returns: these are done; or
//                                                              MPI_Test has found them done; how
//                                                              many bytes have come by them
//     flaws             seed                                   train_with_flaws is called
//     flaw              training, rank, milliseconds, remedy   a training begins: how it loses
//                                                              time; -1: on every rank ...
//     finding           training, rank, span, milliseconds,    ... and how the program describes
//                       pieces, remedy                         it
//     flaw_trained      training, milliseconds                 it has ended; how long a step took
//     sweep_begin       name, count                            sweep_allreduce tries the all-reduce
//                                                              of that name on so many floats ...
//     sweep_end         name, count, wrong, behind, samples,   ... and has checked the sums: values
//                       bits                                   of this rank that are wrong; those
//                                                              of them that lie behind the array;
//                                                              some of the others, "PLACE:VALUE";
//                                                              a hash of all, 16 hexadecimal digits
//     images            batches, permutation, step, split,     the trainer takes a batch: whose it
//                       drawn, mislabeled                      is; the calls of batches_begin so
//                                                              far, and the step since the last;
//                                                              the images, as places in the set
//                                                              that was loaded ("train", "test";
//                                                              "": in the data set of the batches),
//                                                              "12,7,3", wherever a copy of them is
//                                                              now; how many have other labels than
//                                                              they were loaded with
//     mirrored          devices                                replicas of a model are made on
//                                                              these devices, "0,1"
//     part              purpose, images, pixels, labels,       a replica computes images, to
//                       arena                                  "train" or to "test", so many: their
//                                                              hashes and labels as "taken" has
//                                                              them; the weights that it does it by
//     sum_begin         function, bytes                        a replica calls a function that adds
//                                                              up what all replicas bring ...
//     sum_end           function                               ... and has the sum
//     update            weights, statistics, arena             fit_mirrored has changed a replica's
//                                                              weights
//     statistics        images                                 image_statistics, of so many
//     pipeline          batches, stages, goes_on               batches are made: of which stages,
//                                                              the first one first, "from_dataset,
//                                                              shuffle 100,batch 32,prefetch 2";
//                                                              1: batches_begin goes on
//     taken             batches, step, pixels, labels,         ... after "images": a hash of each
//                       changed, own, waited, passes, read,    image, "7e13e189,...", as the
//                       and what stages hold                   trainer gets it, and its label,
//                                                              "3,9"; how many images are not
//                                                              as they were read; images that the
//                                                              trainer's thread handled meanwhile,
//                                                              one for each stage; seconds; passes
//                                                              over the source that have begun,
//                                                              and images read in all of them
//     staged_batch      batch, stage, device, images,          train_in_stages begins, from 0 on:
//                       micro_batches, value, arena            for each stage, what its
//                                                              gradient from the batch as a whole
//                                                              would be (null: with dropout or
//                                                              batch norm there is none), and its
//                                                              weights
//     stage_ready       batch, stage                           a stage's thread begins its schedule
//     stage_begin       call, batch, stage, micro              a schedule calls stage_forward:
//                                                              "forward"; "backward", "send",
//                                                              "receive"; of that micro-batch ...
//     stage_end         the same fields                        ... and it returns
//     stage_apply       batch, stage, value                    a stage updates its weights, from
//                                                              this sum of gradients
//     staged_batch_end  batch, stage, arena                    both schedules have returned
//     ps_start          role, number, servers, workers,        the whole job is there; role is
//                       offset, length, total, weights         "server" or "worker"; the others are
//                                                              a server's: its part of the weights,
//                                                              and how many there are
//     ps_request        kind, worker, version, value           a server takes a request, "pull",
//                                                              "push", "done" or "lost"; of a push:
//                                                              the version that it was computed
//                                                              from and the gradients
//     ps_sent           worker, version, weights               ... answers a pull
//     ps_applied        version, value, learning_rate,         ... has made an update, by these
//                       weights                                gradients; what its part is now
//     ps_pull           server                                 a worker asks for weights ...
//     ps_pulled         server, version, weights               ... and has them
//     ps_push           server, version, value                 ... brings gradients
//     ps_stop           role, number                           has left the job
//     saved             path, and where                        save_weights writes a file; the
//                       write_checkpoint has: epoch, step,     root has saved a checkpoint;
//                       weights, inode                         write_checkpoint has written it: how
//                                                              many epochs and steps are done, and
//                                                              the file's number on its disk
//     half_written      path                                   a file is written: half of its
//                                                              tensors are in it ...
//     written           path                                   ... and all, and on the disk
//     renamed           from, to                               rename() has done it
//     removed           path                                   unlink() or remove() has
//     synced            path                                   fsync() of a file or a folder has,
//                                                              or sync(): "", of all
//     restored          path, epoch, step                      a checkpoint was restored, with how
//                                                              many epochs and steps are done
//     end               status, lost                           main returned, or exit was called;
//                                                              so many things were lost, which
//                                                              alone makes the status 1
//
// What stages hold: images that caches keep in memory (cached) and in files (filed), that are in
// the buffers of shuffles (buffered), and for which prefetches have room (ahead); with _bytes
// behind its name, the bytes.
//
// The figures are loss, accuracy, val_loss, val_accuracy, lr. `weights`, `statistics`, `arena` and
// `value` are fingerprints in double precision: the dot product with a fixed pseudo-random vector,
// so that the fingerprint of a sum is the sum of the fingerprints, and those of the parts that
// parameter servers keep add up to that of the whole. `arena` is that of the weights by the same
// numbers as a gradient's `value`: SGD changes it by the learning rate times that. The function of
// a collective says which way the values go: MPI's, or hvd's "two_levels". Its name is that of its
// communicator: hvd's "gradients", "variables", "metrics", "values", "fit" where trainings are
// compared, "trials" where the ranks of sweep_allreduce keep step, "sweep" for what it tries, or
// "MPI_COMM_WORLD", say, for what a program calls itself. How MPI is watched: mpi_calls.c.

#ifndef HVDLAB_TRACE_H
#define HVDLAB_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// True where HVDLAB_TRACE is set. Exits when the folder can't be written.
bool trace_on(void);

// Before main (start.c): takes HVDLAB_TRACE out of the environment, so that a program can't see
// that it is watched. (What the program starts itself is not traced.) At exit: writes the event
// "end".
void trace_hide_setting(void);
void trace_finish(int status);

// True once trace_on() has begun a trace.
bool trace_has_begun(void);

// In a check each line ends in a tab and the signature of its text, 16 hexadecimal digits: the key
// is in DIR/rank-R.key, which is read and removed before main. This is no cryptography: it shows
// lines that a program wrote which does not know the key. `number`: of the line, from 0.
uint64_t trace_signature(uint64_t key, uint64_t number, const char *text, size_t length);

// Until it is called with false, nothing is traced: what is timed is to take its own time.
void trace_pause(bool pause);

typedef struct {
    const char *name;
    const char *text; // NULL: the field is a number
    double number;
} TraceField;

#define TEXT(name, text)     ((TraceField){(name), (text), 0})
#define NUMBER(name, number) ((TraceField){(name), NULL, (double)(number)})

// Writes an event with fields that are TEXT(...) or NUMBER(...), where tracing is on; the fields
// are not looked at elsewhere.
#define trace(event, ...)                                                                          \
    do {                                                                                           \
        if (trace_on())                                                                            \
            trace_write(event, (TraceField[]){__VA_ARGS__, {0}});                                  \
    } while (0)

// The same; the last field has no name.
void trace_write(const char *event, const TraceField *fields);

// From now on the calling thread's events have this field, too: which of several threads it is that
// compute at a time. Whether they have one.
void trace_thread_is(const char *field, int number);
bool trace_thread_is_named(void);

// What a ready-made function writes that an exercise may have its student write instead.
#define trace_call() trace("call", TEXT("function", __func__))
#define trace_call_once()                                                                          \
    do {                                                                                           \
        static bool written;                                                                       \
        if (!written)                                                                              \
            trace_call();                                                                          \
        written = true;                                                                            \
    } while (0)

#endif
