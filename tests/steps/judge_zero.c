// Zero: each worker keeps the mean gradients of a part of each piece, and the optimizer's state for
// that part; the parts cover the piece, and after the update all workers have all weights.

#include "shard_updates.h"
#include "diagnoses/judge_zero.h"

#include <math.h>

#define GATHERED "after the update all workers have the updated weights of all parts"

static Fault gathered_fault(const void *item)
{
    const ShardUpdate *update = item;
    for (int p = 0; p < update->pieces; p++) {
        double sum = 0, largest = 0;
        bool equal = true, exchanged = update->ranks == 1, summed = true;
        for (int r = 0; r < update->ranks; r++) {
            const PieceOf *piece = &update->of[r][p];
            sum += piece->part;
            largest = fmax(largest, fabs(piece->part));
            equal = equal && piece->weights == update->of[0][p].weights;
            exchanged = exchanged || piece->exchanged_after;
            summed = summed && piece->summed_after >= piece->length * (double)sizeof(float);
        }
        bool right = fabs(update->of[0][p].weights - sum) <= ROUNDING * (1 + largest);
        if (equal && right)
            continue;
        char *text = format_text("piece %d after update %d, as fingerprints:", p, update->number);
        for (int r = 0; r < update->ranks; r++)
            text_add(&text, "\nrank %d: its part %.9g, the piece %.9g", r, update->of[r][p].part,
                     update->of[r][p].weights);
        text_add(&text, "\nsum of the parts: %.9g", sum);
        return (Fault){!exchanged ? &d_not_gathered
                       : !equal   ? &d_weights_differ
                       : summed   ? &d_gathered_wrong_all_reduced
                                  : &d_gathered_wrong,
                       text};
    }
    return NO_FAULT;
}

static const ItemProperty properties[] = {
    {PARTS, parts_fault, NULL}, {MEAN, mean_fault, PARTS}, // the sums are over the parts
    {KEEPS, kept_fault, MEAN},  {ONLY, sums_fault, NULL},  {GATHERED, gathered_fault, PARTS}, {0},
};

static void judge(const Runs *runs, Report *report)
{
    if (!nothing_trained(runs, PARTS, report) && in_shards(runs, report))
        judge_items(runs, each_update, properties, report);
}

JUDGE("zero", judge)
ENDS("zero", &shard_ends)
