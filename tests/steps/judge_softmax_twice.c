// Softmax_twice: compares the training loss and the printed metrics with the model's own
// probabilities of the labels, batch by batch; and checks that the rest is unchanged.

#include "end.h"
#include "drawn.h"
#include "passes.h"
#include "diagnoses/judge_softmax_twice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/format.h"

#define TRAINED  "the loss is -log of the probability that the model gives to the label"
#define LAYERS   "the layers below the softmax are those of the exercise"
#define UPDATES  "every update is Adam's, at the exercise's rate, from the gradient of its batch"
#define IMAGES   "every epoch trains on each image once"
#define LOGGED   "the loss that is logged and printed is the mean of that"
#define ACCURACY "the accuracy is the fraction of images whose label is the most likely class"

#define TOLERANCE 1e-4 // of a loss; what is printed has four digits
#define ROUNDING  1e-9 // of a gradient's fingerprint
#define SPREAD    1e-3 // of logarithms of probabilities, in single precision
#define RATE      0.001

// ---- What the model said.

// Sums over batches.
typedef struct {
    double images, loss, surprise, correct;
} Answers;

// Of the last batches of a kind, at most `batches` of them, before this event.
static Answers answers_before(const Events *events, int end, bool training, double batches)
{
    Answers sum = {0};
    for (int i = end - 1; i >= 0 && batches > 0; i--) {
        const cJSON *event = events->items[i];
        if (!event_is(event, "answers") || event_number(event, "training") != training)
            continue;
        sum.images += event_number(event, "images");
        sum.loss += event_number(event, "loss");
        sum.surprise += event_number(event, "surprise");
        sum.correct += event_number(event, "correct");
        batches--;
    }
    return sum;
}

// Of the last look at all test images.
static Answers last_test(const Run *run)
{
    double batches = ceil(run_flag(run, "--images ") / run_flag(run, "--val-batch-size "));
    const Events *events = &run->traces.of[0];
    return answers_before(events, events->count, false, batches);
}

static bool differ(double a, double b)
{
    return !(fabs(a - b) <= TOLERANCE * fmax(1, fabs(b)));
}

// What the program prints last.
static bool printed_figures(const Run *run, double *loss, double *accuracy)
{
    bool found = false;
    for (int i = 0; i < run->output.count; i++) {
        const Line *line = &run->output.lines[i];
        found |=
            !line->error && sscanf(line->text, "Test: loss %lf, accuracy %lf", loss, accuracy) == 2;
    }
    return found;
}

// ---- The loss.

// The model that is trained: the last one that is compiled before fit().
static const char *model_of(const Run *run)
{
    const Events *events = &run->traces.of[0];
    const cJSON *compiled = NULL;
    int fit = event_find(events, "fit", 0);
    for (int at = -1; (at = event_find(events, "compile", at + 1)) >= 0 && (!compiled || at < fit);)
        compiled = events->items[at];
    return event_text(compiled, "model");
}

// One after the other at the model's end, with the loss's own, if it has one.
static int softmaxes(const char *model)
{
    int in_a_row = 0;
    for (const char *line = model, *end; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        const char *found = strstr(line, ": softmax of ");
        in_a_row = found && found < end ? in_a_row + 1 : 0;
    }
    return in_a_row + (strstr(model, ", read as logits") != NULL);
}

// Of the model that the program has with the most of them.
static int most_softmaxes(const Run *run)
{
    const Events *events = &run->traces.of[0];
    int most = 0;
    EACH (at, events, "compile") {
        int count = softmaxes(event_text(events->items[at], "model"));
        most = count > most ? count : most;
    }
    return most;
}

