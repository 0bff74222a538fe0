// plan: what a rank holds and sends in a step by each way of training, each number with its formula
// (make plan). It measures nothing: tests/mpi/test_plan.sh compares it with what the labs' programs
// hold and send.
//
// A model is a row of parts: layers, or blocks of a Wide ResNet.

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"
#include "base/numbers.h"

#define MAX_PARTS 1000
#define MAX_RANKS 1000000

static const char usage[] =
    "Usage: plan MODEL RANKS [FLAG=VALUE]...    (make plan MODEL=... RANKS=... FLAGS=\"...\")\n\n"
    "Prints what a rank holds, and what it sends in a step, by each way of training. MODEL:\n"
    "  wrn:K                the Wide ResNet of width K, 1 to 64\n"
    "  lenet, mlp, cnn      the other networks of the kit\n"
    "  chain:N              N dense layers: 9 in zero, 5 in split, 16 in recompute\n"
    "  tensor               the network of the exercise tensor\n"
    "  7.5e9                a number of parameters\n"
    "  7.5e9:LAYERS:VALUES  the same in equal layers, each of which gives VALUES numbers an image\n\n"
    "  --batch B            images of a step, on all ranks together (128)\n"
    "  --bytes W,G,S        of a weight, of its gradient and its optimizer's state: 4,4,8 (Adam, fp32)\n"
    "                       4,4,0 is SGD, 4,4,4 momentum, 2,2,12 Adam in mixed precision\n"
    "  --micro-batches M    of a pipeline (8)\n"
    "  --link GB/S          the bandwidth of a rank's link (25)\n"
    "  --latency US         of a message, in microseconds (10)\n"
    "  --memory GB          of a device (80)\n";

// The work is in multiplications. Work and values, also `out`, are for one image.
typedef struct {
    double parameters, work;
    double values; // that the backward pass needs
    double out;    // that the next part reads
} ModelPart;

// Two layers, the first by columns and the second by rows, are a pair of tensor parallelism.
typedef enum { WHOLE, BY_COLUMNS, BY_ROWS } Cut;

typedef struct {
    ModelPart parts[MAX_PARTS];
    int count;
    bool only_parameters; // nothing else is known; it has one part
    int side, channels;   // the next layer reads side x side x channels values
    Cut cut;              // of the last layer
    // Of all layers that are cut: parameters and values that are divided, values that all-reduces
    // add up, and the number of these.
    double cut_parameters, cut_values, summed_values, sums;
} Network;

static Network network;

static double ranks, batch = 128, weight = 4, gradient = 4, state = 8, micro_batches = 8;
static double link_speed = 25, latency = 10, memory = 80;

// ---- Networks.

static double values_now(void)
{
    return (double)network.side * network.side * network.channels;
}

static void begin_network(int side, int channels)
{
    network.side = side;
    network.channels = channels;
}

static ModelPart *last_part(void)
{
    return &network.parts[network.count - 1];
}

static void keep_values(double count)
{
    last_part()->values += count;
    last_part()->out = values_now();
    network.cut_values += network.cut == BY_COLUMNS ? count : 0;
}

static void begin_part(void)
{
    network.count++;
    network.cut = WHOLE;
    if (network.count == 1)
        keep_values(values_now()); // the images
}

// Each output has a row of inputs and some other parameters: a bias, 1; with a batch norm, 3. The
// backward pass needs a layer's output and, behind a batch norm, the norm's as well.
static void add_layer(double inputs, int outputs, int others, Cut cut)
{
    double kernel = inputs * outputs, all = kernel + (double)others * outputs;
    if (cut == BY_COLUMNS && network.count > 1) { // images need no gradient
        network.summed_values += values_now();
        network.sums++;
    }
    network.channels = outputs;
    network.cut = cut;
    network.cut_parameters += cut == BY_COLUMNS ? all : cut == BY_ROWS ? kernel : 0;
    last_part()->parameters += all;
    last_part()->work += kernel * network.side * network.side;
    keep_values(others == 3 ? 2 * values_now() : values_now());
    if (cut == BY_ROWS) {
        network.summed_values += values_now();
        network.sums++;
    }
}

