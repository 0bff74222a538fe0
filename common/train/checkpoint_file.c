// Makes a checkpoint's files of a training, checks them, and restores from them.

#include "train/checkpoint_file.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "base/error.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/format.h"
#include "base/launcher.h"
#include "data/batches.h"
#include "nn/weights.h"

// ---- Metadata.

static void set_text(Safetensors *file, const char *key, char *owned)
{
    safetensors_set_metadata(file, key, owned);
    free(owned);
}

enum { REAL_SIZE = 32 }; // for a double with 17 digits

static void set_number(Safetensors *file, const char *key, uint64_t number)
{
    set_text(file, key, format_text("%" PRIu64, number));
}

static void set_real(Safetensors *file, const char *key, float number)
{
    safetensors_set_metadata(file, key, float_text(number).text);
}

// "0.5 3": numbers that read back as the same ones.
static void set_reals(Safetensors *file, const char *key, const double *numbers, int count)
{
    char *text = format_text("%s", "");
    for (int i = 0; i < count; i++) {
        char number[REAL_SIZE];
        print_number(number, sizeof number, "%.17g", numbers[i]);
        text_add(&text, "%s%s", i ? " " : "", number);
    }
    set_text(file, key, text);
}

static const char *get_text(const char *path, const Safetensors *file, const char *key)
{
    const char *text = safetensors_metadata(file, key);
    if (!text)
        die("%s: its %s is missing", path, key);
    return text;
}

static uint64_t get_number(const char *path, const Safetensors *file, const char *key,
                           uint64_t most)
{
    const char *text = get_text(path, file, key);
    uint64_t number = 0;
    bool fits = *text != '\0';
    for (; fits && *text; text++)
        fits = *text >= '0' && *text <= '9' &&
               !__builtin_mul_overflow(number, (uint64_t)10, &number) &&
               !__builtin_add_overflow(number, (uint64_t)(*text - '0'), &number);
    if (!fits || number > most)
        die("%s: its %s is '%s', and has to be a whole number up to %" PRIu64, path, key,
            get_text(path, file, key), most);
    return number;
}

static void get_reals(const char *path, const Safetensors *file, const char *key, double *numbers,
                      int count)
{
    const char *text = get_text(path, file, key);
    char *end = NULL;
    for (int i = 0; i < count; i++, text = end) {
        numbers[i] = read_double(text, &end);
        if (end == text)
            die("%s: its %s is '%s', and has to be %d numbers", path, key,
                get_text(path, file, key), count);
    }
}

static float get_rate(const char *path, const Safetensors *file)
{
    const char *key = "learning_rate";
    double number;
    get_reals(path, file, key, &number, 1);
    float rounded = read_float(get_text(path, file, key), NULL); // once, from the text
    if (!isfinite(rounded) || rounded < 0)
        die("%s: its %s is %g", path, key, number);
    return rounded;
}

// ---- The history.

