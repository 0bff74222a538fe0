// Mirrored: the same model on all devices of one process. What each replica computed and applied is
// read by replicas.c; whether that is the mean is judged in replica_mean.c.

#include "end.h"
#include "replicas.h"
#include "diagnoses/judge_mirrored.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"

#define DEVICES "there is a replica on every device, and the program says how many"
#define PARTS   "each image of a batch is computed by one replica, with its own label"
#define EVEN    "no replica computes more than one image more than another"
#define UPDATES "every replica makes one update from each batch"
#define EQUAL   "all replicas have the same weights"
#define TEST    "the replicas share each batch of the evaluation, too"

// ---- The devices.

static int devices_of(const Run *run)
{
    double devices = event_number(event_nth(&run->traces.of[0], "device", 0), "devices");
    return devices > 0 ? (int)devices : run->plan.devices;
}

// The number behind "Number of devices:"; -1: it says nothing of the kind.
static int printed_devices(const Run *run)
{
    static const char words[] = "Number of devices:";
    for (int i = 0; i < run->output.count; i++) {
        const char *at = strcasestr(run->output.lines[i].text, words);
        if (at)
            return atoi(at + strlen(words));
    }
    return -1;
}

static const Diagnosis *wrong_devices(const Batches *batches)
{
    if (batches->replicas == 0)
        return &d_no_replicas;
    if (batches->replicas < devices_of(batches->run))
        return &d_devices_idle;
    int printed = printed_devices(batches->run);
    return printed < 0                    ? &d_devices_not_printed
           : printed != batches->replicas ? &d_devices_wrong_number
                                          : NULL;
}

static Fault devices_fault(const void *item)
{
    const Batches *batches = item;
    const Diagnosis *diagnosis = wrong_devices(batches);
    if (!diagnosis)
        return NO_FAULT;
    int printed = printed_devices(batches->run);
    char *evidence = format_text("the process has %d, and replicas on %d", devices_of(batches->run),
                                 batches->replicas);
    if (printed >= 0)
        text_add(&evidence, "\nit says \"Number of devices: %d\"", printed);
    return (Fault){diagnosis, evidence};
}

// ---- The parts.

// What all replicas together made of a batch.
typedef struct {
    int *times;                             // that each image was computed
    int foreign[MAX_RANKS];                 // what no image of the batch is, by replica
    int mislabeled[MAX_RANKS];              // images with another label
    int missing, repeated;                  // images
    int all_foreign, all_mislabeled, again; // computed twice by one replica
    int most, fewest;                       // images of a part
} Cover;

static int place_among(const Images *images, int count, unsigned pixels)
{
    for (int i = 0; i < count; i++)
        if (images->items[i].pixels == pixels)
            return i;
    return -1;
}

static int place_of(const Images *images, unsigned pixels)
{
    return place_among(images, images->count, pixels);
}

static void cover_part(Cover *cover, const BatchSeen *batch, int replica)
{
    const Images *part = &batch->parts[replica].images;
    for (int k = 0; k < part->count; k++) {
        int place = place_of(&batch->images, part->items[k].pixels);
        if (place < 0) {
            cover->foreign[replica]++;
            continue;
        }
        cover->times[place]++;
        cover->again += place_among(part, k, part->items[k].pixels) >= 0;
        cover->mislabeled[replica] += batch->images.items[place].label != part->items[k].label;
    }
    cover->all_foreign += cover->foreign[replica];
    cover->all_mislabeled += cover->mislabeled[replica];
    if (part->count > cover->most)
        cover->most = part->count;
    if (part->count < cover->fewest)
        cover->fewest = part->count;
}

// The caller frees times.
static Cover cover_of(const Batches *batches, const BatchSeen *batch)
{
    Cover cover = {.fewest = INT32_MAX};
    cover.times = allocate((size_t)batch->images.count, sizeof *cover.times);
    for (int r = 0; r < batches->replicas; r++)
        cover_part(&cover, batch, r);
    for (int i = 0; i < batch->images.count; i++) {
        cover.missing += cover.times[i] == 0;
        cover.repeated += cover.times[i] > 1;
    }
    return cover;
}

static bool each_computes_all(const Batches *batches, const BatchSeen *batch, const Cover *cover)
{
    bool all = batches->replicas > 1;
    for (int i = 0; i < batch->images.count; i++)
        all = all && cover->times[i] == batches->replicas;
    return all;
}

