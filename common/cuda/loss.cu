// Softmax and the loss: a few thousand numbers, of which a thread takes a row.

#include <math.h>
#include "cuda/kernels.cuh"

static __device__ int most_likely(const float *row, int classes)
{
    int best = 0;
    for (int c = 1; c < classes; c++)
        if (row[c] > row[best])
            best = c;
    return best;
}

// Writes the softmax of one row, shifted by its maximum against overflow; returns the sum of the
// shifted exponentials.
static __device__ float softmax_row(const float *logits, float *probabilities, int classes)
{
    float maximum = logits[most_likely(logits, classes)], sum = 0;
    for (int c = 0; c < classes; c++) {
        probabilities[c] = expf(logits[c] - maximum);
        sum += probabilities[c];
    }
    for (int c = 0; c < classes; c++)
        probabilities[c] /= sum;
    return sum;
}

static __global__ void softmax(const float *logits, float *probabilities, int batch, int classes)
{
    FOR_EACH_PIECE(row, (size_t)batch)
    {
        softmax_row(logits + row * classes, probabilities + row * classes, classes);
    }
}

void launch_softmax(const float *logits, float *probabilities, int batch, int classes)
{
    RUN(softmax, blocks_for((size_t)batch), logits, probabilities, batch, classes);
}

// dx = p (dy - sum(p dy)), over dy.
static __global__ void softmax_backward(const float *probabilities, float *gradient, int batch,
                                        int classes)
{
    FOR_EACH_PIECE(row, (size_t)batch)
    {
        const float *p = probabilities + row * classes;
        float *g = gradient + row * classes, sum = 0;
        for (int c = 0; c < classes; c++)
            sum += p[c] * g[c];
        for (int c = 0; c < classes; c++)
            g[c] = p[c] * (g[c] - sum);
    }
}

void launch_softmax_backward(const float *probabilities, float *gradient, int batch, int classes)
{
    RUN(softmax_backward, blocks_for((size_t)batch), probabilities, gradient, batch, classes);
}

// The sum over the block, in a fixed order, for its first thread.
static __device__ double sum_over_block(double value)
{
    __shared__ double shared[THREADS];
    __syncthreads(); // others may still read the last sum
    shared[threadIdx.x] = value;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return shared[threadIdx.x];
}

// One block, so that the metrics are added up in one order.
static __global__ void __launch_bounds__(THREADS)
    cross_entropy(const float *logits, const int *labels, float *gradient, int batch, int classes,
                  Metrics *metrics)
{
    double loss = 0, correct = 0;
    for (size_t row = threadIdx.x; row < (size_t)batch; row += THREADS) {
        const float *z = logits + row * classes;
        float *g = gradient + row * classes;
        int label = labels[row], best = most_likely(z, classes);
        loss += (double)(z[best] - z[label]) + (double)logf(softmax_row(z, g, classes));
        correct += best == label;
        g[label] -= 1;
        for (int c = 0; c < classes; c++)
            g[c] /= (float)batch;
    }
    loss = sum_over_block(loss);
    correct = sum_over_block(correct);
    if (threadIdx.x == 0) {
        metrics->loss += loss;
        metrics->correct += correct;
        metrics->images += batch;
        metrics->batches++;
        metrics->finite += isfinite(metrics->loss) ? 1 : 0; // once it is not, it remains so
    }
}

void launch_cross_entropy(const float *logits, const int *labels, float *gradient, int batch,
                          int classes, Metrics *metrics)
{
    RUN(cross_entropy, dim3(1), logits, labels, gradient, batch, classes, metrics);
}