// Of the batches whose loss is not what the model said the one where it is the most above that;
// NULL: there are none.
static const cJSON *wrong_loss(const Run *run)
{
    const Events *events = &run->traces.of[0];
    const cJSON *worst = NULL;
    double most = -INFINITY;
    EACH (at, events, "answers") {
        const cJSON *batch = events->items[at];
        double images = event_number(batch, "images"), loss = event_number(batch, "loss") / images,
               said = event_number(batch, "surprise") / images;
        if (differ(loss, said) && !(loss - said <= most)) {
            worst = batch;
            most = loss - said;
        }
    }
    return worst;
}

// The largest of a number of any batch.
static double most_in_answers(const Run *run, const char *field)
{
    const Events *events = &run->traces.of[0];
    double most = 0;
    EACH (at, events, "answers")
        most = fmax(most, event_number(events->items[at], field));
    return most;
}

static bool tests_on_training_images(const Run *run)
{
    const Events *events = &run->traces.of[0];
    for (int at = event_find(events, "fit_end", 0); at >= 0;
         at = event_find(events, "images", at + 1))
        if (event_has(events->items[at], "split", "train"))
            return true;
    return false;
}

static bool figures_were_changed(const Run *run)
{
    const Events *events = &run->traces.of[0];
    double loss, accuracy;
    Answers test = last_test(run);
    if (printed_figures(run, &loss, &accuracy) && !tests_on_training_images(run) &&
        differ(loss, test.loss / test.images))
        return true;
    for (int e = 0; e < event_count(events, "history"); e++) {
        const cJSON *own = event_nth(events, "epoch", e), *logged = event_nth(events, "history", e);
        if (differ(event_number(logged, "loss"), event_number(own, "loss")) ||
            differ(event_number(logged, "val_loss"), event_number(own, "val_loss")))
            return true;
    }
    return false;
}

static char *evidence_of_loss(const Run *run, const cJSON *batch, int count)
{
    char *evidence = format_text("softmaxes that are applied, one after the other: %d", count);
    if (batch) {
        double images = event_number(batch, "images");
        text_add(&evidence,
                 "\nin a batch of %.0f images the loss is %.4f an image; -log of the probability "
                 "that the model gives to the label is %.4f",
                 images, event_number(batch, "loss") / images,
                 event_number(batch, "surprise") / images);
    } else {
        text_add(&evidence, "\nthe largest probability that the model gave to any class is %.4f",
                 most_in_answers(run, "surest"));
    }
    return evidence;
}

static Fault loss_fault(const Run *run)
{
    const cJSON *wrong = wrong_loss(run);
    int count = wrong ? most_softmaxes(run) : softmaxes(model_of(run));
    if (!wrong && count <= 1)
        return NO_FAULT;
    return (Fault){count <= 1                  ? &d_loss_wrong
                   : figures_were_changed(run) ? &d_only_the_figure
                                               : &d_softmax_twice,
                   evidence_of_loss(run, wrong, count)};
}

// ---- The rest of the file.

// Without softmaxes, and layers of the program's own behind one, which may come after the last of
// these; and without what a line says besides.
static const char *const layers[] = {
    "layer 0: input, 28x28x1",
    "layer 1: conv2d of layer 0, size 3, 28x28x32",
    "layer 2: relu of layer 1, 28x28x32",
    "layer 3: max_pool of layer 2, size 2, 14x14x32",
    "layer 4: conv2d of layer 3, size 3, 14x14x64",
    "layer 5: relu of layer 4, 14x14x64",
    "layer 6: max_pool of layer 5, size 2, 7x7x64",
    "layer 7: flatten of layer 6, 1x1x3136",
    "layer 8: dense of layer 7, 1x1x256",
    "layer 9: relu of layer 8, 1x1x256",
    "layer 10: dense of layer 9, 1x1x10",
};

