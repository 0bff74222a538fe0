// cuDNN's convolutions. Each is a product of matrices, image by image, of which one is the image
// with every window of it laid out as a row.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <omp.h>
#include <vector>
#include "cudnn_types.h"

using namespace emulated;

namespace
{
size_t elements_of(const Filter &f)
{
    return static_cast<size_t>(f.k) * static_cast<size_t>(f.c) * static_cast<size_t>(f.h * f.w);
}

size_t filter_place(const Filter &f, int k, int c, int h, int w)
{
    int index = f.nhwc ? ((k * f.h + h) * f.w + w) * f.c + c : ((k * f.c + c) * f.h + h) * f.w + w;
    return static_cast<size_t>(index);
}

enum Direction { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

// What a call is about; x, w and y are also the gradients with respect to them.
struct Problem {
    Tensor x, y;
    Filter w;
    cudnnConvolutionStruct conv;

    int pixels() const
    {
        return y.h * y.w;
    }
    int window() const // elements of a row that holds one
    {
        return w.h * w.w * w.c;
    }
    bool rounds() const
    {
        return x.type == Type::float32 && conv.math != CUDNN_FMA_MATH;
    }
};

// The calls differ in what they name their arguments; what is checked is the same.
cudnnStatus_t make_problem(const char *caller, const Tensor *x, const Filter *w,
                           cudnnConvolutionDescriptor_t conv, const Tensor *y, Problem *problem)
{
    if (!x || !w || !conv || !y)
        return bad(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, caller, "a descriptor is NULL");
    if (!x->set || !w->set || !conv->set || !y->set)
        return bad(CUDNN_STATUS_BAD_PARAM, caller, "a descriptor was never set");
    if (x->type != w->type || x->type != y->type)
        return bad(CUDNN_STATUS_BAD_PARAM, caller, "the descriptors' types differ");
    if (x->c != w->c)
        return bad(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, caller,
                   "the filter has not as many input channels as the tensor");
    if (y->n != x->n || y->c != w->k ||
        y->h != output_size(x->h, conv->pad_h, w->h, conv->stride_h) ||
        y->w != output_size(x->w, conv->pad_w, w->w, conv->stride_w))
        return bad(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, caller,
                   "the output's shape is not what cudnnGetConvolution2dForwardOutputDim says");
    if (w->nhwc != (x->strides[1] == 1) && x->c > 1 && x->h * x->w > 1)
        return bad(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, caller,
                   "the filter's format is not the tensor's");
    if (x->type == Type::bfloat16 && conv->math == CUDNN_FMA_MATH)
        return bad(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, caller, "bfloat16 needs tensor cores");
    *problem = Problem{*x, *y, *w, *conv};
    return CUDNN_STATUS_SUCCESS;
}

// Algorithms 0 (without a workspace) and 1 (with one, which depends on the math) stand for all that
// run. Number 2 is listed as the quickest, and does not run; the others are listed as not supported.
enum { NO_WORKSPACE, WITH_WORKSPACE, DOES_NOT_RUN, ALGORITHMS = 8 };

size_t workspace_bytes(const Problem &p, Direction direction, int algo)
{
    auto rows = static_cast<size_t>(direction == BACKWARD_FILTER ? p.window() : p.pixels());
    size_t extra = p.conv.math == CUDNN_FMA_MATH ? 4096 : 1024;
    return algo == WITH_WORKSPACE ? 4 * rows * static_cast<size_t>(p.w.k) + extra : 0;
}

// EMULATED_CHANNELS=8: tensor cores want rows of 16 bytes.
bool has_algorithms(const Problem &p)
{
    const char *strict = getenv("EMULATED_CHANNELS");
    int row = strict && p.x.type == Type::bfloat16 ? atoi(strict) : 1;
    return p.x.c % row == 0 && p.y.c % row == 0;
}

// All of an image, its channels side by side, as the arithmetic sees it.
std::vector<float> read_image(const Tensor &t, const void *memory, int n, bool rounds)
{
    std::vector<float> values;
    values.reserve(static_cast<size_t>(t.c) * static_cast<size_t>(t.h * t.w));
    for (int h = 0; h < t.h; h++)
        for (int w = 0; w < t.w; w++)
            for (int c = 0; c < t.c; c++) {
                float value = load(t.type, memory, place(t, n, c, h, w));
                values.push_back(rounds ? tf32(value) : value);
            }
    return values;
}

void write_image(const Tensor &t, void *memory, int n, const float *values, float alpha, float beta)
{
    for (int h = 0; h < t.h; h++)
        for (int w = 0; w < t.w; w++)
            for (int c = 0; c < t.c; c++)
                blend(t.type, memory, place(t, n, c, h, w), alpha, *values++, beta);
}

// A filter as a matrix of k rows, each a window.
std::vector<float> read_filter(const Filter &f, const void *memory, bool rounds)
{
    std::vector<float> values;
    values.reserve(elements_of(f));
    for (int k = 0; k < f.k; k++)
        for (int h = 0; h < f.h; h++)
            for (int w = 0; w < f.w; w++)
                for (int c = 0; c < f.c; c++) {
                    float value = load(f.type, memory, filter_place(f, k, c, h, w));
                    values.push_back(rounds ? tf32(value) : value);
                }
    return values;
}

void write_filter(const Filter &f, void *memory, const float *values, float alpha, float beta)
{
    for (int k = 0; k < f.k; k++)
        for (int h = 0; h < f.h; h++)
            for (int w = 0; w < f.w; w++)
                for (int c = 0; c < f.c; c++)
                    blend(f.type, memory, filter_place(f, k, c, h, w), alpha, *values++, beta);
}

// Calls work(pixel of the image or NULL in the padding, place of it in the row) for all windows.
template <class Image, class Work> void for_windows(const Problem &p, Image *image, Work work)
{
    for (int i = 0; i < p.pixels(); i++)
        for (int r = 0; r < p.w.h * p.w.w; r++) {
            int h = i / p.y.w * p.conv.stride_h - p.conv.pad_h + r / p.w.w;
            int w = i % p.y.w * p.conv.stride_w - p.conv.pad_w + r % p.w.w;
            bool inside = h >= 0 && h < p.x.h && w >= 0 && w < p.x.w;
            size_t row = static_cast<size_t>(i) * static_cast<size_t>(p.window()) +
                         static_cast<size_t>(r * p.w.c);
            work(inside ? image + (h * p.x.w + w) * p.x.c : nullptr, row);
        }
}

// Every window of an image as a row.
void lay_out(const Problem &p, const std::vector<float> &image, std::vector<float> &rows)
{
    auto channels = static_cast<size_t>(p.w.c);
    for_windows(p, image.data(), [&](const float *pixel, size_t row) {
        if (pixel)
            memcpy(&rows[row], pixel, channels * sizeof(float));
        else
            memset(&rows[row], 0, channels * sizeof(float));
    });
}

// The other way: adds up what the rows hold for each pixel.
void add_up(const Problem &p, const std::vector<float> &rows, std::vector<float> &image)
{
    std::fill(image.begin(), image.end(), 0.0f);
    for_windows(p, image.data(), [&](float *pixel, size_t row) {
        for (int c = 0; pixel && c < p.w.c; c++)
            pixel[c] += rows[row + static_cast<size_t>(c)];
    });
}

std::vector<float> room(int rows, int columns)
{
    return std::vector<float>(static_cast<size_t>(rows) * static_cast<size_t>(columns));
}

// The images are shared out among the threads: one team for all of them, because teams that form
// for a single product spend their time waiting for each other.
void forward(const Problem &p, const void *x, const void *w, void *y, float alpha, float beta)
{
    std::vector<float> filter = read_filter(p.w, w, p.rounds());
#pragma omp parallel
    {
        std::vector<float> rows = room(p.pixels(), p.window()), out = room(p.pixels(), p.w.k);
#pragma omp for
        for (int n = 0; n < p.x.n; n++) {
            lay_out(p, read_image(p.x, x, n, p.rounds()), rows);
            multiply(false, true, p.pixels(), p.w.k, p.window(), rows.data(), filter.data(), false,
                     out.data());
            write_image(p.y, y, n, out.data(), alpha, beta);
        }
    }
}

void backward_data(const Problem &p, void *dx, const void *w, const void *dy, float alpha,
                   float beta)
{
    std::vector<float> filter = read_filter(p.w, w, p.rounds());
#pragma omp parallel
    {
        std::vector<float> rows = room(p.pixels(), p.window()), image = room(p.x.h * p.x.w, p.x.c);
#pragma omp for
        for (int n = 0; n < p.x.n; n++) {
            std::vector<float> gradient = read_image(p.y, dy, n, p.rounds());
            multiply(false, false, p.pixels(), p.window(), p.w.k, gradient.data(), filter.data(),
                     false, rows.data());
            add_up(p, rows, image);
            write_image(p.x, dx, n, image.data(), alpha, beta);
        }
    }
}

// Each thread adds up its images; then the threads are added up in their order, so that the result
// depends on their number alone.
void backward_filter(const Problem &p, const void *x, void *dw, const void *dy, float alpha,
                     float beta)
{
    std::vector<float> filter = room(p.w.k, p.window());
#pragma omp parallel
    {
        std::vector<float> rows = room(p.pixels(), p.window()), sums = room(p.w.k, p.window());
#pragma omp for schedule(static)
        for (int n = 0; n < p.x.n; n++) {
            lay_out(p, read_image(p.x, x, n, p.rounds()), rows);
            std::vector<float> gradient = read_image(p.y, dy, n, p.rounds());
            multiply(true, false, p.w.k, p.window(), p.pixels(), gradient.data(), rows.data(), true,
                     sums.data());
        }
#pragma omp for ordered schedule(static, 1)
        for (int thread = 0; thread < omp_get_num_threads(); thread++) {
#pragma omp ordered
            for (size_t i = 0; i < filter.size(); i++)
                filter[i] += sums[i];
        }
    }
    write_filter(p.w, dw, filter.data(), alpha, beta);
}

struct Arguments {
    const void *x, *w, *y; // one of them is written
    void *workspace;
    size_t bytes; // of the workspace
    float alpha, beta;
};

void run(const Problem &p, Direction direction, int algo, const Arguments &a)
{
    // Whatever was kept in the part of the workspace that the algorithm needs is lost.
    if (size_t bytes = workspace_bytes(p, direction, algo))
        memset(a.workspace, 0xff, bytes);
    if (direction == FORWARD)
        forward(p, a.x, a.w, const_cast<void *>(a.y), a.alpha, a.beta);
    else if (direction == BACKWARD_DATA)
        backward_data(p, const_cast<void *>(a.x), a.w, a.y, a.alpha, a.beta);
    else
        backward_filter(p, a.x, const_cast<void *>(a.w), a.y, a.alpha, a.beta);
}

cudnnStatus_t check_arguments(const char *caller, const Problem &p, Direction direction, int algo,
                              const Arguments &a)
{
    if (algo < 0 || algo >= DOES_NOT_RUN || !has_algorithms(p))
        return CUDNN_STATUS_NOT_SUPPORTED;
    for (const void *memory : {a.x, a.y, a.w, static_cast<const void *>(a.workspace)})
        if (reinterpret_cast<uintptr_t>(memory) % 16 != 0)
            return bad(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, caller,
                       "a tensor does not begin at a multiple of 16 bytes");
    if (!in_memory(caller, "x", a.x, bytes_of(p.x)) ||
        !in_memory(caller, "y", a.y, bytes_of(p.y)) ||
        !in_memory(caller, "w", a.w, elements_of(p.w) * size_of(p.w.type)) ||
        !in_memory(caller, "the workspace", a.workspace, a.bytes))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (a.bytes < workspace_bytes(p, direction, algo))
        return bad(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, caller, "the workspace is too small");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t convolve(const char *caller, cudnnHandle_t handle, const Problem &p,
                       Direction direction, int algo, const Arguments &a)
{
    if (cudnnStatus_t status = check_arguments(caller, p, direction, algo, a))
        return status;
    if (first_use(caller, {handle, direction * ALGORITHMS + algo}))
        return CUDNN_STATUS_EXECUTION_FAILED;
    return start_work(caller, handle, [=] { run(p, direction, algo, a); });
}

// The algorithms from the quickest on, as far as their workspaces fit into `most` bytes, each with
// the math that it is listed for; then those that are not supported.
template <class Perf>
void list_algorithms(Problem p, Direction direction, size_t most, int wanted, int *count,
                     Perf *results)
{
    cudnnMathType_t own = p.conv.math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
    std::vector<Perf> list;
    auto add = [&](int algo, cudnnMathType_t math, bool supported) {
        Perf perf{};
        perf.algo = static_cast<decltype(perf.algo)>(algo);
        perf.mathType = p.conv.math = math;
        perf.memory = workspace_bytes(p, direction, algo);
        perf.time = supported ? static_cast<float>(list.size() + 1) : -1.0f;
        perf.status = supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
        // The real ones that are not: the number 0 of both backward directions.
        perf.determinism = algo == NO_WORKSPACE && direction != FORWARD ? CUDNN_NON_DETERMINISTIC
                                                                        : CUDNN_DETERMINISTIC;
        if (perf.memory <= most)
            list.push_back(perf);
    };
    bool some = has_algorithms(p);
    add(DOES_NOT_RUN, own, some);
    if (own == CUDNN_FMA_MATH)
        add(WITH_WORKSPACE, CUDNN_DEFAULT_MATH, some);
    add(WITH_WORKSPACE, own, some);
    add(NO_WORKSPACE, own, some);
    for (int algo = DOES_NOT_RUN + 1; algo < ALGORITHMS; algo++)
        add(algo, own, false);
    *count = std::min(wanted, static_cast<int>(list.size()));
    std::copy_n(list.begin(), *count, results);
}
} // namespace

#define ENTER_PROBLEM(handle, x, w, conv, y)                                                       \
    ENTER_CUDNN(handle);                                                                           \
    Problem problem;                                                                               \
    if (cudnnStatus_t status = make_problem(__func__, x, w, conv, y, &problem))                    \
    return status

// The four calls of each direction. `a` and `b` are what is read, `c` what is written; x, w and y
// say which of them is which.
#define CONVOLUTION(direction, Name, Algo, A, a, B, b, C, c, x, w, y)                              \
    cudnnStatus_t cudnnGetConvolution##Name##WorkspaceSize(                                        \
        cudnnHandle_t handle, A a##_desc, B b##_desc, cudnnConvolutionDescriptor_t conv,           \
        C c##_desc, cudnnConvolution##Algo##Algo_t algo, size_t *bytes)                            \
    {                                                                                              \
        ENTER_PROBLEM(handle, x##_desc, w##_desc, conv, y##_desc);                                 \
        if (static_cast<int>(algo) > DOES_NOT_RUN || !has_algorithms(problem))                                       \
            return CUDNN_STATUS_NOT_SUPPORTED;                                                     \
        *bytes = workspace_bytes(problem, direction, static_cast<int>(algo));                      \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }                                                                                              \
    cudnnStatus_t cudnnGetConvolution##Name##Algorithm_v7(                                         \
        cudnnHandle_t handle, A a##_desc, B b##_desc, cudnnConvolutionDescriptor_t conv,           \
        C c##_desc, int wanted, int *count, cudnnConvolution##Algo##AlgoPerf_t *results)           \
    {                                                                                              \
        ENTER_PROBLEM(handle, x##_desc, w##_desc, conv, y##_desc);                                 \
        list_algorithms(problem, direction, SIZE_MAX, wanted, count, results);                     \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }                                                                                              \
    cudnnStatus_t cudnnFindConvolution##Name##AlgorithmEx(                                         \
        cudnnHandle_t handle, A a##_desc, const void *a, B b##_desc, const void *b,                \
        cudnnConvolutionDescriptor_t conv, C c##_desc, void *c, int wanted, int *count,            \
        cudnnConvolution##Algo##AlgoPerf_t *results, void *workspace, size_t bytes)                \
    {                                                                                              \
        ENTER_PROBLEM(handle, x##_desc, w##_desc, conv, y##_desc);                                 \
        Arguments arguments = {x, w, y, workspace, bytes, 1, 0};                                   \
        cudnnStatus_t status = has_algorithms(problem)                                             \
                                   ? convolve(__func__, handle, problem, direction, 0, arguments)  \
                                   : CUDNN_STATUS_SUCCESS;                                         \
        list_algorithms(problem, direction, bytes, wanted, count, results);                        \
        return status;                                                                             \
    }                                                                                              \
    cudnnStatus_t cudnnConvolution##Name(                                                          \
        cudnnHandle_t handle, const void *alpha, A a##_desc, const void *a, B b##_desc,            \
        const void *b, cudnnConvolutionDescriptor_t conv, cudnnConvolution##Algo##Algo_t algo,     \
        void *workspace, size_t bytes, const void *beta, C c##_desc, void *c)                      \
    {                                                                                              \
        ENTER_PROBLEM(handle, x##_desc, w##_desc, conv, y##_desc);                                 \
        Arguments arguments = {x, w, y, workspace, bytes, factor(alpha), factor(beta)};            \
        return convolve(__func__, handle, problem, direction, static_cast<int>(algo), arguments);  \
    }

CONVOLUTION(FORWARD, Forward, Fwd, cudnnTensorDescriptor_t, x, cudnnFilterDescriptor_t, w,
            cudnnTensorDescriptor_t, y, x, w, y)
CONVOLUTION(BACKWARD_DATA, BackwardData, BwdData, cudnnFilterDescriptor_t, w,
            cudnnTensorDescriptor_t, dy, cudnnTensorDescriptor_t, dx, dx, w, dy)
CONVOLUTION(BACKWARD_FILTER, BackwardFilter, BwdFilter, cudnnTensorDescriptor_t, x,
            cudnnTensorDescriptor_t, dy, cudnnFilterDescriptor_t, dw, x, dw, dy)

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t conv,
                                                    cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int *n, int *c,
                                                    int *height, int *width)
{
    if (!conv->set || !x->set || !w->set || x->c != w->c)
        return bad(CUDNN_STATUS_BAD_PARAM, __func__, "a descriptor is not set or does not fit");
    *n = x->n;
    *c = w->k;
    *height = output_size(x->h, conv->pad_h, w->h, conv->stride_h);
    *width = output_size(x->w, conv->pad_w, w->w, conv->stride_w);
    return CUDNN_STATUS_SUCCESS;
}
