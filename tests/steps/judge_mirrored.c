// Mirrored: the same model on all devices of one process. The trainer's batches come one after
// another; between two of them each replica says which images it computed, what gradient came of
// it, and what reached its optimizer. Who calls what, and who adds up, is no matter.

#include "end.h"
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES "there is a replica on every device, and the program says how many"
#define PARTS   "each image of a batch is computed by one replica, with its own label"
#define EVEN    "no replica computes more than one image more than another"
#define UPDATES "every replica makes one update from each batch"
#define MEAN    "every replica makes one device's update: by the mean gradient of the whole batch"
#define EQUAL   "all replicas have the same weights"
#define TEST    "the replicas share each batch of the evaluation, too"

#define RATE      0.1  // of the page's optimizer
#define TOLERANCE 1e-4 // of the batch's largest gradient
#define WEIGHTS   1e-5 // of the weights' fingerprint

typedef struct {
    unsigned pixels; // a hash
    int label;
} Image;

typedef struct {
    Image *items;
    int count;
} Images;

// What a replica did with a batch.
typedef struct {
    Images images;
    double weighted, sum; // of its gradients, with their images and without
    int gradients;
    double weights; // before; NaN where it computed nothing
    int applies;
    double given;   // to its optimizer
    double applied; // the same at the page's learning rate
    double rate;    // the program's
    bool sums;      // it calls sum_among_replicas
} Part;

typedef struct {
    Images images;
    bool trains;           // else it is evaluated
    bool by_replica;       // one of them has taken it
    Part parts[MAX_RANKS]; // of the replicas
    int outside;           // gradients that no replica's thread computed
} BatchSeen;

typedef struct {
    const Run *run;
    int replicas;
    BatchSeen *items;
    int count;
} Batches;

typedef struct {
    Batches *items;
    int count;
} AllBatches;

// ---- Reading the traces.

static void add_images(Images *images, const cJSON *event)
{
    const char *pixels = event_text(event, "pixels"), *labels = event_text(event, "labels");
    while (*pixels && *labels) {
        images->items = enlarge(images->items, (size_t)images->count + 1, sizeof *images->items);
        char *end, *last;
        images->items[images->count++] =
            (Image){(unsigned)strtoul(pixels, &end, 16), (int)strtol(labels, &last, 10)};
        pixels = end + (*end == ',');
        labels = last + (*last == ',');
    }
}

static BatchSeen *add_batch(Batches *batches, const cJSON *taken, bool trains)
{
    batches->items = enlarge(batches->items, (size_t)batches->count + 1, sizeof *batches->items);
    BatchSeen *batch = &batches->items[batches->count++];
    *batch = (BatchSeen){.trains = trains, .by_replica = !isnan(event_number(taken, "replica"))};
    add_images(&batch->images, taken);
    for (int r = 0; r < MAX_RANKS; r++)
        batch->parts[r].weights = NAN;
    return batch;
}

static void add_part(BatchSeen *batch, Part *part, const cJSON *event)
{
    bool trains = strcmp(event_text(event, "purpose"), "train") == 0;
    if (trains != batch->trains)
        return;
    add_images(&part->images, event);
    if (isnan(part->weights))
        part->weights = event_number(event, "arena");
}

// What a replica does; its last images are those of a gradient that follows.
static void add_deed(BatchSeen *batch, Part *part, const cJSON *event, double *images)
{
    const char *name = event_text(event, "event");
    if (strcmp(name, "part") == 0) {
        add_part(batch, part, event);
        *images = event_number(event, "images");
    } else if (strcmp(name, "gradient") == 0) {
        part->weighted += event_number(event, "value") * *images;
        part->sum += event_number(event, "value");
        part->gradients++;
    } else if (strcmp(name, "apply") == 0) {
        part->rate = event_number(event, "learning_rate");
        part->given += event_number(event, "value");
        part->applied += event_number(event, "value") * part->rate / RATE;
        part->applies++;
    } else if (strcmp(name, "sum_begin") == 0 &&
               strcmp(event_text(event, "function"), "sum_among_replicas") == 0) {
        part->sums = true;
    }
}

static int count_words(const char *list)
{
    int count = *list != '\0';
    for (; *list; list++)
        count += *list == ',';
    return count;
}

