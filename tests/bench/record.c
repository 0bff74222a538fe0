// The benchmark's records.

#include "record.h"

#include <stdlib.h>
#include "sys/device.h"
#include "cpu/onednn.h"
#include "rates.h"
#include "base/util.h"

static void add_gpu(cJSON *machine)
{
    GpuFacts facts = gpu_facts();
    if (!*facts.name)
        return;
    cJSON_AddStringToObject(machine, "gpu", facts.name);
    cJSON_AddStringToObject(machine, "driver", facts.driver);
    cJSON_AddStringToObject(machine, "cuda", facts.cuda);
    cJSON_AddStringToObject(machine, "cudnn", facts.cudnn);
}

static cJSON *machine(void)
{
    cJSON *machine = cJSON_CreateObject();
    char line[256], model[256] = "unknown";
    FILE *cpuinfo = fopen("/proc/cpuinfo", "r");
    while (cpuinfo && fgets(line, sizeof line, cpuinfo))
        if (sscanf(line, "model name : %255[^\n]", model) == 1)
            break;
    if (cpuinfo)
        fclose(cpuinfo);
    const dnnl_version_t *v = dnnl_version();
    char *version = format_text("%d.%d.%d", v->major, v->minor, v->patch);
    cJSON_AddStringToObject(machine, "cpu", model);
    cJSON_AddNumberToObject(machine, "cores", device_threads());
    cJSON_AddStringToObject(machine, "onednn", version);
    cJSON_AddStringToObject(machine, "vectors",
                            onednn_has_avx512() ? "avx512" : (onednn_has_avx2() ? "avx2" : "sse"));
    add_gpu(machine);
    free(version);
    return machine;
}

Record record_open(const char *path)
{
    Record record = {.path = path, .file = fopen(path, "we")};
    if (!record.file)
        die("cannot write %s", path);
    record.document = cJSON_CreateObject();
    cJSON_AddItemToObject(record.document, "machine", machine());
    record.results = cJSON_AddArrayToObject(record.document, "results");
    return record;
}

void record_save(Record *record)
{
    char *text = cJSON_Print(record->document);
    if (fprintf(record->file, "%s\n", text) < 0 || fclose(record->file) != 0)
        die("cannot write %s", record->path);
    free(text);
    cJSON_Delete(record->document);
    printf("\nWritten to %s.\n", record->path);
}

cJSON *add_result(cJSON *results, const char *name, const char *framework, const Subject *subject)
{
    cJSON *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "name", name);
    cJSON_AddStringToObject(result, "framework", framework);
    cJSON_AddStringToObject(result, "model", subject->model);
    cJSON_AddNumberToObject(result, "width", subject->width);
    cJSON_AddNumberToObject(result, "batch", subject->batch);
    cJSON_AddStringToObject(result, "precision", precision_names[subject->precision]);
    cJSON_AddStringToObject(result, "device", device_names[subject->device]);
    cJSON_AddItemToArray(results, result);
    return result;
}

void add_training_step(cJSON *results, const Subject *subject, const Contestant *contestant,
                       int threads, int ranks, double images_per_second)
{
    cJSON *result = add_result(results, "train_step", contestant->name, subject);
    cJSON_AddNumberToObject(result, "threads", threads);
    cJSON_AddNumberToObject(result, "ranks", ranks);
    cJSON_AddNumberToObject(result, "images_per_second", images_per_second);
    cJSON_AddNumberToObject(result, "peak_rss_mib", contestant->peak_rss_mib);
}
