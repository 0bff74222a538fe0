// Replays the training of another framework: loads a case (weights, batches, and what came out
// there), runs the same updates here and compares. README.md beside this file gives the format.
//
//     replay CASE.safetensors [--out FILE] [--restore CHECKPOINT] [--save CHECKPOINT]
//            [--device cpu|gpu] [--precision P] [--tolerance 1e-4]
//
// A case without labels (y) has no updates: it predicts. With --restore the training does not begin
// with the case's weights, but is where a checkpoint of the kit left it; --save leaves one that the
// kit goes on from.
//
// Under `mpirun -np N` rank r trains on the r-th of N equal parts of each batch, through hvd's
// distributed optimizer; the results must be those of one process with whole batches. The root
// compares and writes.

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "run/args.h"
#include "run/device.h"
#include "hvd/hvd.h"
#include "models/models.h"
#include "data/safetensors.h"
#include "train/checkpoint_file.h"
#include "base/error.h"
#include "base/files.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/format.h"

#define MADE_BY "made_by" // metadata of what --out writes

typedef struct {
    const char *case_path, *out_path, *restore_path, *save_path;
    double tolerance;
} Options;

// A case, and what this program makes of it.
typedef struct {
    const Safetensors *file;
    const char *path;
    const Safetensors *beginning; // with the initial weights: the case, or a checkpoint
    const char *beginning_path;
    Model *model;
    const Safetensor *x, *y; // y: NULL where there are no updates
    int updates, batch, classes;
    int rank, ranks; // this process, of how many
    float wd;
    Safetensors *computed;
} Replay;

static const char usage[] =
    "usage: replay CASE.safetensors [--out FILE] [--restore CHECKPOINT] [--save CHECKPOINT]\n"
    "              [--device cpu|gpu] [--precision fp32|tf32|bf16] [--tolerance T]\n"
    "Runs the updates of a case made with another framework and compares the results. --restore\n"
    "begins where a checkpoint's training was, instead of with the case's weights, and --save\n"
    "writes one at the end: each with the path of its main file (a/ckpt-1.safetensors). Exit "
    "status:\n"
    "0 when all agree within the tolerance (1e-4), 1 when not, 2 when the case can't be run.\n"
    "Under mpirun -np N each rank trains on its part of every batch.\n";

static double number(const char *what, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        die("%s: \"%s\" is not a number", what, text);
    return value;
}

static int choice(const char *flag, const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    die("%s: \"%s\" is not one of its values; --help lists them", flag, text);
}

