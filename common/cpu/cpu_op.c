// What the CPU backend's operations share: layouts and places in memory.

#include "cpu/backend_cpu_inside.h"

#include "base/error.h"

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

const Passes *passes_of(Layout layout)
{
#ifndef GENERIC_ONLY
    if (layout.bfloat16 && !&passes_bfloat16)
        die("--precision bf16: a graded program computes in fp32; leave the flag out");
    if (layout.bfloat16)
        return &passes_bfloat16;
#endif
    CHECK(!layout.bfloat16);
    return passes();
}

const Winograd *winograd_of_bfloat16(void)
{
#ifdef GENERIC_ONLY
    return NULL;
#else
    return onednn_has_amx() ? NULL : &winograd_bfloat16;
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

Layout layout_of(Shape shape, int batch, bool flat, bool bfloat16)
{
    if (flat)
        return (Layout){batch, 1, 1, shape.channels, false};
    int pixels = shape.height * shape.width;
    if (image_tag(bfloat16) == dnnl_nhwc)
        return (Layout){batch, 1, pixels, shape.channels, bfloat16};
    return (Layout){batch, padded(shape.channels) / lanes(), pixels, lanes(), bfloat16};
}

size_t layout_elements(Layout l)
{
    return (size_t)l.batch * (size_t)l.blocks * (size_t)l.pixels * (size_t)l.lanes;
}

size_t layout_bytes(Layout l)
{
    return layout_elements(l) * (l.bfloat16 ? 2 : sizeof(float));
}

static dnnl_data_type_t type_of(bool bfloat16)
{
    return bfloat16 ? dnnl_bf16 : dnnl_f32;
}

Desc activation_desc(Shape shape, int batch, bool bfloat16, dnnl_format_tag_t tag)
{
    int dims[] = {batch, shape.channels, shape.height, shape.width};
    return desc_create_typed(4, dims, type_of(bfloat16), tag);
}

dnnl_format_tag_t blocked_tag(void)
{
    return lanes() == 16 ? dnnl_nChw16c : dnnl_nChw8c;
}

dnnl_format_tag_t image_tag(bool bfloat16)
{
    return bfloat16 && onednn_has_amx() ? dnnl_nhwc : blocked_tag();
}

bool few_channels(const Op *op)
{
    return op->input_is_image && op->in.channels <= 3;
}

Desc kernel_desc(const Op *op, bool bfloat16, dnnl_format_tag_t tag)
{
    int dims[] = {op->out.channels, op->in.channels, op->size, op->size};
    return desc_create_typed(4, dims, type_of(bfloat16), tag);
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
    return arenas->gradients + (op->variables[index]->offset - arenas->first_gradient);
}

float *statistic(const Op *op, int index, const Arenas *arenas)
{
    return arenas->statistics + op->variables[index]->offset;
}

size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t calls_scratch(const OpState *s)
{
    return larger(s->forward.scratch_bytes,
                  larger(s->backward_input.scratch_bytes, s->backward_kernel.scratch_bytes));
}
