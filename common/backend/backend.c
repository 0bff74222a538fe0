// Which backend computes on a device.

#include "backend/backend.h"

const Backend *backend_of(const Device *device)
{
#ifdef HVDLAB_CUDA
    if (device->gpu)
        return &backend_cuda;
#else
    (void)device;
#endif
    return &backend_cpu;
}