// The first line of the model that is not the exercise's: another one, one too many, or one that is
// missing. NULL: all are.
static char *first_other_layer(const char *model)
{
    size_t count = sizeof layers / sizeof *layers;
    char *other = NULL;
    bool softmax = false;
    for (size_t i = 0; (i < count || *model) && !other; i++) {
        const char *was = i < count ? layers[i] : NULL;
        size_t length = strcspn(model, "\n");
        char *line = format_text("%.*s", (int)length, model);
        char *logits = strstr(line, ", read as logits");
        if (logits)
            *logits = '\0';
        softmax = softmax || (!was && strstr(line, ": softmax of "));
        if (was ? strcmp(line, was) != 0
                : !strstr(line, ": softmax of ") &&
                      !(softmax && strstr(line, ": custom_layer of ")))
            other =
                format_text("the model has '%s', %s%s%s", length ? line : "nothing more",
                            was ? "the file as it was '" : "and the file as it was nothing there",
                            was ? was : "", was ? "'" : "");
        free(line);
        model += length + (model[length] == '\n');
    }
    return other;
}

// The layers are the exercise's. The loss reads logits that a layer of the program's own makes of
// the softmax's output, and these are not its logarithms.
static Fault layer_between_fault(const Run *run)
{
    const char *model = model_of(run);
    double spread = most_in_answers(run, "spread");
    char *other = first_other_layer(model);
    bool between = !other && strstr(model, ": custom_layer of ") && spread > SPREAD;
    free(other);
    return !between ? NO_FAULT
                    : fault_with(&d_softmax_twice_with_a_layer_between,
                                 "the loss applies a softmax to what a layer of the program's own "
                                 "makes of a softmax's output\nlog of the sum of exp() of an "
                                 "image's outputs differs by up to %.4f among the images of a "
                                 "batch; of logarithms of probabilities it does not",
                                 spread);
}

static Fault trained_fault(const Run *run)
{
    Fault fault = loss_fault(run);
    return fault.diagnosis ? fault : layer_between_fault(run);
}

static Fault layers_fault(const Run *run)
{
    char *other = first_other_layer(model_of(run));
    if (!other)
        return NO_FAULT;
    bool relu = strstr(other, "'layer 11: relu of layer 10, 1x1x10") != NULL;
    bool softmax = strstr(other, ": softmax of ") != NULL;
    return (Fault){relu      ? &d_model_changed_relu_at_the_end
                   : softmax ? &d_model_changed_softmax_moved
                             : &d_model_changed,
                   other};
}

static const Diagnosis *wrong_update(const cJSON *gradient, const cJSON *apply)
{
    if (!event_has(apply, "optimizer", "Adam"))
        return &d_optimizer_changed;
    if (differ(event_number(apply, "learning_rate") / RATE, 1))
        return &d_rate_changed;
    double applied = event_number(apply, "value"), computed = event_number(gradient, "value");
    bool same = fabs(applied - computed) <= TOLERANCE * fabs(computed) + ROUNDING;
    return same ? NULL : &d_gradient_changed;
}

static Fault update_fault(const Run *run)
{
    const Events *events = &run->traces.of[0];
    const cJSON *computed = NULL;
    int update = 0;
    EACH_EVENT (event, events) {
        if (event_is(event, "gradient"))
            computed = event;
        if (!event_is(event, "apply"))
            continue;
        update++;
        const Diagnosis *wrong = wrong_update(computed, event);
        if (wrong)
            return fault_with(wrong,
                              "update %d: %s, rate %g, of a gradient with the fingerprint %.6g; "
                              "computed was %.6g",
                              update, event_text(event, "optimizer"),
                              event_number(event, "learning_rate"), event_number(event, "value"),
                              event_number(computed, "value"));
    }
    return NO_FAULT;
}

// The first epoch that is not made of each image once, or is one too many or too few; else -1.
static int first_other_epoch(const Passes *passes, int epochs)
{
    for (int e = 0; e < passes->count[0] && e < epochs; e++) {
        const Pass *pass = &passes->of[0][e];
        if (pass->foreign > 0 || pass->count != passes->total ||
            pass_distinct(pass, passes->total) != passes->total)
            return e;
    }
    return passes->count[0] == epochs ? -1 : passes->count[0] < epochs ? passes->count[0] : epochs;
}

