// Fast_ring: a ring, as judge_ring.c has it, whose chunks travel in pieces, and one piece is
// received while another one is added up. The speed is a remark: it depends on the machine.

#include "sums.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "waiting.h"
#include "base/memory.h"

#define PIECES  "long chunks travel in pieces"
#define OVERLAP "while a piece is added up the next one is on its way"

enum { MAX_OPEN = 1024 };

// Between two calls where nothing is added up: seconds, at most.
#define MOMENT 5e-6

// What one rank received in one trial of the sweep.
typedef struct {
    int count;      // floats of the array
    int messages;   // that it has received
    int overlapped; // of these: when they had come, a receive of another one had begun
    int open[MAX_OPEN];
    int open_count;  // receives that have begun, and are not complete
    double returned; // when the last call of MPI has; 0: one goes on
    bool adding;     // a message has come, and nothing was waited for since then
    bool last;       // ... and no other one was being received when it came
    bool any;        // ... and it was one of several for which any of them would do
    // The longest times between two calls since then: while another one is received, and not.
    double with_open, alone;
} Received;

// The longest time between two calls after each message that has come, in seconds: while another
// one is received, and not. In it values are added up, if they are.
typedef struct {
    double *seconds;
    int count;
} Gaps;

typedef struct {
    Gaps open, alone;
} Additions;

// More than a word.
static bool receives_values(const cJSON *event)
{
    return event_number(event, "room") > 64;
}

// The call goes on as soon as any request is done: then what it has not waited for was under way,
// however many it finds done by then.
static bool any_will_do(const cJSON *wait)
{
    const char *function = event_text(wait, "function");
    return strstr(function, "any") || strstr(function, "some");
}

// Takes the requests out that a text lists, "3,4"; returns how many of them were receives.
static int close_receives(Received *received, const char *requests)
{
    int closed = 0;
    for (int done; (done = next_listed(&requests)) >= 0;)
        for (int i = 0; i < received->open_count; i++)
            if (received->open[i] == done) {
                received->open[i] = received->open[--received->open_count];
                closed++;
                break;
            }
    return closed;
}

static void add_gap(Gaps *gaps, double seconds)
{
    gaps->seconds = enlarge(gaps->seconds, (size_t)gaps->count + 1, sizeof *gaps->seconds);
    gaps->seconds[gaps->count++] = seconds;
}

// What lies between calls, before `event` has changed what is open. A receive that begins only when
// the last message has come overlaps with what is done after it begins, not with what is done
// before.
static void take_gap(Received *received, const cJSON *event, Additions *additions)
{
    double now = event_number(event, "t");
    bool waits = event_is(event, "wait_begin"), begins = waits || event_is(event, "message_begin");
    if (begins && received->adding && received->returned > 0) {
        bool open = received->open_count > 0 || received->any;
        double *longest = open ? &received->with_open : &received->alone;
        *longest = fmax(*longest, now - received->returned);
    }
    if (waits && received->adding) {
        bool overlaps = received->with_open > received->alone;
        received->overlapped += received->last && received->with_open > received->alone + MOMENT;
        if (additions)
            add_gap(overlaps ? &additions->open : &additions->alone,
                    fmax(received->with_open, received->alone));
        received->adding = false;
    }
    received->returned = begins ? 0 : now;
}

// The next trial of a rank after event `*at`, which moves to its end; false: there is none. Adds
// its gaps to `additions` (NULL: nothing).
static bool next_trial(const Events *events, int *at, Received *received, Additions *additions)
{
    int begin = event_find(events, "sweep_begin", *at);
    if (begin < 0)
        return false;
    *received = (Received){.count = event_int(events->items[begin], "count")};
    const cJSON *call = NULL; // that has begun, and receives
    for (*at = begin + 1; *at < events->count; (*at)++) {
        const cJSON *event = events->items[*at];
        int complete = 0, open = received->open_count;
        if (event_is(event, "sweep_end"))
            break;
        take_gap(received, event, additions);
        if (event_is(event, "message_begin"))
            call = receives_values(event) ? event : NULL;
        if (event_is(event, "message_end") && call) {
            int request = event_int(event, "request");
            if (request > 0 && received->open_count < MAX_OPEN)
                received->open[received->open_count++] = request;
            else if (request == 0)
                complete = 1;
            call = NULL;
        }
        if (event_is(event, "wait_end"))
            complete = close_receives(received, event_text(event, "requests"));
        bool others = any_will_do(event) ? open > 1 : received->open_count > 0;
        received->messages += complete;
        received->overlapped += others ? complete : 0;
        if (complete > 0) {
            received->adding = true;
            received->last = received->open_count == 0;
            received->any = others && any_will_do(event);
            received->with_open = received->alone = 0;
        }
    }
    return true;
}

// An array whose chunks have a megabyte or more.
static bool is_long(const Received *received, int ranks)
{
    return (double)received->count * (double)sizeof(float) / ranks >= 1e6;
}

