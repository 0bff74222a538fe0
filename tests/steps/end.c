// Judges whether a run came to its end: crashes, messages of the library that explain an end,
// floods, and ranks that wait for each other.

#include "end.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "judge.h"
#include "pushes.h"
#include "servers.h"
#include "waiting.h"
#include "whereabouts.h"
#include "diagnoses/end.h"
#include "base/format.h"

// ---- What is known of an exercise.

#define MAX_ENDS 64

static struct {
    const char *file;
    const Ends *ends;
} known[MAX_ENDS];
static int known_count;

void ends_add(const char *file, const Ends *ends)
{
    CHECK(known_count < MAX_ENDS);
    known[known_count].file = file;
    known[known_count++].ends = ends;
}

const Ends *ends_of(const char *file)
{
    static const Ends none;
    for (int i = 0; i < known_count; i++)
        if (strcmp(known[i].file, file) == 0)
            return known[i].ends;
    return &none;
}

// "MPI_ERR_TRUNCATE: message truncated" is in it, what MPI says of a call that it refuses; or NULL.
static const Line *mpi_error(const Output *output)
{
    for (int i = 0; i < output->count; i++)
        if (strstr(output->lines[i].text, "MPI_ERR_"))
            return &output->lines[i];
    return NULL;
}

static const Diagnosis *explanation(const Output *output, const Ends *ends)
{
    if (output_says(output, "runtime error: index"))
        return &d_index_out_of_bounds;
    const Line *error = mpi_error(output);
    for (const Explanation *e = ends->explanations; e && e->words; e++)
        if (output_says(output, e->words) || (error && strstr(error->text, e->words)))
            return e->diagnosis;
    return NULL;
}

static bool any_is_blocked(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++)
        if (is_blocked(traces, r))
            return true;
    return false;
}

// "MPI_Allgather", where all ranks have come to the same call that moves data, on a communicator of
// the program's own (which has the name that MPI gave it); NULL where they have not.
static const char *call_of_all(const Traces *traces)
{
    const char *function = NULL;
    for (int r = 0; r < traces->ranks; r++) {
        const cJSON *call = pending_call(&traces->of[r]);
        if (!call || !event_is(call, "collective_begin") || is_blocked(traces, r) ||
            strncmp(event_text(call, "name"), "MPI", 3) != 0 || event_number(call, "bytes") == 0 ||
            (function && strcmp(function, event_text(call, "function")) != 0))
            return NULL;
        function = event_text(call, "function");
    }
    return function;
}

// The likely mistake in any program.
static const Diagnosis *mistake_of_any(const Traces *traces)
{
    if (some_but_not_all(traces, "init"))
        return &d_hung_some_init;
    if (busy_ranks(traces))
        return &d_hung_busy;
    if (ranks_waiting_for_messages(traces))
        return &d_hung_messages;
    const char *common = call_of_all(traces);
    if (common && strcmp(common, "MPI_Allgather") == 0)
        return &d_hung_counts_of_an_all_gather;
    if (common)
        return &d_hung_counts;
    // Where the library has found ranks in different calls, none of them is left waiting in its
    // own.
    if (!any_is_blocked(traces) && !ranks_with(traces, "disagreement"))
        return crowding() > 1 ? &d_hung_nothing_moves_on_a_busy_machine : &d_hung_nothing_moves;
    return &d_hung_some_call;
}

static const Diagnosis *likely_mistake(const Ends *ends, const Traces *traces)
{
    const Diagnosis *own = ends->mistake ? ends->mistake(traces) : NULL;
    return own ? own : mistake_of_any(traces);
}

// ---- Ends.

// Open MPI's report of a signal, line by line "[machine:process] ...", or what is left of such a
// line where several processes write at once: "FILE(FUNCTION+0x42)[0x5555]", or a part of it.
static bool is_backtrace(const char *text)
{
    const char *colon = strchr(text, ':');
    if (text[0] == '[' && colon && isdigit((unsigned char)colon[1]) && strchr(colon, ']'))
        return true;
    return strstr(text, "+0x") || strstr(text, ")[0x");
}

