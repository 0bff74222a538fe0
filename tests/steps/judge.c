// What judges have in common.

#include "judge.h"
#include "diagnoses/judge.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define MAX_JUDGES 64

static struct {
    const char *file;
    Judge judge;
} judges[MAX_JUDGES];
static int judge_count;

void judge_add(const char *file, Judge judge)
{
    CHECK(judge_count < MAX_JUDGES);
    judges[judge_count].file = file;
    judges[judge_count++].judge = judge;
}

Judge judge_of(const char *file)
{
    for (int i = 0; i < judge_count; i++)
        if (strcmp(judges[i].file, file) == 0)
            return judges[i].judge;
    return NULL;
}

// "A,B,A": the hosts of the ranks, by letters, since their numbers are drawn. The caller frees it.
static char *hosts_of(const char *layout)
{
    char *text = NULL;
    int known[MAX_RANKS], count = 0;
    for (int host; (host = next_listed(&layout)) >= 0;) {
        int i = 0;
        while (i < count && known[i] != host)
            i++;
        if (i == count && count < MAX_RANKS)
            known[count++] = host;
        text_add(&text, "%s%c", text ? "," : "", 'A' + i);
    }
    return text;
}

char *evidence_of_run(const Run *run, char *evidence)
{
    const RunPlan *plan = &run->plan;
    bool by_devices = run_is_one_process(plan);
    int count = by_devices ? plan->devices : plan->ranks;
    char *hosts = plan->layout ? hosts_of(plan->layout) : NULL;
    const char *what = by_devices ? "device" : plan->servers ? "worker" : "rank";
    char *longer = format_text("%s %d %s%s", plan->servers ? "with" : "on", count, what,
                               count == 1 ? "" : "s");
    double columns = run_flag(run, "--columns ");
    if (columns > 0)
        text_add(&longer, " (%.0f x %.0f workers)", count / columns, columns);
    if (hosts)
        text_add(&longer, ", on host%s %s", strchr(hosts, ',') ? "s" : "", hosts);
    free(hosts);
    if (plan->servers)
        text_add(&longer, " and %d server%s", plan->servers, plan->servers == 1 ? "" : "s");
    if (run_flag(run, "--staleness ") >= 0)
        text_add(&longer, ", bound %.0f", run_flag(run, "--staleness "));
    text_add(&longer, ": %s", evidence);
    free(evidence);
    return longer;
}

char *evidence_in(const Runs *runs, const Run *run, char *evidence)
{
    return runs->count == 1 ? evidence : evidence_of_run(run, evidence);
}

bool report_failure_in(Report *report, const Runs *runs, const Run *run, const char *property,
                       const Diagnosis *diagnosis, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *evidence = format_arguments(format, arguments);
    va_end(arguments);
    return report_failure(report, property, diagnosis, evidence_in(runs, run, evidence));
}

bool report_property(Report *report, const char *property, const Diagnosis *diagnosis,
                     char *evidence)
{
    return evidence ? report_failure(report, property, diagnosis, evidence)
                    : report_ok(report, property);
}

Fault fault_with(const Diagnosis *diagnosis, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    Fault fault = {diagnosis, format_arguments(format, arguments)};
    va_end(arguments);
    return fault;
}

Fault fault_at(Fault fault, const char *format, ...)
{
    if (!fault.diagnosis)
        return fault;
    va_list arguments;
    va_start(arguments, format);
    Fault longer = {fault.diagnosis, format_arguments(format, arguments)};
    va_end(arguments);
    text_add(&longer.evidence, "%s", fault.evidence);
    free(fault.evidence);
    return longer;
}

bool report_fault(Report *report, const Runs *runs, const Run *run, const char *property,
                  Fault fault)
{
    return !fault.diagnosis || report_failure(report, property, fault.diagnosis,
                                              evidence_in(runs, run, fault.evidence));
}

bool all_ranks_have(const Runs *runs, const char *event, const char *property,
                    const Diagnosis *diagnosis, const char *did, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        RankSet ranks = ranks_with(&run->traces, event);
        if (ranks != all_ranks(run->ranks))
            return report_failure_in(report, runs, run, property, diagnosis, "%s of %d %s",
                                     rank_names(ranks).text, run->ranks, did);
    }
    return true;
}

bool judge_property(const Runs *runs, const char *text, Fault (*fault)(const Run *run),
                    Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (!report_fault(report, runs, run, text, fault(run)))
            return false;
    return report_ok(report, text);
}

void judge_properties(const Runs *runs, const RunProperty *properties, Report *report)
{
    for (const RunProperty *p = properties; p->text; p++)
        judge_property(runs, p->text, p->fault, report);
}

// False where it was not judged, too.
static bool holds(const Report *report, const char *property)
{
    for (int i = 0; i < report->count; i++)
        if (strcmp(report->properties[i].name, property) == 0)
            return report->properties[i].ok;
    return false;
}

bool judge_items(const Runs *runs, EachItem each, const ItemProperty *properties, Report *report)
{
    bool all_hold = true;
    for (const ItemProperty *p = properties; p->text; p++) {
        bool ok = !p->needs || holds(report, p->needs);
        for (const Run *run = runs->items; ok && run < runs_end(runs); run++)
            ok = report_fault(report, runs, run, p->text, each(runs, run, p->fault));
        all_hold = ok && report_ok(report, p->text) && all_hold;
    }
    return all_hold;
}

// The first run in which some rank has no such event, and the first such rank; NULL: there is none.
static const Run *run_without(const Runs *runs, const char *event, int *rank)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        for (*rank = 0; *rank < run->ranks; ++*rank)
            if (event_count(&run->traces.of[*rank], event) == 0)
                return run;
    return NULL;
}

bool nothing_trained(const Runs *runs, const char *property, Report *report)
{
    int rank;
    const Run *run = run_without(runs, "step", &rank);
    if (run && !report->held)
        report_failure_in(report, runs, run, property, &d_nothing_trained,
                          "rank %d made no step of training", rank);
    return run != NULL;
}

bool none_computed(const Runs *runs, const char *property, Report *report)
{
    int rank;
    const Run *run = run_without(runs, "gradient", &rank);
    if (run)
        report_failure_in(report, runs, run, property, &d_nothing_trained_some_rank,
                          "rank %d computed none", rank);
    return run != NULL;
}
