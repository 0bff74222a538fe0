// Mirrored: the same model on all devices of one process. What each replica computed and applied is
// read by replicas.c; whether that is the mean is judged in replica_mean.c.

#include "end.h"
#include "replicas.h"

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
    static const Diagnosis none = {
        "no-replicas", "no replicas were made: mirrored() makes one on each device.", NULL};
    static const Diagnosis idle = {
        "devices-idle",
        "there are devices without a replica. mirrored() with NULL and 0 in place of a list takes "
        "all that there are, however many.",
        NULL};
    static const Diagnosis silent = {"devices-not-printed",
                                     "the program prints no line such as \"Number of devices: 4\".",
                                     NULL};
    static const Diagnosis wrong = {
        "devices-wrong-number",
        "the program says another number of devices than it uses: mirrored_devices() knows it.",
        NULL};
    if (batches->replicas == 0)
        return &none;
    if (batches->replicas < devices_of(batches->run))
        return &idle;
    int printed = printed_devices(batches->run);
    return printed < 0 ? &silent : printed != batches->replicas ? &wrong : NULL;
}

static bool judge_devices(const Runs *runs, const AllBatches *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const Diagnosis *diagnosis = wrong_devices(batches);
        if (!diagnosis)
            continue;
        int printed = printed_devices(batches->run);
        char *evidence = format_text("the process has %d, and replicas on %d",
                                     devices_of(batches->run), batches->replicas);
        if (printed >= 0)
            text_add(&evidence, "\nit says \"Number of devices: %d\"", printed);
        return report_failure(report, DEVICES, diagnosis,
                              evidence_in(runs, batches->run, evidence));
    }
    return report_ok(report, DEVICES);
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
    static const Diagnosis outside = {
        "computed-outside",
        "the program's own thread computes the gradients, one after another. Code that should run "
        "on all devices at the same time belongs into the function that "
        "batch_on_each_device() calls.",
        NULL};
    static const Diagnosis own_batches = {"batches-by-replicas",
                                          "replicas take batches themselves. Here a batch is taken "
                                          "once, by the program's own thread, "
                                          "and shared out among them.",
                                          NULL};
    static const Diagnosis foreign = {
        "not-an-image",
        "a part has data that are no image of the batch: it begins in the middle of an image, or "
        "goes on beyond the batch's end. An image is PIXELS floats, so number k begins at images + "
        "k * PIXELS.",
        NULL};
    static const Diagnosis whole = {
        "whole-batch-on-each",
        "every replica computes all images of the batch: N devices do the work of one, N times.",
        NULL};
    static const Diagnosis twice = {
        "images-computed-twice",
        "parts overlap. A part begins where the one before ends: how many images lie before it?",
        NULL};
    static const Diagnosis again = {
        "computed-again",
        "a replica computes the same images several times in one batch: compute_gradients() is "
        "called again for them, and overwrites the gradients of the call before.",
        NULL};
    static const Diagnosis dropped = {
        "remainder-dropped",
        "all replicas get equally many images, and no replica computes the remainder. The first "
        "replicas must get one more image each.",
        NULL};
    static const Diagnosis left_out = {"images-left-out", "images of the batch are in no part.",
                                       NULL};
    static const Diagnosis labels = {"labels-of-others",
                                     "images are trained on with the labels of others. The labels "
                                     "lie one after another like the "
                                     "images, so the part's begin as many images further on.",
                                     NULL};
    if (batch->by_replica)
        return &own_batches;
    if (batch->outside > 0)
        return &outside;
    if (cover->all_foreign > 0)
        return &foreign;
    if (cover->again > 0)
        return &again;
    if (each_computes_all(batches, batch, cover))
        return &whole;
    if (cover->repeated > 0)
        return &twice;
    bool equal = cover->most == cover->fewest && cover->most > 0;
    if (cover->missing > 0)
        return equal && cover->missing == batch->images.count % batches->replicas ? &dropped
                                                                                  : &left_out;
    return cover->all_mislabeled > 0 ? &labels : NULL;
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