// "rank 2", "worker 1"; where one process is all that there is, the program.
static const char *speaker(const Run *run, int rank, const char *program)
{
    return run->ranks > 1 ? process_words(&run->traces, rank) : program;
}

// Who failed, beside the one that was to be killed.
static FailedRank failed_rank(const Run *run)
{
    return output_failed_rank(&run->output, run->killed ? atoi(run->plan.kill) : -1);
}

static void add_messages(char **evidence, const Run *run)
{
    const Output *output = &run->output;
    int left = 6;
    const Line *error = mpi_error(output);
    if (error && is_backtrace(error->text)) // no rank has said it
        text_add(evidence, "\nMPI said: %.300s", strstr(error->text, "MPI_ERR_"));
    for (int i = 0; i < output->count && left > 0; i++) {
        const Line *line = &output->lines[i];
        if (!line->error || line->rank == MPIRUN || is_backtrace(line->text))
            continue;
        text_add(evidence, "\n%s said: %.300s", speaker(run, line->rank, "it"), line->text);
        left--;
    }
}

static char *end_of_rank(const Run *run, FailedRank failed)
{
    const Events *events = &run->traces.of[failed.rank];
    char *evidence = format_text("%s %s", speaker(run, failed.rank, "the program"), failed.how);
    char *seen = last_seen(events);
    text_add(&evidence, "%s", seen);
    free(seen);
    if (strstr(failed.how, "signal") && run->ranks > 1 && !run->plan.servers)
        text_add(&evidence, "\n(mpirun names one rank; others may have ended in the same way)");
    return evidence;
}

// What main returned, or exit was called with: what was lost on the way (a worker, say) is not the
// program's word. NaN: it came to neither.
static double end_status(const Run *run, int rank)
{
    const cJSON *end = event_last(&run->traces.of[rank], "end");
    double status = event_number(end, "status");
    return event_number(end, "lost") > 0 && status == STATUS_INCOMPLETE ? 0 : status;
}

// True where some rank came to its end by itself and said that it failed. What the library ends
// with a message, or the system by a signal, gives up instead.
static bool is_reported_failure(const Run *run)
{
    if (strncmp(failed_rank(run).how, "ended with", strlen("ended with")) != 0)
        return false;
    for (int r = 0; r < run->ranks; r++)
        if (end_status(run, r) > 0)
            return true;
    return false;
}

// "ended with status: rank 1: 1, rank 2: 2", or "ended with status: 1", and what was said.
static char *status_evidence(const Run *run)
{
    char *evidence = format_text("ended with status");
    const char *separator = ": ";
    for (int r = 0; r < run->ranks; r++)
        if (end_status(run, r) > 0) {
            if (run->ranks > 1)
                text_add(&evidence, "%s%s: %.0f", separator, process_words(&run->traces, r),
                         end_status(run, r));
            else
                text_add(&evidence, ": %.0f", end_status(run, r));
            separator = ", ";
        }
    add_messages(&evidence, run);
    return evidence;
}

static char *crash_evidence(const Run *run)
{
    FailedRank failed = failed_rank(run);
    int signal = run->status - 128;
    char *evidence;
    if (failed.rank >= 0 && failed.rank < run->ranks)
        evidence = end_of_rank(run, failed);
    else if (signal > 0)
        evidence = format_text("mpirun ended with status %d, that of signal %d (%s)", run->status,
                               signal, strsignal(signal));
    else
        evidence = format_text("mpirun ended with status %d", run->status);
    add_messages(&evidence, run);
    return evidence;
}

// Where a run had to be ended whose ranks started processes: those are the likely mistake.
static const Diagnosis *mistake_of_children(const Run *run, char **evidence)
{
    int own = run_own_processes(&run->plan, &run->usage);
    if (own == 0)
        return NULL;
    text_add(evidence, "\nit had started at least %d process%s", own, own == 1 ? "" : "es");
    return &d_hung_its_own_processes;
}