static Options parse_options(int argc, char **argv)
{
    static const struct option flags[] = {{"out", required_argument, NULL, 'o'},
                                          {"restore", required_argument, NULL, 'r'},
                                          {"save", required_argument, NULL, 's'},
                                          {"device", required_argument, NULL, 'd'},
                                          {"precision", required_argument, NULL, 'p'},
                                          {"tolerance", required_argument, NULL, 't'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    static const char *const devices[] = {"cpu", "gpu"};
    static const char *const precisions[] = {"fp32", "tf32", "bf16"};
    Options options = {.tolerance = 1e-4};
    settings()->precision = PRECISION_FP32;
    opterr = 0;
    for (int flag; (flag = getopt_long(argc, argv, ":", flags, NULL)) != -1;) {
        if (flag == 'o')
            options.out_path = optarg;
        else if (flag == 'r')
            options.restore_path = optarg;
        else if (flag == 's')
            options.save_path = optarg;
        else if (flag == 'd')
            settings()->device = choice("--device", optarg, devices, 2) ? DEVICE_GPU : DEVICE_CPU;
        else if (flag == 'p')
            settings()->precision =
                PRECISION_FP32 + (Precision)choice("--precision", optarg, precisions, 3);
        else if (flag == 't')
            options.tolerance = number("--tolerance", optarg);
        else if (flag == 'h') {
            fputs(usage, stdout);
            exit(0);
        } else if (flag == ':')
            die("%s needs a value", argv[optind - 1]);
        else
            die("unknown flag %s; --help lists the flags", argv[optind - 1]);
    }
    if (argc - optind != 1)
        die("expected one case file, got %d; --help shows how", argc - optind);
    options.case_path = argv[optind];
    return options;
}

// What the case holds.

static const Safetensor *need(const Safetensors *file, const char *path, const char *name,
                              SafetensorType type, int ndims)
{
    const Safetensor *tensor = safetensors_find(file, name);
    if (!tensor)
        die("%s: there is no tensor %s", path, name);
    if (tensor->type != type || tensor->ndims != ndims || tensor->count == 0)
        die("%s: %s should be %s with %d dimensions, and not empty", path, name,
            type == ST_FLOAT32 ? "float32" : "int32", ndims);
    return tensor;
}

// A variable before the first update.
static const Safetensor *need_initial(const Replay *r, const char *variable, int ndims)
{
    char *name = format_text("%s%s", r->beginning == r->file ? "initial/" : "", variable);
    const Safetensor *tensor = need(r->beginning, r->beginning_path, name, ST_FLOAT32, ndims);
    free(name);
    return tensor;
}

static const char *need_metadata(const Replay *r, const char *key)
{
    const char *value = safetensors_metadata(r->file, key);
    if (!value)
        die("%s: the metadata lacks \"%s\"", r->path, key);
    return value;
}

static float metadata_number(const Replay *r, const char *key, float otherwise)
{
    const char *value = safetensors_metadata(r->file, key);
    char *what = format_text("%s: %s", r->path, key);
    float result = value ? (float)number(what, value) : otherwise;
    free(what);
    return result;
}

// A layer's size: the last dimension of its kernel; of an embedding's table, `rows` asks for the
// first one.
static int layer_size(const Replay *r, const char *layer, bool rows)
{
    bool table = strcmp(layer, "embedding") == 0;
    int ndims = strncmp(layer, "conv2d", 6) == 0 ? 4 : 2;
    char *name = format_text("%s/%s", layer, table ? "embeddings" : "kernel");
    const Safetensor *weights = need_initial(r, name, ndims);
    free(name);
    int64_t size = weights->dims[rows ? 0 : ndims - 1];
    if (size > 1 << 20)
        die("%s: %s has too many outputs", r->beginning_path, layer);
    return (int)size;
}

static Model *build_model(const Replay *r, ModelShape shape)
{
    // Which layers decide the widths of each model, in the order that models.h asks for. An
    // embedding decides two: its rows, then what each of them holds.
    static const struct {
        const char *name;
        Model *(*build)(ModelShape);
        const char *layers[MODEL_MAX_WIDTHS];
    } models[] = {
        {"wrn", wide_resnet, {"conv2d", "conv2d_1", "conv2d_6", "conv2d_11", "dense"}},
        {"lenet", lenet, {"conv2d", "conv2d_1", "dense", "dense_1"}},
        {"cnn", cifar_cnn, {"conv2d", "conv2d_1", "dense", "dense_1"}},
        {"mlp", mlp, {"dense", "dense_1", "dense_2"}},
        {"bag_of_words", bag_of_words, {"embedding", "embedding", "dense"}},
    };
    const char *wanted = need_metadata(r, "model");
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        if (strcmp(wanted, models[m].name) != 0)
            continue;
        for (int i = 0; i < MODEL_MAX_WIDTHS && models[m].layers[i]; i++) {
            bool rows = i == 0 && strcmp(models[m].layers[i], "embedding") == 0;
            shape.widths[i] = layer_size(r, models[m].layers[i], rows);
        }
        return models[m].build(shape);
    }
    die("%s: the model \"%s\" is not one of wrn, lenet, cnn, mlp, bag_of_words", r->path, wanted);
}

static Optimizer *build_optimizer(const Replay *r)
{
    const char *wanted = need_metadata(r, "optimizer");
    const char *nesterov = safetensors_metadata(r->file, "nesterov");
    need_metadata(r, "learning_rate");
    float lr = metadata_number(r, "learning_rate", 0);
    float momentum = metadata_number(r, "momentum", 0);
    if (nesterov && strcmp(nesterov, "true") != 0 && strcmp(nesterov, "false") != 0)
        die("%s: nesterov is \"%s\", not true or false", r->path, nesterov);
    Optimizer *optimizer = NULL;
    if (strcmp(wanted, "sgd") == 0 && momentum > 0)
        optimizer = sgd_momentum(lr, momentum, nesterov && strcmp(nesterov, "true") == 0);
    else if (strcmp(wanted, "sgd") == 0)
        optimizer = sgd(lr);
    else if (strcmp(wanted, "adam") == 0)
        optimizer = adam(lr);
    else if (strcmp(wanted, "adadelta") == 0)
        optimizer = adadelta(lr);
    else if (strcmp(wanted, "adagrad") == 0)
        optimizer = adagrad(lr);
    else if (strcmp(wanted, "rmsprop") == 0)
        optimizer = momentum > 0 ? rmsprop_momentum(lr, momentum) : rmsprop(lr);
    if (!optimizer)
        die("%s: the optimizer \"%s\" is not one of sgd, adam, adadelta, adagrad, rmsprop", r->path,
            wanted);
    Update *rule = &optimizer->rule;
    rule->beta_1 = metadata_number(r, "beta_1", rule->beta_1);
    rule->beta_2 = metadata_number(r, "beta_2", rule->beta_2);
    rule->rho = metadata_number(r, "rho", rule->rho);
    rule->epsilon = metadata_number(r, "epsilon", rule->epsilon);
    return r->ranks > 1 ? hvd_distributed_optimizer(optimizer) : optimizer;
}

static bool same_shape(const Safetensor *tensor, const Variable *v)
{
    bool same = tensor->ndims == v->ndims;
    for (int i = 0; same && i < v->ndims; i++)
        same = tensor->dims[i] == v->dims[i];
    return same;
}

static const Safetensor *initial(const Replay *r, const Variable *v)
{
    const Safetensor *tensor = need_initial(r, v->name, v->ndims);
    if (!same_shape(tensor, v))
        die("%s: %s does not have the shape that the model gives it", r->beginning_path, v->name);
    return tensor;
}

// The variable that a tensor of the case is about, or NULL.
static const Variable *subject(const Replay *r, const char *name)
{
    static const char *const groups[] = {"initial/", "gradient/", "final/"};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        size_t length = strlen(groups[g]);
        for (int i = 0; i < model_variable_count(r->model); i++)
            if (strncmp(name, groups[g], length) == 0 &&
                strcmp(name + length, model_variable(r->model, i)->name) == 0)
                return model_variable(r->model, i);
    }
    return NULL;
}

