// Devices: GPUs where the program was built with CUDA (HVDLAB_CUDA), fractions of the CPU's cores
// elsewhere; and the current device of each thread. The backends compute on them.

#include "run/device.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <hwloc/linux.h>
#include <limits.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/numbers.h"
#include "run/args.h"
#include "observe/trace.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/layout.h"
#include "base/memory.h"
#include "base/setting.h"
#include "base/format.h"

#ifdef HVDLAB_CUDA
#include <cuda_runtime.h>
#endif

// This node's devices, determined when the first thread uses one.
static struct {
    pthread_mutex_t lock; // of all that is here, but for devices that are in use: those stay
    Place place;
    hwloc_topology_t machine; // down to the cores that this job may use
    int gpus;                 // that CUDA shows this process; 0: devices are shares of the cores
    int count;                // of devices; 0: not determined yet
    Device *devices;
    bool in_use; // some device is
} node = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Per thread.
static _Thread_local struct {
    bool chosen; // by device_use
    int wanted;
    Device *device; // NULL: none is used yet
} own;

void device_prepare(void)
{
    setenv("KMP_AFFINITY", "disabled", 0);
}

static bool is_main_thread(void)
{
    return gettid() == getpid();
}

void device_use(int index)
{
    trace("device_use", NUMBER("device", index));
    if (index < 0)
        die("device_use(%d): devices are numbered from 0", index);
    if (own.device && index % own.device->count != own.device->index)
        die("device_use(%d): this process already works on device %d%s; choose the device before "
            "anything uses one, right after hvd_init()",
            index, own.device->index, is_main_thread() ? "" : " in this thread");
    own.chosen = true;
    own.wanted = index;
}

// hwloc fails on a valid request only if there is no memory.
static void *had(void *made)
{
    if (!made)
        die("out of memory: there is none to list the processor's cores");
    return made;
}

static hwloc_topology_t load_topology(void)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0)
        die("the processor's cores cannot be listed: %s", strerror(errno));
    return topology;
}

// The machine, restricted to the cores that a process may use.
static hwloc_topology_t usable_machine(int process)
{
    hwloc_topology_t topology = load_topology();
    hwloc_bitmap_t mask = had(hwloc_bitmap_alloc());
    if (process < 0 || hwloc_get_proc_cpubind(topology, process, mask, 0) != 0)
        hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_PROCESS);
    hwloc_topology_restrict(topology, mask, 0); // keeps everything where the mask is empty
    hwloc_bitmap_free(mask);
    return topology;
}

// Several devices may share a core, but no two devices get different hardware threads of one core:
// these share its vector units.
static hwloc_bitmap_t share_of(hwloc_topology_t topology, int pieces, int piece)
{
    hwloc_bitmap_t *sets = allocate((size_t)pieces, sizeof *sets);
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    int depth = hwloc_get_type_or_below_depth(topology, HWLOC_OBJ_CORE);
    if (hwloc_distrib(topology, &root, 1, sets, (unsigned)pieces, depth, 0) != 0)
        die("the cores cannot be divided into %d shares: %s", pieces, strerror(errno));
    for (int i = 0; i < pieces; i++)
        if (i != piece)
            hwloc_bitmap_free(sets[i]);
    hwloc_bitmap_t cores = had(sets[piece]);
    free(sets);
    return cores;
}

// Formats as "0-3,8". Takes over the set.
static char *list_of(hwloc_bitmap_t set)
{
    char *list = NULL;
    if (hwloc_bitmap_list_asprintf(&list, set) < 0)
        list = NULL;
    hwloc_bitmap_free(set);
    return had(list);
}

char *device_share(int process, int pieces, int piece)
{
    hwloc_topology_t topology = usable_machine(process);
    char *list = list_of(share_of(topology, pieces, piece));
    hwloc_topology_destroy(topology);
    return list;
}

// Binds every thread of the process; 0 or an errno.
static int move_all_threads(hwloc_bitmap_t cores)
{
    int fault = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        long thread = whole_number(task->d_name, INT_MAX);
        if (thread > 0 && hwloc_linux_set_tid_cpubind(node.machine, (int)thread, cores) != 0)
            fault = errno;
    }
    if (tasks)
        closedir(tasks);
    return fault;
}

// New threads inherit their parent's cores. Existing threads move with the main thread, unless some
// of them may work on another device already.
static void move_threads(hwloc_bitmap_t cores)
{
    int fault = 0;
    if (is_main_thread() && !node.in_use)
        fault = move_all_threads(cores);
    else if (hwloc_linux_set_tid_cpubind(node.machine, gettid(), cores) != 0)
        fault = errno;
    if (fault)
        warn_on_root("the threads cannot be bound to the device's cores: %s", strerror(fault));
}