static Fault images_fault(const Run *run)
{
    Passes passes = passes_trained(run);
    int epochs = (int)run_flag(run, "--epochs "), other = first_other_epoch(&passes, epochs);
    Fault fault = NO_FAULT;
    if (other >= 0) {
        fault = fault_with(&d_training_changed, "of %d images, %d epochs; epoch %d:", passes.total,
                           epochs, other + 1);
        if (other < passes.count[0])
            add_passes(&fault.evidence, &passes, other);
        else
            text_add(&fault.evidence, " there is none");
    }
    passes_free(&passes);
    return fault;
}

// ---- The printed metrics.

typedef struct {
    const char *field, *of_test; // of a history
    const char *printed;
    const Diagnosis *changed;
} Metric;

static const Metric loss = {"loss", "val_loss", "the loss behind 'Test:'", &d_figure_changed},
                    accuracy = {"accuracy", "val_accuracy", "the accuracy behind 'Test:'",
                                &d_accuracy_wrong};

// By the model, in the mean.
static double said(const Metric *metric, Answers sum)
{
    return (metric == &loss ? sum.surprise : sum.correct) / sum.images;
}

static Fault other_figure(const char *what, double shown, double mean, const Diagnosis *changed)
{
    if (!differ(shown, mean))
        return NO_FAULT;
    if (isnan(shown))
        return fault_with(&d_not_printed, "no line says %s", what);
    return fault_with(changed, "%s is %.4f; by what the model said of each image it is %.4f", what,
                      shown, mean);
}

static Fault printed_fault(const Run *run, const Metric *metric)
{
    double of_loss = NAN, of_accuracy = NAN;
    printed_figures(run, &of_loss, &of_accuracy);
    return other_figure(metric->printed, metric == &loss ? of_loss : of_accuracy,
                        said(metric, last_test(run)),
                        tests_on_training_images(run) ? &d_other_images : metric->changed);
}

static Fault metric_fault(const Run *run, const Metric *metric)
{
    const Events *events = &run->traces.of[0];
    const cJSON *fit = event_nth(events, "fit", 0);
    for (int e = 0, at = -1; e < event_count(events, "history"); e++) {
        const cJSON *logged = event_nth(events, "history", e);
        at = event_find(events, "epoch", at + 1);
        Answers train = answers_before(events, at, true, event_number(fit, "steps"));
        Answers test = answers_before(events, at, false, event_number(fit, "validation_steps"));
        Fault fault = other_figure(metric->field, event_number(logged, metric->field),
                                   said(metric, train), metric->changed);
        if (!fault.diagnosis)
            fault = other_figure(metric->of_test, event_number(logged, metric->of_test),
                                 said(metric, test), metric->changed);
        if (fault.diagnosis) {
            text_add(&fault.evidence, "\nin epoch %d", e + 1);
            return fault;
        }
    }
    return printed_fault(run, metric);
}

static Fault logged_fault(const Run *run)
{
    return metric_fault(run, &loss);
}

static Fault accuracy_fault(const Run *run)
{
    return metric_fault(run, &accuracy);
}

static void judge(const Runs *runs, Report *report)
{
    if (none_computed(runs, TRAINED, report))
        return;
    bool right = judge_property(runs, TRAINED, trained_fault, report);
    judge_property(runs, LAYERS, layers_fault, report);
    judge_property(runs, UPDATES, update_fault, report);
    judge_property(runs, IMAGES, images_fault, report);
    judge_labels(runs, report);
    if (right)
        judge_property(runs, LOGGED, logged_fault, report);
    judge_property(runs, ACCURACY, accuracy_fault, report);
}

JUDGE("softmax_twice", judge)
OWN_ENDS("softmax_twice",
         EXPLAINED({"needs a model that ends in softmax", &d_no_softmax},
                   {"compile: the model is compiled already", &d_compiled_twice},
                   {"there are layers after the model's output", &d_softmax_left_behind}))
