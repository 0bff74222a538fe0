// Reads learning rates from the traces: of each step's update, and from the library's line where
// ranks that disagree in them were ended.

#include "rates.h"
#include "diagnoses/rates.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
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
        const char *name = event_text(event, "event");
        if (strcmp(name, "apply") == 0)
            apply = event;
        if (strcmp(name, "fit_end") == 0)
            break;
        if (strcmp(name, "step") != 0)
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

// The ranks of a list that ends before `end`: "ranks 0, 2-4 and 7".
static RankSet ranks_of_list(const char *list, const char *end)
{
    RankSet ranks = 0;
    for (const char *at = list; at < end;) {
        if (!isdigit((unsigned char)*at)) {
            at++;
            continue;
        }
        char *behind;
        long first = strtol(at, &behind, 10), last = first;
        if (*behind == '-')
            last = strtol(behind + 1, &behind, 10);
        for (long r = first; r <= last && r < MAX_RANKS; r++)
            ranks |= 1u << r;
        at = behind;
    }
    return ranks;
}

// The line says "ranks 0, 1 and 3 use learning rate 0.12, rank 2 uses learning rate 0.024".
double rate_in_disagreement(const Run *run, int rank)
{
    static const char words[] = " learning rate ";
    const char *at = event_text(event_last(&run->traces.of[rank], "disagreement"), "text");
    while ((at = strstr(at, "rank"))) {
        const char *end = strstr(at, " use"), *rate = strstr(at, words);
        if (!end || !rate)
            return NAN;
        if (has_rank(ranks_of_list(at, end), rank))
            return strtod(rate + strlen(words), NULL);
        at = rate;
    }
    return NAN;
}

bool same_rate(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b));
}
