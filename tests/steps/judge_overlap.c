// Overlap: the sum of a layer's gradients starts when they are complete, nothing waits for it in
// the backward pass, all sums are complete before the update, and the update is that of the mean.

#include "sums.h"

#include <stdlib.h>
#include <string.h>
#include "base/format.h"
#include "mean.h"
#include "diagnoses/judge_overlap.h"

#define AWAITED "every transfer is complete before the gradients are applied"
#define GOES_ON "the backward pass does not wait for a transfer"
#define STARTED "transfers start while the backward pass goes on"
#define EMPTIED "the list of requests is emptied in every update"

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
    int begun;                 // all transfers in the background
    const cJSON *longest;      // the wait with most handles; NULL: there is none
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
    int longest = step->longest ? event_int(step->longest, "handles") : 0;
    if (event_int(event, "handles") > longest)
        step->longest = event;
    if (event_is(event, "wait_end"))
        close_requests(step, event_text(event, "requests"), in_piece);
    bool started = event_is(event, "collective_end") || event_is(event, "message_end");
    int request = started ? event_int(event, "request") : 0;
    if (request > 0 && step->open_count < MAX_OPEN) {
        step->started += in_piece;
        step->begun++;
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

static Fault not_awaited(const void *item)
{
    const OverlapStep *step = item;
    return step->open_count == 0
               ? NO_FAULT
               : fault_with(&d_request_not_awaited, "%d of the transfers, one of them by %s",
                            step->open_count, step->open[0].function);
}

static Fault waits_in_piece(const void *item)
{
    const OverlapStep *step = item;
    return step->waits ? fault_with(&d_waits_at_once, "%s is called with a piece", step->waits)
                       : NO_FAULT;
}

static Fault starts_late(const void *item)
{
    const OverlapStep *step = item;
    if (step->late + step->early == 0 || step->early >= step->bytes / 2)
        return NO_FAULT; // nothing is exchanged: the mean is missing
    return fault_with(&d_started_too_late,
                      "%.0f of %.0f bytes of gradients were on their way when the backward pass "
                      "was done",
                      step->early, step->bytes);
}

static Fault each_step(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Fault found = NO_FAULT;
    for (int r = 0; r < run->ranks && run->ranks > 1 && !found.diagnosis; r++) {
        OverlapStep step;
        int at = 0;
        for (int number = 1; !found.diagnosis && next_step(&run->traces.of[r], &at, &step);
             number++)
            found = fault_at(fault(&step), "in update %d, rank %d: ", number, r);
    }
    return found;
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

// False where a rank waits, and its list does not grow: in each update more handles than in the one
// before, and, after the first one, than transfers that begin in it. Evidence needs two updates.
static bool list_grows(const Run *run, int rank, char **evidence)
{
    OverlapStep step, last = {0};
    char *numbers = NULL;
    int updates = 0;
    bool grows = true;
    for (int at = 0; grows && next_step(&run->traces.of[rank], &at, &step);) {
        if (!step.longest)
            continue;
        int handles = event_int(step.longest, "handles");
        grows = updates++ == 0 ||
                (handles > event_int(last.longest, "handles") && handles > step.begun);
        text_add(&numbers, "%s%d", numbers ? ", " : "", handles);
        last = step;
    }
    if (grows && updates > 1 && !*evidence)
        *evidence = evidence_of_run(
            run, format_text("in its updates rank %d calls %s with %s requests\n"
                             "in the last one it has begun %d",
                             rank, event_text(last.longest, "function"), numbers, last.begun));
    free(numbers);
    return grows;
}

// Only where all ranks that wait have a list that grows: another number may have another reason.
static void judge_lists(const Runs *runs, Report *report)
{
    char *evidence = NULL;
    bool grow = true;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (int r = 0; r < run->ranks; r++)
            grow = grow && list_grows(run, r, &evidence);
    if (grow && evidence)
        report_failure(report, EMPTIED, &d_requests_pile_up, evidence);
    else
        free(evidence);
}

static const ItemProperty wait_for_all[] = {{AWAITED, not_awaited, NULL}, {0}},
                          in_pass[] = {
                              {GOES_ON, waits_in_piece, NULL}, {STARTED, starts_late, NULL}, {0}};

static void judge(const Runs *runs, Report *report)
{
    if (nothing_trained(runs, MEAN_APPLIED, report) ||
        !all_ranks_have(runs, "piece", STARTED, &d_not_in_pieces,
                        "passed on pieces of their gradients", report))
        return;
    bool awaited = judge_items(runs, each_step, wait_for_all, report);
    int at_once = done_at_once(runs);
    if (at_once > 0)
        report_failure(report, GOES_ON, &d_waits_at_once,
                       format_text("each of the %d transfers that start with a piece is complete "
                                   "when the function returns, on every rank",
                                   at_once));
    judge_items(runs, each_step, at_once > 0 ? &in_pass[1] : in_pass, report);
    judge_lists(runs, report);
    if (awaited) // else the gradients may be anything
        judge_mean(runs, report);
}

JUDGE("overlap", judge)
ENDS("overlap", &ends_of_sums)