static Batches read_batches(const Run *run)
{
    const Events *events = &run->traces.of[0];
    Batches batches = {.run = run};
    batches.replicas = count_words(event_text(event_last(events, "mirrored"), "devices"));
    BatchSeen *batch = NULL;
    bool trains = false;
    double images[MAX_RANKS] = {0};
    for (int i = 0; i < events->count; i++) {
        const cJSON *event = events->items[i];
        const char *name = event_text(event, "event");
        double replica = event_number(event, "replica");
        if (strcmp(name, "images") == 0)
            trains = strcmp(event_text(event, "split"), "train") == 0;
        if (strcmp(name, "taken") == 0)
            batch = add_batch(&batches, event, trains);
        if (batch && isnan(replica))
            batch->outside += strcmp(name, "gradient") == 0;
        else if (batch && replica < MAX_RANKS)
            add_deed(batch, &batch->parts[(int)replica], event, &images[(int)replica]);
    }
    return batches;
}

static void free_batches(Batches *batches)
{
    for (int b = 0; b < batches->count; b++) {
        free(batches->items[b].images.items);
        for (int r = 0; r < MAX_RANKS; r++)
            free(batches->items[b].parts[r].images.items);
    }
    free(batches->items);
}

// "in batch 3 of 10 images": of the batches that are trained on, or evaluated.
static char *batch_text(const Batches *batches, const BatchSeen *batch)
{
    int number = 0;
    for (int b = 0; &batches->items[b] <= batch; b++)
        number += batches->items[b].trains == batch->trains;
    return format_text("%s batch %d, of %d image%s:", batch->trains ? "training" : "test", number,
                       batch->images.count, batch->images.count == 1 ? "" : "s");
}

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
        report_failure(report, DEVICES, diagnosis, evidence_in(runs, batches->run, evidence));
        return false;
    }
    report_ok(report, DEVICES);
    return true;
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
        "gradients are computed by the program's own thread, one after another. What is to run on "
        "all devices at a time is done inside the function that on_each_device() calls.",
        NULL};
    static const Diagnosis own_batches = {"batches-by-replicas",
                                          "replicas take batches themselves. Here a batch is taken "
                                          "once, by the program's own thread, "
                                          "and shared out among them.",
                                          NULL};
    static const Diagnosis foreign = {
        "not-an-image",
        "a part holds what is no image of the batch: it begins in the middle of an image, or goes "
        "on behind the batch's end. An image is PIXELS floats, so number k begins at images + k * "
        "PIXELS.",
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
        "called again for them, and writes over what it had left.",
        NULL};
    static const Diagnosis dropped = {
        "remainder-dropped",
        "all replicas get equally many images, and what is left over nobody computes. The first "
        "ones take one more each.",
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
    char *text = batch_text(batches, batch);
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
        report_failure(report, PARTS, diagnosis, evidence_in(runs, batches->run, evidence));
        return false;
    }
    report_ok(report, PARTS);
    return true;
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
        "some replicas have more to do than others, and these wait for them. Often one replica "
        "gets the whole batch or all that is left over, or the parts are rounded up, so that "
        "little is left for the last: what is left over is shared out, one image more for each of "
        "the first ones.",
        NULL};
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const BatchSeen *batch = first_uneven(batches, true);
        if (!batch)
            continue;
        report_failure(
            report, EVEN, &uneven,
            evidence_in(runs, batches->run, parts_evidence(batches, batch, &(Cover){0})));
        return false;
    }
    report_ok(report, EVEN);
    return true;
}

// ---- The updates.

static bool weights_are_equal(const AllBatches *all);

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
    if (updated < batches->replicas && weights_are_equal(all))
        return &made_equal;
    if (updated < batches->replicas)
        return updated + idle == batches->replicas ? &empty : &some;
    return most > 1 ? &often : NULL;
}

static char *updates_evidence(const Batches *batches, const BatchSeen *batch)
{
    char *text = batch_text(batches, batch);
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
            report_failure(report, UPDATES, diagnosis,
                           evidence_in(runs, batches->run, updates_evidence(batches, batch)));
            return false;
        }
    }
    report_ok(report, UPDATES);
    return true;
}

// What a replica might apply.
typedef double (*Formula)(const Batches *batches, const BatchSeen *batch, int replica);

