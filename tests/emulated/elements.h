// Inside the stand-in: what cuDNN, cuBLAS and NCCL share. Elements of two types, TensorFloat-32,
// the product of two matrices, and handles.

#ifndef EMULATED_ELEMENTS_H
#define EMULATED_ELEMENTS_H

#include <cuda_bf16.h>
#include <set>
#include "machine.h"

namespace emulated
{

enum class Type { float32, bfloat16 };

inline size_t size_of(Type type)
{
    return type == Type::float32 ? 4 : 2;
}

inline float load(Type type, const void *memory, size_t i)
{
    if (type == Type::float32)
        return static_cast<const float *>(memory)[i];
    return static_cast<const __nv_bfloat16 *>(memory)[i];
}

inline void store(Type type, void *memory, size_t i, float value)
{
    if (type == Type::float32)
        static_cast<float *>(memory)[i] = value;
    else
        static_cast<__nv_bfloat16 *>(memory)[i] = __nv_bfloat16(value);
}

// to = alpha value + beta to, where beta = 0 does not look at what is there.
inline void blend(Type type, void *memory, size_t i, float alpha, float value, float beta)
{
    store(type, memory, i,
          beta == 0 ? alpha * value : alpha * value + beta * load(type, memory, i));
}

// A float with 10 bits of mantissa, as tensor cores read it.
inline float tf32(float value)
{
    uint32_t bits;
    static_assert(sizeof bits == sizeof value, "32 bits");
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits >> 23 & 0xff) != 0xff) // neither infinite nor NaN
        bits = (bits + 0x0fff + (bits >> 13 & 1)) & ~0x1fffu;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

// c = a b, or c += a b: row-major, a is m x k (or its transposed lies there), c is m x n.
void multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a,
              const float *b, bool add, float *c);

// A library's handle: of one device, with a stream.
struct Handle {
    Device *device;
    cudaStream_t stream;
};

// True where the arguments of a library's call are fine so far; a line says why not.
template <class H> bool usable(const char *caller, const std::set<H *> &handles, const H *handle)
{
    if (!handles.count(const_cast<H *>(handle)))
        complain("%s: the handle does not exist", caller);
    else if (handle->device != current())
        complain("%s: the handle is of device %d, and this is device %d", caller,
                 handle->device->index, current() ? current()->index : -1);
    else
        return true;
    return false;
}
bool in_memory(const char *caller, const char *name, const void *memory, size_t bytes);

} // namespace emulated

#endif
