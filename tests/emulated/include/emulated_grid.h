// What kernels need, in place of what nvcc knows by itself (README.md): the launch, the numbers of
// threads and blocks, barriers, shuffles, atomics, small vectors, arithmetic. grid.cpp runs a grid.

#ifndef EMULATED_GRID_H
#define EMULATED_GRID_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__             static
#define __forceinline__        inline __attribute__((always_inline))
#define __launch_bounds__(...) // checked at the launch for all kernels alike: 1024
#define __restrict__ __restrict

// ---- Vectors.

struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) float2 {
    float x, y;
};
inline float2 make_float2(float x, float y)
{
    return {x, y};
}

#define EMULATED_VECTOR4(type, name)                                                               \
    struct alignas(16) name {                                                                      \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name make_##name(type x, type y, type z, type w)                                        \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
EMULATED_VECTOR4(float, float4)
EMULATED_VECTOR4(int, int4)
EMULATED_VECTOR4(unsigned, uint4)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

// ---- The launch.

// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulated
{
extern unsigned char *shared_memory; // as much as the launch asked for

void launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
            cudaStream_t stream, std::function<void()> thread);

template <class... P, class... A>
void launch_kernel(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                   cudaStream_t stream, A... arguments)
{
    std::tuple<P...> copies(static_cast<P>(arguments)...);
    launch(name, reinterpret_cast<const void *>(kernel), grid, block, shared, stream,
           [kernel, copies] { std::apply(kernel, copies); });
}
} // namespace emulated

#define LAUNCH(kernel, grid, block, shared, stream, ...)                                           \
    emulated::launch_kernel(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)
#define SHARED_ARRAY(type, name) type *name = reinterpret_cast<type *>(emulated::shared_memory)

// ---- Barriers, and what goes from thread to thread.

void __syncthreads();

namespace emulated
{
// What each lane of a warp brought to a meeting.
struct Meeting {
    uint64_t values[32];
    uint32_t present;
};
// Waits for the lanes of the mask, except those that have ended.
const Meeting &meet(unsigned mask, uint64_t value);
// Exits: a lane asks for the value of one that is not there.
[[noreturn]] void absent(int lane, const Meeting &meeting);
int lane();

template <class T> T from_lane(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    const Meeting &meeting = meet(mask, bits);
    if (!(meeting.present >> source & 1))
        absent(source, meeting);
    std::memcpy(&value, &meeting.values[source], sizeof value);
    return value;
}

// The lane that a shuffle reads from; outside of its group of `width` lanes a lane reads itself.
inline int within(int source, int width)
{
    int first = lane() / width * width;
    return source < first || source >= first + width ? lane() : source;
}
} // namespace emulated

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = warpSize)
{
    int first = emulated::lane() / width * width;
    return emulated::from_lane(mask, value, first + (source & (width - 1)));
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize)
{
    return emulated::from_lane(mask, value, emulated::within(emulated::lane() ^ lanes, width));
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = warpSize)
{
    int source = emulated::lane() + static_cast<int>(by);
    return emulated::from_lane(mask, value, emulated::within(source, width));
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = warpSize)
{
    int source = emulated::lane() - static_cast<int>(by);
    return emulated::from_lane(mask, value, emulated::within(source, width));
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulated::meet(mask, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const emulated::Meeting &meeting = emulated::meet(mask, predicate != 0);
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        if (meeting.present >> i & 1 && meeting.values[i])
            result |= 1u << i;
    return result;
}
// Nothing runs at the same time.
inline void __threadfence()
{
}
template <class T> T atomicAdd(T *address, std::common_type_t<T> value)
{
    T old = *address;
    *address = old + value;
    return old;
}

// ---- Arithmetic that <cmath> does not have.

#define EMULATED_MIN_MAX(type)                                                                     \
    inline type min(type a, type b)                                                                \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    inline type max(type a, type b)                                                                \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

#endif
