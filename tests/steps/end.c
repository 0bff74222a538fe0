// Judges whether a run came to its end: crashes, messages of the library that explain an end,
// floods, and ranks that wait for each other.

#include "end.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "judge.h"
#include "pushes.h"
#include "rates.h"
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

const cJSON *disagreement(const Run *run)
{
    const cJSON *event = NULL;
    for (int r = 0; r < run->ranks && !event; r++)
        event = event_last(&run->traces.of[r], "disagreement");
    return event;
}

static const Diagnosis *explanation(const Run *run, const Ends *ends)
{
    const Output *output = &run->output;
    if (output_says(output, "runtime error: index -"))
        return &d_index_out_of_bounds_below_0;
    if (output_says(output, "runtime error: index"))
        return &d_index_out_of_bounds;
    double rates[MAX_RANKS];
    if (ends->rates_differ && rates_disagree(run, rates))
        return ends->rates_differ;
    const char *words = ends->disagreed.words;
    if (words && strncmp(event_text(disagreement(run), "term"), words, strlen(words)) == 0)
        return ends->disagreed.diagnosis;
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

static bool any_is_blocked_in_a_group(const Traces *traces)
{
    for (int r = 0; r < traces->ranks; r++)
        if (group_of_call(traces, awaited_call(traces, r)) && is_blocked(traces, r))
            return true;
    return false;
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
    if (first_unlike_calls(traces, NULL))
        return &d_hung_unlike_calls;
    const char *common = call_of_all(traces);
    if (common && strcmp(common, "MPI_Allgather") == 0)
        return &d_hung_counts_of_an_all_gather;
    if (common)
        return &d_hung_counts;
    // Where the library has found ranks in different calls, none of them is left waiting in its
    // own.
    if (!any_is_blocked(traces) && !ranks_with(traces, "disagreement"))
        return crowding() > 1 ? &d_hung_nothing_moves_on_a_busy_machine : &d_hung_nothing_moves;
    return any_is_blocked_in_a_group(traces) ? &d_hung_call_of_a_group : &d_hung_some_call;
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

static void add_end_of_rank(char **evidence, const Run *run, FailedRank failed)
{
    char *seen = last_seen(&run->traces.of[failed.rank]);
    text_add(evidence, "%s %s%s", speaker(run, failed.rank, "the program"), failed.how, seen);
    free(seen);
    if (strstr(failed.how, "signal") && run->ranks > 1 && !run->plan.servers)
        text_add(evidence, "\n(mpirun names one rank; others may have ended in the same way)");
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

// "ended with status: rank 1: 1, rank 2: 2", or "ended with status: 1".
static void add_statuses(char **evidence, const Run *run)
{
    const char *separator = ": ";
    text_add(evidence, "ended with status");
    for (int r = 0; r < run->ranks; r++)
        if (end_status(run, r) > 0) {
            text_add(evidence, "%s", separator);
            if (run->ranks > 1)
                text_add(evidence, "%s: ", process_words(&run->traces, r));
            text_add(evidence, "%.0f", end_status(run, r));
            separator = ", ";
        }
}

static void add_end(char **evidence, const Run *run, FailedRank failed)
{
    int signal = run->status - 128;
    if (failed.rank >= 0 && failed.rank < run->ranks) {
        add_end_of_rank(evidence, run, failed);
        return;
    }
    text_add(evidence, "mpirun ended with status %d", run->status);
    if (signal > 0)
        text_add(evidence, ", that of signal %d (%s)", signal, strsignal(signal));
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

static void add_evidence(char **evidence, char *more)
{
    if (more)
        text_add(evidence, "\n%s", more);
    free(more);
}

// One process, which is no rank.
static char *whereabouts_alone(const Run *run)
{
    char *seen = last_seen(&run->traces.of[0]);
    char *text = format_text("the program makes no call of the library any more%s", seen);
    free(seen);
    return text;
}

static Fault silence_fault(const Run *run, const Ends *ends)
{
    bool alone = run_is_one_process(&run->plan);
    char *where = alone ? whereabouts_alone(run) : whereabouts(&run->traces);
    const Diagnosis *children = mistake_of_children(run, &where);
    Fault fault = fault_with(children ? children
                             : alone  ? &d_hung_one_process
                                      : likely_mistake(ends, &run->traces),
                             "nothing moved any more, so the run was ended after %.0f seconds\n%s",
                             run->seconds, where);
    free(where);
    if (ends->ended)
        add_evidence(&fault.evidence, ends->ended(run).evidence);
    return fault;
}

static Fault endlessness_fault(const Run *run)
{
    const cJSON *fit = event_nth(&run->traces.of[0], "fit", 0);
    bool more = event_number(fit, "epochs") > run_flag(run, "--epochs ") ||
                event_number(fit, "steps") > event_number(fit, "train_len");
    Fault fault =
        fault_with(!fit || more     ? &d_hung_endless
                   : crowding() > 1 ? &d_hung_busy_machine
                                    : &d_hung_long_steps,
                   "it went on and on, so the run was ended after %.0f seconds", run->seconds);
    const cJSON *step = event_last(&run->traces.of[0], "step");
    if (step)
        text_add(&fault.evidence, "\n%s had come to step %.0f of %.0f, epoch %.0f of %.0f",
                 run->ranks > 1 ? "rank 0" : "it", event_number(step, "step") + 1,
                 event_number(fit, "steps"), event_number(step, "epoch") + 1,
                 event_number(fit, "epochs"));
    const Diagnosis *children = mistake_of_children(run, &fault.evidence);
    fault.diagnosis = children ? children : fault.diagnosis;
    return fault;
}

static Fault greed_fault(const Run *run)
{
    const Usage *usage = &run->usage;
    Fault fault;
    if (usage->full)
        fault = fault_with(&d_too_many_files,
                           "it made %d files and folders, and a check allows no more", MAX_NAMES);
    else if (usage->disk > MAX_RUN_DISK - DISK_SLACK)
        fault = fault_with(&d_too_much_disk,
                           "its files took %.1f GB of the disk, and a check allows %.0f",
                           usage->disk / 1e9, MAX_RUN_DISK / 1e9);
    else if (usage->memory > MAX_RUN_MEMORY)
        fault = fault_with(&d_too_much_memory,
                           "its processes took %.1f GB of memory together, and a check allows %.0f",
                           usage->memory / 1e9, MAX_RUN_MEMORY / 1e9);
    else
        fault = fault_with(&d_too_many_processes, "it started more than %d processes",
                           MAX_RUN_PROCESSES);
    text_add(&fault.evidence, ", so the run was ended after %.1f seconds", run->seconds);
    return fault;
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
static Fault flood_fault(const Run *run)
{
    Fault fault = run->flooded ? fault_with(&d_too_much_output, "it printed more than a megabyte")
                               : fault_with(&d_too_many_calls,
                                            "it left more events in its traces than a check keeps");
    text_add(&fault.evidence, ", so the run was ended after %.1f seconds", run->seconds);
    if (!run->flooded)
        return fault;
    int rank = loudest_rank(run);
    if (rank >= 0 && run->ranks > 1)
        text_add(&fault.evidence, "\nmost of it came from %s", process_words(&run->traces, rank));
    const char *line = rank >= 0 ? late_line(&run->output, rank) : NULL;
    if (line)
        text_add(&fault.evidence, ", in the end: %.200s", line);
    return fault;
}

static Fault idle_fault(const Run *run, RankSet idle, const char *hint)
{
    static Diagnosis diagnosis;
    bool is_known = idle & ranks_with(&run->traces, "start"); // else there is no trace
    bool alone = run_is_one_process(&run->plan);
    diagnosis = alone      ? d_not_all_ranks_train_one_process
                : is_known ? d_not_all_ranks_train
                           : d_not_all_ranks_train_no_trace;
    diagnosis.hint = hint;
    return fault_with(&diagnosis, "%s %s", alone ? "the program" : rank_names(idle).text,
                      is_known ? "ended without having trained"
                               : "ended and left no trace of any training");
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

// True where ranks make different calls, or ask fit() for another number of steps or epochs: then
// the traces tell why.
static bool is_about_calls(const char *term, const Traces *traces)
{
    return !*term || (strcmp(term, "train") == 0 &&
                      (plans_differ(traces, "steps") || plans_differ(traces, "epochs")));
}

static Fault disagreement_fault(const Run *run, const Ends *ends)
{
    static Diagnosis diagnosis;
    const char *term = event_text(disagreement(run), "term");
    diagnosis = d_ranks_disagree;
    if (is_about_calls(term, &run->traces) ||
        (ends->counts_tell_calls && strncmp(term, "give", 4) == 0))
        diagnosis = *likely_mistake(ends, &run->traces);
    if (strcmp(diagnosis.name, "hung") == 0) // what the traces don't prove more of
        diagnosis.name = d_ranks_disagree.name;
    char *where = whereabouts(&run->traces);
    Fault fault =
        fault_with(&diagnosis, "the ranks disagree, so the library ended them\nit said: %s\n%s",
                   event_text(disagreement(run), "text"), where);
    free(where);
    return fault;
}

static bool is_signal(const Run *run, FailedRank failed, int signal, const char *name)
{
    if (strstr(failed.how, "signal"))
        return strstr(failed.how, name);
    return (failed.status > 128 ? failed.status : run->status) == 128 + signal;
}

// The signal that ended the run is one that an access to memory causes.
static bool is_of_a_pointer(const Run *run, FailedRank failed)
{
    return is_signal(run, failed, SIGSEGV, "Segmentation fault") ||
           is_signal(run, failed, SIGBUS, "Bus error");
}

static const Diagnosis *wrong_end(const Run *run, FailedRank failed)
{
    if (strstr(failed.how, "Floating point") || output_says(&run->output, "Floating point"))
        return run_is_one_process(&run->plan) ? &d_crashed_divided_by_zero_in_one_process
                                              : &d_crashed_divided_by_zero;
    if (strstr(failed.how, "File size limit"))
        return &d_too_much_disk_one_file;
    if (output_says(&run->output, "the weights are of no use any more"))
        return &d_crashed_without_bound;
    if (strstr(failed.how, "Aborted"))
        return &d_crashed_aborted;
    if (output_says(&run->output, "error 15 was found"))
        return &d_crashed_truncated;
    if ((run->killed ? failed.status : run->status) == 2) // the library's line
        return &d_crashed_refused;
    if (!strstr(failed.how, "signal") && run->status < 128)
        return &d_crashed_own_status;
    if (is_signal(run, failed, SIGILL, "Illegal instruction"))
        return &d_crashed_illegal_instruction;
    return is_of_a_pointer(run, failed) ? &d_crashed_pointer : &d_crashed_other_signal;
}

static Fault crash_fault(const Run *run, const Ends *ends)
{
    FailedRank failed = failed_rank(run);
    // What a full disk makes the library say is the check's own doing.
    const Diagnosis *explained = run->plan.full ? NULL : explanation(run, ends);
    Fault shown = ends->ended ? ends->ended(run) : NO_FAULT;
    if (shown.diagnosis && (!explained || strcmp(explained->name, d_index_out_of_bounds.name) != 0))
        explained = shown.diagnosis;
    Fault fault = {explained, NULL};
    if (!explained && is_reported_failure(run)) {
        fault.diagnosis = &d_crashed_returned;
        add_statuses(&fault.evidence, run);
    } else {
        fault.diagnosis = explained ? explained : wrong_end(run, failed);
        add_end(&fault.evidence, run, failed);
    }
    add_messages(&fault.evidence, run);
    add_evidence(&fault.evidence, shown.evidence);
    return fault;
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

// A file was taken away as the plan says, and the program has ended by itself. What it says of that
// is for the judge.
static bool refused(const Run *run)
{
    return run->plan.lose && run->status < 128 && !strstr(failed_rank(run).how, "signal");
}

bool judge_end(const Run *run, const Ends *ends, Report *report)
{
    if (run->forged)
        return report_failure(
            report, "the trace was written by the library", &d_forged_trace,
            format_text("lines of %s are not the library's", rank_names(run->forged).text));
    if (run->traces.fault)
        return report_failure(report, SENSE, &d_trace_makes_no_sense,
                              format_text("%s", run->traces.fault));
    if (run->killed && run->plan.servers == 0) // mpirun has ended the others
        return true;
    if (!run->hung && refused(run))
        return true;
    bool failed = run->status != 0 && !survivors_ended(run);
    RankSet idle = idle_ranks(run);
    Fault fault = NO_FAULT;
    if (run->hung && run->silent)
        fault = silence_fault(run, ends);
    else if (run->flooded || run->swollen)
        fault = flood_fault(run);
    else if (run->greedy)
        fault = greed_fault(run);
    else if (run->hung)
        fault = endlessness_fault(run);
    else if (run->status != 0 && disagreement(run) && !explanation(run, ends))
        fault = disagreement_fault(run, ends);
    else if (failed) {
        bool left_early = run->plan.servers && report_left_early(run, report);
        int before = report->count;
        if (ends->crashed)
            ends->crashed(run, report);
        // Who needs a server that has left ends with a line that says so: no mistake of its own. Nor is
        // a disagreement whose cause is told.
        bool told = disagreement(run) && report->count > before;
        if (!told && (!left_early || strstr(failed_rank(run).how, "signal")))
            fault = crash_fault(run, ends);
    } else if (idle)
        fault = idle_fault(run, idle, ends->training);
    if (fault.diagnosis)
        report_failure(report, end_property(&run->plan), fault.diagnosis,
                       evidence_of_run(run, fault.evidence));
    return !run->hung && !failed && !idle;
}
