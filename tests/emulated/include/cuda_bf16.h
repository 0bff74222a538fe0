// Stands in for CUDA's header of the same name (README.md): numbers with the 8 exponent bits of a
// float and 7 bits of mantissa. They are rounded to the nearest, ties to even, as on a GPU.

#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    uint16_t bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(float value)
    {
        uint32_t x;
        std::memcpy(&x, &value, sizeof x);
        if (value != value)
            bits = 0x7fff;
        else
            bits = static_cast<uint16_t>((x + 0x7fff + (x >> 16 & 1)) >> 16);
    }
    operator float() const
    {
        uint32_t x = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &x, sizeof value);
        return value;
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __nv_bfloat16(value);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __nv_bfloat16(value);
}
inline float __bfloat162float(__nv_bfloat16 value)
{
    return value;
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline float __low2float(__nv_bfloat162 value)
{
    return value.x;
}
inline float __high2float(__nv_bfloat162 value)
{
    return value.y;
}
#ifdef HVDLAB_EMULATED
inline __nv_bfloat162 __float22bfloat162_rn(float2 value)
{
    return {__nv_bfloat16(value.x), __nv_bfloat16(value.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 value)
{
    return {value.x, value.y};
}
#endif
#endif

#endif