static int count_cores(hwloc_topology_t topology, hwloc_bitmap_t set)
{
    // If the system reports no cores (some containers), hardware threads are used instead.
    int depth = hwloc_get_type_or_below_depth(topology, HWLOC_OBJ_CORE), cores = 0;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_depth(topology, depth, core));)
        cores += hwloc_bitmap_intersects(core->cpuset, set);
    return cores > 0 ? cores : 1;
}

// The control group's limit of CPU time (docker --cpus), in cores, rounded up; INT_MAX: none.
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

// The system would stop threads beyond the quota in the middle of their work, and OpenMP does not
// start those beyond OMP_THREAD_LIMIT.
static int threads_of(hwloc_bitmap_t cores, int devices)
{
    int threads = count_cores(node.machine, cores), granted = cpu_quota() / devices;
    if (granted > omp_get_thread_limit())
        granted = omp_get_thread_limit();
    return threads <= granted ? threads : granted > 0 ? granted : 1;
}

static const char *kind_of(const Device *device)
{
    return device->gpu ? "gpu" : "cpu";
}

// The number of devices of this node.
static int share_count(void)
{
    int count = setting_count(HVDLAB_DEVICES);
    return count ? count : node.place.local_size;
}

// One of them.
static hwloc_bitmap_t share_number(int index)
{
    int count = share_count();
    return share_of(node.machine, node.place.nodes * count, node.place.node * count + index);
}

// With the cores of each of the node's devices.
static void trace_device(const Device *device, const char *cores)
{
    if (!trace_on())
        return;
    char *shares = format_text("%s", "");
    for (int i = 0; i < share_count(); i++) {
        char *share = list_of(share_number(i));
        text_add(&shares, "%s%s", i ? ";" : "", share);
        free(share);
    }
    trace("device", NUMBER("device", device->index), NUMBER("devices", device->count),
          NUMBER("node", node.place.node), TEXT("cores", cores), TEXT("kind", kind_of(device)),
          TEXT("shares", shares));
    free(shares);
}

// Other processes (`make devices`) read the device in the name of an open file, and the cores in
// the file, since a name is short. The file disappears with the process, however it ends.
static void announce(const Device *device, const char *cores)
{
    char *name = format_text("hvdlab rank %d node %d device %d of %d kind %s", launcher_rank(),
                             node.place.node, device->index, device->count, kind_of(device));
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0 || dprintf(file, "%s", cores) < 0)
        warn_on_root("make devices will not show this process: %s", strerror(errno));
    free(name);
    trace_device(device, cores);
}

// Gives the device its cores; for a GPU, the cores of the host's threads.
static void take_share(Device *device)
{
    int count = share_count();
    device->cores = share_number(own.wanted % count);
    device->threads = threads_of(device->cores, node.place.nodes * count);
}

bool device_cpu_has_bfloat16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

static void ready_cpu(Device *device)
{
    bool bfloat16 = settings()->precision == PRECISION_BF16;
    if (bfloat16 && !device_cpu_has_bfloat16())
        die("--precision bf16 needs a GPU, or a processor with AVX512_BF16 or AMX; here use fp32");
    device->precision = bfloat16 ? PRECISION_BF16 : PRECISION_FP32;
}

#ifdef HVDLAB_CUDA

// How many GPUs CUDA lets this process use. None is no error, unless the user asked for one: by
// --device gpu, or by names in CUDA_VISIBLE_DEVICES that no device has. Without any driver those
// names come from another machine.
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

// If one machine simulates several nodes, each has its own GPUs, if there are enough.
static int gpus_per_node(void)
{
    return node.gpus >= node.place.nodes ? node.gpus / node.place.nodes : node.gpus;
}

static void ready_gpu(Device *device)
{
    device->gpu_number = (node.place.node * node.count + device->index) % node.gpus;
    if (settings()->precision == PRECISION_BF16 && compute_capability(device->gpu_number) < 8)
        die("--precision bf16 needs a GPU of compute capability 8.0 or more; GPU %d is older",
            device->gpu_number);
    device->gpu = true;
    device->precision = settings()->precision;
    if (device->precision == PRECISION_DEFAULT)
        device->precision = PRECISION_TF32;
}

// No thread may call CUDA before this: it would allocate memory on GPU 0.
static void set_gpu(const Device *device)
{
    cudaError_t error = cudaSetDevice(device->gpu_number);
    if (error != cudaSuccess)
        die("GPU %d cannot be used: %s", device->gpu_number, cudaGetErrorString(error));
}

#else

static int visible_gpus(void)
{
    if (settings()->device == DEVICE_GPU)
        die("--device gpu: this program was built without CUDA; leave the flag out to use the CPU");
    return 0;
}

static int gpus_per_node(void)
{
    return 0;
}

static void ready_gpu(Device *device)
{
    (void)device;
    CHECK(node.gpus == 0); // there are none without CUDA
}

