// Fast_ring: a ring, as ring.c has it, whose chunks travel in pieces, and one piece is
// received while another one is added up. The speed is a remark: it depends on the machine.

#include "sums.h"
#include "waiting.h"

#include <stdio.h>
#include <string.h>
#include "diagnoses/judge_fast_ring.h"

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
    int usual;      // whose receives have begun, of 64 KiB to 1 MiB
    int open[MAX_OPEN];
    int open_count; // receives that have begun, and are not complete
    double came;    // when a message had come while no other was being received; 0: none has
    double begun;   // when the next receive began after it, and returned
    double until_begun;
} Received;

// More than a word.
static bool receives_values(const cJSON *event)
{
    return event_number(event, "room") > 64;
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

// A receive that begins only when a message has come overlaps with what is done after it begins,
// not with what is done before.
static void take_late_receive(Received *received, const cJSON *event)
{
    double now = event_number(event, "t");
    if (event_is(event, "message_begin") && receives_values(event) && received->came > 0 &&
        received->begun <= 0)
        received->until_begun = now - received->came;
    else if (event_is(event, "message_end") && received->open_count > 0 && received->came > 0 &&
             received->begun <= 0)
        received->begun = now;
    else if (received->begun > 0 && event_is(event, "wait_begin")) {
        received->overlapped += now - received->begun > received->until_begun + MOMENT;
        received->came = received->begun = 0;
    }
}

// The next trial of a rank after event `*at`, which moves to its end; false: there is none.
static bool next_trial(const Events *events, int *at, Received *received)
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
        if (event_is(event, "message_begin")) {
            double room = event_number(event, "room");
            received->usual += room >= 64 * 1024 && room <= 1024 * 1024;
            call = receives_values(event) ? event : NULL;
        }
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
        take_late_receive(received, event);
        // What such a call has not waited for was under way, however many it finds done by then.
        bool others = any_will_do(event) ? open > 1 : received->open_count > 0;
        received->messages += complete;
        received->overlapped += others ? complete : 0;
        if (complete > 0) {
            received->came = received->open_count > 0 ? 0 : event_number(event, "t");
            received->begun = 0;
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
            for (int at = 0; next_trial(&run->traces.of[r], &at, &received);)
                if (is_long(&received, run->ranks) && !rule(&received, run->ranks))
                    return report_failure_in(
                        report, runs, run, property, diagnosis,
                        "with %d values rank %d receives %d messages\nwhen %d of them had come, "
                        "a receive of another one had begun already",
                        received.count, r, received.messages, received.overlapped);
        }
    return report_ok(report, property);
}

// Most messages of long arrays, to each rank, have 64 KiB to 1 MiB.
static bool pieces_are_usual(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        Received received;
        for (int at = 0; next_trial(&run->traces.of[r], &at, &received);)
            if (is_long(&received, run->ranks) && 2 * received.usual <= received.messages)
                return false;
    }
    return true;
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
                        ratio >= 0.9 || pieces_are_usual(run)
                            ? ""
                            : ". Fewer messages cost less, and pieces of which two fit "
                              "into a core's cache: try pieces of 64 KiB to 1 MiB");
        }
}

static void judge(const Runs *runs, Report *report)
{
    judge_ring(runs, report);
    if (!report_passed(report))
        return;
    if (judge_received(runs, PIECES, in_pieces, &d_one_piece, report))
        judge_received(runs, OVERLAP, overlaps, &d_no_overlap, report);
    if (!report->held)
        note_speed(runs, report);
}

JUDGE("fast_ring", judge)
ENDS("fast_ring", &ends_of_sums)
