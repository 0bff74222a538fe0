// bfloat16: the upper half of a float, as bits. Source: Intel, BFLOAT16 - Hardware Numerics
// Definition (2018).

#ifndef HVDLAB_BFLOAT16_H
#define HVDLAB_BFLOAT16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t Bfloat16;

// To the nearest, ties to even. A NaN stays one: rounding could make it infinite.
static inline Bfloat16 bfloat16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (Bfloat16)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : nearest);
}

static inline float bfloat16_value(Bfloat16 number)
{
    uint32_t bits = (uint32_t)number << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
