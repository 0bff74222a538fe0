// Which backend this process computes with.

#include "backend/backend.h"

#include "sys/device.h"

const Backend *backend(void)
{
    device_start();
#ifdef HVDLAB_CUDA
    if (device_is_gpu())
        return &backend_cuda;
#endif
    return &backend_cpu;
}