// A misspelt name would be an expectation that is never checked.
static void check_names(const Replay *r)
{
    static const char *const others[] = {"x", "y", "loss", "prediction"};
    for (int i = 0; i < safetensors_count(r->file); i++) {
        const char *name = safetensors_at(r->file, i)->name;
        bool known = subject(r, name) != NULL;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            known |= strcmp(name, others[k]) == 0;
        if (!known)
            die("%s: %s is not a tensor of this model's case", r->path, name);
    }
}

static void load_images(Replay *r)
{
    r->x = need(r->file, r->path, "x", ST_FLOAT32, 5);
    for (int i = 0; i < 5; i++)
        if (r->x->dims[i] > 1 << 16)
            die("%s: x is too large", r->path);
    r->batch = (int)r->x->dims[1];
    if (r->batch % r->ranks != 0)
        die("%s: %d ranks cannot share batches of %d equally", r->path, r->ranks, r->batch);
    if (!safetensors_find(r->file, "y"))
        return;
    r->y = need(r->file, r->path, "y", ST_INT32, 2);
    if (r->x->dims[0] != r->y->dims[0] || r->x->dims[1] != r->y->dims[1])
        die("%s: x and y differ in updates or batch", r->path);
    r->updates = (int)r->x->dims[0];
}

static void check_labels(const Replay *r)
{
    const int *labels = r->y->data;
    for (int64_t i = 0; i < r->y->count; i++)
        if (labels[i] < 0 || labels[i] >= r->classes)
            die("%s: the label %d is not one of %d classes", r->path, labels[i], r->classes);
}

static void load_case(Replay *r)
{
    load_images(r);
    ModelShape shape = {(int)r->x->dims[2], (int)r->x->dims[3], (int)r->x->dims[4], {0}, false};
    r->wd = metadata_number(r, "weight_decay", 0);
    r->model = compile(l2_penalty(build_model(r, shape), r->wd), CATEGORICAL_CROSSENTROPY,
                       build_optimizer(r));

    check_names(r);
    int last = model_variable_count(r->model) - 1;
    r->classes = model_variable(r->model, last)->dims[0];
    if (r->y)
        check_labels(r);
    for (int i = 0; i <= last; i++)
        model_write_variable(r->model, i, initial(r, model_variable(r->model, i))->data);
    if (r->beginning == r->file)
        return;
    check_state(r->beginning_path, r->beginning, r->model);
    put_tensors(r->beginning, r->model);
    put_optimizer(r->beginning_path, r->beginning, r->model);
}

// What comes out.

