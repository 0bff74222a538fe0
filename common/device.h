// The device that this process computes on.

#ifndef HVDLAB_DEVICE_H
#define HVDLAB_DEVICE_H

// Chooses the device that --device and --precision ask for and readies it: on a CPU, one thread for
// each core that the process may use (its affinity mask, so taskset and cpusets hold). The first
// use of a backend calls it; later calls do nothing. Ends the program with one line when what was
// asked for is not there.
void device_start(void);

// Threads that compute on this device.
int device_threads(void);

// "cpu" or "gpu", as records call it.
const char *device_kind(void);

#endif
