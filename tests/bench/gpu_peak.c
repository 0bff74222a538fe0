// Measures a GPU's limits. Sizes double until the work takes long enough to be measured well, so
// that small GPUs, and a GPU that is only simulated, have less to do.

#include "bench.h"

#ifdef HVDLAB_CUDA

#include <stdio.h>
#include <string.h>
#include "base/rng.h"
#include "cuda/backend_cuda_inside.h"
#include "run/device.h"

enum { ROUNDS = 9, WARM_UPS = 2 };

// A product of n x 4n and 4n x n: long sums, so that to write the result costs next to nothing.
// Large enough, and no larger: a product of this size or time, a copy far beyond the caches.
enum { MIN_SIZE = 32, MAX_SIZE = 8192, SUM_LENGTH = 4 };
#define ENOUGH_FOR_PRODUCT 5e-3
#define MIN_BYTES          ((size_t)1 << 20)
#define MAX_BYTES          ((size_t)1 << 30)
#define ENOUGH_FOR_COPY    0.5e-3

// ---- Random numbers. Zeros would take less power, and so be quicker than real data.

static void fill(void *memory, size_t bytes, bool bfloat16)
{
    enum { BLOCK = 1 << 18 };
    static uint32_t block[BLOCK];
    Rng rng = rng_stream_of(1, RNG_SYNTHETIC_DATA, 0);
    for (int i = 0; i < BLOCK; i++) {
        float pair[2] = {rng_uniform(&rng) - 0.5f, rng_uniform(&rng) - 0.5f};
        uint32_t bits[2];
        memcpy(bits, pair, sizeof bits);
        // A bfloat16 is the upper half of a float; here two of them fill a word.
        block[i] = bfloat16 ? (bits[0] >> 16) | (bits[1] & 0xffff0000u) : bits[0];
    }
    for (size_t done = 0; done < bytes; done += sizeof block)
        cuda_write((char *)memory + done, block,
                   bytes - done < sizeof block ? bytes - done : sizeof block);
}

static void *random_memory(size_t bytes, bool bfloat16)
{
    void *memory = cuda_allocate(bytes);
    fill(memory, bytes, bfloat16);
    return memory;
}

// The median of some rounds.
static double time_work(void (*work)(const void *), const void *argument)
{
    double seconds[ROUNDS];
    Timestamp begin = {0}, end = {0};
    for (int i = 0; i < WARM_UPS; i++)
        work(argument);
    for (int i = 0; i < ROUNDS; i++) {
        timestamp_take(&begin);
        work(argument);
        timestamp_take(&end);
        seconds[i] = timestamp_seconds(&begin, &end);
    }
    timestamp_release(&begin);
    timestamp_release(&end);
    return median(seconds, ROUNDS);
}

// ---- Matrix products.

typedef struct {
    int size;
    void *a, *b;
    float *c;
} Product;

static void multiply(const void *argument)
{
    const Product *p = argument;
    cuda_matrix_multiply(TRANSPOSED_NONE, p->size, p->size, SUM_LENGTH * p->size, p->a, p->b, p->c);
}

static double time_product(Product *p)
{
    size_t area = (size_t)p->size * (size_t)p->size;
    size_t bytes = SUM_LENGTH * area * element_bytes(image_element());
    bool bfloat16 = image_element() == ELEMENT_BF16;
    p->a = random_memory(bytes, bfloat16);
    p->b = random_memory(bytes, bfloat16);
    p->c = cuda_allocate(area * sizeof *p->c);
    double seconds = time_work(multiply, p);
    cuda_release(p->a);
    cuda_release(p->b);
    cuda_release(p->c);
    return seconds;
}

static double matrix_rate(void)
{
    Product p = {.size = MIN_SIZE};
    double seconds;
    cuda_blas_start();
    while ((seconds = time_product(&p)) < ENOUGH_FOR_PRODUCT && p.size < MAX_SIZE)
        p.size *= 2;
    return 2.0 * SUM_LENGTH * p.size * p.size * p.size / seconds;
}

// ---- Copies.

typedef struct {
    size_t bytes;
    void *from, *to;
} Copy;

static void copy(const void *argument)
{
    const Copy *c = argument;
    CUDA(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, cuda_stream()));
}

static double time_copy(Copy *c)
{
    c->from = random_memory(c->bytes, false);
    c->to = cuda_allocate(c->bytes);
    double seconds = time_work(copy, c);
    cuda_release(c->from);
    cuda_release(c->to);
    return seconds;
}

static double copy_rate(void)
{
    Copy c = {.bytes = MIN_BYTES};
    double seconds;
    while ((seconds = time_copy(&c)) < ENOUGH_FOR_COPY && c.bytes < MAX_BYTES)
        c.bytes *= 2;
    return 2 * (double)c.bytes / seconds;
}

Peak measure_peak(void)
{
    if (!device_is_gpu())
        return measure_cpu_peak();
    return (Peak){matrix_rate(), copy_rate()};
}

// ---- Facts.

// The driver's own version; CUDA only tells which CUDA it is good for.
static void read_driver_version(char version[64])
{
    FILE *smi =
        popen("nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null", "r");
    if (!smi || fscanf(smi, "%63s", version) != 1)
        snprintf(version, 64, "unknown");
    if (smi)
        pclose(smi);
}

GpuFacts gpu_facts(void)
{
    GpuFacts facts = {0};
    if (!device_is_gpu())
        return facts;
    struct cudaDeviceProp properties;
    int gpu, cuda;
    CUDA(cudaGetDevice(&gpu));
    CUDA(cudaGetDeviceProperties(&properties, gpu));
    CUDA(cudaRuntimeGetVersion(&cuda));
    size_t cudnn = cudnnGetVersion();
    snprintf(facts.name, sizeof facts.name, "%s", properties.name);
    snprintf(facts.cuda, sizeof facts.cuda, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    snprintf(facts.cudnn, sizeof facts.cudnn, "%zu.%zu.%zu", cudnn / 10000, cudnn / 100 % 100,
             cudnn % 100);
    read_driver_version(facts.driver);
    return facts;
}

#else

GpuFacts gpu_facts(void)
{
    return (GpuFacts){0};
}

Peak measure_peak(void)
{
    return measure_cpu_peak();
}

#endif
