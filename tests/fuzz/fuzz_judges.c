// Every exercise's judge, on traces that keep to events.def and make no sense otherwise: those of
// real runs (tests/fuzz/record.sh), changed in some places, and events that are made up by the
// table. FUZZ_JUDGE=ring in the environment feeds one exercise's judge alone.

#include "fuzz.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/files.h"
#include "base/format.h"
#include "steps/end.h"
#include "steps/event_rules.h"
#include "steps/judge.h"

enum { MAX_RUNS = 16, MAX_MADE = 512, MAX_EVENTS = 1 << 13 };

// ---- What is changed: an exercise's runs.

typedef struct {
    const Exercise *exercise;
    Run runs[MAX_RUNS];
    int count;
} Base;

static Exercises exercises;
static Base *bases;
static int base_count;

static int open_folder(const char *runs, const char *name)
{
    char *path = format_text("%s/%s", runs, name);
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    free(path);
    return folder;
}

// An empty run where none was recorded.
static Run read_run(const Exercise *exercise, int number)
{
    const char *traces = getenv("FUZZ_TRACES");
    Run run = {.plan = exercise->runs[number], .text = format_text("%s", "")};
    char *name = format_text("%s/%s/%d-%s", traces ? traces : "build/corpus/traces", exercise->name,
                             number + 1, run.plan.name),
         *output = format_text("%s/output", name);
    int trace = open_folder(name, "trace"), work = open_folder(name, "work");
    FUZZ_CHECK(trace >= 0 || work < 0); // a run that was recorded has its traces
    if (trace >= 0 && access(output, R_OK) == 0) {
        free(run.text);
        size_t size;
        run.text = file_bytes(output, &size);
    }
    run.ranks = run.plan.ranks + run.plan.servers;
    run.status = run.plan.kill && !run.plan.servers ? 137 : 0;
    run.work = format_text("%s/work", name);
    run_read(&run, trace, work);
    FUZZ_CHECK(!run.traces.fault);
    free(name);
    free(output);
    return run;
}

static void prepare(void)
{
    const char *only = getenv("FUZZ_JUDGE");
    exercises = exercises_read();
    bases = calloc((size_t)exercises.count, sizeof *bases);
    for (int i = 0; i < exercises.count; i++) {
        const Exercise *exercise = &exercises.items[i];
        if ((only && strcmp(only, exercise->name) != 0) || !judge_of(exercise->file))
            continue;
        Base *base = &bases[base_count++];
        base->exercise = exercise;
        base->count = exercise->run_count < MAX_RUNS ? exercise->run_count : MAX_RUNS;
        for (int r = 0; r < base->count; r++)
            base->runs[r] = read_run(exercise, r);
    }
    FUZZ_CHECK(base_count > 0);
}

// ---- Numbers out of the input.

typedef struct {
    const uint8_t *at, *end;
} Input;

