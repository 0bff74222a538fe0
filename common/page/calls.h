// The calls of a rank, from its trace, as the page draws them.

#ifndef HVDLAB_PAGE_CALLS_H
#define HVDLAB_PAGE_CALLS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#define MAX_OPEN 64 // calls within calls

// A rank, while its trace is read. `object` is what the page gets of it, with the lists.
typedef struct {
    cJSON *object;
    cJSON *calls, *steps, *losses, *files, *pushes, *between, *members;
    cJSON *open[MAX_OPEN]; // the calls that have begun and not ended
    int depth;
    int number, size;   // in the job, and of it
    double begin, last; // seconds
    bool ended, cut;
    void *counters; // a tree of Counters
    double version; // of a server's weights
    int applied;    // updates, of a replica
    double workers; // of its job; the servers come after them
} Rank;

// A call, as the page gets it: a row with these places.
enum {
    BEGIN,
    END,      // null: it has not ended
    FUNCTION, //
    CHANNEL,  // of a collective call: by it and the number, calls of all ranks belong together
    BYTES,    // that a message sends, or that this rank gives to a collective call
    FROM,     // null: it receives nothing; -1: from any
    TO,
    NUMBER_OF_CALL, // on the channel
    SENT,           // a name of the message, which is the sender's and the receiver's ...
    RECEIVED,       // ... of the one that is received
    REQUESTS,       // the number of what it has begun; or the numbers for which it waits, "3,4"
    BYTES_RECEIVED, //
};

// True where the event has this name.
bool event_is(const cJSON *event, const char *name);

cJSON *number_or_null(double number);

// A row of numbers and texts for the page: cJSON items, up to NULL.
cJSON *json_row(cJSON *const items[]);
#define ROW(...) json_row((cJSON *const[]){__VA_ARGS__, NULL})

// The row of a call, in the page's list; what it does not have is null.
cJSON *new_call(Rank *rank, double t, const char *function, const char *channel, double bytes);
void call_set(cJSON *call, int place, cJSON *value);

// As new_call, of one that belongs to those of other ranks on its channel.
cJSON *new_numbered_call(Rank *rank, double t, const char *function, const char *channel,
                         double bytes);

// Messages between two ranks by one communicator and with one tag are received in their order: that
// gives the next one a name. Null where the other rank is not known.
cJSON *name_of_message(Rank *rank, const char *channel, bool sent, double other, double tag);

// The call goes on until end_call(), which returns it, or NULL where none is open.
void open_call(Rank *rank, cJSON *call);
cJSON *end_call(Rank *rank, double t);

// True where the event is one of a call: it was taken.
bool take_call(Rank *rank, const cJSON *event, double t);

// Leaves the last `most` calls in the page's memory; of the others, the sums of their bytes.
void keep_last_calls(Rank *rank, int most);

#endif
