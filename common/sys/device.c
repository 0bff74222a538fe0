// Devices: GPUs where the program was built with CUDA (HVDLAB_CUDA), and shares of the processor's
// cores.

#include "sys/device.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <hwloc/linux.h>
#include <limits.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "sys/args.h"
#include "sys/trace.h"
#include "base/util.h"

#ifdef HVDLAB_CUDA
#include <cuda_runtime.h>
#endif

static struct {
    int wanted;  // by device_use
    int threads; // 0: not started yet
    int index, count;
    bool gpu;
    Precision precision;
    hwloc_topology_t machine; // down to the cores that this job may use
} device;

void device_use(int index)
{
    trace("device_use", NUMBER("device", index));
    if (index < 0)
        die("device_use(%d): devices are numbered from 0", index);
    if (device.threads && index % device.count != device.index)
        die("device_use(%d): this process already works on device %d; choose the device before "
            "anything uses one, right after hvd_init()",
            index, device.index);
    device.wanted = index;
}

// The machine, down to the cores that a process may use.
static hwloc_topology_t usable_machine(int process)
{
    hwloc_topology_t topology;
    CHECK(hwloc_topology_init(&topology) == 0 && hwloc_topology_load(topology) == 0);
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    CHECK(mask);
    if (process < 0 || hwloc_get_proc_cpubind(topology, process, mask, 0) != 0)
        hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_PROCESS);
    hwloc_topology_restrict(topology, mask, 0); // keeps everything where the mask is empty
    hwloc_bitmap_free(mask);
    return topology;
}

// Several shares may have a core in common, but no two the hardware threads of one core, which
// would share one set of vector units.
static hwloc_bitmap_t share_of(hwloc_topology_t topology, int pieces, int piece)
{
    hwloc_bitmap_t *sets = allocate((size_t)pieces, sizeof *sets);
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    int depth = hwloc_get_type_or_below_depth(topology, HWLOC_OBJ_CORE);
    CHECK(hwloc_distrib(topology, &root, 1, sets, (unsigned)pieces, depth, 0) == 0);
    for (int i = 0; i < pieces; i++)
        if (i != piece)
            hwloc_bitmap_free(sets[i]);
    hwloc_bitmap_t cores = sets[piece];
    free(sets);
    return cores;
}

// As "0-3,8". Takes the set over.
static char *list_of(hwloc_bitmap_t set)
{
    char *list = NULL;
    CHECK(hwloc_bitmap_list_asprintf(&list, set) >= 0);
    hwloc_bitmap_free(set);
    return list;
}

char *device_share(int process, int pieces, int piece)
{
    hwloc_topology_t topology = usable_machine(process);
    char *list = list_of(share_of(topology, pieces, piece));
    hwloc_topology_destroy(topology);
    return list;
}

// Moves every thread that the process has; those to come are born where their parent is.
static void move_threads(hwloc_topology_t topology, hwloc_bitmap_t cores)
{
    int fault = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));)
        if (task->d_name[0] != '.' &&
            hwloc_linux_set_tid_cpubind(topology, atoi(task->d_name), cores) != 0)
            fault = errno;
    if (tasks)
        closedir(tasks);
    if (fault)
        warn_on_root("the threads cannot be bound to the device's cores: %s", strerror(fault));
}

static int count_cores(hwloc_topology_t topology, hwloc_bitmap_t set)
{
    // Where the system doesn't tell cores (some containers), hardware threads stand for them.
    int depth = hwloc_get_type_or_below_depth(topology, HWLOC_OBJ_CORE), cores = 0;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_depth(topology, depth, core));)
        cores += hwloc_bitmap_intersects(core->cpuset, set);
    return cores > 0 ? cores : 1;
}

// How many cores' time the control group grants (docker --cpus), rounded up; INT_MAX: all.
static int cpu_quota(void)
{
    double quota = 0, period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re"); // of version 2; a container sees its own
    if (file && fscanf(file, "%lf %lf", &quota, &period) != 2)
        period = 0; // "max"
    if (file)
        fclose(file);
    return period > 0 && quota > 0 ? (int)((quota + period - 1) / period) : INT_MAX;
}

// Threads beyond the quota would only be stopped in the middle of their work.
static int threads_of(hwloc_bitmap_t cores, int devices)
{
    int threads = count_cores(device.machine, cores), granted = cpu_quota() / devices;
    return threads <= granted ? threads : granted > 0 ? granted : 1;
}

// Others see the device in the name of an open file, as `make devices` does, and the cores in the
// file, since a name is short: it is gone when the process is, however that ends.
static void announce(const char *cores, const Place *place)
{
    char *name = format_text("hvdlab rank %d node %d device %d of %d kind %s", launcher_rank(),
                             place->node, device.index, device.count, device_kind());
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0 || dprintf(file, "%s", cores) < 0)
        warn_on_root("make devices will not show this process: %s", strerror(errno));
    free(name);
}

// Takes the device that was asked for, of `count` on this node.
static void choose_index(int count)
{
    device.count = count;
    device.index = device.wanted % count;
    if (device.wanted >= count)
        warn("rank %d: device %d is not there, this node has %d; using device %d", launcher_rank(),
             device.wanted, count, device.index);
}

// How many shares of this node's cores there are.
static int share_count(const Place *place)
{
    int count = environment_count("HVDLAB_DEVICES");
    return count ? count : place->local_size;
}

