// The device that this process computes on: a GPU where the program was built with CUDA and one is
// visible, unless --device or an empty CUDA_VISIBLE_DEVICES says otherwise.
//
// Without a GPU a device is a share of the processor's cores, so that choosing one means something
// on a laptop too. The cores that the job may use (those of the launcher, mpirun; without one, the
// process's own) are divided into HVDLAB_DEVICES devices, or, where that is not set, into as many
// as there are processes on this node: a process alone has one device, the whole machine. As with
// GPUs, a process that never chooses works on device 0, whoever else does. The threads of a process
// that has a GPU stay on their share of the cores too.

#ifndef HVDLAB_DEVICE_H
#define HVDLAB_DEVICE_H

#include <stdbool.h>
#include "sys/args.h"

#pragma GCC visibility push(default) // a step may call what follows

// Makes this process work on device `index`, from 0, and on no other. Call it before anything uses
// a device (a model, a batch); afterwards it is too late and ends the program. An index beyond the
// last device warns and begins again at 0.
void device_use(int index);

// Readies the device that was chosen, as --device and --precision ask: makes a GPU the one that
// CUDA uses in this thread; moves all threads of the process to its cores and gives OpenMP one
// thread for each. The first use of a backend calls it; later calls do nothing. Ends the program
// with one line when what was asked for is not there.
void device_start(void);

// True once something has used the device.
bool device_is_started(void);

// True where the device is a GPU; it is readied if need be.
bool device_is_gpu(void);

// The arithmetic to use: what --precision says, else tf32 on a GPU and fp32 on a CPU. Never
// PRECISION_DEFAULT.
Precision device_precision(void);

// Threads that compute on this device, or beside a GPU; it is readied if need be.
int device_threads(void);

// Which device this is, of how many on this node; it is readied if need be.
int device_index(void);
int device_count(void);

// The processors that the calling thread may run on now, as "0-3,8". Free it with free().
char *device_cores(void);

// The processors of one of `pieces` equal shares of what a process may use (-1: this one), as
// "0-3,8": what device_start gives to a device. Free it with free().
char *device_share(int process, int pieces, int piece);

// "cpu" or "gpu", as records call it; the device is readied if need be.
const char *device_kind(void);

#pragma GCC visibility pop

#endif
