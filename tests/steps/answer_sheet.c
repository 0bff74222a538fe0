// The seed of an answer sheet, and whether its trainings ran; answer_sheet.h has the contract.

#include "answer_sheet.h"
#include "diagnoses/answer_sheet.h"

#include <stdlib.h>
#include <strings.h>

#define HAS_SEED "the sheet has a seed, and the library gets it"
#define OWN_SEED "the seed is the one that is set for you"

static const cJSON *sheet_of(const Run *run)
{
    return event_nth(&run->traces.of[0], "sheet", 0);
}

uint64_t sheet_seed(const Run *run)
{
    return (uint64_t)event_int(sheet_of(run), "seed");
}

// In a course each student has a seed, which stands in stamp.txt.
static bool has_own_seed(const Runs *runs, Report *report)
{
    if (runs->stamp_seed == 0)
        return true;
    for (const Run *run = runs->items; run < runs_end(runs); run++)
        if (sheet_seed(run) != runs->stamp_seed)
            return report_failure_in(report, runs, run, OWN_SEED, &d_another_seed,
                                     "the seed of the sheet is %.0f, yours is %.0f",
                                     (double)sheet_seed(run), (double)runs->stamp_seed);
    return report_ok(report, OWN_SEED);
}

static bool has_seed(const Runs *runs, const char *event, int count, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        if (sheet_of(run) && sheet_seed(run) == 0)
            return report_failure_in(report, runs, run, HAS_SEED, &d_no_seed, "the seed is 0");
        if (event_count(&run->traces.of[0], event) != count)
            return report_failure_in(report, runs, run, HAS_SEED, &d_not_trained,
                                     "the library's function was %s",
                                     sheet_of(run) ? "called several times" : "not called");
    }
    return report_ok(report, HAS_SEED);
}

void judge_sheet(const Runs *runs, const char *event, int count, const char *what,
                 Fault (*fault)(const Run *run, int number), Report *report)
{
    if (!has_seed(runs, event, count, report) || !has_own_seed(runs, report))
        return;
    for (int number = 1; number <= count; number++) {
        char *property = format_text("%s %d is as the sheet describes it", what, number);
        Fault found = NO_FAULT;
        for (const Run *run = runs->items; run < runs_end(runs) && !found.diagnosis; run++)
            found = fault(run, number);
        report_property(report, property, found.diagnosis, found.evidence);
        free(property);
    }
}

bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcasecmp(name, *names) == 0)
            return true;
    return false;
}