static void report_silence(const Run *run, const Ends *ends, const char *property, Report *report)
{
    char *where = whereabouts(&run->traces);
    const Diagnosis *children = mistake_of_children(run, &where);
    report_failure(
        report, property, children ? children : likely_mistake(ends, &run->traces),
        evidence_of_run(
            run, format_text("nothing moved any more, so the run was ended after %.0f seconds\n%s",
                             run->seconds, where)));
    free(where);
}

static void report_endlessness(const Run *run, const char *property, Report *report)
{
    const cJSON *fit = event_nth(&run->traces.of[0], "fit", 0);
    bool more = event_number(fit, "epochs") > run_flag(run, "--epochs ") ||
                event_number(fit, "steps") > event_number(fit, "train_len");
    const cJSON *step = event_last(&run->traces.of[0], "step");
    char *evidence =
        format_text("it went on and on, so the run was ended after %.0f seconds", run->seconds);
    if (step)
        text_add(&evidence, "\n%s had come to step %.0f of %.0f, epoch %.0f of %.0f",
                 run->ranks > 1 ? "rank 0" : "it", event_number(step, "step") + 1,
                 event_number(fit, "steps"), event_number(step, "epoch") + 1,
                 event_number(fit, "epochs"));
    const Diagnosis *children = mistake_of_children(run, &evidence);
    const Diagnosis *diagnosis = children         ? children
                                 : !fit || more   ? &d_hung_endless
                                 : crowding() > 1 ? &d_hung_busy_machine
                                                  : &d_hung_long_steps;
    report_failure(report, property, diagnosis, evidence_of_run(run, evidence));
}

static void report_greed(const Run *run, const char *property, Report *report)
{
    bool swallows = run->usage.memory > MAX_RUN_MEMORY,
         fills = run->usage.disk > MAX_RUN_DISK - DISK_SLACK;
    char *evidence =
        run->usage.full ? format_text("it made %d files and folders, and a check allows no more, "
                                      "so the run was ended after %.1f seconds",
                                      MAX_NAMES, run->seconds)
        : fills ? format_text("its files took %.1f GB of the disk, and a check allows %.0f, so the "
                              "run was ended "
                              "after %.1f seconds",
                              run->usage.disk / 1e9, MAX_RUN_DISK / 1e9, run->seconds)
        : swallows
            ? format_text("its processes took %.1f GB of memory together, and a check allows "
                          "%.0f, so the run was ended after %.1f seconds",
                          run->usage.memory / 1e9, MAX_RUN_MEMORY / 1e9, run->seconds)
            : format_text("it started more than %d processes, so the run was ended after "
                          "%.1f seconds",
                          MAX_RUN_PROCESSES, run->seconds);
    report_failure(report, property,
                   run->usage.full ? &d_too_many_files
                   : fills         ? &d_too_much_disk
                   : swallows      ? &d_too_much_memory
                                   : &d_too_many_processes,
                   evidence_of_run(run, evidence));
}

// The rank that printed most, or -1.
static int loudest_rank(const Run *run)
{
    size_t bytes[MAX_RANKS] = {0};
    int loudest = -1;
    for (int i = 0; i < run->output.count; i++) {
        int rank = run->output.lines[i].rank;
        if (rank < 0 || rank >= run->ranks)
            continue;
        bytes[rank] += strlen(run->output.lines[i].text);
        if (loudest < 0 || bytes[rank] > bytes[loudest])
            loudest = rank;
    }
    return loudest;
}

// The last line but one, since the last may be cut; NULL where there are not as many.
static const char *late_line(const Output *output, int rank)
{
    const char *last = NULL, *before = NULL;
    for (int i = 0; i < output->count; i++)
        if (output->lines[i].rank == rank) {
            before = last;
            last = output->lines[i].text;
        }
    return before;
}

