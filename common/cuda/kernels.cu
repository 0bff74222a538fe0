// The CUDA backend's smaller kernels: elementwise operations, copies between types of elements,
// pooling, and embeddings.

#include <math.h>
#include "cuda/kernels.cuh"

// ---- Elementwise. A thread takes PACK elements at a time; the last ones may be fewer.

#define PACK 8

template <typename T>
static __device__ void load_some(const T *from, size_t count, float (&to)[PACK])
{
    if (count >= PACK)
        load<PACK>(from, to);
    else
        for (size_t j = 0; j < count; j++)
            to[j] = to_float(from[j]);
}

template <typename T>
static __device__ void store_some(T *to, size_t count, const float (&from)[PACK])
{
    if (count >= PACK)
        store<PACK>(to, from);
    else
        for (size_t j = 0; j < count; j++)
            from_float(from[j], &to[j]);
}

// to = work(a), of `count` elements.
template <typename To, typename From, typename Work>
static __global__ void __launch_bounds__(THREADS)
    map(To *to, const From *a, size_t count, Work work)
{
    FOR_EACH_PIECE(piece, (count + PACK - 1) / PACK)
    {
        size_t i = piece * PACK;
        float x[PACK];
        load_some(a + i, count - i, x);
        work.apply(i, x);
        store_some(to + i, count - i, x);
    }
}

// to = work(a, b).
template <typename T, typename Work>
static __global__ void __launch_bounds__(THREADS)
    map2(T *to, const T *a, const T *b, size_t count, Work work)
{
    FOR_EACH_PIECE(piece, (count + PACK - 1) / PACK)
    {
        size_t i = piece * PACK;
        float x[PACK], y[PACK];
        load_some(a + i, count - i, x);
        load_some(b + i, count - i, y);
        for (int j = 0; j < PACK; j++)
            x[j] = work.apply(x[j], y[j]);
        store_some(to + i, count - i, x);
    }
}

static dim3 map_grid(size_t count)
{
    return blocks_for((count + PACK - 1) / PACK);
}

struct Copy {
    __device__ void apply(size_t, float (&)[PACK]) const
    {
    }
};

struct Scale {
    float factor;
    __device__ void apply(size_t, float (&x)[PACK]) const
    {
        for (int j = 0; j < PACK; j++)
            x[j] *= factor;
    }
};

struct Relu {
    __device__ void apply(size_t, float (&x)[PACK]) const
    {
        for (int j = 0; j < PACK; j++)
            x[j] = relu_of(x[j]);
    }
};

struct Drop {
    Dropout dropout;
    __device__ void apply(size_t i, float (&x)[PACK]) const
    {
        Dropout unlocked = dropout;
        unlock(unlocked);
        drop<PACK>(unlocked, i, x);
    }
};

struct Add {
    __device__ float apply(float a, float b) const
    {
        return a + b;
    }
};

struct Gate {
    __device__ float apply(float gradient, float output) const
    {
        return relu_gate(gradient, output);
    }
};

// Calls work(T()) for the type of the elements.
template <typename Work> static void for_element(ElementType element, Work work)
{
    if (element == ELEMENT_FLOAT)
        work(float());
    else
        work(__nv_bfloat16());
}

template <typename Work>
static void launch_map(ElementType element, void *to, const void *a, size_t count, Work work)
{
    for_element(element, [&](auto zero) {
        typedef decltype(zero) T;
        RUN((map<T, T, Work>), map_grid(count), (T *)to, (const T *)a, count, work);
    });
}

template <typename Work>
static void launch_map2(ElementType element, void *to, const void *a, const void *b, size_t count,
                        Work work)
{
    for_element(element, [&](auto zero) {
        typedef decltype(zero) T;
        RUN((map2<T, Work>), map_grid(count), (T *)to, (const T *)a, (const T *)b, count, work);
    });
}

void launch_relu(ElementType element, void *out, const void *in, size_t count)
{
    launch_map(element, out, in, count, Relu());
}

void launch_relu_backward(ElementType element, void *gradient, const void *output, size_t count)
{
    launch_map2(element, gradient, gradient, output, count, Gate());
}