static unsigned byte(Input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

// From 0 to count - 1.
static int choose(Input *input, int count)
{
    unsigned number = byte(input);
    if (count > 256)
        number |= byte(input) << 8;
    return count > 0 ? (int)(number % (unsigned)count) : 0;
}

// ---- Events.

static cJSON *made[MAX_MADE];
static int made_count;

static const cJSON *any_event(Input *input, const Base *base)
{
    const Run *run = &base->runs[choose(input, base->count)];
    const Events *events = &run->traces.of[choose(input, run->ranks)];
    return events->count > 0 ? events->items[choose(input, events->count)] : NULL;
}

static const char *some_text(Input *input, unsigned kind, const Base *base, const char *field)
{
    static char text[4096];
    static const char *const lists[] = {"", "0", "0,1,2", "4,3,2,1,0", "2,2", "15", "999999999"};
    static const char *const words[] = {"",
                                        "train",
                                        "test",
                                        "forward",
                                        "MPI_Send",
                                        "push",
                                        "pull",
                                        "MPI_Allreduce",
                                        "1:nan",
                                        "/",
                                        "saved/ckpt-1.safetensors"};
    int choice = choose(input, 16);
    const char *others = event_text(any_event(input, base), field);
    if (choice < 5)
        return others;
    if (choice == 5) { // as many as there are, and one more
        snprintf(text, sizeof text, "%s%s0", others, *others ? "," : "");
        return text;
    }
    if (choice == 6) {
        size_t length = 0;
        for (int i = choose(input, 512); i >= 0; i--)
            length += (size_t)snprintf(text + length, sizeof text - length, "%d%s",
                                       choose(input, 64), i > 0 ? "," : "");
        return text;
    }
    return kind == LIST ? lists[choose(input, sizeof lists / sizeof *lists)]
                        : words[choose(input, sizeof words / sizeof *words)];
}

static double some_number(Input *input, unsigned kind, Job job, double before)
{
    static const double reals[] = {0, 1, -1, 0.5, 1e-300, 1e300, -1e300, 3e9, -3e9, INFINITY};
    double min = kind_min(kind), max = kind_max(kind, job);
    switch (choose(input, 10)) {
    case 0:
        return min;
    case 1:
        return max;
    case 2:
        return before + 1;
    case 3:
        return before - 1;
    case 4:
        return kind == REAL ? reals[choose(input, sizeof reals / sizeof *reals)] : max - 1;
    case 5:
        return job.ranks;
    case 6:
        return byte(input);
    default:
        return min + choose(input, max < 64 ? (int)max + 1 : 8);
    }
}

static void set_field(Input *input, cJSON *event, const FieldRule *field, const Base *base, Job job)
{
    unsigned kind = field->kind & KIND;
    double before = event_number(event, field->name);
    cJSON *value = kind == TEXT || kind == LIST
                       ? cJSON_CreateString(some_text(input, kind, base, field->name))
                       : cJSON_CreateNumber(some_number(input, kind, job, before));
    cJSON_DeleteItemFromObjectCaseSensitive(event, field->name);
    cJSON_AddItemToObject(event, field->name, value);
}

static const EventRule *rule_of_event(const cJSON *event)
{
    const char *name = event_text(event, "event");
    for (int i = 0; i < event_rule_count; i++)
        if (strcmp(event_rules[i].name, name) == 0)
            return &event_rules[i];
    fuzz_finding(__FILE__, __LINE__, "an event that events.def does not have");
}

static cJSON *new_event(Input *input, const EventRule *rule, const Base *base, Job job)
{
    cJSON *event = cJSON_CreateObject();
    cJSON_AddStringToObject(event, "event", rule->name);
    cJSON_AddNumberToObject(event, "t", choose(input, 16));
    for (const FieldRule *field = rule->fields; field->name; field++)
        if (!(field->kind & OPTIONAL) || byte(input) % 2)
            set_field(input, event, field, base, job);
    if (byte(input) % 4 == 0)
        cJSON_AddNumberToObject(event, "replica", choose(input, 5));
    return event;
}

// One field is another; or it is in another thread.
static cJSON *changed_event(Input *input, const cJSON *old, const Base *base, Job job)
{
    const EventRule *rule = rule_of_event(old);
    cJSON *event = cJSON_Duplicate(old, true);
    int count = 0;
    while (rule->fields[count].name)
        count++;
    int place = choose(input, count + 1);
    if (place < count)
        set_field(input, event, &rule->fields[place], base, job);
    else if (cJSON_HasObjectItem(event, "replica") || cJSON_HasObjectItem(event, "stage"))
        set_field(input, event, &common_fields[cJSON_HasObjectItem(event, "replica") ? 2 : 3], base,
                  job);
    return event;
}

// What a reader makes of it; NULL: it is none.
static cJSON *as_read(cJSON *event, Job job)
{
    char *line = cJSON_PrintUnformatted(event), *fault;
    cJSON *read = event_of_line(line, strlen(line), job, &fault);
    cJSON_Delete(event);
    free(line);
    free(fault);
    if (read)
        made[made_count++] = read;
    return read;
}

// ---- Changes of a trace.

static void insert(Events *events, int at, cJSON *event)
{
    if (!event || events->count == MAX_EVENTS)
        return;
    memmove(events->items + at + 1, events->items + at,
            (size_t)(events->count - at) * sizeof *events->items);
    events->items[at] = event;
    events->count++;
}

static void take_out(Events *events, int at, int count)
{
    count = count < events->count - at ? count : events->count - at;
    memmove(events->items + at, events->items + at + count,
            (size_t)(events->count - at - count) * sizeof *events->items);
    events->count -= count;
}

static void change(Input *input, const Base *base, Run *runs)
{
    Run *run = &runs[choose(input, base->count)];
    Job job = {run->traces.ranks, run->traces.workers};
    Events *events = &run->traces.of[choose(input, run->ranks)],
           *others = &run->traces.of[choose(input, run->ranks)];
    int kind = choose(input, 12), at = choose(input, events->count);
    if (kind <= 1) {
        const EventRule *rule = &event_rules[choose(input, event_rule_count)];
        const cJSON *like = any_event(input, base);
        if (kind == 1 && like)
            rule = rule_of_event(like);
        insert(events, at, as_read(new_event(input, rule, base, job), job));
        return;
    }
    if (events->count == 0)
        return;
    if (kind <= 6) {
        cJSON *event = as_read(changed_event(input, events->items[at], base, job), job);
        events->items[at] = event ? event : events->items[at];
    } else if (kind == 7) {
        take_out(events, at, 1);
    } else if (kind == 8) {
        take_out(events, at, choose(input, events->count));
    } else if (kind == 9) {
        events->count = at;
    } else if (kind == 10) {
        insert(others, choose(input, others->count), events->items[at]);
    } else {
        memcpy(others->items, events->items, (size_t)events->count * sizeof *events->items);
        others->count = events->count;
    }
}

// ---- One input.

// Of each rank's events the first `some` and the last ones, which are often enough: the fewer, the
// faster. `some` 0: all of them; below 0: none.
static void copy_runs(const Base *base, Run *runs, int some)
{
    static cJSON *items[MAX_RUNS][MAX_RANKS][MAX_EVENTS];
    for (int i = 0; i < base->count; i++) {
        runs[i] = base->runs[i];
        for (int r = 0; r < runs[i].ranks; r++) {
            Events *events = &runs[i].traces.of[r], copy = {items[i][r], 0};
            for (int e = 0; e < events->count && copy.count < MAX_EVENTS && some >= 0; e++)
                if (some == 0 || e < some || e > events->count - 16)
                    copy.items[copy.count++] = events->items[e];
            *events = copy;
        }
    }
}

static void judge_all(const Base *base, const Runs *runs)
{
    const Exercise *exercise = base->exercise;
    Report report = {.exercise = exercise->name, .file = exercise->file};
    for (int i = 0; i < exercise->holds.count; i++) {
        const Exercise *held = exercise_named(&exercises, exercise->holds.items[i]);
        Report quiet = {.exercise = held->name, .held = true, .file = exercise->file};
        judge_of(held->file)(runs, &quiet);
        report_free(&quiet);
    }
    judge_of(exercise->file)(runs, &report);
    judge_end(&runs->items[runs->count - 1], ends_of(exercise->file), &report);
    free(report_text(&report));
    report_free(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static Run runs[MAX_RUNS];
    if (!bases)
        prepare();
    Input input = {bytes, bytes + size};
    const Base *base = &bases[choose(&input, base_count)];
    unsigned facts = byte(&input), length = byte(&input);
    copy_runs(base, runs, length < 8 ? 0 : length < 32 ? -1 : 1 + (int)length / 4);
    while (input.at < input.end && made_count < MAX_MADE)
        change(&input, base, runs);
    Run *last = &runs[base->count - 1];
    last->status = facts & 16 ? 1 : last->status;
    last->hung = last->silent = facts & 32;
    judge_all(base, &(Runs){.items = runs, .count = base->count, .all = facts & 64});
    for (; made_count > 0; made_count--)
        cJSON_Delete(made[made_count - 1]);
    return 0;
}
