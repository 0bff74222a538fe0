// What the CPU backend's operations share: layouts and places in memory.

#include "cpu/cpu_op.h"

#ifndef GENERIC_ONLY
static const Passes *chosen_passes;

static void choose_passes(void)
{
    bool wide = onednn_has_avx2() && __builtin_cpu_supports("fma");
    chosen_passes = wide ? &passes_avx2 : &passes_generic;
}
#endif

const Passes *passes(void)
{
#ifndef GENERIC_ONLY
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose_passes);
    return chosen_passes;
#else
    return &passes_generic;
#endif
}

const Winograd *winograd(void)
{
#ifdef GENERIC_ONLY
    return &winograd_generic;
#else
    if (onednn_has_avx512())
        return &winograd_avx512;
    return passes() == &passes_avx2 ? &winograd_avx2 : NULL;
#endif
}

int lanes(void)
{
    return onednn_has_avx512() ? 16 : 8;
}

int padded(int channels)
{
    return (channels + lanes() - 1) / lanes() * lanes();
}

Layout layout_of(Shape shape, int batch, bool flat)
{
    if (flat)
        return (Layout){batch, 1, 1, shape.channels};
    return (Layout){batch, padded(shape.channels) / lanes(), shape.height * shape.width, lanes()};
}

size_t layout_floats(Layout l)
{
    return (size_t)l.batch * (size_t)l.blocks * (size_t)l.pixels * (size_t)l.lanes;
}

Desc activation_desc(Shape shape, int batch, dnnl_format_tag_t tag)
{
    int dims[] = {batch, shape.channels, shape.height, shape.width};
    return desc_create(4, dims, tag);
}

dnnl_format_tag_t blocked_tag(void)
{
    return lanes() == 16 ? dnnl_nChw16c : dnnl_nChw8c;
}

bool few_channels(const Op *op)
{
    return op->input_is_image && op->in.channels <= 3;
}

Desc kernel_desc(const Op *op, dnnl_format_tag_t tag)
{
    int dims[] = {op->out.channels, op->in.channels, op->size, op->size};
    return desc_create(4, dims, tag);
}

dnnl_format_tag_t kernel_tag(const Op *op)
{
    if (few_channels(op))
        return lanes() == 16 ? dnnl_Ohwi16o : dnnl_Ohwi8o;
    return lanes() == 16 ? dnnl_OIhw16i16o : dnnl_OIhw8i8o;
}

void *unconst(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

const float *weight(const Op *op, int index, const Arenas *arenas)
{
    return arenas->weights + op->variables[index]->offset;
}

float *gradient(const Op *op, int index, const Arenas *arenas)
{
    return arenas->gradients + op->variables[index]->offset;
}

float *statistic(const Op *op, int index, const Arenas *arenas)
{
    return arenas->statistics + op->variables[index]->offset;
}
