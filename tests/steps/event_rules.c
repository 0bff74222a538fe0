// Checks a line of a trace by common/observe/events.def.

#include "event_rules.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define MAX_LINE  ((size_t)1 << 20)
#define MAX_COUNT 999999999 // so that sums of a few are still ints

#define FIELD(name, kind) {#name, kind},
#define EVENT(name, ...)  {#name, (const FieldRule[]){__VA_ARGS__{NULL, 0}}},
const EventRule event_rules[] = {
#include "observe/events.def"
};
const int event_rule_count = sizeof event_rules / sizeof *event_rules;

const FieldRule common_fields[] = {FIELD(event, TEXT) FIELD(t, REAL) FIELD(
    replica, INDEX | OPTIONAL) FIELD(stage, INDEX | OPTIONAL){NULL, 0}};

static const EventRule *rule_of(const char *name)
{
    for (int i = 0; i < event_rule_count; i++)
        if (strcmp(event_rules[i].name, name) == 0)
            return &event_rules[i];
    return NULL;
}

// ---- Fields.

double kind_min(unsigned kind)
{
    switch (kind & KIND) {
    case PEER:
        return -1;
    case NUMBER:
        return INT_MIN;
    case BYTES:
        return -0x1p53;
    default:
        return 0;
    }
}

double kind_max(unsigned kind, Job job)
{
    switch (kind & KIND) {
    case RANK:
    case PEER:
        return job.ranks - 1;
    case WORKER:
        return job.workers - 1;
    case SERVER:
        return job.workers > 0 ? job.ranks - job.workers - 1 : -1;
    case INDEX:
        return 255;
    case BYTES:
        return 0x1p53;
    case COUNT:
        return MAX_COUNT;
    default:
        return INT_MAX;
    }
}

static bool is_list(const char *text)
{
    for (const char *at = text; *at; at++) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 9)
            return false;
        at += digits;
        if (!*at)
            return true;
        if (*at != ',')
            return false;
    }
    return !*text;
}

// What is wrong with a value, which the caller frees; NULL: nothing.
static char *fault_of_value(const cJSON *value, const FieldRule *field, Job job)
{
    unsigned kind = field->kind & KIND;
    if (kind == TEXT || kind == LIST) {
        if (!cJSON_IsString(value))
            return format_text("%s is no text", field->name);
        return kind == LIST && !is_list(value->valuestring)
                   ? format_text("%s is no list of whole numbers", field->name)
                   : NULL;
    }
    if (cJSON_IsNull(value) && (kind == REAL || field->kind & OR_NULL))
        return NULL;
    if (!cJSON_IsNumber(value) || !isfinite(value->valuedouble))
        return format_text("%s is no number", field->name);
    double number = value->valuedouble, min = kind_min(kind), max = kind_max(kind, job);
    if (kind == REAL || (number == trunc(number) && number >= min && number <= max))
        return NULL;
    return format_text("%s is %.17g, and not a whole number from %.0f to %.0f", field->name, number,
                       min, max);
}

enum { COMMON = 4 }; // fields of any event, whose places come first

// The field's place; -1: the event has none of that name.
static int place_of(const char *name, const EventRule *rule)
{
    for (int i = 0; rule->fields[i].name; i++)
        if (strcmp(rule->fields[i].name, name) == 0)
            return COMMON + i;
    for (int i = 0; i < COMMON; i++)
        if (strcmp(common_fields[i].name, name) == 0)
            return i;
    return -1;
}

// The first field from `place` on that must be there and is not among those seen; NULL: none.
static const char *lacking(const FieldRule *fields, int place, uint64_t seen)
{
    for (; fields->name; fields++, place++)
        if (!(fields->kind & OPTIONAL) && !(seen >> place & 1))
            return fields->name;
    return NULL;
}

static char *fault_of_fields(const cJSON *event, const EventRule *rule, Job job)
{
    uint64_t seen = 0;
    for (const cJSON *value = event->child; value; value = value->next) {
        int place = place_of(value->string, rule);
        if (place < 0)
            return format_text("%s has no field %.40s", rule->name, value->string);
        if (seen >> place & 1)
            return format_text("%s has %s twice", rule->name, value->string);
        seen |= (uint64_t)1 << place;
        char *fault = fault_of_value(
            value, place < COMMON ? &common_fields[place] : &rule->fields[place - COMMON], job);
        if (fault) {
            char *named = format_text("%s: %s", rule->name, fault);
            free(fault);
            return named;
        }
    }
    const char *lacks = lacking(common_fields, 0, seen);
    if (!lacks)
        lacks = lacking(rule->fields, COMMON, seen);
    return lacks ? format_text("%s lacks %s", rule->name, lacks) : NULL;
}

// ---- Lines.

// True where the line is one object without others in it: what a parser makes of a deep or long
// list would take much memory.
static bool is_flat(const char *line, size_t length)
{
    bool inside = false; // of a text
    int objects = 0;
    for (size_t i = 0; i < length; i++) {
        if (inside && line[i] == '\\')
            i++;
        else if (line[i] == '"')
            inside = !inside;
        else if (!inside && (line[i] == '[' || line[i] == '\0'))
            return false;
        else
            objects += !inside && line[i] == '{';
    }
    return objects == 1 && !inside;
}

cJSON *event_of_line(const char *line, size_t length, Job job, char **fault)
{
    *fault = NULL;
    if (length > MAX_LINE || !is_flat(line, length)) {
        *fault = format_text(length > MAX_LINE ? "it is longer than a megabyte"
                                               : "it is no JSON object, or there is another in it");
        return NULL;
    }
    cJSON *event = cJSON_Parse(line);
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(event, "event");
    const EventRule *rule = cJSON_IsString(name) ? rule_of(name->valuestring) : NULL;
    if (!event)
        *fault = format_text("it is no JSON");
    else if (!cJSON_IsString(name))
        *fault = format_text("it has no name");
    else if (!rule)
        *fault = format_text("there is no event %.40s", name->valuestring);
    else
        *fault = fault_of_fields(event, rule, job);
    if (!*fault)
        return event;
    cJSON_Delete(event);
    return NULL;
}
