// Which backend computes on a device; and a layer of the program's own, which both backends call.

#include "backend/backend.h"

#include "observe/trace.h"

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

static double sum_of(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i];
    return sum;
}

static void call_custom(const Op *op, const char *pass, float *values, size_t count,
                        void (*function)(float *values, size_t count))
{
    trace("custom_begin", TEXT("pass", pass), NUMBER("length", op->out.channels),
          NUMBER("sum", sum_of(values, count)));
    function(values, count);
    trace("custom_end", TEXT("pass", pass), NUMBER("length", op->out.channels),
          NUMBER("sum", sum_of(values, count)));
}

void call_custom_forward(const Op *op, float *values, size_t count)
{
    call_custom(op, "forward", values, count, op->custom_forward);
}

void call_custom_backward(const Op *op, float *gradients, size_t count)
{
    call_custom(op, "backward", gradients, count, op->custom_backward);
}