// What was printed or traced without end.
static void report_flood(const Run *run, const char *property, Report *report)
{
    char *evidence = format_text("it %s, so the run was ended after %.1f seconds",
                                 run->flooded ? "printed more than a megabyte"
                                              : "left more events in its traces than a check keeps",
                                 run->seconds);
    int rank = loudest_rank(run);
    if (run->flooded && rank >= 0 && run->ranks > 1)
        text_add(&evidence, "\nmost of it came from %s", process_words(&run->traces, rank));
    const char *line = run->flooded && rank >= 0 ? late_line(&run->output, rank) : NULL;
    if (line)
        text_add(&evidence, ", in the end: %.200s", line);
    report_failure(report, property, run->flooded ? &d_too_much_output : &d_too_many_calls,
                   evidence_of_run(run, evidence));
}

static void report_idle_ranks(const Run *run, RankSet idle, const char *hint, const char *property,
                              Report *report)
{
    RankSet traced = ranks_with(&run->traces, "start");
    bool is_known = idle & traced; // where there is no trace, nothing else is known
    bool alone = run_is_one_process(&run->plan);
    Diagnosis diagnosis = alone      ? d_not_all_ranks_train_one_process
                          : is_known ? d_not_all_ranks_train
                                     : d_not_all_ranks_train_no_trace;
    diagnosis.hint = hint;
    char *evidence = format_text("%s %s", alone ? "the program" : rank_names(idle).text,
                                 is_known ? "ended without having trained"
                                          : "ended and left no trace of any training");
    report_failure(report, property, &diagnosis, evidence_of_run(run, evidence));
}

const char *end_property(const RunPlan *plan)
{
    if (run_is_one_process(plan))
        return "the program trains, and comes to its end";
    if (plan->servers)
        return "all processes come to the end of the program";
    return run_trains(plan) ? "all ranks train, and come to the end of the program"
                            : "all ranks come to the end of the program";
}

// What the library found the ranks to disagree in, or NULL.
static const char *disagreement(const Run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const cJSON *event = event_last(&run->traces.of[r], "disagreement");
        if (event)
            return event_text(event, "text");
    }
    return NULL;
}

// True where ranks make different calls, or ask fit() for another number of steps or epochs: then
// the traces tell why.
static bool is_about_calls(const char *text)
{
    return strstr(text, "make different calls") || strstr(text, " steps an epoch") ||
           (strncmp(text, "fit:", strlen("fit:")) == 0 && strstr(text, " epochs"));
}

static void report_disagreement(const Run *run, const Ends *ends, const char *property,
                                Report *report)
{
    const char *text = disagreement(run);
    Diagnosis diagnosis = d_ranks_disagree;
    if (is_about_calls(text) || (ends->counts_tell_calls && strstr(text, " values")))
        diagnosis = *likely_mistake(ends, &run->traces);
    if (strcmp(diagnosis.name, "hung") == 0) // what the traces don't prove more of
        diagnosis.name = d_ranks_disagree.name;
    char *where = whereabouts(&run->traces);
    report_failure(
        report, property, &diagnosis,
        evidence_of_run(run, format_text("the ranks disagree, so the library ended them\nit "
                                         "said: %s\n%s",
                                         text, where)));
    free(where);
}

// The signal that ended the run is one that an access to memory causes.
static bool is_of_a_pointer(const Run *run, FailedRank failed)
{
    int signal = (failed.status > 128 ? failed.status : run->status) - 128;
    if (strstr(failed.how, "signal"))
        return strstr(failed.how, "Segmentation fault") || strstr(failed.how, "Bus error");
    return signal == SIGSEGV || signal == SIGBUS;
}

