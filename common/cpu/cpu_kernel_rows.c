// The gradient of a 3x3 kernel, for images of bfloat16 in NHWC, as three products of matrices: one
// for each row of the kernel. oneDNN's own convolution leaves most of AMX's tiles empty where
// images are narrow.
//
// Row r of the gradient is the sum, over all pixels (y, x) of the output, of (the input's pixels (y
// + r - 1, x - 1 to x + 1), side by side) times (the output's gradient there): the transpose of a
// matrix (pixels, 3 channels in) times one of (pixels, channels out). Both are copied so that a
// line of zeros follows each image. Then another row of the kernel is the same product, its first
// matrix read from a line earlier or later, and what lies outside of an image is zero.

#include "cpu/backend_cpu_inside.h"

#include <string.h>
#include "base/bfloat16.h"

enum { TAPS = 3 };

// Faster where it was measured: AMX multiplies at 970 GFLOP/s on a core with 320 channels or more,
// at 700 with 160, at 590 with 64, whatever the width; oneDNN's convolutions at 340 with 7 pixels
// in a line, at 450 to 580 with 14, and at 900 with 28.
bool kernel_rows_pay(const OpState *s)
{
    const Op *op = s->op;
    int width = op->in.width, in = op->in.channels, out = op->out.channels;
    int channels = in < out ? in : out;
    return s->bfloat16 && onednn_has_amx() && op->size == TAPS && !op->input_is_image &&
           ((width <= 7 && channels >= 64) || (width <= 14 && channels >= 128));
}

// How the working memory is divided: the first matrix, which has a line of zeros before and behind
// it, the second, and the products.
typedef struct {
    int lines;              // of all images, each with its line of zeros
    size_t wide_line, line; // elements of a line of the first matrix, and of the second
    size_t wide, tall;      // bytes of the two
    size_t products;        // bytes
} Pieces;

static size_t whole_cache_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static Pieces pieces_of(const OpState *s)
{
    Shape in = s->op->in, out = s->op->out;
    Pieces p = {.lines = s->batch * (in.height + 1)};
    p.wide_line = (size_t)in.width * TAPS * (size_t)in.channels;
    p.line = (size_t)in.width * (size_t)out.channels;
    p.wide = whole_cache_lines(((size_t)p.lines + 2) * p.wide_line * sizeof(Bfloat16));
    p.tall = whole_cache_lines((size_t)p.lines * p.line * sizeof(Bfloat16));
    p.products = whole_cache_lines((size_t)(TAPS * TAPS) * (size_t)in.channels *
                                   (size_t)out.channels * sizeof(float));
    return p;
}

size_t kernel_rows_create(OpState *s)
{
    const Op *op = s->op;
    Pieces p = pieces_of(s);
    int pixels = p.lines * op->in.width, wide = TAPS * op->in.channels;
    Desc input = desc_create_typed(2, (int[]){pixels, wide}, dnnl_bf16, dnnl_ab);
    Desc output = desc_create_typed(2, (int[]){pixels, op->out.channels}, dnnl_bf16, dnnl_ab);
    int kernel[] = {op->out.channels, wide};
    Desc any = desc_create_typed(2, kernel, dnnl_bf16, dnnl_format_tag_any);
    Desc gradient = desc_create(2, kernel, dnnl_ba);
    Desc bias = op->variables[BIAS]->no_gradient ? NULL : desc_create(1, kernel, dnnl_a);
    Desc rows = kernel_desc(op, false, dnnl_hwio), arena = kernel_desc(op, false, kernel_tag(op));

    InnerProduct product = {s->dnn, input, any, NULL, output};
    dnnl_primitive_desc_t forward = inner_product_forward(&product);
    product.kernel = gradient;
    product.bias = bias;
    PortSpec ports[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, input, false},
                        {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, output, false},
                        {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0, gradient, true},
                        {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1, bias, true}};
    s->backward_kernel =
        call_prepare(s->dnn, inner_product_backward_kernel(&product, forward), ports, bias ? 4 : 3);
    s->to_arena = call_reorder(s->dnn, rows, arena);
    dnnl_primitive_desc_destroy(forward);
    Desc descs[] = {input, output, any, gradient, bias, rows, arena};
    for (size_t i = 0; i < sizeof descs / sizeof *descs; i++)
        desc_free(descs[i]);
    return p.wide + p.tall + p.products + s->backward_kernel.scratch_bytes;
}

// A line of pixels, each with its neighbours to the left and to the right.
static void widen_line(const Bfloat16 *from, int width, size_t channels, Bfloat16 *to)
{
    for (int x = 0; x < width; x++, to += TAPS * channels) {
        size_t left = x == 0, right = x == width - 1;
        memset(to, 0, left * channels * sizeof *to);
        memcpy(to + left * channels, from + ((size_t)x + left) * channels - channels,
               (TAPS - left - right) * channels * sizeof *to);
        memset(to + (TAPS - 1) * channels, 0, right * channels * sizeof *to);
    }
}

static void copy_images(const OpState *s, const Pieces *p, const Bfloat16 *input,
                        const Bfloat16 *gradient, Bfloat16 *wide, Bfloat16 *tall)
{
    Shape in = s->op->in;
    size_t line = (size_t)in.width * (size_t)in.channels;
    memset(wide, 0, p->wide_line * sizeof *wide);
    memset(wide + ((size_t)p->lines + 1) * p->wide_line, 0, p->wide_line * sizeof *wide);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < p->lines; i++) {
        size_t n = (size_t)(i / (in.height + 1)), y = (size_t)(i % (in.height + 1));
        size_t from = n * (size_t)in.height + y;
        Bfloat16 *wide_line = wide + (size_t)(i + 1) * p->wide_line;
        Bfloat16 *tall_line = tall + (size_t)i * p->line;
        if (y == (size_t)in.height) {
            memset(wide_line, 0, p->wide_line * sizeof *wide);
            memset(tall_line, 0, p->line * sizeof *tall);
        } else {
            widen_line(input + from * line, in.width, (size_t)in.channels, wide_line);
            memcpy(tall_line, gradient + from * p->line, p->line * sizeof *tall);
        }
    }
}

void kernel_rows_gradient(OpState *s, const BackwardArgs *a)
{
    const Op *op = s->op;
    Pieces p = pieces_of(s);
    char *scratch = a->scratch;
    Bfloat16 *wide = (Bfloat16 *)scratch, *tall = (Bfloat16 *)(scratch + p.wide);
    float *products = (float *)(scratch + p.wide + p.tall);
    size_t row = (size_t)TAPS * (size_t)op->in.channels * (size_t)op->out.channels;
    copy_images(s, &p, a->input, a->output_gradient, wide, tall);
    for (int r = 0; r < TAPS; r++) {
        void *memory[] = {wide + (size_t)r * p.wide_line, tall, products + (size_t)r * row,
                          gradient(op, BIAS, &a->arenas)}; // of the bias the same each time
        call_run(&s->backward_kernel, scratch + p.wide + p.tall + p.products, memory);
    }
    void *memory[] = {products, gradient(op, KERNEL, &a->arenas)};
    call_run(&s->to_arena, NULL, memory);
}
