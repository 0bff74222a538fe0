// The devices that a program computes on: GPUs where it was built with CUDA and one is visible,
// unless
// --device or an empty CUDA_VISIBLE_DEVICES says otherwise.
//
// Without a GPU a device is a fraction of the CPU's cores, so that the choice of a device has an
// effect on a laptop too. The cores of the job (those of the launcher, mpirun; without one, of the
// process) are divided into HVDLAB_DEVICES devices; if that is not set, into as many as there are
// processes on this node, so a process alone has one device, the whole machine. A node has at most
// MAX_DEVICES. Threads with a GPU stay on their fraction of the cores too.
//
// As in CUDA, the current device belongs to the thread. A thread works on device 0 unless it
// chooses another one, once, before it uses any. A program that trains on several devices has a
// thread for each. A model stays on the device that it was compiled on, whichever thread uses it.

#ifndef HVDLAB_DEVICE_H
#define HVDLAB_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include "run/args.h"

#define MAX_DEVICES 1024

#pragma GCC visibility push(default) // a step may call what follows

// Makes the calling thread work on device `index`, from 0, and on no other. Call it before anything
// in this thread uses a device (a model, a batch); after that, the call exits. An index
// beyond the last device warns and begins again at 0.
void device_use(int index);

typedef struct Device Device;

// True once the calling thread has used a device.
bool device_is_started(void);

// The calling thread's device. The first call in a thread readies it, as --device and --precision
// ask: makes a GPU the one that CUDA uses in this thread; moves the thread to the device's cores
// and gives OpenMP one thread for each. Where the main thread is the first to use a device, the
// threads that the process has move with it. Exits with an error message when what was asked for is
// not there. A device lives until the program ends.
Device *device_current(void);

// What follows is about the calling thread's device, which is readied if need be.

// True where it is a GPU; and "cpu" or "gpu", as records call it.
bool device_is_gpu(void);
const char *device_kind(void);

// The arithmetic to use: what --precision says, else tf32 on a GPU and fp32 on a CPU. Never
// PRECISION_DEFAULT.
Precision device_precision(void);

// Threads that compute on it, or beside a GPU.
int device_threads(void);

// Which device it is.
int device_index(void);

// How many devices this node has. As with cudaGetDeviceCount the calling thread uses none by that.
int device_count(void);

// The processors that the calling thread may run on now, as "0-3,8". Free it with free().
char *device_cores(void);

// The processors of one of `pieces` equal shares of what a process may use (-1: this one), as
// "0-3,8": what a device gets. Free it with free().
char *device_share(int process, int pieces, int piece);

#pragma GCC visibility pop

// ---- Inside the library.

struct Device {
    int index, count;    // which it is, of how many on this node
    bool gpu;            // else a share of the cores
    int gpu_number;      // as CUDA counts them in this process
    Precision precision; // never PRECISION_DEFAULT
    int threads;         // that compute on it, or beside a GPU; 0: not used yet
    struct hwloc_bitmap_s *cores;

    // What the device's backend keeps of it (streams, libraries' handles, buffers), made under the
    // lock when it is first needed. The lock may be taken again by the thread that has it.
    pthread_mutex_t lock;
    void *state;
};

// Before main (start.c), since other threads may read the environment later: keeps LLVM's OpenMP
// from moving threads back to the cores that it found its first one on.
void device_prepare(void);

// In a process that this one has forked: it may use all cores of the job again, for it is about to
// become another program.
void device_leave(void);

// Whether the processor computes bfloat16 (AVX512_BF16, AMX), and oneDNN is not told to do without
// (DNNL_MAX_CPU_ISA).
bool device_cpu_has_bfloat16(void);

// How many threads a parallel region of OpenMP gets that the calling thread begins now: the
// device's; one inside another region, or where OMP_MAX_ACTIVE_LEVELS is 0. Makes OpenMP give that
// many, whatever OMP_DYNAMIC or the program has set: oneDNN's primitives are made for a number of
// threads, and with fewer they wait forever.
int device_team(const Device *device);

// For `caller`, whose functions work in the host's memory: the CPU computes. Where a GPU would
// compute otherwise, the root says so. Exits where --device gpu asks for one, or one is in use.
void device_need_cpu(const char *caller);

// A thread that has neither a device nor chosen one works on this one from now on: it has been
// given another thread's model to compute.
void device_adopt(Device *device);

#endif