static double weighted_sum(const Batches *batches, const BatchSeen *batch, int replica)
{
    double sum = 0;
    (void)replica;
    for (int r = 0; r < batches->replicas; r++)
        sum += batch->parts[r].weighted;
    return sum;
}

static double mean(const Batches *batches, const BatchSeen *batch, int replica)
{
    return weighted_sum(batches, batch, replica) / batch->images.count;
}

static double own(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)batches;
    return batch->parts[replica].sum;
}

static double own_share(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)batches;
    return batch->parts[replica].weighted / batch->images.count;
}

// Those of a replica without images are no matter: it has nothing of its own.
static double own_where_it_has(const Batches *batches, const BatchSeen *batch, int replica)
{
    const Part *part = &batch->parts[replica];
    return part->gradients > 0 ? own(batches, batch, replica) : part->applied;
}

static double own_share_where_it_has(const Batches *batches, const BatchSeen *batch, int replica)
{
    const Part *part = &batch->parts[replica];
    return part->gradients > 0 ? own_share(batches, batch, replica) : part->applied;
}

static double sum(const Batches *batches, const BatchSeen *batch, int replica)
{
    double all = 0;
    (void)replica;
    for (int r = 0; r < batches->replicas; r++)
        all += batch->parts[r].sum;
    return all;
}

static double by_replicas(const Batches *batches, const BatchSeen *batch, int replica)
{
    return sum(batches, batch, replica) / batches->replicas;
}

static double by_busy_replicas(const Batches *batches, const BatchSeen *batch, int replica)
{
    int busy = 0;
    for (int r = 0; r < batches->replicas; r++)
        busy += batch->parts[r].images.count > 0;
    return sum(batches, batch, replica) / busy;
}

static double divided_twice(const Batches *batches, const BatchSeen *batch, int replica)
{
    return mean(batches, batch, replica) / batches->replicas;
}

static double times_replicas(const Batches *batches, const BatchSeen *batch, int replica)
{
    return mean(batches, batch, replica) * batches->replicas;
}

static double first_ones(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)replica;
    return own(batches, batch, 0);
}

static double last_ones(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)replica;
    return own(batches, batch, batches->replicas - 1);
}

static double nothing(const Batches *batches, const BatchSeen *batch, int replica)
{
    (void)batches, (void)batch, (void)replica;
    return 0;
}

static double by_whole_numbers(const Batches *batches, const BatchSeen *batch, int replica)
{
    double all = 0;
    (void)replica;
    for (int r = 0; r < batches->replicas; r++)
        all += batch->parts[r].sum * (batch->parts[r].images.count / batch->images.count);
    return all;
}

static double sum_by_own_share(const Batches *batches, const BatchSeen *batch, int replica)
{
    return sum(batches, batch, replica) * batch->parts[replica].images.count / batch->images.count;
}

// Divided by the images of a full batch, which the last one may not be.
static double by_full_batch(const Batches *batches, const BatchSeen *batch, int replica)
{
    int full = 0;
    for (int b = 0; b < batches->count; b++)
        if (batches->items[b].trains && batches->items[b].images.count > full)
            full = batches->items[b].images.count;
    return weighted_sum(batches, batch, replica) / full;
}

// What its own share and those of some others come to; of all such sums the nearest to what it
// applies.
static double some_shares(const Batches *batches, const BatchSeen *batch, int replica)
{
    double applied = batch->parts[replica].applied, nearest = INFINITY;
    for (unsigned chosen = 0; chosen < 1U << batches->replicas; chosen++) {
        double sum_of_chosen = 0;
        for (int r = 0; r < batches->replicas; r++)
            if (r == replica || chosen >> r & 1)
                sum_of_chosen += own_share(batches, batch, r);
        if (fabs(sum_of_chosen - applied) < fabs(nearest - applied))
            nearest = sum_of_chosen;
    }
    return nearest;
}

static double mean_by_own_rate(const Batches *batches, const BatchSeen *batch, int replica)
{
    return mean(batches, batch, replica) * batch->parts[replica].rate / RATE;
}

static double largest(const Batches *batches, const BatchSeen *batch)
{
    double most = 0;
    for (int r = 0; r < batches->replicas; r++)
        most = fmax(most, fabs(batch->parts[r].sum));
    return most;
}

