// What `make sweep` runs (common/scripts/sweep.sh).
//
//     mpirun -np N sweep [FLAG]...     sweeps MPI_Allreduce and, if each rank has a GPU of its own,
//                                      NCCL's all-reduce (common/lessons/sweep.h)
//     sweep --report LINES FOLDER      makes FOLDER/sweep.json from the lines that sweeps have
//                                      written, fits a line to each sweep's times, prints it, and
//                                      writes FOLDER/sweep-N.dat for tests/bench/sweep.gp
//
// A line time = latency + bytes / bandwidth has two numbers that an all-reduce can be judged by. It
// is the one with the smallest sum of squared relative errors, so that the times of small arrays
// have as much of a say as those of large ones.

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/json.h"
#include "lessons/sweep.h"
#include "run/args.h"
#include "run/device.h"

static int sweep_on_ranks(int argc, char **argv)
{
    hvd_init();
    Args args = parse_args(argc, argv);
    sweep_run("MPI_Allreduce", NULL, (size_t)args.max_count);
    sweep_hierarchical((size_t)args.max_count);
    device_use(hvd_local_rank());
    sweep_nccl((size_t)args.max_count);
    return EXIT_SUCCESS;
}

// ---- The lines that sweeps have written, which follow each other in the order of their sizes.

static cJSON *read_results(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        die("%s cannot be read", path);
    cJSON *results = cJSON_CreateArray();
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) {
        cJSON *result = cJSON_Parse(line);
        if (!result)
            die("%s: this is no line of a sweep: %s", path, line);
        cJSON_AddItemToArray(results, result);
    }
    free(line);
    fclose(file);
    return results;
}

static double number(const cJSON *result, const char *name)
{
    return json_number(result, name); // NaN: it was not measured
}

static const char *collective_of(const cJSON *result)
{
    return json_text(result, "collective");
}

static int ranks_of(const cJSON *result)
{
    return (int)number(result, "ranks");
}

static bool take_turns(const cJSON *result)
{
    return cJSON_IsTrue(cJSON_GetObjectItem(result, "oversubscribed"));
}

static bool is_timed(const cJSON *result)
{
    return number(result, "microseconds") > 0;
}

static bool is_of_sweep(const cJSON *result, const cJSON *first)
{
    return result && ranks_of(result) == ranks_of(first) &&
           strcmp(collective_of(result), collective_of(first)) == 0;
}

// The first result after a sweep, or NULL.
static const cJSON *end_of_sweep(const cJSON *first)
{
    const cJSON *result = first;
    while (is_of_sweep(result, first))
        result = result->next;
    return result;
}

static bool is_right(const cJSON *first)
{
    for (const cJSON *result = first; is_of_sweep(result, first); result = result->next)
        if (number(result, "wrong") > 0)
            return false;
    return true;
}

// ---- Lines through them.

typedef struct {
    double latency; // microseconds
    double slope;   // microseconds a byte
} Line;

// Least squares of (latency + slope * bytes - t) / t, by its normal equations. False if sums are
// wrong, so that times mean nothing, or if there is only one time.
static bool fit_line(const cJSON *first, Line *line)
{
    double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
    for (const cJSON *result = first; is_of_sweep(result, first); result = result->next) {
        if (!is_timed(result))
            continue;
        double x = number(result, "bytes"), t = number(result, "microseconds");
        double weight = 1 / (t * t);
        w += weight;
        wx += weight * x;
        wxx += weight * x * x;
        wt += weight * t;
        wxt += weight * x * t;
    }
    double determinant = w * wxx - wx * wx;
    line->latency = (wxx * wt - wx * wxt) / determinant;
    line->slope = (w * wxt - wx * wt) / determinant;
    return is_right(first) && determinant > 0;
}

// In GB/s, for arrays so large that latency is negligible.
static double algorithm_bandwidth(const Line *line)
{
    return 1e-3 / line->slope;
}

