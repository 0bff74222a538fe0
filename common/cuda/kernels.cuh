// What the files of kernels share: how a kernel is launched, and elements of two types in pieces of
// 16 bytes, the most that a thread loads at once.

#ifndef HVDLAB_KERNELS_CUH
#define HVDLAB_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include "cuda/cuda_device.h"
#include "cuda/kernels.h"

// Tests run kernels on a machine without a GPU, with a LAUNCH of their own.
#ifndef HVDLAB_EMULATED
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                           \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#endif

// Launches a kernel with `grid` blocks of THREADS. A name with a comma in it needs parentheses.
#define RUN(kernel, grid, ...)                                                                     \
    do {                                                                                           \
        LAUNCH(kernel, grid, dim3(THREADS), 0, cuda_stream(), __VA_ARGS__);                        \
        cuda_check(cudaGetLastError(), #kernel, __FILE__, __LINE__);                               \
    } while (0)

#define THREADS 256

// Unrolls a loop, so that several loads are in flight.
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll 4")
#else
#define UNROLL
#endif

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}

static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ __forceinline__ void from_float(float x, float *to)
{
    *to = x;
}

static __device__ __forceinline__ void from_float(float x, __nv_bfloat16 *to)
{
    *to = __float2bfloat16(x);
}

// `count` elements that are loaded or stored together. Their address is a multiple of their size,
// or of 16 bytes where they are more.
template <typename T, int count>
struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) Pack {
    T elements[count];
};

template <int count, typename T>
static __device__ __forceinline__ void load(const T *from, float (&to)[count])
{
    Pack<T, count> pack = *reinterpret_cast<const Pack<T, count> *>(from);
    for (int j = 0; j < count; j++)
        to[j] = to_float(pack.elements[j]);
}

template <int count, typename T>
static __device__ __forceinline__ void store(T *to, const float (&from)[count])
{
    Pack<T, count> pack;
    for (int j = 0; j < count; j++)
        from_float(from[j], &pack.elements[j]);
    *reinterpret_cast<Pack<T, count> *>(to) = pack;
}

// Converts a value to the type in memory.
static __device__ __forceinline__ float as_stored(float x, const float *)
{
    return x;
}

static __device__ __forceinline__ float as_stored(float x, const __nv_bfloat16 *)
{
    return __bfloat162float(__float2bfloat16(x));
}

// ReLU, and what it does to a gradient. Written such that they let NaN through: a training that has
// diverged must show it.
static __device__ __forceinline__ float relu_of(float x)
{
    return x <= 0 ? 0 : x;
}

static __device__ __forceinline__ float relu_gate(float gradient, float x)
{
    return x <= 0 ? 0 : gradient;
}

// Dropout is a function of the key and of an element's place. A hash of 32 bits, a multiply-and-
// shift mixer, decides about two neighbours, with 16 bits each.
struct Dropout {
    const uint64_t *key; // in device memory
    uint32_t key0, key1; // set by unlock()
    uint32_t limit;      // dropped: those below it
    float scale;
};

static inline Dropout dropout_of(float rate, const uint64_t *key)
{
    return Dropout{key, 0, 0, (uint32_t)(rate * 65536 + 0.5f), 1 / (1 - rate)};
}

// Reads the key, once in each thread.
static __device__ __forceinline__ void unlock(Dropout &d)
{
    if (d.limit == 0)
        return;
    d.key0 = (uint32_t)*d.key;
    d.key1 = (uint32_t)(*d.key >> 32);
}

static __device__ __forceinline__ uint32_t dropout_hash(const Dropout &d, size_t pair)
{
    uint32_t h = (uint32_t)pair * 0x9e3779b9u + d.key0;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15) ^ d.key1) * 0x846ca68bu;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    return h ^ (h >> 15);
}

// Applies dropout to elements i, i + 1, ..., where i is a multiple of `count`. Dropped elements are
// set to 0, not multiplied by 0, which would keep a NaN.
template <int count>
static __device__ __forceinline__ void drop(const Dropout &d, size_t i, float (&values)[count])
{
    for (int j = 0; j < count; j += 2) {
        uint32_t hash = dropout_hash(d, (i + j) / 2);
        if (count == 1 && i % 2 == 1)
            hash >>= 16;
        values[j] = (hash & 0xffff) < d.limit ? 0 : values[j] * d.scale;
        if (j + 1 < count)
            values[j + 1] = (hash >> 16) < d.limit ? 0 : values[j + 1] * d.scale;
    }
}

// Calls work(Packed<T, count>()) for the type of the elements, and as many of them as fill 16
// bytes, or one where the channels are no multiple of that.
template <typename T, int count> struct Packed {
    typedef T Type;
    static const int size = count;
};

template <typename Work> static void for_packs(ElementType element, int channels, Work work)
{
    if (element == ELEMENT_FLOAT && channels % 4 == 0)
        work(Packed<float, 4>());
    else if (element == ELEMENT_FLOAT)
        work(Packed<float, 1>());
    else if (channels % 8 == 0)
        work(Packed<__nv_bfloat16, 8>());
    else
        work(Packed<__nv_bfloat16, 1>());
}

// The number of blocks for `count` pieces, one per thread; with very many pieces a thread takes
// several.
static inline dim3 blocks_for(size_t count)
{
    size_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 65536 ? (blocks > 0 ? blocks : 1) : 65536));
}

// Of parts that a launch does together, the one that this block belongs to.
static __device__ inline int own_part(int count, const int *first_block)
{
    int part = 0;
    while (part + 1 < count && (int)blockIdx.x >= first_block[part + 1])
        part++;
    return part;
}

#define FOR_EACH_PIECE(i, count)                                                                   \
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < (count);                       \
         i += gridDim.x * (size_t)THREADS)

#endif