static bool is_explained(const Batches *batches, const BatchSeen *batch, Formula formula)
{
    for (int r = 0; r < batches->replicas; r++) {
        double off = batch->parts[r].applied - formula(batches, batch, r);
        if (!(fabs(off) <= TOLERANCE * largest(batches, batch)))
            return false;
    }
    return true;
}

// The first batch whose updates the formula does not explain.
static const BatchSeen *first_unexplained(const Batches *batches, Formula formula)
{
    for (int b = 0; b < batches->count; b++)
        if (batches->items[b].trains && !is_explained(batches, &batches->items[b], formula))
            return &batches->items[b];
    return NULL;
}

// On one device what is done may be right all the same.
static bool explains(const AllBatches *all, Formula formula)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        bool alone = batches->replicas == 1;
        if (first_unexplained(batches, formula) && !(alone && !first_unexplained(batches, mean)))
            return false;
    }
    return true;
}

static const Diagnosis not_shared = {
    "not-exchanged",
    "each replica applies what its own part gives: they drift apart. sum_among_replicas() adds up "
    "what all of them bring.",
    NULL};
static const Diagnosis not_written = {
    "sum-not-written",
    "each replica applies what its own part gives, though sum_among_replicas() is called. Often "
    "the sum stays in the program's array: model_write_gradients() puts it into the model, before "
    "apply_gradients().",
    NULL};
static const Diagnosis not_divided = {
    "sum-not-mean",
    "the means of all parts are added up, and nothing is divided: the update is as many times too "
    "large as there are parts.",
    NULL};
static const Diagnosis equal_weights = {
    "parts-weigh-the-same",
    "the replicas' gradients are averaged as if all parts had equally many images. A mean over 4 "
    "images and one over 3 give the mean over 7 only where each counts by its images.",
    NULL};
static const Diagnosis of_images = {
    "not-divided-by-batch",
    "each part's mean counts by its images, and then it has to be divided by those of the whole "
    "batch.",
    NULL};
static const Diagnosis twice_divided = {
    "divided-twice",
    "what is applied is the mean once more divided by the number of replicas: shares of the whole "
    "batch already add up to the mean.",
    NULL};
static const Diagnosis too_large = {
    "multiplied-by-replicas",
    "what is applied is the mean times the number of replicas. Often it was the mean of the whole "
    "batch already, and all replicas added it up once more.",
    NULL};
static const Diagnosis of_first = {
    "first-replicas-gradient", "all replicas apply the gradient of replica 0's part alone.", NULL};
static const Diagnosis of_last = {
    "last-replicas-gradient", "all replicas apply the gradient of the last replica's part alone.",
    NULL};
static const Diagnosis zero = {
    "gradient-zero",
    "what is applied is 0. Often the gradients were never read, or are multiplied by a quotient of "
    "two whole numbers, such as 1 / replica->count.",
    NULL};
static const Diagnosis whole_numbers = {
    "integer-division",
    "what is applied is 0 wherever a batch is shared, and right where one replica has all of it: "
    "as "
    "if the share were the quotient of two whole numbers, part.count / whole->count.",
    NULL};
static const Diagnosis equal_afterwards = {
    "weights-made-equal",
    "each replica applies the gradient of its own part, and the weights are made equal afterwards. "
    "With plain SGD that may come to the same; with momentum or Adam it does not. It is the "
    "gradient "
    "that all have to share.",
    NULL};
static const Diagnosis other_rate = {
    "learning-rate-changed",
    "the gradient is the mean, but it is applied with another learning rate than the page's 0.1. A "
    "batch is of as many images on any number of devices, so the rate stays.",
    NULL};
static const Diagnosis full_batch = {
    "divided-by-full-batch",
    "all batches are divided by the images of a full one, --batch-size. The last one of an epoch "
    "may have fewer: whole->count says how many.",
    NULL};
static const Diagnosis after_sum = {
    "scaled-after-sum",
    "each replica applies the sum of the parts' means, multiplied by the share of its own part: so "
    "each applies something else. A part's share belongs to that part's mean, before the sum.",
    NULL};
static const Diagnosis incomplete = {
    "sum-incomplete",
    "some replicas apply the shares of some parts only, their own among them. Often a sum is taken "
    "before all have added to it: a lock keeps two from adding at once, and lets nobody wait "
    "until all have added. sum_among_replicas() does.",
    NULL};