static void add_dense(int units, int others, Cut cut)
{
    begin_part();
    double inputs = values_now();
    begin_network(1, (int)inputs);
    add_layer(inputs, units, others, cut);
}

static void add_convolution(int filters, int pool, Cut cut)
{
    begin_part();
    add_layer(9.0 * network.channels, filters, 1, cut);
    network.side /= pool;
    keep_values(values_now());
}

static void add_block(int filters, bool scale_input)
{
    begin_part();
    int channels = network.channels;
    if (scale_input)
        add_layer(channels, filters, 1, WHOLE);
    network.channels = channels;
    add_layer(9.0 * channels, filters, 3, BY_COLUMNS);
    add_layer(9.0 * filters, filters, 3, BY_ROWS);
    keep_values(values_now()); // the sum
}

static void wide_resnet(int width)
{
    begin_network(28, 1);
    begin_part();
    add_layer(9, 16, 3, WHOLE);
    for (int group = 0; group < 3; group++) {
        if (group > 0) {
            network.side /= 2;
            keep_values(values_now());
        }
        add_block((16 << group) * width, true);
        add_block((16 << group) * width, false);
    }
    network.side = 1; // the mean over all pixels
    add_dense(10, 1, WHOLE);
}

static void small_cnn(int side, int channels, int units)
{
    begin_network(side, channels);
    add_convolution(32, 2, BY_COLUMNS);
    add_convolution(64, 2, BY_ROWS);
    add_dense(units, 1, BY_COLUMNS);
    add_dense(10, 1, BY_ROWS);
}

static void dense_chain(int layers, int units)
{
    begin_network(28, 1);
    for (int i = 0; i < layers; i++) {
        bool last = i == layers - 1;
        add_dense(last ? 10 : units, 1, i % 2 ? BY_ROWS : last ? WHOLE : BY_COLUMNS);
    }
}

static void network_of_tensor(void)
{
    begin_network(28, 1);
    add_convolution(32, 4, WHOLE);
    add_dense(960, 1, BY_COLUMNS);
    add_dense(128, 0, BY_ROWS);
    add_dense(10, 1, WHOLE);
}

// Equal layers, each of which is a pair.
static void equal_layers(double parameters, int layers, double values)
{
    network = (Network){.count = layers,
                        .cut_parameters = parameters,
                        .summed_values = 2 * layers * values,
                        .sums = 2 * layers};
    for (int i = 0; i < layers; i++)
        network.parts[i] = (ModelPart){parameters / layers, parameters / layers, values, values};
}

// ---- The command line.

static double need_number(const char *what, const char *text, double least, double most)
{
    char *end;
    double number = text ? read_double(text, &end) : NAN;
    if (!text || end == text || *end || !(number >= least && number <= most))
        die("%s must be a number from %g to %g, not '%s'", what, least, most, text ? text : "");
    return number;
}

static double need_whole(const char *what, const char *text, long least, long most)
{
    long number = whole_number(text, most);
    if (number < least)
        die("%s must be a whole number from %ld to %ld, not '%s'", what, least, most,
            text ? text : "");
    return (double)number;
}

static void read_parameters(char *text)
{
    char *layers = strchr(text, ':'), *values = layers ? strchr(layers + 1, ':') : NULL;
    if (layers && !values)
        die("MODEL is PARAMETERS:LAYERS:VALUES, not '%s'", text);
    if (layers)
        *layers++ = *values++ = '\0';
    double parameters = need_number("the parameters of MODEL", text, 1, 1e15);
    network.only_parameters = !layers;
    if (layers)
        equal_layers(parameters, (int)need_whole("the layers of MODEL", layers, 1, MAX_PARTS),
                     need_number("the values of MODEL", values, 1, 1e12));
    else
        network.parts[network.count++].parameters = parameters;
}

