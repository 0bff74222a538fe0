// What a run did, for graders and for whoever wants to look: with HVDLAB_TRACE=DIR in the
// environment every process writes DIR/rank-R.jsonl, one JSON object per event and line, each
// written at once. Every event has "event", its name, and "t", seconds on this machine's clock. A
// number that is not finite is null. What a thread of a mirrored model does also has "replica", its
// number from 0, and what that of a part of a model does "stage".
//
// events.def lists the events and their fields. What watches MPI and the system lies in watch/.

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

// "HVDLAB_TRACE=DIR", where workers that this program starts are to be traced: not in a check, and
// not beside a trace of its own. The caller frees it; NULL: no.
char *trace_setting_for_workers(void);

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

// The begin and the end of a collective call. (MPI's own: watch/mpi_calls.c.)
void trace_collective(const char *function, const char *name, size_t bytes, const char *op,
                      int root);
void trace_collective_end(const char *function, const char *name);

// From now on the calling thread's events have this field, too: which of several threads it is that
// compute at a time. Whether they have one.
void trace_thread_is(const char *field, int number);
bool trace_thread_is_named(void);

// What a ready-made function writes that an exercise may have its student write instead.
#define trace_call_by(function_name) trace("call", TEXT("function", function_name))
#define trace_call()                 trace_call_by(__func__)
#define trace_call_once()                                                                          \
    do {                                                                                           \
        static bool written;                                                                       \
        if (!written)                                                                              \
            trace_call();                                                                          \
        written = true;                                                                            \
    } while (0)

#endif
