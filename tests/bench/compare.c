// Races a training step on one device against the same on another.

#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include "contestants.h"
#include "sys/device.h"
#include "base/util.h"

enum { ROUNDS = 5 };

static const Subject small = {"wrn", 1, 64, DEVICE_CPU, PRECISION_FP32};

// Starts both, races them and ends them; the figures stay.
static void race_both(Contestant both[2], double round_time)
{
    race(both, 2, ROUNDS, round_time);
    contestant_stop(&both[0]);
    contestant_stop(&both[1]);
}

// What one core does, and what all do together.
static void compare_cores(const Subject *s, double round_time)
{
    Contestant both[2] = {{0}};
    int cores = device_threads();
    char devices[16];
    snprintf(devices, sizeof devices, "%d", cores);
    const char *environment[] = {"HVDLAB_DEVICES", devices, NULL};
    if (!start_contestant(&both[0], "hvdlab", NULL, s, environment) ||
        !start_contestant(&both[1], "hvdlab", NULL, s, NULL))
        die("bench: hvdlab cannot be started");
    race_both(both, round_time);
    printf("Training a ");
    print_subject(s);
    printf(", one process\n");
    printf("  %-22s %10s\n", "device", "images/s");
    printf("  %s, 1 of %d cores%*s %10.1f\n", device_kind(), cores, cores > 9 ? 4 : 5, "",
           s->batch / median(both[0].seconds, ROUNDS));
    printf("  %s, all %d cores%*s %10.1f   %.2f x\n", device_kind(), cores, cores > 9 ? 5 : 6, "",
           s->batch / median(both[1].seconds, ROUNDS), speed_ratio(&both[1], &both[0], ROUNDS));
}

static void print_device(const char *device, const Subject *s, const Contestant *c)
{
    char *label = format_text("%s, batch %d, %s", device, s->batch, precision_names[s->precision]);
    printf("  %-34s %10.1f", label, s->batch / median(c->seconds, ROUNDS));
    free(label);
}

// The GPU beside all cores, each with a batch that suits it.
static void compare_gpu(const Subject *model, int cpu_batch, int gpu_batch, double round_time)
{
    Subject cpu = *model, gpu = *model;
    cpu.device = DEVICE_CPU;
    cpu.precision = PRECISION_FP32;
    cpu.batch = cpu_batch;
    gpu.device = DEVICE_GPU;
    gpu.precision = device_precision();
    gpu.batch = gpu_batch;
    Contestant both[2] = {{0}};
    if (!start_contestant(&both[0], "hvdlab", NULL, &cpu, NULL) ||
        !start_contestant(&both[1], "hvdlab", NULL, &gpu, NULL))
        die("bench: hvdlab cannot be started");
    race_both(both, round_time);
    double faster = speed_ratio(&both[1], &both[0], ROUNDS) * gpu_batch / cpu_batch;
    char *cores = format_text("cpu, all %d cores", device_threads());
    printf("Training a ");
    print_model(model);
    printf(", one process\n");
    printf("  %-34s %10s\n", "device", "images/s");
    print_device(cores, &cpu, &both[0]);
    printf("\n");
    print_device("gpu", &gpu, &both[1]);
    printf("   %.2f x\n", faster);
    free(cores);
}

void compare_devices(bool quick, const Subject *subject)
{
    double round_time = quick ? 0.1 : 1.0;
    Subject s = subject ? *subject : small;
    if (!device_is_gpu()) {
        s.device = DEVICE_CPU;
        s.precision = PRECISION_FP32;
        compare_cores(&s, round_time);
        return;
    }
    compare_gpu(&s, s.batch, s.batch, round_time);
    // The lab's own network. A batch of 512 would keep a CPU busy for a minute, and in images/s it
    // is no quicker with it.
    if (!subject && !quick)
        compare_gpu(&(Subject){.model = "wrn", .width = 10}, 32, 512, round_time);
}