static void read_model(char *text)
{
    if (strncmp(text, "wrn:", 4) == 0)
        wide_resnet((int)need_whole("the width of wrn", text + 4, 1, 64));
    else if (strncmp(text, "chain:", 6) == 0)
        dense_chain((int)need_whole("the layers of chain", text + 6, 1, MAX_PARTS), 512);
    else if (strcmp(text, "lenet") == 0)
        small_cnn(28, 1, 512);
    else if (strcmp(text, "cnn") == 0)
        small_cnn(32, 3, 256);
    else if (strcmp(text, "mlp") == 0)
        dense_chain(3, 256);
    else if (strcmp(text, "tensor") == 0)
        network_of_tensor();
    else if (*text >= '0' && *text <= '9')
        read_parameters(text);
    else
        die("there is no model '%s': wrn:K, lenet, mlp, cnn, chain:N, tensor, or a number of "
            "parameters; --help says more",
            text);
}

static void read_bytes(const char *text)
{
    double *to[] = {&weight, &gradient, &state};
    for (int i = 0; i < 3; i++) {
        char *part = text ? next_part(&text, i < 2 ? "," : "") : NULL;
        *to[i] = need_number("each of the three numbers of --bytes W,G,S", part, 0, 64);
        free(part);
    }
}

static void read_flag(const char *flag, char *value)
{
    if (strcmp(flag, "--bytes") == 0)
        read_bytes(value);
    else if (strcmp(flag, "--batch") == 0)
        batch = need_whole(flag, value, 1, 1000000000);
    else if (strcmp(flag, "--micro-batches") == 0)
        micro_batches = need_whole(flag, value, 1, 1000000);
    else if (strcmp(flag, "--link") == 0)
        link_speed = need_number(flag, value, 1e-6, 1e6);
    else if (strcmp(flag, "--latency") == 0)
        latency = need_number(flag, value, 0, 1e9);
    else if (strcmp(flag, "--memory") == 0)
        memory = need_number(flag, value, 1e-3, 1e6);
    else
        die("unknown flag %s; --help lists them", flag);
}

static void read_command(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
    for (int i = 1; i <= 2; i++)
        if (i >= argc || !*argv[i] || strncmp(argv[i], "--", 2) == 0)
            die("%s is missing: plan wrn:10 4, or make plan MODEL=wrn:10 RANKS=4; --help says more",
                i == 1 ? "MODEL" : "RANKS");
    read_model(argv[1]);
    ranks = need_whole("RANKS", argv[2], 1, MAX_RANKS);
    for (int i = 3; i < argc; i++) {
        char *flag = argv[i], *equals = strchr(flag, '=');
        if (equals)
            *equals = '\0';
        read_flag(flag, equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL);
    }
}

// ---- What is printed.

// A way of training: bytes of weights, gradients, the optimizer's state and activations, and bytes
// and messages that a rank sends in a step, with their formulas.
typedef struct {
    const char *holds, *keeps, *sends, *messages_text; // `keeps`: of the activations
    double weights, gradients, states, activations, sent, messages;
} Way;

static double unit_bytes = 1e6;
static const char *unit = "MB";

// What the formulas use beside the command line's numbers.
static double all_parameters, all_values, largest_part, others;

static double bytes_held(const Way *way)
{
    return way->weights + way->gradients + way->states + way->activations;
}

static void print_way(Way way)
{
    double all = bytes_held(&way);
    bool activations = !network.only_parameters;
    printf("  holds  %s%s%s = %.3f + %.3f + %.3f", way.holds, activations ? " + " : "",
           activations ? way.keeps : "", way.weights / unit_bytes, way.gradients / unit_bytes,
           way.states / unit_bytes);
    if (activations)
        printf(" + %.3f", way.activations / unit_bytes);
    printf(" = %.2f %s: %s\n", all / unit_bytes, unit,
           all <= memory * 1e9 ? "fits" : "does not fit");
    printf("  sends  %s = %.3f %s, in %s = %.0f messages: %.2f ms\n\n", way.sends,
           way.sent / unit_bytes, unit, way.messages_text, way.messages,
           way.sent / link_speed / 1e6 + way.messages * latency / 1e3);
}

