// Overlap: the sum of a layer's gradients starts when they are complete, nothing waits for it in
// the backward pass, all sums are complete before the update, and the update is that of the mean.

#include "sums.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"
#include "mean.h"
#include "waiting.h"
#include "diagnoses/judge_overlap.h"

#define AWAITED "every transfer is complete before the gradients are applied"
#define GOES_ON "the backward pass does not wait for a transfer"
#define STARTED "transfers start while the backward pass goes on"

enum { MAX_OPEN = 256 };

// What one rank does for one update.
typedef struct {
    double bytes;       // of all gradients
    double early, late; // bytes of transfers that start in a piece, and in finish
    const char *waits;  // the first call in a piece that waits; NULL: none
    int piece;          // the number of the last one, from 1
    struct {
        int request, piece;   // with which it started
        const char *function; // that started it
    } open[MAX_OPEN];         // transfers that were not waited for
    int open_count;
    int started, done_at_once; // with a piece; and complete before the function returned
} OverlapStep;

// MPI_Isend, MPI_Iallreduce and their kind return at once, as MPI_Start does.
static bool returns_at_once(const char *function)
{
    return strncmp(function, "MPI_I", 5) == 0 || strcmp(function, "MPI_Start") == 0;
}

static double transferred(const cJSON *event)
{
    double bytes = event_number(event, "bytes"), room = event_number(event, "room");
    return bytes > 0 ? bytes : room > 0 ? room : 0;
}

static void close_requests(OverlapStep *step, const char *requests, bool in_piece)
{
    for (int done; (done = next_listed(&requests)) >= 0;)
        for (int i = 0; i < step->open_count; i++)
            if (step->open[i].request == done) {
                step->done_at_once += in_piece && step->open[i].piece == step->piece;
                step->open[i] = step->open[--step->open_count];
                break;
            }
}

static void take_event(OverlapStep *step, const cJSON *event, bool in_piece)
{
    const char *function = event_text(event, "function");
    bool begins = event_is(event, "collective_begin") || event_is(event, "message_begin");
    bool waits = event_is(event, "wait_begin") || (begins && !returns_at_once(function));
    if (waits && in_piece && !step->waits)
        step->waits = function;
    if (begins)
        *(in_piece ? &step->early : &step->late) += transferred(event);
    if (event_is(event, "wait_end"))
        close_requests(step, event_text(event, "requests"), in_piece);
    bool started = event_is(event, "collective_end") || event_is(event, "message_end");
    int request = started ? event_int(event, "request") : 0;
    if (request > 0 && step->open_count < MAX_OPEN) {
        step->started += in_piece;
        step->open[step->open_count].request = request;
        step->open[step->open_count].piece = step->piece;
        step->open[step->open_count++].function = function;
    }
}

// The next update after event `*at`, which moves to its end; false: there is none.
static bool next_step(const Events *events, int *at, OverlapStep *step)
{
    *step = (OverlapStep){0};
    bool in_piece = false, in_finish = false;
    for (int i = *at; i < events->count; i++) {
        const cJSON *event = events->items[i];
        if (event_is(event, "piece")) {
            in_piece = true;
            step->piece++;
            step->bytes += sizeof(float) * event_number(event, "count");
        } else if (event_is(event, "piece_end")) {
            in_piece = false;
        } else if (event_is(event, "pieces_finish")) {
            in_finish = true;
        } else if (event_is(event, "pieces_finished")) {
            *at = i + 1;
            return true;
        } else if (in_piece || in_finish) {
            take_event(step, event, in_piece);
        }
    }
    return false;
}

// The evidence of a fault in a step, or NULL.
typedef char *(*StepFault)(const OverlapStep *step, const Diagnosis **diagnosis);

static char *not_awaited(const OverlapStep *step, const Diagnosis **diagnosis)
{
    *diagnosis = &d_request_not_awaited;
    return step->open_count == 0 ? NULL
                                 : format_text("%d of the transfers, one of them by %s",
                                               step->open_count, step->open[0].function);
}

static char *waits_in_piece(const OverlapStep *step, const Diagnosis **diagnosis)
{
    *diagnosis = &d_waits_at_once;
    return step->waits ? format_text("%s is called with a piece", step->waits) : NULL;
}

static char *starts_late(const OverlapStep *step, const Diagnosis **diagnosis)
{
    *diagnosis = &d_started_too_late;
    if (step->late + step->early == 0 || step->early >= step->bytes / 2)
        return NULL; // nothing is exchanged: the mean is missing
    return format_text("%.0f of %.0f bytes of gradients were on their way when the backward pass "
                       "was done",
                       step->early, step->bytes);
}

// The number of transfers that started with a piece, where the functions that started them found
// every one complete before they returned, in all updates of all ranks: the machine alone is not
// as fast as that each time. Else 0.
static int done_at_once(const Runs *runs)
{
    int all = 0;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks && run->ranks > 1; r++) {
            OverlapStep step;
            for (int at = 0; next_step(&run->traces.of[r], &at, &step);) {
                if (step.done_at_once < step.started)
                    return 0;
                all += step.started;
            }
        }
    return all;
}

static bool judge_steps(const Runs *runs, const char *property, StepFault fault, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks && run->ranks > 1; r++) {
            OverlapStep step;
            int at = 0;
            for (int number = 1; next_step(&run->traces.of[r], &at, &step); number++) {
                const Diagnosis *diagnosis;
                char *evidence = fault(&step, &diagnosis);
                if (!evidence)
                    continue;
                char *whole = format_text("in update %d, rank %d: %s", number, r, evidence);
                free(evidence);
                return report_failure(report, property, diagnosis, evidence_in(runs, run, whole));
            }
        }
    return report_ok(report, property);
}

// False where the program has an optimizer of another kind.
static bool in_pieces(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (ranks_with(&run->traces, "piece") != all_ranks(run->ranks))
            return report_failure_in(report, runs, run, STARTED, &d_not_in_pieces,
                                     "%s of %d passed on pieces of their gradients",
                                     rank_names(ranks_with(&run->traces, "piece")).text,
                                     run->ranks);
    return true;
}

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, MEAN_APPLIED, report) || !in_pieces(runs, report))
        return;
    bool awaited = judge_steps(runs, AWAITED, not_awaited, report);
    int at_once = done_at_once(runs);
    if (at_once > 0)
        report_failure(report, GOES_ON, &d_waits_at_once,
                       format_text("each of the %d transfers that start with a piece is complete "
                                   "when the function returns, on every rank",
                                   at_once));
    else
        judge_steps(runs, GOES_ON, waits_in_piece, report);
    judge_steps(runs, STARTED, starts_late, report);
    if (awaited) // else the gradients may be anything
        judge_mean(runs, report);
}

JUDGE("overlap", judge)
ENDS("overlap", &ends_of_sums)