static void keep_variable(Replay *r, const char *group, const Variable *v, const float *values)
{
    char *name = format_text("%s/%s", group, v->name);
    int64_t dims[4];
    for (int i = 0; i < v->ndims; i++)
        dims[i] = v->dims[i];
    safetensors_add(r->computed, name, ST_FLOAT32, v->ndims, dims, values);
    free(name);
}

// The gradients of the first update, L2 part included.
static void keep_gradients(Replay *r)
{
    for (int i = 0; i < model_variable_count(r->model); i++) {
        const Variable *v = model_variable(r->model, i);
        if (!v->trainable || v->no_gradient)
            continue;
        float *values = allocate(variable_size(v), sizeof *values);
        const float *weights = initial(r, v)->data;
        model_read_gradient(r->model, i, values);
        for (size_t k = 0; v->penalized && k < variable_size(v); k++)
            values[k] += 2 * r->wd * weights[k];
        keep_variable(r, "gradient", v, values);
        free(values);
    }
}

static void keep_final(Replay *r)
{
    for (int i = 0; i < model_variable_count(r->model); i++) {
        const Variable *v = model_variable(r->model, i);
        float *values = allocate(variable_size(v), sizeof *values);
        model_read_variable(r->model, i, values);
        keep_variable(r, "final", v, values);
        free(values);
    }
}

// The first `count` images from the one numbered `first`, of all updates' images.
static Batch images(const Replay *r, int first, int count)
{
    int64_t image = r->x->count / (r->x->dims[0] * r->batch);
    return (Batch){(const float *)r->x->data + first * image,
                   r->y ? (const int *)r->y->data + first : NULL, count};
}

// The loss of an update: the mean over the whole batch, also where ranks have its parts.
static float mean_loss(const Replay *r)
{
    float loss = (float)(model_metrics(r->model).loss / (r->batch / r->ranks));
    if (r->ranks > 1)
        hvd_allreduce(&loss, 1, HVD_AVERAGE);
    return loss;
}

static void run_updates(Replay *r)
{
    float *losses = allocate((size_t)r->updates, sizeof *losses);
    for (int update = 0; update < r->updates; update++) {
        int part = r->batch / r->ranks;
        Batch batch = images(r, update * r->batch + r->rank * part, part);
        model_reset_metrics(r->model);
        train_on_batch(r->model, &batch);
        losses[update] = mean_loss(r);
        if (update == 0)
            keep_gradients(r);
    }
    int64_t dims[] = {r->updates};
    safetensors_add(r->computed, "loss", ST_FLOAT32, 1, dims, losses);
    free(losses);
}

static void predict(Replay *r)
{
    Batch first = images(r, 0, r->batch);
    float *prediction = allocate((size_t)(r->batch * r->classes), sizeof *prediction);
    predict_on_batch(r->model, &first, prediction);
    int64_t dims[] = {r->batch, r->classes};
    safetensors_add(r->computed, "prediction", ST_FLOAT32, 2, dims, prediction);
    free(prediction);
}

// A checkpoint of a training whose first epoch the updates were, with the loss of the last one.
static void save(const Replay *r, const char *path)
{
    const Safetensor *losses = safetensors_find(r->computed, "loss");
    Logs logs = {.loss = losses ? (double)((const float *)losses->data)[r->updates - 1] : 0,
                 .images = (double)r->updates * r->batch,
                 .lr = (double)optimizer_learning_rate(model_optimizer(r->model))};
    Training training = {
        .model = r->model, .steps = r->updates, .epochs_done = 1, .history = {&logs, 1}};
    Safetensors *file = make_main_file(&training, r->ranks, "");
    int fault = safetensors_write(file, path);
    if (fault)
        die("cannot save the checkpoint %s: %s", path, strerror(fault));
    safetensors_free(file);
}

// Comparison.

static double largest_value(const Safetensor *tensor)
{
    double largest = 0;
    for (int64_t i = 0; i < tensor->count; i++)
        largest = fmax(largest, fabs((double)((const float *)tensor->data)[i]));
    return largest;
}

static double largest_difference(const Safetensor *a, const Safetensor *b)
{
    double largest = 0;
    for (int64_t i = 0; i < b->count; i++) {
        double d = fabs((double)((const float *)a->data)[i] - (double)((const float *)b->data)[i]);
        if (!(d <= largest)) // also takes NaN over
            largest = isnan(d) ? INFINITY : d;
    }
    return largest;
}