static void print_header(void)
{
    printf("P = %.0f parameters", all_parameters);
    if (network.only_parameters)
        printf(". Nothing else is known: activations and L, the largest part, count as 0, and\n"
               "n, the number of parts, as 1. MODEL as PARAMETERS:LAYERS:VALUES says more");
    else
        printf(" in n = %d parts, L = %.0f in the largest; V = %.0f values an image", network.count,
               largest_part, all_values);
    printf("\nN = %.0f ranks; B = %.0f images a step, on all of them together\n", ranks, batch);
    printf("w = %g bytes of a weight or value, g = %g of a gradient, s = %g of the optimizer's "
           "state\n",
           weight, gradient, state);
    printf("A link has %g GB/s, a message takes %g us, a device has %g GB\n", link_speed, latency,
           memory);
    printf("holds: weights + gradients + state + activations. ms: bytes / bandwidth + messages x "
           "latency\n\n");
}

// With so many parameters of each kind, and values of the activations.
static Way way_of(double parameters, double values)
{
    return (Way){.weights = weight * parameters,
                 .gradients = gradient * parameters,
                 .states = state * parameters,
                 .activations = weight * values};
}

static void set_sent(Way *way, const char *formula, double bytes)
{
    way->sends = formula;
    way->sent = bytes;
}

static void set_messages(Way *way, const char *formula, double messages)
{
    way->messages_text = formula;
    way->messages = messages;
}

static Way data_parallel(void)
{
    Way way = way_of(all_parameters, all_values * batch / ranks);
    way.holds = "w P + g P + s P";
    way.keeps = "w V B/N";
    set_sent(&way, "2 (N-1)/N g P", 2 * others * gradient * all_parameters);
    set_messages(&way, "2 (N-1)", 2 * (ranks - 1));
    return way;
}

static void print_recompute(Way way)
{
    double n = network.count, segment = ceil(sqrt(n));
    double kept = fmin(n, ceil(n / segment) + fmax(segment - 2, 1));
    printf(
        "recompute: at most K = min(n, ceil(n/k) + max(k-2, 1)) = %.0f of the n parts keep "
        "activations,\nin segments of k = ceil(root of n) = %.0f; and up to a third more computing\n",
        kept, segment);
    way.keeps = "w V B/N K/n";
    way.activations *= kept / n;
    print_way(way);
}

static void print_shards(Way way)
{
    double p = all_parameters, shard = p / ranks, part = shard + largest_part;
    double n = network.count, next = ranks - 1;
    printf("zero, the state only: in shards (ZeRO 1)\n");
    way.holds = "w P + g P + s P/N";
    way.states = state * shard;
    set_sent(&way, "(N-1)/N (g + w) P", others * (gradient + weight) * p);
    set_messages(&way, "2 n (N-1)", 2 * n * next);
    print_way(way);

    printf("zero: gradients and state in shards (ZeRO 2). P/N + L: a rank's shards, and the\n"
           "whole part that is averaged or gathered%s\n",
           part > p ? "; with this N and L more than P" : "");
    way.holds = "w P + g (P/N + L) + s P/N";
    way.gradients = gradient * part;
    print_way(way);

    printf("gathered: weights, gradients and state in shards; each part is gathered twice (ZeRO 3, "
           "FSDP)\n");
    way.holds = "w (P/N + L) + g (P/N + L) + s P/N";
    way.weights = weight * part;
    set_sent(&way, "(N-1)/N (g + 2 w) P", others * (gradient + 2 * weight) * p);
    set_messages(&way, "3 n (N-1)", 3 * n * next);
    print_way(way);
}

