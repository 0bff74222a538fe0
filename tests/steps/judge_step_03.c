// Step 3: every rank applies the mean of all ranks' gradients.

#include "mean.h"
#include "rates.h"

#include <math.h>
#include <string.h>
#include "six_steps.h"
#include "diagnoses/judge_step_03.h"

static void note_learning_rate(const Run *run, Report *report)
{
    const Events *events = &run->traces.of[0];
    double asked = run_flag(run, "--base-lr "), scaled = run->ranks * asked;
    double rate = event_number(event_nth(events, "apply", 0), "learning_rate");
    double compiled = event_number(event_nth(events, "compile", 0), "learning_rate");
    if (run->ranks > 1 && fabs(compiled - scaled) < 1e-6 && fabs(rate - asked) < 1e-6)
        report_note(report,
                    "the optimizer begins with learning rate %g, %d times --base-lr, but the "
                    "schedule sets it to %g before the first step: it has no effect",
                    compiled, run->ranks, rate);
    else if (fabs(rate - scaled) < 1e-6)
        report_note(report,
                    "the learning rate is %g, %d times --base-lr: many do that with distributed "
                    "training, these six steps don't",
                    rate, run->ranks);
    else if (fabs(rate - asked) > 1e-6)
        report_note(report, "the learning rate of the first step is %g, not --base-lr's %g", rate,
                    asked);
}

// Reports only where it is another one: the step changes nothing but what the optimizer gets.
static void judge_optimizer(const Runs *runs, Report *report)
{
    for (const Run *run = runs->items; run < runs_end(runs); run++) {
        const char *name = event_text(event_nth(&run->traces.of[0], "apply", 0), "optimizer");
        if (!*name || strcmp(name, "SGD") == 0)
            continue;
        report_failure_in(report, runs, run, "the optimizer is the program's own",
                          &d_optimizer_changed, "rank 0 trains by %s", name);
        return;
    }
}

static void judge(const Runs *runs, Report *report)
{
    note_learning_rate(&runs->items[0], report);
    note_momentum(&runs->items[0], 0, report);
    if (!nothing_trained(runs, MEAN_APPLIED, report))
        judge_mean(runs, report);
    judge_optimizer(runs, report);
}

JUDGE("step_03", judge)
ENDS("step_03", &six_steps)