void launch_dropout(ElementType element, void *out, const void *in, size_t count, float rate,
                    const uint64_t *key)
{
    launch_map(element, out, in, count, Drop{dropout_of(rate, key)});
}

void launch_add(ElementType element, void *sum, const void *a, const void *b, size_t count)
{
    launch_map2(element, sum, a, b, count, Add());
}

void launch_copy(ElementType to_element, void *to, ElementType from_element, const void *from,
                 size_t count)
{
    for_element(to_element, [&](auto to_zero) {
        for_element(from_element, [&](auto from_zero) {
            typedef decltype(to_zero) To;
            typedef decltype(from_zero) From;
            RUN((map<To, From, Copy>), map_grid(count), (To *)to, (const From *)from, count,
                Copy());
        });
    });
}

// A block copies a piece of one array.
#define MAX_COPIES 128 // of a launch; they travel with it, in at most 4 KB
#define COPIED     (THREADS * PACK)

struct Copies {
    int count;
    int first_block[MAX_COPIES];
    ArrayCopy copies[MAX_COPIES];
};

template <typename To, typename From>
static __global__ void __launch_bounds__(THREADS) copy_arrays(Copies all)
{
    int c = own_part(all.count, all.first_block);
    const ArrayCopy copy = all.copies[c];
    size_t i = (size_t)((int)blockIdx.x - all.first_block[c]) * COPIED + threadIdx.x * PACK;
    if (i >= copy.length)
        return;
    float x[PACK];
    load_some((const From *)copy.from + i, copy.length - i, x);
    store_some((To *)copy.to + i, copy.length - i, x);
}

void launch_copies(ElementType to_element, ElementType from_element, const ArrayCopy *copies,
                   int count)
{
    for (int first = 0; first < count; first += MAX_COPIES) {
        Copies all = {};
        int blocks = 0;
        while (all.count < MAX_COPIES && first + all.count < count) {
            const ArrayCopy *copy = &copies[first + all.count];
            all.first_block[all.count] = blocks;
            all.copies[all.count++] = *copy;
            blocks += (int)((copy->length + COPIED - 1) / COPIED);
        }
        for_element(to_element, [&](auto to_zero) {
            for_element(from_element, [&](auto from_zero) {
                typedef decltype(to_zero) To;
                typedef decltype(from_zero) From;
                RUN((copy_arrays<To, From>), dim3((unsigned)blocks), all);
            });
        });
    }
}

void launch_scale(float *to, ElementType from_element, const void *from, size_t count, float factor)
{
    for_element(from_element, [&](auto zero) {
        typedef decltype(zero) From;
        RUN((map<float, From, Scale>), map_grid(count), to, (const From *)from, count,
            Scale{factor});
    });
}

template <typename To, typename From>
static __global__ void copy_rows(To *to, int to_width, const From *from, int from_width,
                                 size_t count)
{
    FOR_EACH_PIECE(i, count)
    {
        size_t row = i / (unsigned)to_width;
        int column = (int)(i % (unsigned)to_width);
        float value = column < from_width ? to_float(from[row * from_width + column]) : 0;
        from_float(value, &to[i]);
    }
}

void launch_copy_rows(ActivationShape to_shape, void *to, ActivationShape from_shape,
                      const void *from)
{
    size_t count = (size_t)to_shape.rows * (size_t)to_shape.channels;
    if (to_shape.channels == from_shape.channels) {
        launch_copy(to_shape.element, to, from_shape.element, from, count);
        return;
    }
    for_element(to_shape.element, [&](auto to_zero) {
        for_element(from_shape.element, [&](auto from_zero) {
            typedef decltype(to_zero) To;
            typedef decltype(from_zero) From;
            RUN((copy_rows<To, From>), blocks_for(count), (To *)to, to_shape.channels,
                (const From *)from, from_shape.channels, count);
        });
    });
}

// ---- Pooling. A thread takes a pack of channels of one output pixel.

// The offsets of an output pixel, and of its window in the input.
struct Window {
    size_t input, output, row; // `row`: elements from one row of the input to the next
};