static void report_crash(const Run *run, const Ends *ends, const char *property, Report *report)
{
    FailedRank failed = failed_rank(run);
    // What a full disk makes the library say is the check's own doing.
    const Diagnosis *diagnosis = run->plan.full ? NULL : explanation(&run->output, ends);
    bool status_only = !diagnosis && is_reported_failure(run);
    if (status_only)
        diagnosis = &d_crashed_returned;
    else if (!diagnosis &&
             (strstr(failed.how, "Floating point") || output_says(&run->output, "Floating point")))
        diagnosis = &d_crashed_divided_by_zero;
    else if (!diagnosis && strstr(failed.how, "File size limit"))
        diagnosis = &d_too_much_disk_one_file;
    else if (!diagnosis && output_says(&run->output, "the weights are of no use any more"))
        diagnosis = &d_crashed_without_bound;
    else if (!diagnosis && strstr(failed.how, "Aborted"))
        diagnosis = &d_crashed_aborted;
    else if (!diagnosis && (run->killed ? failed.status : run->status) == 2) // the library's line
        diagnosis = &d_crashed_refused;
    else if (!diagnosis && !strstr(failed.how, "signal") && run->status < 128)
        diagnosis = &d_crashed_own_status;
    else if (!diagnosis)
        diagnosis = is_of_a_pointer(run, failed) ? &d_crashed_pointer : &d_crashed_other_signal;
    report_failure(report, property, diagnosis,
                   evidence_of_run(run, status_only ? status_evidence(run) : crash_evidence(run)));
}

// The ranks that should have trained and have not: neither to the end of fit(), nor in a loop of
// the program's own.
static RankSet idle_ranks(const Run *run)
{
    const Traces *traces = &run->traces;
    RankSet by_hand = (ranks_with(traces, "gradient") & ~ranks_with(traces, "fit")) |
                      ranks_with(traces, "staged_batch") | ranks_with(traces, "chain_begin");
    return run_trains(&run->plan)
               ? all_ranks(run->ranks) & ~(ranks_with(traces, "fit_end") | by_hand)
               : 0;
}

// All ranks trained to the end, and the program ended with status 1 since a save had failed, as it
// should. The first rank that ends so has mpirun end the others, which may still be on their way.
static bool ended_incomplete(const Run *run)
{
    int ended = 0, going = 0;
    for (int r = 0; r < run->ranks; r++) {
        ended += end_status(run, r) == 0;
        going += event_find(&run->traces.of[r], "end", 0) < 0;
    }
    return run->plan.full && run->status == STATUS_INCOMPLETE && ended > 0 &&
           ended + going == run->ranks &&
           ranks_with(&run->traces, "fit_end") == all_ranks(run->ranks);
}

// A worker was killed as the plan says; that the servers then end with status 1 is right, where
// all others came to the end.
static bool survivors_ended(const Run *run)
{
    int ended = 0;
    for (int r = 0; r < run->ranks; r++)
        ended += end_status(run, r) == 0;
    return (run->killed && ended == run->ranks - 1) || ended_incomplete(run);
}

static bool report_forged(const Run *run, Report *report)
{
    return report_failure(
        report, "the trace was written by the library", &d_forged_trace,
        format_text("lines of %s are not the library's", rank_names(run->forged).text));
}

static bool report_nonsense(const Run *run, Report *report)
{
    return report_failure(report, SENSE, &d_trace_makes_no_sense,
                          format_text("%s", run->traces.fault));
}

bool judge_end(const Run *run, const Ends *ends, Report *report)
{
    if (run->forged)
        return report_forged(run, report);
    if (run->traces.fault)
        return report_nonsense(run, report);
    if (run->killed && run->plan.servers == 0) // mpirun has ended the others
        return true;
    const char *property = end_property(&run->plan);
    RankSet idle = idle_ranks(run);
    if (run->hung && run->silent)
        report_silence(run, ends, property, report);
    else if (run->flooded || run->swollen)
        report_flood(run, property, report);
    else if (run->greedy)
        report_greed(run, property, report);
    else if (run->hung)
        report_endlessness(run, property, report);
    else if (run->status != 0 && disagreement(run) && !explanation(&run->output, ends))
        report_disagreement(run, ends, property, report);
    else if (run->status != 0 && !survivors_ended(run)) {
        bool left_early = run->plan.servers && report_left_early(run, report);
        if (ends->crashed)
            ends->crashed(run, report);
        // Who needs a server that has left ends with a line that says so: no mistake of its own.
        if (!left_early || strstr(failed_rank(run).how, "signal"))
            report_crash(run, ends, property, report);
    } else if (idle)
        report_idle_ranks(run, idle, ends->training, property, report);
    return !run->hung && (run->status == 0 || survivors_ended(run)) && !idle;
}