static const Diagnosis *wrong_cover(const Batches *batches, const BatchSeen *batch,
                                    const Cover *cover)
{
    if (batch->by_replica)
        return &d_batches_by_replicas;
    if (batch->outside > 0)
        return &d_computed_outside;
    if (cover->all_foreign > 0)
        return &d_not_an_image;
    if (cover->again > 0)
        return &d_computed_again;
    if (each_computes_all(batches, batch, cover))
        return &d_whole_batch_on_each;
    if (cover->repeated > 0)
        return &d_images_computed_twice;
    bool equal = cover->most == cover->fewest && cover->most > 0;
    if (cover->missing > 0)
        return equal && cover->missing == batch->images.count % batches->replicas
                   ? &d_remainder_dropped
                   : &d_images_left_out;
    return cover->all_mislabeled > 0 ? &d_labels_of_others : NULL;
}

// "replica 0: images 0-3".
static void add_part_text(char **text, const BatchSeen *batch, int replica)
{
    const Images *part = &batch->parts[replica].images;
    text_add(text, "\nreplica %d: ", replica);
    for (int first = 0, last; first < part->count; first = last + 1) {
        int place = place_of(&batch->images, part->items[first].pixels);
        for (last = first;
             place >= 0 && last + 1 < part->count &&
             place_of(&batch->images, part->items[last + 1].pixels) == place + last + 1 - first;)
            last++;
        text_add(text, first ? ", " : "%s", part->count - first > 1 ? "images " : "image ");
        if (place < 0)
            text_add(text, "?");
        else if (last > first)
            text_add(text, "%d-%d", place, place + last - first);
        else
            text_add(text, "%d", place);
    }
    if (part->count == 0)
        text_add(text, "none");
}

static char *parts_evidence(const Batches *batches, const BatchSeen *batch, const Cover *cover)
{
    char *text = replica_batch_text(batches, batch);
    for (int r = 0; r < batches->replicas; r++) {
        add_part_text(&text, batch, r);
        if (cover->foreign[r] > 0)
            text_add(&text, " (?: no image of this batch)");
        if (cover->mislabeled[r] > 0)
            text_add(&text, ", %d with another label", cover->mislabeled[r]);
    }
    if (batch->outside > 0)
        text_add(&text, "\nthe program's own thread: %d gradient%s", batch->outside,
                 batch->outside == 1 ? "" : "s");
    return text;
}

// Of the first batch of that kind whose parts are wrong.
static Fault wrong_parts(const Batches *batches, bool trains)
{
    Fault fault = NO_FAULT;
    for (int b = 0; b < batches->count && !fault.diagnosis; b++) {
        const BatchSeen *batch = &batches->items[b];
        if (batch->trains != trains)
            continue;
        Cover cover = cover_of(batches, batch);
        fault.diagnosis = wrong_cover(batches, batch, &cover);
        if (fault.diagnosis)
            fault.evidence = parts_evidence(batches, batch, &cover);
        free(cover.times);
    }
    return fault;
}

static bool nothing_computed(const Batches *batches)
{
    int gradients = 0;
    for (int b = 0; b < batches->count; b++)
        for (int r = 0; r < batches->replicas; r++)
            gradients += batches->items[b].parts[r].gradients;
    return gradients == 0;
}

static bool computed_outside(const Batches *batches)
{
    for (int b = 0; b < batches->count; b++)
        if (batches->items[b].outside > 0)
            return true;
    return false;
}

static Fault parts_fault(const void *item)
{
    const Batches *batches = item;
    return nothing_computed(batches) && !computed_outside(batches)
               ? fault_with(&d_nothing_trained, "none in the whole run")
               : wrong_parts(batches, true);
}

static const BatchSeen *first_uneven(const Batches *batches, bool trains)
{
    for (int b = 0; b < batches->count; b++) {
        const BatchSeen *batch = &batches->items[b];
        Cover cover = cover_of(batches, batch);
        free(cover.times);
        if (batch->trains == trains && cover.most > cover.fewest + 1)
            return batch;
    }
    return NULL;
}

static Fault uneven_parts(const Batches *batches, bool trains, const Diagnosis *diagnosis)
{
    const BatchSeen *batch = first_uneven(batches, trains);
    return batch ? (Fault){diagnosis, parts_evidence(batches, batch, &(Cover){0})} : NO_FAULT;
}

static Fault evenness_fault(const void *item)
{
    return uneven_parts(item, true, &d_parts_uneven);
}

// ---- The updates.

