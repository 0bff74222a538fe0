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
    int foreign[MAX_RANKS];                 // what no image of the batch is, by replica
    int mislabeled[MAX_RANKS];              // images with another label
    int missing, repeated, by_all;          // images
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

// Counts in `times` how often each image of the batch is computed.
static void cover_part(Cover *cover, const BatchSeen *batch, int replica, int *times)
{
    const Images *part = &batch->parts[replica].images;
    for (int k = 0; k < part->count; k++) {
        int place = place_of(&batch->images, part->items[k].pixels);
        if (place < 0) {
            cover->foreign[replica]++;
            continue;
        }
        times[place]++;
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

static Cover cover_of(const Batches *batches, const BatchSeen *batch)
{
    Cover cover = {.fewest = INT32_MAX};
    int *times = allocate((size_t)batch->images.count, sizeof *times);
    for (int r = 0; r < batches->replicas; r++)
        cover_part(&cover, batch, r, times);
    for (int i = 0; i < batch->images.count; i++) {
        cover.missing += times[i] == 0;
        cover.repeated += times[i] > 1;
        cover.by_all += times[i] == batches->replicas;
    }
    free(times);
    return cover;
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
    if (batches->replicas > 1 && cover->by_all == batch->images.count)
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
        text_add(&text, "\nthe program's own thread: %d gradients", batch->outside);
    return text;
}

// Of the first batch that has one, among those of training or of the evaluation.
typedef Fault (*BatchFault)(const Batches *batches, const BatchSeen *batch);

static Fault first_fault(const Batches *batches, bool trains, BatchFault fault)
{
    Fault found = NO_FAULT;
    for (int b = 0; b < batches->count && !found.diagnosis; b++)
        if (batches->items[b].trains == trains)
            found = fault(batches, &batches->items[b]);
    return found;
}

static Fault cover_fault(const Batches *batches, const BatchSeen *batch)
{
    Cover cover = cover_of(batches, batch);
    const Diagnosis *diagnosis = wrong_cover(batches, batch, &cover);
    return diagnosis ? (Fault){diagnosis, parts_evidence(batches, batch, &cover)} : NO_FAULT;
}

static bool nothing_computed(const Batches *batches)
{
    int gradients = 0;
    for (const BatchSeen *batch = batches->items; batch < batches->items + batches->count;
         batch++) {
        gradients += batch->outside;
        for (int r = 0; r < batches->replicas; r++)
            gradients += batch->parts[r].gradients;
    }
    return gradients == 0;
}

static Fault parts_fault(const void *batches)
{
    return nothing_computed(batches) ? fault_with(&d_nothing_trained, "none in the whole run")
                                     : first_fault(batches, true, cover_fault);
}

static Fault uneven_fault(const Batches *batches, const BatchSeen *batch)
{
    Cover cover = cover_of(batches, batch);
    return cover.most > cover.fewest + 1
               ? (Fault){&d_parts_uneven, parts_evidence(batches, batch, &cover)}
               : NO_FAULT;
}

static Fault evenness_fault(const void *batches)
{
    return first_fault(batches, true, uneven_fault);
}

// ---- The updates.

static const Diagnosis *wrong_updates(const Batches *batches, const BatchSeen *batch)
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
    if (updated < batches->replicas && replicas_are_equal(batches->runs, EQUAL_TOLERANCE))
        return &d_weights_made_equal;
    if (updated < batches->replicas)
        return updated + idle == batches->replicas ? &d_some_not_updated : &d_not_all_apply;
    return most > 1 ? &d_updated_too_often : NULL;
}

static Fault update_fault(const Batches *batches, const BatchSeen *batch)
{
    const Diagnosis *diagnosis = wrong_updates(batches, batch);
    if (!diagnosis)
        return NO_FAULT;
    char *text = replica_batch_text(batches, batch);
    for (int r = 0; r < batches->replicas; r++) {
        const Part *part = &batch->parts[r];
        text_add(&text, "\nreplica %d: %d images, %d updates", r, part->images.count,
                 part->applies);
    }
    return (Fault){diagnosis, text};
}

static Fault updates_fault(const void *batches)
{
    return first_fault(batches, true, update_fault);
}

static Fault weights_fault(const void *item)
{
    const Batches *batches = item;
    for (const BatchSeen *batch = batches->items; batch < batches->items + batches->count; batch++)
        for (int r = 0, first; r < batches->replicas; r++) {
            if (replicas_apart(batches, batch, r, &first) <= EQUAL_TOLERANCE)
                continue;
            char *evidence = replica_batch_text(batches, batch);
            text_add(&evidence, "\nweights of replica %d: %.9g\nweights of replica %d: %.9g", first,
                     batch->parts[first].weights, r, batch->parts[r].weights);
            return (Fault){&d_replicas_differ, evidence};
        }
    return NO_FAULT;
}

static Fault test_fault(const void *item)
{
    const Batches *batches = item;
    int tests = 0;
    for (int b = 0; b < batches->count; b++)
        tests += !batches->items[b].trains;
    if (tests == 0)
        return fault_with(&d_not_evaluated, "no batch of test images was taken");
    Fault fault = first_fault(batches, false, cover_fault);
    if (!fault.diagnosis)
        fault = first_fault(batches, false, uneven_fault);
    return fault.diagnosis ? (Fault){&d_evaluation_not_shared, fault.evidence} : NO_FAULT;
}

static Fault batches_in(const Runs *runs, const Run *run, ItemFault fault)
{
    Batches batches = replica_batches(runs, run);
    Fault found = (*fault)(&batches);
    replica_batches_free(&batches);
    return found;
}

static const ItemProperty parts[] = {{DEVICES, devices_fault, NULL},
                                     {PARTS, parts_fault, DEVICES},
                                     {EVEN, evenness_fault, PARTS},
                                     {UPDATES, updates_fault, EVEN},
                                     {0}},
                          results[] = {
                              {EQUAL, weights_fault, NULL}, {TEST, test_fault, EQUAL}, {0}};

static void judge(const Runs *runs, Report *report)
{
    if (!judge_items(runs, batches_in, parts, report) || !judge_replica_mean(runs, report))
        return;
    judge_items(runs, batches_in, results, report);
    if (replicas_are_equal(runs, EQUAL_TOLERANCE) && !replicas_are_equal(runs, 0))
        report_note(report, "the replicas' weights differ in their last digits: they add up in "
                            "different orders, and go apart a little more with every update");
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
                   {"model_read_gradients: there are no gradients", &d_read_too_early},
                   {"a label of the batch is", &d_labels_beyond_batch}))
