// devices: what nvidia-smi is to GPUs, for the devices of device.h. Shows each device of this
// machine, its cores, how busy they were for a second, and the processes that work on it. Plain
// text, once: `watch -n 1 build/devices` repeats it.
//
// A process announces its device in the name of an open file, and its cores in what the file holds
// (announce() in device.c); it is found among the links in /proc/PID/fd, so only processes of the
// same user are seen, by root all.

#include <dirent.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run/device.h"
#include "base/process.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/setting.h"
#include "base/format.h"

#define ANNOUNCEMENT "/memfd:hvdlab rank %d node %d device %d of %d kind %7s"

// A process on a device; one entry for each device that it works on.
typedef struct {
    int pid, rank, node, device, devices;
    int job;      // the launcher that started it, or who else did
    char *cores;  // as "0-3,8"
    char kind[8]; // cpu or gpu
    char program[64];
} DeviceUser;

typedef struct {
    DeviceUser *items;
    int count;
} Processes;

// Each processor's busy and total time since the machine's start, in ticks.
#define MAX_PROCESSORS 4096
typedef struct {
    double busy[MAX_PROCESSORS], total[MAX_PROCESSORS];
} Activity;

static hwloc_topology_t machine;

// ---- The processes.

// Reads the link at `path` as text; empty on failure.
static void read_link(const char *path, char *text, size_t size)
{
    ssize_t length = readlink(path, text, size - 1);
    text[length > 0 ? length : 0] = '\0';
}

static void name_program(DeviceUser *process)
{
    char target[4096];
    char *path = format_text("/proc/%d/exe", process->pid);
    read_link(path, target, sizeof target);
    free(path);
    char *deleted = strstr(target, " (deleted)");
    if (deleted) // built again since it started
        *deleted = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(process->program, sizeof process->program, "%.63s", slash ? slash + 1 : target);
}

static void add(Processes *found, int pid, DeviceUser process)
{
    process.pid = pid;
    process.job = launcher_above(pid);
    name_program(&process);
    found->items = enlarge(found->items, (size_t)found->count + 1, sizeof process);
    found->items[found->count++] = process;
}

// Adds the process for each device that it works on.
static void look_at(int pid, Processes *found)
{
    char *folder = format_text("/proc/%d/fd", pid);
    DIR *files = opendir(folder);
    for (struct dirent *file; files && (file = readdir(files));) {
        char target[512], cores[4096];
        DeviceUser process;
        char *path = format_text("%s/%s", folder, file->d_name);
        read_link(path, target, sizeof target);
        if (sscanf(target, ANNOUNCEMENT, &process.rank, &process.node, &process.device,
                   &process.devices, process.kind) == 5) {
            bool known = file_beginning(path, cores, sizeof cores) > 0;
            process.cores = format_text("%s", known ? cores : "?");
            add(found, pid, process);
        }
        free(path);
    }
    if (files)
        closedir(files);
    free(folder);
}

static int by_job(const void *a, const void *b)
{
    const DeviceUser *p = a, *q = b;
    const int keys[][2] = {{p->job, q->job},       {p->node, q->node}, {p->devices, q->devices},
                           {p->device, q->device}, {p->rank, q->rank}, {p->pid, q->pid}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static Processes find_processes(void)
{
    static int all[MAX_PROCESSES];
    Processes found = {0};
    for (int i = 0, count = process_list(all, MAX_PROCESSES); i < count; i++)
        look_at(all[i], &found);
    if (found.count > 0)
        qsort(found.items, (size_t)found.count, sizeof *found.items, by_job);
    return found;
}

// ---- Devices: cores, and how busy they are.

static void read_activity(Activity *activity)
{
    FILE *file = fopen("/proc/stat", "re");
    if (!file)
        die("/proc/stat can't be read, so there is no load to show");
    char line[512];
    while (fgets(line, sizeof line, file)) {
        int processor;
        double user, nice, system, idle, iowait, irq, softirq, steal;
        if (sscanf(line, "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &processor, &user, &nice, &system,
                   &idle, &iowait, &irq, &softirq, &steal) == 9 &&
            processor < MAX_PROCESSORS) {
            activity->busy[processor] = user + nice + system + irq + softirq;
            activity->total[processor] = activity->busy[processor] + idle + iowait + steal;
        }
    }
    fclose(file);
}

// A processor's load between two readings, 0 to 1.
static double processor_load(const Activity *before, const Activity *after, int processor)
{
    if (processor >= MAX_PROCESSORS)
        return 0;
    double total = after->total[processor] - before->total[processor];
    return total > 0 ? (after->busy[processor] - before->busy[processor]) / total : 0;
}

// The mean over a list of cores, in percent. A core with one of its hardware threads at work is
// busy: programs of the kit give each core one thread.
static double load_of(const Activity *before, const Activity *after, const char *list)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_bitmap_list_sscanf(set, list);
    double sum = 0;
    int depth = hwloc_get_type_or_below_depth(machine, HWLOC_OBJ_CORE), cores = 0;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_depth(machine, depth, core));) {
        if (!hwloc_bitmap_intersects(core->cpuset, set))
            continue;
        double load = 0;
        for (int processor = hwloc_bitmap_first(core->cpuset); processor >= 0;
             processor = hwloc_bitmap_next(core->cpuset, processor))
            load += processor_load(before, after, processor);
        sum += load < 1 ? load : 1;
        cores++;
    }
    hwloc_bitmap_free(set);
    return cores > 0 ? 100 * sum / cores : 0;
}