static const struct {
    const char *name;
    size_t place;
} figures[] = {
    {"loss", offsetof(Logs, loss)},
    {"accuracy", offsetof(Logs, accuracy)},
    {"val_loss", offsetof(Logs, val_loss)},
    {"val_accuracy", offsetof(Logs, val_accuracy)},
    {"images", offsetof(Logs, images)},
    {"val_images", offsetof(Logs, val_images)},
    {"lr", offsetof(Logs, lr)},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static double *figure(Logs *logs, int number)
{
    return (double *)((char *)logs + figures[number].place);
}

// With all digits; cJSON itself would write fewer. JSON has no NaN: it is written as text.
static void add_epoch(cJSON *list, Logs logs)
{
    cJSON *epoch = cJSON_CreateObject();
    for (int i = 0; i < FIGURES; i++) {
        double value = *figure(&logs, i);
        const char *quote = isfinite(value) ? "" : "\"";
        char text[REAL_SIZE];
        print_number(text, sizeof text, "%s%.17g%s", quote, value, quote);
        cJSON_AddRawToObject(epoch, figures[i].name, text);
    }
    cJSON_AddItemToArray(list, epoch);
}

// A header has a limit (data/safetensors.h), and a training has none.
enum { MAX_EPOCHS_SAVED = 5000 };

// During the callbacks' epoch_end, the epoch's metrics change in training->logs.
static void set_history(Safetensors *file, const Training *training)
{
    bool ends = training->epochs_done == training->epoch + 1;
    const History *history = &training->history;
    cJSON *list = cJSON_CreateArray();
    int first = history->epochs > MAX_EPOCHS_SAVED ? history->epochs - MAX_EPOCHS_SAVED : 0;
    for (int i = first; i < history->epochs; i++)
        add_epoch(list, ends && i == history->epochs - 1 ? training->logs : history->logs[i]);
    char *text = json_print(list, false);
    safetensors_set_metadata(file, "history", text);
    cJSON_free(text);
    cJSON_Delete(list);
}

static Logs get_epoch(const char *path, const cJSON *epoch)
{
    Logs logs = {0};
    for (int i = 0; i < FIGURES; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(epoch, figures[i].name);
        const char *text = cJSON_GetStringValue(item);
        if (!cJSON_IsNumber(item) && !text)
            die("%s: its history lacks a %s", path, figures[i].name);
        *figure(&logs, i) = text ? read_double(text, NULL) : item->valuedouble;
    }
    return logs;
}

static History get_history(const char *path, const Safetensors *file)
{
    History history = {0};
    cJSON *list = json_parse(get_text(path, file, "history"));
    if (!cJSON_IsArray(list))
        die("%s: its history is no list", path);
    history.logs = allocate((size_t)cJSON_GetArraySize(list) + 1, sizeof *history.logs);
    for (const cJSON *epoch = list->child; epoch; epoch = epoch->next)
        history.logs[history.epochs++] = get_epoch(path, epoch);
    cJSON_Delete(list);
    return history;
}

// ---- The optimizer.

typedef struct {
    const char *name;
    FloatText text;
} Constant;

enum { CONSTANTS = 6 };

static void list_constants(const Update *rule, Constant constants[CONSTANTS])
{
    const Constant all[CONSTANTS] = {
        {"momentum", float_text(rule->momentum)}, {"nesterov", {.text = "false"}},
        {"beta_1", float_text(rule->beta_1)},     {"beta_2", float_text(rule->beta_2)},
        {"rho", float_text(rule->rho)},           {"epsilon", float_text(rule->epsilon)},
    };
    memcpy(constants, all, sizeof all);
    if (rule->nesterov)
        strcpy(constants[1].text.text, "true");
}

static void set_optimizer(Safetensors *file, const Model *model)
{
    const Optimizer *optimizer = optimizer_innermost(model_optimizer(model));
    set_number(file, "forward_passes", (uint64_t)model_passes(model));
    set_number(file, "iterations", (uint64_t)optimizer->iterations);
    set_real(file, "learning_rate", optimizer->rule.learning_rate);
}

static void check_optimizer(const char *path, const Safetensors *file, const Optimizer *optimizer)
{
    const char *name = get_text(path, file, "optimizer");
    if (strcmp(name, optimizer->name) != 0)
        die("%s: another optimizer: it was saved with %s, this program has %s", path, name,
            optimizer->name);
    Constant constants[CONSTANTS];
    list_constants(&optimizer->rule, constants);
    for (int i = 0; i < CONSTANTS; i++) {
        const char *saved = get_text(path, file, constants[i].name);
        const char *own = constants[i].text.text;
        if (strcmp(saved, own) != 0)
            die("%s: another optimizer: %s was saved with a %s of %s, this program has %s", path,
                name, constants[i].name, saved, own);
    }
}

// Files from before passes were counted have a pass for each update.
static int64_t get_passes(const char *path, const Safetensors *file)
{
    const char *key =
        safetensors_metadata(file, "forward_passes") ? "forward_passes" : "iterations";
    return (int64_t)get_number(path, file, key, INT64_MAX - 1);
}

void put_optimizer(const char *path, const Safetensors *file, Model *model)
{
    Optimizer *optimizer = optimizer_innermost(model_optimizer(model));
    optimizer->iterations = (int64_t)get_number(path, file, "iterations", INT64_MAX - 1);
    model_set_passes(model, get_passes(path, file));
    optimizer->rule.learning_rate = get_rate(path, file);
}

// ---- What both kinds of files have.

static char *clean_name(const Callback *callback)
{
    return text_clean(format_text("%s", callback->name ? callback->name : "")); // JSON takes UTF-8
}

// "callback NAME K": the K-th of that name.
static char *callback_key(const Callbacks *callbacks, int number)
{
    char *name = clean_name(callbacks->items[number]);
    int before = 0;
    for (int i = 0; i < number; i++) {
        char *other = clean_name(callbacks->items[i]);
        before += strcmp(other, name) == 0;
        free(other);
    }
    char *key = format_text("callback %s %d", name, before);
    free(name);
    return key;
}

static void set_callbacks(Safetensors *file, const Callbacks *callbacks)
{
    for (int i = 0; callbacks && i < callbacks->count; i++) {
        const Callback *callback = callbacks->items[i];
        if (callback->kept_count < 1)
            continue;
        char *key = callback_key(callbacks, i);
        set_reals(file, key, callback->kept, callback->kept_count);
        free(key);
    }
}

static void set_both(Safetensors *file, const Training *training, const char *token)
{
    safetensors_set_metadata(file, "format", CHECKPOINT_FORMAT);
    safetensors_set_metadata(file, "token", token);
    set_optimizer(file, training->model);
    if (training->train)
        set_text(file, "train", batches_position(training->train));
    if (training->validation)
        set_text(file, "validation", batches_position(training->validation));
    set_callbacks(file, training->callbacks);
}

// ---- The main file.

Safetensors *make_main_file(const Training *training, int ranks, const char *token)
{
    const Model *model = training->model;
    const Optimizer *optimizer = optimizer_innermost(model_optimizer(model));
    bool in_parts = state_is_in_parts(model);
    Safetensors *file =
        file_of_states(model, in_parts ? model_variable_count(model) : state_count(model));
    set_both(file, training, token);
    if (in_parts)
        set_number(file, "in_parts", 1);
    safetensors_set_metadata(file, "model", model_parameters(model)->description);
    safetensors_set_metadata(file, "optimizer", optimizer->name);
    Constant constants[CONSTANTS];
    list_constants(&optimizer->rule, constants);
    for (int i = 0; i < CONSTANTS; i++)
        safetensors_set_metadata(file, constants[i].name, constants[i].text.text);
    set_number(file, "epoch", (uint64_t)training->epochs_done);
    set_number(file, "step", (uint64_t)training->steps_done);
    set_number(file, "steps", (uint64_t)training->steps);
    set_number(file, "stop", training->stop);
    set_number(file, "ranks", (uint64_t)ranks);
    set_history(file, training);
    return file;
}

Safetensors *make_weights_file(const Model *model)
{
    Safetensors *file = file_of_states(model, model_variable_count(model));
    safetensors_set_metadata(file, "format", WEIGHTS_FORMAT);
    safetensors_set_metadata(file, "model", model_parameters(model)->description);
    return file;
}

// The first line that differs, of two descriptions.
static void check_model(const char *path, const char *saved, const char *own)
{
    while (*saved || *own) {
        size_t a = strcspn(saved, "\n"), b = strcspn(own, "\n");
        if (a != b || strncmp(saved, own, a) != 0)
            die("%s: another model: it was saved with '%.*s', this program has '%.*s'", path,
                (int)a, saved, (int)b, own);
        saved += a + (saved[a] != '\0');
        own += b + (own[b] != '\0');
    }
}

Safetensors *read_checkpoint_file(const char *path)
{
    Safetensors *file = read_weights(path);
    const char *format = safetensors_metadata(file, "format");
    if (!format)
        die("%s: this is no checkpoint: it has no format", path);
    if (strcmp(format, WEIGHTS_FORMAT) == 0)
        die("%s: it has weights only, and no training goes on from them; load_weights() reads them",
            path);
    if (strcmp(format, CHECKPOINT_FORMAT) != 0)
        die("%s: its format is %s, and " CHECKPOINT_FORMAT " is what can be read", path, format);
    get_text(path, file, "hash");
    return file;
}

static bool saved_in_parts(const char *path, const Safetensors *file)
{
    return safetensors_metadata(file, "in_parts") && get_number(path, file, "in_parts", 1) == 1;
}

void check_state(const char *path, const Safetensors *file, const Model *model)
{
    check_optimizer(path, file, optimizer_innermost(model_optimizer(model)));
    check_weights(path, file, model,
                  saved_in_parts(path, file) ? model_variable_count(model) : state_count(model));
    get_number(path, file, "iterations", INT64_MAX - 1);
    get_passes(path, file);
    get_rate(path, file);
}

Saved check_main_file(const char *path, const Safetensors *file, const Model *model)
{
    check_model(path, get_text(path, file, "model"), model_parameters(model)->description);
    check_state(path, file, model);
    Saved saved = {
        .ranks = (int)get_number(path, file, "ranks", MAX_LAUNCHED),
        .epoch = (int)get_number(path, file, "epoch", INT32_MAX),
        .steps = (int64_t)get_number(path, file, "steps", INT64_MAX),
        .stop = get_number(path, file, "stop", 1) == 1,
        .in_parts = saved_in_parts(path, file),
        .token = get_text(path, file, "token"),
    };
    saved.step = (int64_t)get_number(path, file, "step", (uint64_t)saved.steps);
    saved.history = get_history(path, file);
    return saved;
}

void put_tensors(const Safetensors *file, Model *model)
{
    put_weights(file, model, state_count(model));
}

// ---- An optimizer's state in parts.

bool state_is_in_parts(const Model *model)
{
    return optimizer_is_in_parts(optimizer_innermost(model_optimizer(model)));
}

// Layouts depend on the processor, except for dense layers.
static char *layout_text(const Model *model)
{
    return format_text("%016" PRIx64, model_layout(model));
}

static char *begin_key(const Variable *variable)
{
    return format_text("begin %s", variable->name);
}

// Where a shard begins in its variable, as this is laid out; -1: nowhere.
static int64_t shard_begin(const Safetensors *part, const Variable *variable)
{
    char *key = begin_key(variable);
    const char *text = safetensors_metadata(part, key);
    uint64_t begin = 0;
    bool fits = text && read_whole_number(text, variable->length, &begin);
    free(key);
    return fits ? (int64_t)begin : -1;
}

static bool is_shard(const Safetensors *part, const Model *model, const StateTensor *tensor,
                     const Safetensor *candidate)
{
    const Variable *variable = model_variable(model, tensor->variable);
    int64_t begin = shard_begin(part, variable);
    return candidate->type == ST_FLOAT32 && candidate->ndims == 1 && begin >= 0 &&
           candidate->count <= (int64_t)variable->length - begin;
}

// The slots' numbers of one part of the state that belong to a variable.
static void add_shard(Safetensors *file, const Model *model, const StateTensor *tensor,
                      const StatePart *part)
{
    const Variable *v = model_variable(model, tensor->variable);
    size_t begin, count = state_in_part(part, v, &begin);
    if (count == 0)
        return;
    char *key = begin_key(v);
    set_number(file, key, begin - v->offset);
    safetensors_add(file, tensor->name, ST_FLOAT32, 1, (int64_t[]){(int64_t)count},
                    part->slots[tensor->slot] + (begin - part->offset));
    free(key);
}

static void add_shards(Safetensors *file, const Model *model)
{
    const Optimizer *optimizer = optimizer_innermost(model_optimizer(model));
    set_text(file, "layout", layout_text(model));
    for (int i = model_variable_count(model); i < state_count(model); i++) {
        StateTensor tensor = state_tensor(model, i);
        for (int p = 0; p < optimizer->part_count; p++)
            add_shard(file, model, &tensor, &optimizer->parts[p]);
    }
}

void put_shards(const char *path, const Safetensors *part, Model *model)
{
    char *layout = layout_text(model);
    if (strcmp(get_text(path, part, "layout"), layout) != 0)
        die("%s: the optimizer's state is in shards of weights in another order, that of another "
            "kind of processor",
            path);
    free(layout);
    for (int i = model_variable_count(model); i < state_count(model); i++) {
        StateTensor tensor = state_tensor(model, i);
        const Safetensor *shard = safetensors_find(part, tensor.name);
        if (!shard)
            continue;
        if (!is_shard(part, model, &tensor, shard))
            die("%s: %s is no part of this model's", path, tensor.name);
        const Variable *variable = model_variable(model, tensor.variable);
        model_write_slot_at(model, tensor.slot,
                            variable->offset + (size_t)shard_begin(part, variable),
                            (size_t)shard->count, shard->data);
    }
}

// ---- A rank's part.

static void set_metrics(Safetensors *part, const Model *model)
{
    Metrics m = model_metrics(model);
    set_reals(part, "metrics", (double[]){m.loss, m.correct, m.images, m.batches, m.finite}, 5);
}

Safetensors *make_part(const Training *training, int rank, const char *token,
                       const uint64_t *hashes, Safetensors *own)
{
    Safetensors *part = file_of_states(training->model, 0);
    for (int i = 0; i < safetensors_count(own); i++)
        if (safetensors_hash(own, i) != hashes[i])
            promise_state(part, training->model, i);
    if (state_is_in_parts(training->model))
        add_shards(part, training->model);
    RngOrigin origin = rng_origin();
    set_both(part, training, token);
    set_number(part, "rank", (uint64_t)rank);
    set_number(part, "seed", origin.seed);
    set_number(part, "seed_rank", origin.rank);
    set_metrics(part, training->model);
    return part;
}

void check_part(const char *path, const Safetensors *part, const Model *model)
{
    int known = 0;
    for (int i = 0; i < state_count(model); i++) {
        StateTensor tensor = state_tensor(model, i);
        const Safetensor *candidate = safetensors_find(part, tensor.name);
        known += candidate && (fits_state(model, &tensor, candidate) ||
                               (tensor.slot >= 0 && is_shard(part, model, &tensor, candidate)));
    }
    if (known != safetensors_count(part))
        die("%s: it has tensors that the model does not have", path);
    double metrics[5];
    get_reals(path, part, "metrics", metrics, 5);
    get_number(path, part, "seed", UINT64_MAX);
    get_number(path, part, "seed_rank", UINT64_MAX);
    get_number(path, part, "iterations", INT64_MAX - 1);
    get_passes(path, part);
    get_rate(path, part);
}

void put_origin(const char *path, const Safetensors *part)
{
    set_rng_origin((RngOrigin){get_number(path, part, "seed", UINT64_MAX),
                               get_number(path, part, "seed_rank", UINT64_MAX)});
}

void put_metrics(const char *path, const Safetensors *part, Model *model)
{
    double m[5];
    get_reals(path, part, "metrics", m, 5);
    model_write_metrics(model, &(Metrics){m[0], m[1], m[2], m[3], m[4]});
}

void put_callbacks(const char *path, const Safetensors *part, const Callbacks *callbacks)
{
    for (int i = 0; callbacks && i < callbacks->count; i++) {
        const Callback *callback = callbacks->items[i];
        char *key = callback_key(callbacks, i);
        if (callback->kept_count > 0 && safetensors_metadata(part, key))
            get_reals(path, part, key, callback->kept, callback->kept_count);
        free(key);
    }
}