static void print_tensor(void)
{
    double cut = network.cut_parameters, values = network.cut_values;
    double own = all_parameters - cut + cut / ranks;
    printf("tensor: Q = P - C + C/N = %.0f parameters of a rank, C = %.0f in layers that are cut; "
           "of V,\nU = %.0f between two cut layers; X = %.0f values an image in c = %.0f "
           "all-reduces\n",
           own, cut, values, network.summed_values, network.sums);
    Way way = way_of(own, (all_values - values + values / ranks) * batch);
    way.holds = "w Q + g Q + s Q";
    way.keeps = "w (V - U + U/N) B";
    set_sent(&way, "2 (N-1)/N w X B", 2 * others * weight * network.summed_values * batch);
    set_messages(&way, "2 c (N-1)", 2 * network.sums * (ranks - 1));
    print_way(way);
}

// The largest numbers of any stage: parameters, values, and values that it sends, forward and back.
typedef struct {
    double parameters, values, sent;
} PipelineStage;

// Cuts the row of parts where the work in front of a cut is nearest to an equal share.
static PipelineStage largest_stage(int stages)
{
    PipelineStage largest = {0};
    double total = 0, done = 0, back = 0;
    for (int i = 0; i < network.count; i++)
        total += network.parts[i].work;
    for (int s = 1, next = 0; s <= stages; s++) {
        PipelineStage stage = {.sent = back};
        double goal = total * s / stages;
        int end = network.count - (stages - s); // each stage behind it needs a part
        const ModelPart *part;
        do {
            part = &network.parts[next++];
            stage.parameters += part->parameters;
            stage.values += part->values;
            done += part->work;
        } while (next < end && fabs(done + network.parts[next].work - goal) <= fabs(done - goal));
        back = part->out;
        stage.sent += s < stages ? part->out : 0;
        largest.parameters = fmax(largest.parameters, stage.parameters);
        largest.values = fmax(largest.values, stage.values);
        largest.sent = fmax(largest.sent, stage.sent);
    }
    return largest;
}

static void print_split(void)
{
    if (network.count < ranks) {
        printf("split: a model of %d parts has no %.0f stages\n", network.count, ranks);
        return;
    }
    PipelineStage stage = largest_stage((int)ranks);
    double neighbours = fmin(ranks - 1, 2);
    printf("split: a pipeline of N stages, M = %.0f micro-batches, all of them under way at a "
           "time; it is\nidle (N-1)/(M+N-1) = %.0f %% of the time. S = %.0f parameters, D = %.0f "
           "values kept, E = %.0f\nsent, forward and back: of the stage with most. One has b = "
           "%.0f neighbours at most\n",
           micro_batches, 100 * (ranks - 1) / (micro_batches + ranks - 1), stage.parameters,
           stage.values, stage.sent, neighbours);
    Way way = way_of(stage.parameters, stage.values * batch);
    way.holds = "w S + g S + s S";
    way.keeps = "w D B";
    set_sent(&way, "w E B", weight * stage.sent * batch);
    set_messages(&way, "b M", neighbours * micro_batches);
    print_way(way);
}

int main(int argc, char **argv)
{
    read_command(argc, argv);
    for (int i = 0; i < network.count; i++) {
        all_parameters += network.parts[i].parameters;
        all_values += network.parts[i].values;
        largest_part = fmax(largest_part, network.parts[i].parameters);
    }
    if (network.only_parameters)
        largest_part = 0;
    others = (ranks - 1) / ranks;
    Way way = data_parallel();
    if (bytes_held(&way) >= 10e9) {
        unit_bytes = 1e9;
        unit = "GB";
    }
    print_header();
    printf("step 6: data parallel\n");
    print_way(way);
    if (!network.only_parameters)
        print_recompute(way);
    print_shards(way);
    if (network.only_parameters) {
        printf("tensor and split send values between layers: MODEL as PARAMETERS:LAYERS:VALUES "
               "says these\n");
    } else {
        print_tensor();
        print_split();
    }
    return EXIT_SUCCESS;
}