// ---- The table.

static bool is_gpu(const DeviceUser *process)
{
    return strcmp(process->kind, "gpu") == 0;
}

// The node's column is printed only if HVD_RANKS_PER_NODE simulates several nodes.
static void print_header(bool with_node)
{
    printf("%s%6s  %-11s  %5s  %8s  %4s  %s\n", with_node ? "node  " : "", "device", "cores",
           "load", "pid", "rank", "program");
}

// Prints a device, its node unless that is negative, and the `count` processes on it.
static void print_device(int node, int device, const char *cores, double load,
                         const DeviceUser *processes, int count)
{
    int indent = node >= 0 ? printf("%4d  ", node) : 0;
    bool gpu = count > 0 && is_gpu(processes);
    indent += printf("%*s%*d  %-11s  %3.0f %%  ", gpu ? 4 : 0, gpu ? "gpu" : "", gpu ? 2 : 6,
                     device, cores, load);
    if (count == 0)
        printf("%8s  %4s  %s\n", "-", "-", "(none)");
    for (int i = 0; i < count; i++)
        printf("%*s%8d  %4d  %s\n", i > 0 ? indent : 0, "", processes[i].pid, processes[i].rank,
               processes[i].program);
}

// Processes on GPUs; the load is that of their host cores.
static void print_gpu_processes(const DeviceUser *processes, int count, int nodes,
                                const Activity *before, const Activity *after)
{
    for (int i = 0; i < count; i++) {
        const DeviceUser *p = &processes[i];
        print_device(nodes > 1 ? p->node : -1, p->device, p->cores,
                     load_of(before, after, p->cores), p, 1);
    }
    printf("(the processor's load; nvidia-smi shows the GPUs')\n");
}

static bool same_node(const DeviceUser *a, const DeviceUser *b)
{
    return a->job == b->job && a->node == b->node && a->devices == b->devices;
}

// All devices of the node of processes[0], which `count` processes work on.
static void print_node(const DeviceUser *processes, int count, int nodes, const Activity *before,
                       const Activity *after)
{
    int job = processes->job, node = processes->node, devices = processes->devices;
    for (int device = 0; device < devices; device++) {
        int here = 0;
        while (here < count && processes[here].device == device)
            here++;
        char *cores = here > 0 ? format_text("%s", processes->cores)
                               : device_share(job, nodes * devices, node * devices + device);
        print_device(nodes > 1 ? node : -1, device, cores, load_of(before, after, cores), processes,
                     here);
        free(cores);
        processes += here;
        count -= here;
    }
}

static int count_processes(const DeviceUser *processes, int count)
{
    int distinct = 0;
    for (int i = 0; i < count; i++) {
        int first = 0;
        while (processes[first].pid != processes[i].pid)
            first++;
        distinct += first == i;
    }
    return distinct;
}

static void print_jobs(const Processes *all, const Activity *before, const Activity *after)
{
    for (int begin = 0, end; begin < all->count; begin = end) {
        const DeviceUser *first = &all->items[begin];
        int nodes = 0;
        for (end = begin; end < all->count && all->items[end].job == first->job; end++)
            if (all->items[end].node >= nodes)
                nodes = all->items[end].node + 1;
        ProcessStatus job = {.name = "?"};
        process_status(first->job, &job);
        int count = count_processes(first, end - begin);
        printf("%s%d %s started by %s (pid %d)\n", begin > 0 ? "\n" : "", count,
               count == 1 ? "process" : "processes", job.name, first->job);
        print_header(nodes > 1);
        for (int i = begin, next; i < end; i = next) {
            for (next = i; next < end && same_node(&all->items[i], &all->items[next]);)
                next++;
            if (is_gpu(&all->items[i]))
                print_gpu_processes(&all->items[i], next - i, nodes, before, after);
            else
                print_node(&all->items[i], next - i, nodes, before, after);
        }
    }
}

// The devices that a process would have that started now.
static void print_idle(const Activity *before, const Activity *after)
{
    int devices = setting_count(HVDLAB_DEVICES);
    if (devices == 0)
        devices = 1;
    printf("no program of the kit is at work\n");
    print_header(false);
    for (int device = 0; device < devices; device++) {
        char *cores = device_share(-1, devices, device);
        print_device(-1, device, cores, load_of(before, after, cores), NULL, 0);
        free(cores);
    }
}

int main(void)
{
    CHECK(hwloc_topology_init(&machine) == 0 && hwloc_topology_load(machine) == 0);
    static Activity before, after;
    read_activity(&before);
    sleep(1);
    read_activity(&after);
    Processes processes = find_processes();
    if (processes.count > 0)
        print_jobs(&processes, &before, &after);
    else
        print_idle(&before, &after);
    for (int i = 0; i < processes.count; i++)
        free(processes.items[i].cores);
    free(processes.items);
    hwloc_topology_destroy(machine);
    return 0;
}