static void take_share(const Place *place)
{
    int count = share_count(place);
    // mpirun binds each rank to cores of its own choice; the job's cores are those of mpirun.
    device.machine = usable_machine(launcher_process());
    hwloc_bitmap_t cores =
        share_of(device.machine, place->nodes * count, place->node * count + device.wanted % count);
    move_threads(device.machine, cores);
    device.threads = threads_of(cores, place->nodes * count);
    omp_set_num_threads(device.threads);
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        warn_on_root(
            "OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set: OpenMP then places its "
            "threads itself, on whichever device; unset it");
    hwloc_bitmap_free(cores);
}

static void start_cpu(const Place *place)
{
    if (settings()->precision == PRECISION_BF16)
        die("--precision bf16 needs a GPU; on a CPU use fp32");
    device.precision = PRECISION_FP32;
    choose_index(share_count(place));
}

#ifdef HVDLAB_CUDA

// How many GPUs CUDA lets this process use. None is no error, unless the user asked for one: by
// --device gpu, or by names in CUDA_VISIBLE_DEVICES that are nobody's. Where there is no driver at
// all, those names are left over from another machine.
static int visible_gpus(void)
{
    int count = 0;
    const char *names = getenv("CUDA_VISIBLE_DEVICES");
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        return count;
    cudaGetLastError(); // it has been seen: later calls must not find it
    int driver = 0;
    bool no_driver = error == cudaErrorInsufficientDriver &&
                     (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0);
    if (names && *names && (error == cudaSuccess || error == cudaErrorNoDevice))
        die("CUDA_VISIBLE_DEVICES=%s names no GPU that is there; leave it empty to use the CPU",
            names);
    if (settings()->device == DEVICE_GPU)
        die("--device gpu: no GPU can be used: %s; leave the flag out to use the CPU",
            names && !*names ? "CUDA_VISIBLE_DEVICES is empty"
            : no_driver      ? "there is no NVIDIA driver on this machine"
                             : cudaGetErrorString(error));
    if (error != cudaErrorNoDevice && !no_driver)
        warn_on_root("no GPU can be used, so the CPU is: %s", cudaGetErrorString(error));
    return 0;
}

static int compute_capability(int gpu)
{
    int major = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
    if (error != cudaSuccess)
        die("GPU %d cannot be used: %s", gpu, cudaGetErrorString(error));
    return major;
}

// Nothing may touch CUDA before the device is set: that would take memory on GPU 0.
static void start_gpu(const Place *place, int gpus)
{
    // Where one machine plays several nodes, each has its own GPUs, if there are enough.
    int per_node = gpus >= place->nodes ? gpus / place->nodes : gpus;
    choose_index(per_node);
    int gpu = (place->node * per_node + device.index) % gpus;
    if (settings()->precision == PRECISION_BF16 && compute_capability(gpu) < 8)
        die("--precision bf16 needs a GPU of compute capability 8.0 or more; GPU %d is older", gpu);
    cudaError_t error = cudaSetDevice(gpu);
    if (error != cudaSuccess)
        die("GPU %d cannot be used: %s", gpu, cudaGetErrorString(error));
    device.gpu = true;
    device.precision = settings()->precision;
    if (device.precision == PRECISION_DEFAULT)
        device.precision = PRECISION_TF32;
}

#else

static int visible_gpus(void)
{
    if (settings()->device == DEVICE_GPU)
        die("--device gpu: this program was built without CUDA; leave the flag out to use the CPU");
    return 0;
}

static void start_gpu(const Place *place, int gpus)
{
    (void)place;
    CHECK(gpus == 0);
}

#endif

char *device_cores(void)
{
    device_start();
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    CHECK(cores);
    // A system that does not tell lets the thread run, as far as one knows, on all that there is.
    if (hwloc_get_cpubind(device.machine, cores, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(cores, hwloc_topology_get_topology_cpuset(device.machine));
    return list_of(cores);
}

// With the cores of each of the node's devices.
static void trace_device(const char *cores, const Place *place)
{
    int count = share_count(place);
    char *shares = format_text("%s", "");
    for (int i = 0; i < count; i++) {
        char *share =
            list_of(share_of(device.machine, place->nodes * count, place->node * count + i));
        char *longer = format_text("%s%s%s", shares, i ? ";" : "", share);
        free(shares);
        free(share);
        shares = longer;
    }
    trace("device", NUMBER("device", device.index), NUMBER("devices", device.count),
          NUMBER("node", place->node), TEXT("cores", cores), TEXT("kind", device_kind()),
          TEXT("shares", shares));
    free(shares);
}

void device_start(void)
{
    if (device.threads)
        return;
    Place place = launcher_place();
    int gpus = settings()->device == DEVICE_CPU ? 0 : visible_gpus();
    if (gpus > 0)
        start_gpu(&place, gpus);
    else
        start_cpu(&place);
    take_share(&place);
    char *cores = device_cores();
    announce(cores, &place);
    if (trace_on())
        trace_device(cores, &place);
    free(cores);
}

bool device_is_started(void)
{
    return device.threads > 0;
}

bool device_is_gpu(void)
{
    device_start();
    return device.gpu;
}

Precision device_precision(void)
{
    device_start();
    return device.precision;
}

int device_threads(void)
{
    device_start();
    return device.threads;
}

int device_index(void)
{
    device_start();
    return device.index;
}

int device_count(void)
{
    device_start();
    return device.count;
}

const char *device_kind(void)
{
    return device_is_gpu() ? "gpu" : "cpu";
}