static const Diagnosis *wrong_updates(const AllBatches *all, const Batches *batches,
                                      const BatchSeen *batch)
{
    int updated = 0, most = 0, idle = 0;
    for (int r = 0; r < batches->replicas; r++) {
        const Part *part = &batch->parts[r];
        updated += part->applies > 0;
        idle += part->applies == 0 && part->images.count == 0;
        most = part->applies > most ? part->applies : most;
    }
    if (updated == 0)
        return &d_no_update;
    if (updated < batches->replicas && replicas_are_equal(all))
        return &d_weights_made_equal;
    if (updated < batches->replicas)
        return updated + idle == batches->replicas ? &d_some_not_updated : &d_not_all_apply;
    return most > 1 ? &d_updated_too_often : NULL;
}

static char *updates_evidence(const Batches *batches, const BatchSeen *batch)
{
    char *text = replica_batch_text(batches, batch);
    for (int r = 0; r < batches->replicas; r++) {
        const Part *part = &batch->parts[r];
        text_add(&text, "\nreplica %d: %d image%s, %d update%s", r, part->images.count,
                 part->images.count == 1 ? "" : "s", part->applies, part->applies == 1 ? "" : "s");
    }
    return text;
}

static bool judge_updates(const Runs *runs, const AllBatches *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        for (int b = 0; b < batches->count; b++) {
            const BatchSeen *batch = &batches->items[b];
            const Diagnosis *diagnosis = batch->trains ? wrong_updates(all, batches, batch) : NULL;
            if (!diagnosis)
                continue;
            return report_failure(
                report, UPDATES, diagnosis,
                evidence_in(runs, batches->run, updates_evidence(batches, batch)));
        }
    }
    return report_ok(report, UPDATES);
}

static bool judge_weights(const Runs *runs, const AllBatches *all, Report *report)
{
    bool last_bits = false;
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        for (int b = 0; b < batches->count; b++)
            for (int r = 0, first; r < batches->replicas; r++) {
                const BatchSeen *batch = &batches->items[b];
                double off = replicas_apart(batches, batch, r, &first);
                last_bits = last_bits || off > 0;
                if (off <= EQUAL_TOLERANCE)
                    continue;
                char *evidence = replica_batch_text(batches, batch);
                text_add(&evidence, "\nweights of replica %d: %.9g\nweights of replica %d: %.9g",
                         first, batch->parts[first].weights, r, batch->parts[r].weights);
                report_failure(report, EQUAL, &d_replicas_differ,
                               evidence_in(runs, batches->run, evidence));
                return false;
            }
    }
    report_ok(report, EQUAL);
    if (last_bits)
        report_note(report, "the replicas' weights differ in their last digits: they add up in "
                            "different orders, and go apart a little more with every update");
    return true;
}

static Fault test_fault(const void *item)
{
    const Batches *batches = item;
    int tests = 0;
    for (int b = 0; b < batches->count; b++)
        tests += !batches->items[b].trains;
    if (tests == 0)
        return fault_with(&d_not_evaluated, "no batch of test images was taken");
    Fault fault = wrong_parts(batches, false);
    if (fault.diagnosis)
        return (Fault){&d_evaluation_not_shared, fault.evidence};
    return uneven_parts(batches, false, &d_evaluation_not_shared);
}

static Fault batches_in(const Runs *runs, const Run *run, ItemFault fault)
{
    (void)runs;
    Batches batches = replica_batches(run);
    Fault found = (*fault)(&batches);
    replica_batches_free(&batches);
    return found;
}

static const ItemProperty parts[] = {{DEVICES, devices_fault, NULL},
                                     {PARTS, parts_fault, DEVICES},
                                     {EVEN, evenness_fault, PARTS},
                                     {0}},
                          test[] = {{TEST, test_fault, NULL}, {0}};

static void judge(const Runs *runs, Report *report)
{
    AllBatches all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = replica_batches(&runs->items[i]);
    if (judge_items(runs, batches_in, parts, report) && judge_updates(runs, &all, report) &&
        judge_replica_mean(runs, &all, report) && judge_weights(runs, &all, report))
        judge_items(runs, batches_in, test, report);
    for (int i = 0; i < runs->count; i++)
        replica_batches_free(&all.items[i]);
    free(all.items);
}

JUDGE("mirrored", judge)
OWN_ENDS("mirrored",
         EXPLAINED({"mirrored: there is no device", &d_devices_fixed},
                   {"devices in the list, and this process has", &d_devices_fixed},
                   {"waits in it for the others", &d_not_called_by_all},
                   {"there are no images in the batch", &d_empty_part},
                   {"pass the same array", &d_array_shared},
                   {"one of the threads that are at work on the devices", &d_on_each_device_nested},
                   {"apply_gradients: there are no gradients", &d_applied_without_gradients},
                   {"there are no gradients; call compute_gradients() before", &d_read_too_early},
                   {"a label of the batch is", &d_labels_beyond_batch}))
