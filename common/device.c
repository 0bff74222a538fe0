// Devices. This build knows one: the CPU, all cores of it that the process may use.

#include "device.h"

#include <hwloc.h>
#include <omp.h>
#include "args.h"
#include "util.h"

static int threads;

// Cores, not hardware threads: two of a core's threads would share one set of vector units.
static int usable_cores(void)
{
    hwloc_topology_t topology;
    CHECK(hwloc_topology_init(&topology) == 0 && hwloc_topology_load(topology) == 0);
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    CHECK(mask);
    int cores = 0;
    if (hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_PROCESS) == 0)
        for (hwloc_obj_t core = NULL;
             (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));)
            cores += hwloc_bitmap_intersects(core->cpuset, mask);
    hwloc_bitmap_free(mask);
    hwloc_topology_destroy(topology);
    return cores > 0 ? cores : 1;
}

void device_start(void)
{
    if (threads)
        return;
    if (settings()->device == DEVICE_GPU)
        die("--device gpu: this program was built without CUDA; leave the flag out to use the CPU");
    if (settings()->precision == PRECISION_BF16)
        die("--precision bf16 needs a GPU; on a CPU use fp32");
    threads = usable_cores();
    omp_set_num_threads(threads);
}

int device_threads(void)
{
    device_start();
    return threads;
}

const char *device_kind(void)
{
    return "cpu";
}