static void set_gpu(const Device *device)
{
    CHECK(!device->gpu);
}

#endif

// More devices than this are a mistake, and listing them would take minutes.
#define MAX_SHARES 65536

static void check_shares(void)
{
    if (share_count() > MAX_SHARES / node.place.nodes)
        die("%d nodes (HVD_LAYOUT, HVD_RANKS_PER_NODE) of %d devices each (HVDLAB_DEVICES) are "
            "more than the %d into which the cores can be divided",
            node.place.nodes, share_count(), MAX_SHARES);
}

static int count_devices(void)
{
    node.place = launcher_place();
    check_shares();
    node.gpus = settings()->device == DEVICE_CPU ? 0 : visible_gpus();
    return node.gpus > 0 ? gpus_per_node() : share_count();
}

// Determines the devices, once, before any thread has been moved.
static void look_around(void)
{
    node.count = count_devices();
    // mpirun binds each rank to cores of its own choice; the job's cores are those of mpirun.
    node.machine = usable_machine(launcher_process());
    node.devices = allocate((size_t)node.count, sizeof *node.devices);
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        warn_on_root(
            "OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set: OpenMP then places its "
            "threads itself, on whichever device; unset it");
}

// Checks the requested number.
static Device *chosen_device(void)
{
    int index = own.wanted % node.count;
    if (own.wanted >= node.count)
        warn("rank %d: device %d is not there, this node has %d; using device %d", launcher_rank(),
             own.wanted, node.count, index);
    return &node.devices[index];
}

// At a device's first use, by whichever thread; later it is only read.
static void ready(Device *device)
{
    device->index = (int)(device - node.devices);
    device->count = node.count;
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&device->lock, &again);
    pthread_mutexattr_destroy(&again);
    if (node.gpus > 0)
        ready_gpu(device);
    else
        ready_cpu(device);
    take_share(device);
}

// From now on the calling thread works on this device.
static void join(Device *device)
{
    if (device->gpu)
        set_gpu(device);
    move_threads(device->cores);
    device_team(device);
    node.in_use = true;
    own.device = device;
}

int device_team(const Device *device)
{
    if (device->gpu)
        return device->threads;
    bool alone = omp_in_parallel() || omp_get_max_active_levels() < 1;
    int threads = alone ? 1 : device->threads;
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    return threads;
}

static void look_around_once(void)
{
    if (!node.count)
        look_around();
}

int device_count(void)
{
    pthread_mutex_lock(&node.lock);
    int count = node.count ? node.count : count_devices(); // a --device may still come
    pthread_mutex_unlock(&node.lock);
    return count;
}

void device_need_cpu(const char *caller)
{
    pthread_mutex_lock(&node.lock);
    if (!node.in_use && settings()->device == DEVICE_AUTO) {
        if (visible_gpus() > 0)
            note_on_root("%s: its functions work in the host's memory, so the CPU computes",
                         caller);
        settings()->device = DEVICE_CPU;
    }
    pthread_mutex_unlock(&node.lock);
    if (device_is_gpu())
        die("%s: its functions work in the host's memory, not on a GPU; use --device cpu", caller);
}

static void start(void)
{
    pthread_mutex_lock(&node.lock);
    look_around_once();
    Device *device = chosen_device();
    bool first = !device->threads;
    if (first)
        ready(device);
    join(device);
    if (first) {
        char *cores = device_cores();
        announce(device, cores);
        free(cores);
    }
    pthread_mutex_unlock(&node.lock);
}

Device *device_current(void)
{
    if (!own.device)
        start();
    return own.device;
}

void device_adopt(Device *device)
{
    if (own.device)
        return;
    if (own.chosen) {
        start();
        return;
    }
    pthread_mutex_lock(&node.lock);
    join(device);
    pthread_mutex_unlock(&node.lock);
}

void device_leave(void)
{
    if (node.machine)
        hwloc_set_cpubind(node.machine, hwloc_topology_get_topology_cpuset(node.machine),
                          HWLOC_CPUBIND_THREAD);
}

char *device_cores(void)
{
    device_current();
    hwloc_bitmap_t cores = had(hwloc_bitmap_alloc());
    // If the system does not report it, assume that the thread may run on all cores.
    if (hwloc_get_cpubind(node.machine, cores, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(cores, hwloc_topology_get_topology_cpuset(node.machine));
    return list_of(cores);
}

bool device_is_started(void)
{
    return own.device != NULL;
}

bool device_is_gpu(void)
{
    return device_current()->gpu;
}

const char *device_kind(void)
{
    return kind_of(device_current());
}

Precision device_precision(void)
{
    return device_current()->precision;
}

int device_threads(void)
{
    return device_current()->threads;
}

int device_index(void)
{
    return device_current()->index;
}