static bool same_dims(const Safetensor *a, const Safetensor *b)
{
    bool same = a->type == b->type && a->ndims == b->ndims;
    for (int i = 0; same && i < a->ndims; i++)
        same = a->dims[i] == b->dims[i];
    return same;
}

static bool in_group(const char *name, const char *group)
{
    size_t length = strlen(group);
    return strncmp(name, group, length) == 0 && (name[length] == '/' || name[length] == '\0');
}

// Compares one group of tensors and prints its line; true when all agree.
static bool compare_group(const Replay *r, const char *group, double tolerance)
{
    double group_largest = 0, worst = 0;
    const char *where = "";
    int compared = 0;
    for (int i = 0; i < safetensors_count(r->file); i++)
        if (in_group(safetensors_at(r->file, i)->name, group))
            group_largest = fmax(group_largest, largest_value(safetensors_at(r->file, i)));
    for (int i = 0; i < safetensors_count(r->computed); i++) {
        const Safetensor *a = safetensors_at(r->computed, i);
        const Safetensor *b = safetensors_find(r->file, a->name);
        const Variable *variable = subject(r, a->name);
        if (!b || !in_group(a->name, group) || (variable && variable->no_gradient))
            continue;
        if (!same_dims(a, b))
            die("%s: %s does not have the shape that the model gives it", r->path, a->name);
        double scale = fmax(largest_value(b), 0.001 * group_largest);
        double difference = largest_difference(a, b);
        double error = difference == 0 ? 0 : difference / scale;
        compared++;
        if (!(error <= worst)) {
            worst = error;
            where = a->name;
        }
    }
    if (compared == 0)
        printf("%-10s not in the case\n", group);
    else
        printf("%-10s %.2e %s\n", group, worst, where);
    return worst <= tolerance;
}

// Writes and compares; true when all groups agree.
static bool judge(const Replay *r, const Options *options)
{
    static const char *const groups[] = {"loss", "gradient", "final", "prediction"};
    if (options->out_path) {
        safetensors_set_metadata(r->computed, MADE_BY, "replay");
        safetensors_save(r->computed, options->out_path);
    }
    bool agrees = true;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        agrees &= compare_group(r, groups[i], options->tolerance);
    if (fflush(stdout) != 0 || ferror(stdout))
        die("standard output could not be written");
    if (!agrees && launcher_rank() == 0)
        fprintf(stderr, "%s: not all of these are within %g\n", program_name(), options->tolerance);
    return agrees;
}

// One process needs no MPI; several join the job, each on its own device.
static void join_ranks(Replay *r)
{
    r->ranks = launcher_size();
    if (r->ranks == 1)
        return;
    hvd_init();
    device_use(hvd_local_rank());
    r->rank = hvd_rank();
}

// True when every rank ends with the same weights.
static bool ranks_agree(const Replay *r)
{
    double weights = model_fingerprints(r->model).weights;
    float same[2] = {(float)weights, -(float)weights};
    if (r->ranks > 1)
        hvd_allreduce(same, 2, HVD_MAX);
    if (same[0] != -same[1] && r->rank == 0)
        printf("the ranks' weights differ at the end\n");
    return same[0] == -same[1];
}

int main(int argc, char **argv)
{
    Options options = parse_options(argc, argv);
    Replay r = {.file = safetensors_read(options.case_path),
                .path = options.case_path,
                .computed = safetensors_new(NULL, NULL)};
    Safetensors *checkpoint =
        options.restore_path ? read_checkpoint_file(options.restore_path) : NULL;
    r.beginning = checkpoint ? checkpoint : r.file;
    r.beginning_path = checkpoint ? options.restore_path : r.path;
    join_ranks(&r);
    if (options.out_path)
        need_own_file(options.out_path, MADE_BY "\":\"replay\"");
    if (options.save_path)
        need_own_file(options.save_path, CHECKPOINT_FORMAT);
    load_case(&r);
    if (r.updates > 0)
        run_updates(&r);
    keep_final(&r);
    predict(&r);
    if (options.save_path && r.rank == 0)
        save(&r, options.save_path);
    bool agrees = ranks_agree(&r);
    if (r.rank == 0)
        agrees &= judge(&r, &options);
    model_free(r.model);
    safetensors_free(r.computed);
    safetensors_free(checkpoint);
    safetensors_free((Safetensors *)(uintptr_t)r.file);
    return agrees ? 0 : 1;
}