template <int pack> static __device__ Window window_of(const Pool &p, size_t piece)
{
    unsigned channels = (unsigned)p.in.channels, packs = channels / pack;
    size_t pixel = piece / packs;
    unsigned channel = (unsigned)(piece % packs) * pack;
    unsigned x = (unsigned)(pixel % (unsigned)p.out.width);
    size_t line = pixel / (unsigned)p.out.width; // of all images' lines
    unsigned y = (unsigned)(line % (unsigned)p.out.height);
    size_t image = line / (unsigned)p.out.height, width = (unsigned)p.in.width;
    Window w;
    w.row = width * channels;
    w.input =
        (((image * (unsigned)p.in.height) + y * (unsigned)p.size) * width + x * (unsigned)p.size) *
            channels +
        channel;
    w.output = pixel * channels + channel;
    return w;
}

// The maximum of a window, and its index: the first one, and NaN before all others.
template <typename T, int pack>
static __device__ void largest(const Pool &p, const Window &w, const T *x, float (&best)[pack],
                               int (&where)[pack])
{
    for (int k = 0; k < p.size * p.size; k++) {
        float values[pack];
        load<pack>(x + w.input + k / p.size * w.row + k % p.size * (size_t)p.in.channels, values);
        for (int j = 0; j < pack; j++)
            if (k == 0 || values[j] > best[j] || (isnan(values[j]) && !isnan(best[j]))) {
                best[j] = values[j];
                where[j] = k;
            }
    }
}

template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS) max_pool(Pool p, size_t pieces, const T *x, T *y)
{
    FOR_EACH_PIECE(piece, pieces)
    {
        Window w = window_of<pack>(p, piece);
        float best[pack];
        int where[pack];
        largest<T, pack>(p, w, x, best, where);
        for (int j = 0; j < pack && p.relu; j++)
            best[j] = best[j] <= 0 ? 0 : best[j];
        store<pack>(y + w.output, best);
    }
}

template <typename T, int pack>
static __global__ void __launch_bounds__(THREADS)
    max_pool_backward(Pool p, size_t pieces, const T *x, const T *output_gradient,
                      T *input_gradient)
{
    FOR_EACH_PIECE(piece, pieces)
    {
        Window w = window_of<pack>(p, piece);
        float best[pack], gradient[pack];
        int where[pack];
        largest<T, pack>(p, w, x, best, where);
        load<pack>(output_gradient + w.output, gradient);
        for (int j = 0; j < pack && p.relu; j++)
            gradient[j] = best[j] <= 0 ? 0 : gradient[j];
        for (int k = 0; k < p.size * p.size; k++) {
            float values[pack];
            for (int j = 0; j < pack; j++)
                values[j] = where[j] == k ? gradient[j] : 0;
            store<pack>(input_gradient + w.input + k / p.size * w.row +
                            k % p.size * (size_t)p.in.channels,
                        values);
        }
    }
}

static size_t elements(Shape shape, int batch)
{
    return (size_t)batch * (size_t)shape.height * (size_t)shape.width * (size_t)shape.channels;
}

void launch_max_pool(const Pool *p, const void *x, void *y)
{
    for_packs(p->element, p->in.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        size_t pieces = elements(p->out, p->batch) / pack;
        RUN((max_pool<T, pack>), blocks_for(pieces), *p, pieces, (const T *)x, (T *)y);
    });
}

void launch_max_pool_backward(const Pool *p, const void *x, const void *output_gradient,
                              void *input_gradient)
{
    for_packs(p->element, p->in.channels, [&](auto packed) {
        typedef typename decltype(packed)::Type T;
        const int pack = decltype(packed)::size;
        // A last line or column that fills no window is written here.
        if (p->in.height % p->size || p->in.width % p->size)
            CUDA(cudaMemsetAsync(input_gradient, 0, elements(p->in, p->batch) * sizeof(T),
                                 cuda_stream()));
        size_t pieces = elements(p->out, p->batch) / pack;
        RUN((max_pool_backward<T, pack>), blocks_for(pieces), *p, pieces, (const T *)x,
            (const T *)output_gradient, (T *)input_gradient);
    });
}

// A sum of many floats, with what rounding has taken from it so far (Kahan, 1965).
struct LongSum {
    float value = 0, rest = 0;
    __device__ void add(float number)
    {
        float part = number - rest, sum = value + part;
        rest = (sum - value) - part;
        value = sum;
    }
};

