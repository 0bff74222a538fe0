// What an event of a trace may be: common/observe/events.def as a table, and the check of a line.

#ifndef HVDLAB_STEPS_EVENT_RULES_H
#define HVDLAB_STEPS_EVENT_RULES_H

#include <cjson/cJSON.h>
#include <stddef.h>

// Kinds of fields, as events.def describes them.
typedef enum {
    TEXT,
    LIST,
    REAL,
    RANK,
    PEER,
    WORKER,
    SERVER,
    INDEX,
    COUNT,
    NUMBER,
    BYTES,
    KIND = 15, // the bits of these
    OR_NULL = 16,
    OPTIONAL = 32,
} FieldKind;

typedef struct {
    const char *name; // NULL behind the last field
    unsigned kind;    // with OR_NULL and OPTIONAL
} FieldRule;

typedef struct {
    const char *name;
    const FieldRule *fields;
} EventRule;

extern const EventRule event_rules[];
extern const int event_rule_count;

// "event", "t", and what thread it is: fields of any event.
extern const FieldRule common_fields[];

// Processes of the run, and those of them that are workers of parameter servers (0: no servers).
typedef struct {
    int ranks, workers;
} Job;

// The smallest and the largest number of a kind.
double kind_min(unsigned kind);
double kind_max(unsigned kind, Job job);

// The event that a line with a '\0' behind it holds, which the caller deletes. NULL: it is none,
// and *fault says why, which the caller frees.
cJSON *event_of_line(const char *line, size_t length, Job job, char **fault);

#endif