static const Diagnosis empty_not_zero = {
    "empty-part-not-zero",
    "the mean is right until a replica is without images, and then those with images are wrong, "
    "too. Often that replica brings values that are not 0: malloc leaves in memory what was there; "
    "calloc makes it zeros.",
    NULL};
static const Diagnosis differs = {
    "applied-differs",
    "the replicas apply different gradients. Often not all of a gradient goes through the sum (a "
    "dense layer has weights and biases), or something is done after it that is not the same on "
    "all replicas.",
    NULL};
static const Diagnosis wrong = {
    "not-the-mean",
    "what the replicas apply is not the mean over the batch's images. Each replica has the mean "
    "over its part: multiplied by the part's share of the batch, they add up to it.",
    NULL};

static const struct {
    Formula formula;
    const Diagnosis *diagnosis;
} known[] = {{mean_by_own_rate, &other_rate},
             {sum, &not_divided},
             {by_replicas, &equal_weights},
             {by_busy_replicas, &equal_weights},
             {weighted_sum, &of_images},
             {divided_twice, &twice_divided},
             {times_replicas, &too_large},
             {first_ones, &of_first},
             {last_ones, &of_last},
             {nothing, &zero},
             {by_whole_numbers, &whole_numbers},
             {by_full_batch, &full_batch},
             {sum_by_own_share, &after_sum},
             {some_shares, &incomplete}};

static bool sums_are_made(const AllBatches *all)
{
    for (int i = 0; i < all->count; i++)
        for (int b = 0; b < all->items[i].count; b++)
            for (int r = 0; r < all->items[i].replicas; r++)
                if (all->items[i].items[b].parts[r].sums)
                    return true;
    return false;
}

static bool all_apply_the_same(const Batches *batches, const BatchSeen *batch)
{
    for (int r = 1; r < batches->replicas; r++)
        if (!(fabs(batch->parts[r].applied - batch->parts[0].applied) <=
              TOLERANCE * largest(batches, batch)))
            return false;
    return true;
}

static bool applies_the_mean(const Batches *batches, const BatchSeen *batch, int replica)
{
    double off = batch->parts[replica].applied - mean(batches, batch, replica);
    return fabs(off) <= TOLERANCE * largest(batches, batch);
}

// True where in every run the first batch whose updates are wrong comes after right ones, a replica
// has none of its images, and one that has some is wrong.
static bool only_with_empty_parts(const AllBatches *all)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const BatchSeen *batch = first_unexplained(batches, mean);
        bool empty = false, others = false;
        for (int r = 0; batch && r < batches->replicas; r++) {
            bool has_none = batch->parts[r].images.count == 0;
            empty |= has_none;
            others |= !has_none && !applies_the_mean(batches, batch, r);
        }
        if (batch && (batch == batches->items || !empty || !others))
            return false;
    }
    return true;
}

// The batch is the first one whose updates are not right.
static const Diagnosis *wrong_gradient(const AllBatches *all, const Batches *batches,
                                       const BatchSeen *batch)
{
    if (explains(all, own_where_it_has) || explains(all, own_share_where_it_has))
        return weights_are_equal(all) ? &equal_afterwards
               : sums_are_made(all)   ? &not_written
                                      : &not_shared;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (explains(all, known[i].formula))
            return known[i].diagnosis;
    if (only_with_empty_parts(all))
        return &empty_not_zero;
    return all_apply_the_same(batches, batch) ? &wrong : &differs;
}

static char *gradient_evidence(const Batches *batches, const BatchSeen *batch)
{
    char *text = batch_text(batches, batch);
    for (int r = 0; r < batches->replicas; r++) {
        const Part *part = &batch->parts[r];
        text_add(&text, "\nreplica %d: %d image%s, computed ", r, part->images.count,
                 part->images.count == 1 ? "" : "s");
        if (part->gradients == 1)
            text_add(&text, "%.6g", part->sum);
        else
            text_add(&text, "%d gradients", part->gradients);
        text_add(&text, ", applied %.6g", part->given);
        if (fabs(part->rate - RATE) > RATE * TOLERANCE)
            text_add(&text, " with learning rate %g", part->rate);
    }
    text_add(&text, "\nmean over the batch's images: %.6g (fingerprints)", mean(batches, batch, 0));
    return text;
}