template <typename T>
static __global__ void average(size_t count, int pixels, int channels, const T *x, float *mean)
{
    FOR_EACH_PIECE(i, count)
    {
        size_t image = i / (unsigned)channels, channel = i % (unsigned)channels;
        const T *from = x + image * pixels * channels + channel;
        LongSum sum;
        for (int p = 0; p < pixels; p++)
            sum.add(to_float(from[(size_t)p * channels]));
        mean[i] = sum.value / (float)pixels;
    }
}

template <typename T>
static __global__ void average_backward(size_t count, int pixels, int channels,
                                        const float *mean_gradient, T *gradient)
{
    FOR_EACH_PIECE(i, count)
    {
        size_t image = i / ((size_t)pixels * channels), channel = i % (unsigned)channels;
        from_float(mean_gradient[image * channels + channel] / (float)pixels, &gradient[i]);
    }
}

void launch_average(ElementType element, int batch, int pixels, int channels, const void *x,
                    float *mean)
{
    size_t count = (size_t)batch * (size_t)channels;
    for_element(element, [&](auto zero) {
        typedef decltype(zero) T;
        RUN(average<T>, blocks_for(count), count, pixels, channels, (const T *)x, mean);
    });
}

void launch_average_backward(ElementType element, int batch, int pixels, int channels,
                             const float *mean_gradient, void *gradient)
{
    size_t count = (size_t)batch * (size_t)pixels * (size_t)channels;
    for_element(element, [&](auto zero) {
        typedef decltype(zero) T;
        RUN(average_backward<T>, blocks_for(count), count, pixels, channels, mean_gradient,
            (T *)gradient);
    });
}

// ---- Embedding. A thread takes one channel of one token.

template <typename T>
static __global__ void embed(EmbeddingTable shape, size_t count, const float *tokens,
                             const float *table, T *y)
{
    FOR_EACH_PIECE(i, count)
    {
        size_t channel = i % (unsigned)shape.channels;
        int row = (int)tokens[i / (unsigned)shape.channels];
        from_float(row < 0 ? 0 : table[(size_t)row * shape.channels + channel], &y[i]);
    }
}

// For each row, the thread of its first token sums the gradients of all its tokens: no atomics, so
// that the order is fixed. The search in the other tokens is cheap: all threads of a warp read the
// same ones, and a frequent word is found soon.
template <typename T>
static __global__ void embed_backward(EmbeddingTable shape, size_t count, const float *tokens,
                                      const T *y_gradient, float *table_gradient)
{
    FOR_EACH_PIECE(i, count)
    {
        int mine = (int)(i / (unsigned)shape.channels), first = 0;
        size_t channel = i % (unsigned)shape.channels;
        float token = tokens[mine];
        LongSum sum;
        while (tokens[first] != token)
            first++;
        if (first < mine || token < 0)
            continue;
        for (int t = mine; t < shape.tokens; t++)
            if (tokens[t] == token)
                sum.add(to_float(y_gradient[(size_t)t * shape.channels + channel]));
        table_gradient[(size_t)token * shape.channels + channel] = sum.value;
    }
}

void launch_embed(EmbeddingTable shape, const float *tokens, const float *table, void *y)
{
    size_t count = (size_t)shape.tokens * (size_t)shape.channels;
    for_element(shape.element, [&](auto zero) {
        typedef decltype(zero) T;
        RUN(embed<T>, blocks_for(count), shape, count, tokens, table, (T *)y);
    });
}

void launch_embed_backward(EmbeddingTable shape, const float *tokens, const void *y_gradient,
                           float *table_gradient)
{
    size_t count = (size_t)shape.tokens * (size_t)shape.channels;
    CUDA(cudaMemsetAsync(table_gradient, 0,
                         (size_t)shape.rows * (size_t)shape.channels * sizeof(float),
                         cuda_stream()));
    for_element(shape.element, [&](auto zero) {
        typedef decltype(zero) T;
        RUN(embed_backward<T>, blocks_for(count), shape, count, tokens, (const T *)y_gradient,
            table_gradient);
    });
}