static double bus_bandwidth(const Line *line, int ranks)
{
    return algorithm_bandwidth(line) * 2 * (ranks - 1) / ranks;
}

// To six decimals.
static void add_rounded(cJSON *object, const char *name, double figure)
{
    cJSON_AddNumberToObject(object, name, round(1e6 * figure) / 1e6);
}

static void add_line(cJSON *lines, const cJSON *first, const Line *line)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "collective", collective_of(first));
    cJSON_AddNumberToObject(object, "ranks", ranks_of(first));
    cJSON_AddBoolToObject(object, "oversubscribed", take_turns(first));
    add_rounded(object, "latency_microseconds", line->latency);
    add_rounded(object, "algorithm_gb_per_second", algorithm_bandwidth(line));
    add_rounded(object, "bus_gb_per_second", bus_bandwidth(line, ranks_of(first)));
    cJSON_AddItemToArray(lines, object);
}

static void print_line(const cJSON *first, const Line *line)
{
    printf("%-16s %7d%c", collective_of(first), ranks_of(first), take_turns(first) ? '*' : ' ');
    if (line)
        printf(" %10.2f %9.3f %9.3f\n", line->latency, algorithm_bandwidth(line),
               bus_bandwidth(line, ranks_of(first)));
    else
        printf(" %10s %9s %9s   %s\n", "-", "-", "-",
               is_right(first) ? "too few sizes" : "its sums are wrong");
}

// ---- What is drawn: a block for each sweep, of "bytes us us-of-the-line bus bus-of-the-line".

static void add_block(char **data, const cJSON *first, const Line *line)
{
    text_add(data, "%s\"%s\"\n", *data ? "\n\n" : "", collective_of(first));
    for (const cJSON *result = first; is_of_sweep(result, first); result = result->next) {
        if (!is_timed(result))
            continue;
        double bytes = number(result, "bytes"), time = line->latency + line->slope * bytes;
        double share = 2.0 * (ranks_of(first) - 1) / ranks_of(first);
        text_add(data, "%.0f %.3f %.3f %.5f %.5f\n", bytes, number(result, "microseconds"), time,
                 number(result, "bus_gb_per_second"), 1e-3 * share * bytes / time);
    }
}

// ---- The report.

static void report_sweep(const cJSON *first, cJSON *lines, char **data)
{
    Line line;
    bool has_line = fit_line(first, &line);
    print_line(first, has_line ? &line : NULL);
    if (!has_line)
        return;
    add_line(lines, first, &line);
    add_block(data, first, &line);
}

// Reports the sweeps on one number of ranks. Returns the first result after them.
static const cJSON *report_ranks(const cJSON *first, cJSON *lines, const char *folder)
{
    char *path = format_text("%s/sweep-%d.dat", folder, ranks_of(first)), *data = NULL;
    const cJSON *result = first;
    while (result && ranks_of(result) == ranks_of(first)) {
        report_sweep(result, lines, &data);
        result = end_of_sweep(result);
    }
    file_replace(path, data ? data : "", data ? strlen(data) : 0);
    free(data);
    free(path);
    return result;
}

static int report(const char *path, const char *folder)
{
    cJSON *document = cJSON_CreateObject(), *results = read_results(path);
    char *to = format_text("%s/sweep.json", folder);
    cJSON_AddItemToObject(document, "results", results);
    cJSON *lines = cJSON_AddArrayToObject(document, "lines");
    printf("\nThe line through each sweep's times, time = latency + bytes / bandwidth:\n\n");
    printf("%-16s %7s  %10s %9s %9s\n", "", "workers", "latency us", "alg GB/s", "bus GB/s");
    for (const cJSON *result = results->child; result;)
        result = report_ranks(result, lines, folder);
    printf("\n* more workers than processors: they take turns\n");
    json_write(document, to);
    cJSON_Delete(document);
    free(to);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--report") == 0)
        return report(argv[2], argv[3]);
    return sweep_on_ranks(argc, argv);
}