static bool judge_mean_of_batch(const Runs *runs, const AllBatches *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        const Batches *batches = &all->items[i];
        const BatchSeen *batch = first_unexplained(batches, mean);
        if (!batch)
            continue;
        report_failure(report, MEAN, wrong_gradient(all, batches, batch),
                       evidence_in(runs, batches->run, gradient_evidence(batches, batch)));
        return false;
    }
    report_ok(report, MEAN);
    return true;
}

// ---- The weights, and the evaluation.

// How far a replica's weights before the batch are from those of the first one that computed some.
static double distance(const Batches *batches, const BatchSeen *batch, int replica, int *first)
{
    *first = 0;
    while (*first < batches->replicas - 1 && isnan(batch->parts[*first].weights))
        ++*first;
    double reference = batch->parts[*first].weights, own_weights = batch->parts[replica].weights;
    return isnan(own_weights) ? 0 : fabs(own_weights - reference) / fmax(1, fabs(reference));
}

static bool weights_are_equal(const AllBatches *all)
{
    for (int i = 0; i < all->count; i++)
        for (int b = 0; b < all->items[i].count; b++)
            for (int r = 0, first; r < all->items[i].replicas; r++)
                if (!(distance(&all->items[i], &all->items[i].items[b], r, &first) <= WEIGHTS))
                    return false;
    return true;
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
                double off = distance(batches, batch, r, &first);
                last_bits = last_bits || off > 0;
                if (off <= WEIGHTS)
                    continue;
                char *evidence = batch_text(batches, batch);
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

static void judge_test(const Runs *runs, const AllBatches *all, Report *report)
{
    for (int i = 0; i < all->count; i++) {
        char *evidence;
        const Diagnosis *diagnosis = wrong_test(&all->items[i], &evidence);
        if (!evidence)
            continue;
        report_failure(report, TEST, diagnosis, evidence_in(runs, all->items[i].run, evidence));
        return;
    }
    report_ok(report, TEST);
}

static void judge(const Runs *runs, Report *report)
{
    AllBatches all = {allocate((size_t)runs->count, sizeof *all.items), runs->count};
    for (int i = 0; i < runs->count; i++)
        all.items[i] = read_batches(&runs->items[i]);
    if (judge_devices(runs, &all, report) && judge_parts(runs, &all, report) &&
        judge_evenness(runs, &all, report) && judge_updates(runs, &all, report) &&
        judge_mean_of_batch(runs, &all, report) && judge_weights(runs, &all, report))
        judge_test(runs, &all, report);
    for (int i = 0; i < runs->count; i++)
        free_batches(&all.items[i]);
    free(all.items);
}

static const Explanation explanations[] = {
    {"mirrored: there is no device",
     {"devices-fixed",
      "the list names a device that this process does not have. mirrored() with NULL and 0 in "
      "place "
      "of a list takes all that there are, however many.",
      NULL}},
    {"waits in it for the others",
     {"not-called-by-all",
      "the library's line names two replicas of which one waits for the other in vain. Often the "
      "call stands behind an if that a replica without images does not enter, or behind its "
      "return.",
      NULL}},
    {"there are no images in the batch",
     {"empty-part",
      "a replica without images can't compute. A batch may have fewer images than there are "
      "replicas: it computes nothing then, and brings zeros.",
      NULL}},
    {"bring the same array",
     {"array-shared",
      "all replicas write to one array, at the same time. What each fills is its own: memory that "
      "the function itself allocates.",
      NULL}},
    {"one of the threads that are at work on the devices",
     {"on-each-device-nested",
      "on_each_device() is called inside a function that it runs. That function is on all devices "
      "already.",
      NULL}},
    {"apply_gradients: there are no gradients",
     {"applied-without-gradients",
      "apply_gradients() needs gradients that are new: computed, or written by "
      "model_write_gradients(), on every replica, also one without images.",
      NULL}},
    {"there are no gradients; call compute_gradients() before",
     {"read-too-early",
      "model_read_gradients() gives what compute_gradients() has computed. A replica without "
      "images "
      "has computed nothing.",
      NULL}},
    {"a label of the batch is",
     {"labels-beyond-batch",
      "the labels of some part are no classes: they lie behind the end of the batch's labels. "
      "Often "
      "they are moved on by PIXELS for each image, like the pixels; an image has one label.",
      NULL}},
    {0},
};
static const Ends ends = {.explanations = explanations};

JUDGE("mirrored", judge)
ENDS("mirrored", &ends)
