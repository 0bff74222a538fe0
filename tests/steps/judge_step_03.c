// Step 3: every rank applies the mean of all ranks' gradients.

#include "mean.h"

#include <math.h>
#include "six_steps.h"

static void note_learning_rate(const Run *run, Report *report)
{
    double asked = run_flag(run, "--base-lr ");
    double rate = event_number(event_nth(&run->traces.of[0], "apply", 0), "learning_rate");
    if (fabs(rate - run->ranks * asked) < 1e-6)
        report_note(report,
                    "the learning rate is %g, %d times --base-lr: many do that with distributed "
                    "training, these six steps don't",
                    rate, run->ranks);
    else if (fabs(rate - asked) > 1e-6)
        report_note(report, "the learning rate of the first step is %g, not --base-lr's %g", rate,
                    asked);
}

static void judge(const Runs *runs, Report *report)
{
    note_learning_rate(&runs->items[0], report);
    if (!nothing_trained(runs, MEAN_APPLIED, report))
        judge_mean(runs, report);
}

JUDGE("step_03", judge)
ENDS("step_03", &six_steps)