// The first batch of that kind whose parts are wrong; its evidence, or NULL.
static char *wrong_parts(const Batches *batches, bool trains, const Diagnosis **diagnosis)
{
    for (int b = 0; b < batches->count; b++) {
        const BatchSeen *batch = &batches->items[b];
        if (batch->trains != trains)
            continue;
        Cover cover = cover_of(batches, batch);
        *diagnosis = wrong_cover(batches, batch, &cover);
        char *evidence = *diagnosis ? parts_evidence(batches, batch, &cover) : NULL;
        free(cover.times);
        if (evidence)
            return evidence;
    }
    return NULL;
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

static bool judge_parts(const Runs *runs, const AllBatches *all, Report *report)
{
    static const Diagnosis nothing = {"nothing-trained", "no replica computes any gradients.",
                                      NULL};
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const Diagnosis *diagnosis = NULL;
        char *evidence = wrong_parts(batches, true, &diagnosis);
        if (nothing_computed(batches) && !computed_outside(batches)) {
            free(evidence);
            evidence = format_text("none in the whole run");
            diagnosis = &nothing;
        }
        if (!evidence)
            continue;
        return report_failure(report, PARTS, diagnosis, evidence_in(runs, batches->run, evidence));
    }
    return report_ok(report, PARTS);
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

static bool judge_evenness(const Runs *runs, const AllBatches *all, Report *report)
{
    static const Diagnosis uneven = {
        "parts-uneven",
        "some replicas have more images than others, and the others wait for them. Often one "
        "replica gets the whole batch or the whole remainder, or the parts are rounded up, so that "
        "the last one is small. The remainder must be divided: one image more for each of the "
        "first replicas.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const BatchSeen *batch = first_uneven(batches, true);
        if (!batch)
            continue;
        return report_failure(
            report, EVEN, &uneven,
            evidence_in(runs, batches->run, parts_evidence(batches, batch, &(Cover){0})));
    }
    return report_ok(report, EVEN);
}

// ---- The updates.

static const Diagnosis *wrong_updates(const AllBatches *all, const Batches *batches,
                                      const BatchSeen *batch)
{
    static const Diagnosis none = {
        "no-update",
        "no replica makes an update from this batch: apply_gradients() updates a model.", NULL};
    static const Diagnosis made_equal = {
        "weights-made-equal",
        "some replicas make no update, and get their weights from others afterwards. It is the "
        "gradient that all share: then each makes the same update, also one without images.",
        NULL};
    static const Diagnosis empty = {
        "some-not-updated",
        "replicas without images make no update from this batch, so their weights stay behind. "
        "They need the update of the others, too.",
        NULL};
    static const Diagnosis some = {
        "not-all-apply",
        "some replicas compute images and make no update, so their weights stay behind. Each has "
        "weights of its own: it applies to them what all share.",
        NULL};
    static const Diagnosis often = {"updated-too-often",
                                    "a replica makes several updates from one batch.", NULL};
    int updated = 0, most = 0, idle = 0;
    for (int r = 0; r < batches->replicas; r++) {
        const Part *part = &batch->parts[r];
        updated += part->applies > 0;
        idle += part->applies == 0 && part->images.count == 0;
        most = part->applies > most ? part->applies : most;
    }
    if (updated == 0)
        return &none;
    if (updated < batches->replicas && replicas_are_equal(all))
        return &made_equal;
    if (updated < batches->replicas)
        return updated + idle == batches->replicas ? &empty : &some;
    return most > 1 ? &often : NULL;
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
    static const Diagnosis differ = {
        "replicas-differ",
        "the replicas' weights have come apart, though all were given the same gradients.", NULL};
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
                report_failure(report, EQUAL, &differ, evidence_in(runs, batches->run, evidence));
                return false;
            }
    }
    report_ok(report, EQUAL);
    if (last_bits)
        report_note(report, "the replicas' weights differ in their last digits: they add up in "
                            "different orders, and go apart a little more with every update");
    return true;
}

static const Diagnosis *wrong_test(const Batches *batches, char **evidence)
{
    static const Diagnosis none = {
        "not-evaluated", "no test image is computed: the page evaluates at the end.", NULL};
    static const Diagnosis not_shared_out = {
        "evaluation-not-shared",
        "the test images are not shared out as the training images are: each replica computes a "
        "part, no image twice and none left out, and no replica more than one more than another.",
        NULL};
    const Diagnosis *unused = NULL;
    const BatchSeen *uneven = NULL;
    int tests = 0;
    for (int b = 0; b < batches->count; b++)
        tests += !batches->items[b].trains;
    *evidence = tests == 0 ? format_text("no batch of test images was taken")
                           : wrong_parts(batches, false, &unused);
    if (!*evidence && (uneven = first_uneven(batches, false)))
        *evidence = parts_evidence(batches, uneven, &(Cover){0});
    return tests == 0 ? &none : &not_shared_out;
}

static bool judge_test(const Runs *runs, const AllBatches *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        char *evidence;
        const Diagnosis *diagnosis = wrong_test(&all->items[i], &evidence);
        if (!evidence)
            continue;
        return report_failure(report, TEST, diagnosis,
                              evidence_in(runs, all->items[i].run, evidence));
    }
    return report_ok(report, TEST);
}

static void judge(const Runs *runs, Report *report)
{
    AllBatches all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = replica_batches(&runs->items[i]);
    if (judge_devices(runs, &all, report) && judge_parts(runs, &all, report) &&
        judge_evenness(runs, &all, report) && judge_updates(runs, &all, report) &&
        judge_replica_mean(runs, &all, report) && judge_weights(runs, &all, report))
        judge_test(runs, &all, report);
    for (int i = 0; i < runs->count; i++)
        replica_batches_free(&all.items[i]);
    free(all.items);
}

static const Explanation explanations[] = {
    {"mirrored: there is no device",
     {"devices-fixed",
      "the list names a device that this process does not have. mirrored() with NULL and 0 in "
      "place of a list takes all that there are, however many.",
      NULL}},
    {"waits in it for the others",
     {"not-called-by-all",
      "the library's message names two replicas: one waits for a call that the other does not "
      "make. Often the call is inside an if that a replica without images does not enter, or after "
      "its return.",
      NULL}},
    {"there are no images in the batch",
     {"empty-part",
      "a replica without images can't compute. A batch may have fewer images than there are "
      "replicas: such a replica computes nothing, and contributes zeros.",
      NULL}},
    {"pass the same array",
     {"array-shared",
      "all replicas write to one array, at the same time. What each fills is its own: memory that "
      "the function itself allocates.",
      NULL}},
    {"one of the threads that are at work on the devices",
     {"on-each-device-nested",
      "a function that runs on all devices has a function called on all devices, which cannot "
      "be done.",
      NULL}},
    {"apply_gradients: there are no gradients",
     {"applied-without-gradients",
      "apply_gradients() needs gradients that are new: computed, or written by "
      "model_write_gradients(), on every replica, also one without images.",
      NULL}},
    {"there are no gradients; call compute_gradients() before",
     {"read-too-early",
      "model_read_gradients() gives what compute_gradients() has computed. A replica without "
      "images has computed nothing.",
      NULL}},
    {"a label of the batch is",
     {"labels-beyond-batch",
      "the labels of some part are no classes: they are beyond the end of the batch's labels. "
      "Often the pointer moves by PIXELS for each image, like that of the pixels; an image has "
      "one label.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("mirrored", judge)
ENDS("mirrored", &ends)