typedef bool (*ReceivedRule)(const Received *received, int ranks);

static bool in_pieces(const Received *received, int ranks)
{
    return received->messages >= 2 * 2 * (ranks - 1);
}

// In the second round nothing is added up, and with two pieces a chunk every second one is the
// last.
static bool overlaps(const Received *received, int ranks)
{
    (void)ranks;
    return 5 * received->overlapped >= received->messages;
}

static bool judge_received(const Runs *runs, const char *property, ReceivedRule rule,
                           const Diagnosis *diagnosis, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks && run->ranks > 1; r++) {
            Received received;
            for (int at = 0; next_trial(&run->traces.of[r], &at, &received, NULL);)
                if (is_long(&received, run->ranks) && !rule(&received, run->ranks))
                    return report_failure_in(
                        report, runs, run, property, diagnosis,
                        "with %d values rank %d receives %d messages\nwhen %d of them had come, "
                        "a receive of another one had begun already",
                        received.count, r, received.messages, received.overlapped);
        }
    return report_ok(report, property);
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// What three quarters of them do not exceed. (In the second round nothing is added up; and on a
// busy machine some are long.)
static double upper_quartile(const Gaps *gaps)
{
    qsort(gaps->seconds, (size_t)gaps->count, sizeof *gaps->seconds, compare_seconds);
    return gaps->seconds[gaps->count * 3 / 4];
}

static Additions additions_of(const Run *run)
{
    Additions all = {0};
    Received received;
    for (int r = 0; r < run->ranks; r++) {
        Additions before = all;
        for (int at = 0; next_trial(&run->traces.of[r], &at, &received, &all); before = all)
            if (!is_long(&received, run->ranks)) {
                all.open.count = before.open.count;
                all.alone.count = before.alone.count;
            }
    }
    return all;
}

// Receives that overlap in their order alone: two are waited for before anything is added up. Then
// next to no time passes between the waits, and all of it when both have come. Where values are
// added up in both times, they differ by the lengths of pieces at most.
static bool report_alone(const Runs *runs, const Diagnosis *diagnosis, Report *report)
{
    const double visible = 20e-6; // seconds
    const int enough = 16;
    bool found = false;
    for (const Run *run = runs->items; run < runs_end(runs) && !found; run++) {
        Additions additions = additions_of(run);
        if (additions.open.count >= enough && additions.alone.count >= enough) {
            double open = upper_quartile(&additions.open), alone = upper_quartile(&additions.alone);
            found = alone > visible && 4 * open < alone;
            if (found)
                report_failure_in(report, runs, run, OVERLAP, diagnosis,
                                  "where a message has come and another one is being received, the "
                                  "next call follows after %.0f microseconds\nwhere no other one "
                                  "is being received, after %.0f: it is then that values are added "
                                  "up\n(three quarters of the times are not longer)",
                                  1e6 * open, 1e6 * alone);
        }
        free(additions.open.seconds);
        free(additions.alone.seconds);
    }
    return found;
}

// What the program has printed of its speed, and what may raise it.
static void note_speed(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int i = 0; i < run->output.count; i++) {
            const char *line = run->output.lines[i].text;
            const char *words = strstr(line, " times the bandwidth of MPI_Allreduce");
            double ratio;
            const char *number = words ? strstr(line, ": ") : NULL;
            int floats;
            if (!number || sscanf(number, ": %lf%*[^0-9]%d", &ratio, &floats) != 2 ||
                !is_long(&(Received){.count = floats}, run->ranks))
                continue;
            report_note(report, "speed on %d ranks, in this check: %s%s", run->ranks, number + 2,
                        ratio >= 0.9 ? ""
                                     : ". Fewer messages cost less, and pieces of which two fit "
                                       "into a core's cache: try pieces of 64 KiB to 1 MiB");
        }
}

static void judge(const Runs *runs, Report *report)
{
    static const Diagnosis one_piece = {"one-piece",
                                        "a chunk travels in one message. It must have come whole "
                                        "before anything of it can be added "
                                        "up, and nothing travels while it is.",
                                        NULL};
    static const Diagnosis no_overlap = {
        "no-overlap",
        "while most of the pieces are added up no other one is being received: its receive begins "
        "later, or was waited for before. MPI_Irecv begins to receive, and returns at once: begin "
        "with the next piece before you wait for this one, and wait for the next one when this one "
        "is added up. Two pieces need room for two.",
        NULL};
    judge_ring(runs, report);
    if (!report_passed(report))
        return;
    if (judge_received(runs, PIECES, in_pieces, &one_piece, report) &&
        !report_alone(runs, &no_overlap, report))
        judge_received(runs, OVERLAP, overlaps, &no_overlap, report);
    if (!report->held)
        note_speed(runs, report);
}

JUDGE("fast_ring", judge)
ENDS("fast_ring", &ends_of_sums)
