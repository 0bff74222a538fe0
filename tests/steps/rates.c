// Reads learning rates from the traces: of each step's update, and of the one in whose rates ranks
// disagreed.

#include "rates.h"
#include "end.h"
#include "diagnoses/rates.h"

#include <math.h>
#include "base/memory.h"

double steps_per_epoch(const Run *run)
{
    return event_number(event_nth(&run->traces.of[0], "fit", 0), "steps");
}

Rates rates_read(const Run *run, int rank)
{
    const Events *events = &run->traces.of[rank];
    Rates rates = {.items = allocate((size_t)event_count(events, "step") + 1, sizeof *rates.items)};
    const cJSON *apply = NULL;
    EACH_EVENT (event, events) {
        if (event_is(event, "apply"))
            apply = event;
        if (event_is(event, "fit_end"))
            break;
        if (!event_is(event, "step"))
            continue;
        rates.items[rates.count++] =
            (RateOfUpdate){.epoch = event_int(event, "epoch"),
                           .step = event_int(event, "step"),
                           .learning_rate = event_number(apply, "learning_rate"),
                           .momentum = event_number(apply, "momentum")};
        apply = NULL;
    }
    return rates;
}

bool rates_disagree(const Run *run, double rates[])
{
    const char *optimizer = event_text(event_last(&run->traces.of[0], "distributed"), "optimizer");
    bool differ = false;
    for (int r = 0; r < run->ranks; r++) {
        const Events *events = &run->traces.of[r];
        rates[r] = event_number(event_last(events, "rule"), "learning_rate");
        differ = differ || islessgreater(rates[r], rates[0]);
        if (!event_has(event_last(events, "distributed"), "optimizer", optimizer))
            return false; // they disagree in that
    }
    return differ && event_has(disagreement(run), "term", "use");
}

void note_momentum(const Run *run, double handed_out, Report *report)
{
    const cJSON *apply = event_nth(&run->traces.of[0], "apply", 0);
    double momentum = event_number(apply, "momentum");
    if (event_has(apply, "optimizer", "SGD") && !same_rate(momentum, handed_out))
        report_note(report, "the optimizer's momentum is %g; that of the file handed out is %g",
                    momentum, handed_out);
}

bool same_rate(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b));
}
