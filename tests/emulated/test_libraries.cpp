// cuBLAS, cuDNN and NCCL of the stand-in, held against plain loops in double precision.

#include <cmath>
#include <cstring>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cudnn.h>
#define OMPI_SKIP_MPICXX // the C++ bindings need a library of their own
#include <mpi.h>
#include <nccl.h>
#include "test_emulated.h"

static float random_number()
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
}

// Values in device memory as one of two types, and on the host as they are after rounding.
struct Values {
    bool half;
    void *memory;
    std::vector<double> host;

    Values(size_t count, bool half_) : half(half_)
    {
        std::vector<float> floats;
        std::vector<__nv_bfloat16> halves;
        for (size_t i = 0; i < count; i++) {
            float value = random_number();
            floats.push_back(value);
            halves.push_back(__nv_bfloat16(value));
            host.push_back(static_cast<double>(half ? static_cast<float>(halves.back()) : value));
        }
        if (half)
            memory = upload(halves);
        else
            memory = upload(floats);
    }
    double now(size_t i) const
    {
        if (half)
            return static_cast<double>(
                static_cast<float>(read(static_cast<__nv_bfloat16 *>(memory), host.size())[i]));
        return static_cast<double>(read(static_cast<float *>(memory), host.size())[i]);
    }
    std::vector<double> all() const
    {
        std::vector<double> values;
        std::vector<float> floats;
        std::vector<__nv_bfloat16> halves;
        if (half)
            halves = read(static_cast<__nv_bfloat16 *>(memory), host.size());
        else
            floats = read(static_cast<float *>(memory), host.size());
        for (size_t i = 0; i < host.size(); i++)
            values.push_back(static_cast<double>(half ? static_cast<float>(halves[i]) : floats[i]));
        return values;
    }
};

static double largest_difference(const std::vector<double> &a, const std::vector<double> &b)
{
    double largest = 0;
    for (size_t i = 0; i < a.size(); i++)
        largest = std::fmax(largest, std::isnan(a[i]) ? INFINITY : std::fabs(a[i] - b[i]));
    return largest;
}

// ---- cuBLAS.

static void test_product(bool ta, bool tb, bool half_in, bool half_out, cublasMath_t math)
{
    const int m = 7, n = 5, k = 11, lda = 13, ldb = 12, ldc = 9;
    auto at = [](int row, int column, int stride) {
        return static_cast<size_t>(column * stride + row);
    };
    Values a(static_cast<size_t>(lda * (ta ? m : k)), half_in);
    Values b(static_cast<size_t>(ldb * (tb ? k : n)), half_in);
    Values c(static_cast<size_t>(ldc * n), half_out);
    std::vector<double> expected = c.host;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += a.host[ta ? at(l, i, lda) : at(i, l, lda)] *
                       b.host[tb ? at(j, l, ldb) : at(l, j, ldb)];
            expected[at(i, j, ldc)] = 0.5 * sum + 2 * c.host[at(i, j, ldc)];
        }
    cublasHandle_t handle;
    EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasSetMathMode(handle, math) == CUBLAS_STATUS_SUCCESS);
    float alpha = 0.5f, beta = 2;
    cudaDataType in = half_in ? CUDA_R_16BF : CUDA_R_32F, out = half_out ? CUDA_R_16BF : CUDA_R_32F;
    EXPECT(cublasGemmEx(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                        n, k, &alpha, a.memory, in, lda, b.memory, in, ldb, &beta, c.memory, out,
                        ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
    bool rounded = math == CUBLAS_TF32_TENSOR_OP_MATH && !half_in;
    double difference = largest_difference(c.all(), expected);
    EXPECT(difference <= (half_out ? 0.03 : rounded ? 5e-3 : 1e-5));
    EXPECT(!rounded || difference > 1e-5); // TensorFloat-32 is there to be seen
    EXPECT(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, a.memory, in, 6,
                        b.memory, in, ldb, &beta, c.memory, out, ldc, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_INVALID_VALUE);
    EXPECT(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 60, k, &alpha, a.memory, in, lda,
                        b.memory, in, ldb, &beta, c.memory, out, ldc, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_EXECUTION_FAILED);
    EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_NOT_INITIALIZED);
}

void test_matrices()
{
    for (int i = 0; i < 4; i++) {
        test_product(i % 2 != 0, i / 2 != 0, false, false, CUBLAS_DEFAULT_MATH);
        test_product(i % 2 != 0, i / 2 != 0, true, false, CUBLAS_DEFAULT_MATH);
    }
    test_product(false, false, true, true, CUBLAS_DEFAULT_MATH);
    test_product(false, true, false, false, CUBLAS_TF32_TENSOR_OP_MATH);
}

// ---- cuDNN.

// A convolution with all that its calls need.
struct Convolution {
    int n, c, h, w, k, r, s, pad, stride, oh, ow;
    bool nhwc, half;
    cudnnHandle_t handle;
    cudnnTensorDescriptor_t x_desc, y_desc;
    cudnnFilterDescriptor_t w_desc;
    cudnnConvolutionDescriptor_t conv;

    Convolution(bool nhwc_, bool half_, int stride_, cudnnMathType_t math)
        : n(3), c(5), h(7), w(6), k(4), r(3), s(2), pad(1), stride(stride_),
          oh((h + 2 * pad - r) / stride + 1), ow((w + 2 * pad - s) / stride + 1), nhwc(nhwc_),
          half(half_)
    {
        auto format = nhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
        auto type = half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
        int dims[4];
        EXPECT(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
        cudnnCreateTensorDescriptor(&x_desc);
        cudnnCreateTensorDescriptor(&y_desc);
        cudnnCreateFilterDescriptor(&w_desc);
        cudnnCreateConvolutionDescriptor(&conv);
        EXPECT(cudnnSetTensor4dDescriptor(x_desc, format, type, n, c, h, w) ==
               CUDNN_STATUS_SUCCESS);
        EXPECT(cudnnSetTensor4dDescriptor(y_desc, format, type, n, k, oh, ow) ==
               CUDNN_STATUS_SUCCESS);
        EXPECT(cudnnSetFilter4dDescriptor(w_desc, type, format, k, c, r, s) ==
               CUDNN_STATUS_SUCCESS);
        EXPECT(cudnnSetConvolution2dDescriptor(conv, pad, pad, stride, stride, 1, 1,
                                               CUDNN_CROSS_CORRELATION,
                                               CUDNN_DATA_FLOAT) == CUDNN_STATUS_SUCCESS);
        EXPECT(cudnnSetConvolutionMathType(conv, math) == CUDNN_STATUS_SUCCESS);
        EXPECT(cudnnGetConvolution2dForwardOutputDim(conv, x_desc, w_desc, &dims[0], &dims[1],
                                                     &dims[2], &dims[3]) == CUDNN_STATUS_SUCCESS);
        EXPECT(dims[0] == n && dims[1] == k && dims[2] == oh && dims[3] == ow);
    }
    ~Convolution()
    {
        cudnnDestroyTensorDescriptor(x_desc);
        cudnnDestroyTensorDescriptor(y_desc);
        cudnnDestroyFilterDescriptor(w_desc);
        cudnnDestroyConvolutionDescriptor(conv);
        cudnnDestroy(handle);
    }
    size_t x_size() const
    {
        return static_cast<size_t>(n * c * h * w);
    }
    size_t y_size() const
    {
        return static_cast<size_t>(n * k * oh * ow);
    }
    size_t w_size() const
    {
        return static_cast<size_t>(k * c * r * s);
    }
    size_t at(int image, int channel, int row, int column, int channels, int rows,
              int columns) const
    {
        int i = nhwc ? ((image * rows + row) * columns + column) * channels + channel
                     : ((image * channels + channel) * rows + row) * columns + column;
        return static_cast<size_t>(i);
    }
    // Calls work(place in x, place in w, place in y) for every product of the sum.
    template <class Work> void for_products(Work work) const
    {
        for (int i = 0; i < n * k * oh * ow; i++) {
            int column = i % ow, row = i / ow % oh, to = i / ow / oh % k, image = i / ow / oh / k;
            for (int j = 0; j < c * r * s; j++) {
                int b = j % s, a = j / s % r, from = j / s / r;
                int y = row * stride - pad + a, x = column * stride - pad + b;
                if (y >= 0 && y < h && x >= 0 && x < w)
                    work(at(image, from, y, x, c, h, w), at(to, from, a, b, c, r, s),
                         at(image, to, row, column, k, oh, ow));
            }
        }
    }
};

static const float one = 1, zero = 0, two = 2;

// All three directions, each with the workspace that it asks for.
static void test_convolution(const Convolution &p, int algo, double tolerance)
{
    Values x(p.x_size(), p.half), w(p.w_size(), p.half), y(p.y_size(), p.half);
    std::vector<double> ey(y.host.size()), ex(x.host.size()), ew(w.host.size());
    p.for_products([&](size_t i, size_t j, size_t l) { ey[l] += x.host[i] * w.host[j]; });
    p.for_products([&](size_t i, size_t j, size_t l) { ex[i] += y.host[l] * w.host[j]; });
    p.for_products([&](size_t i, size_t j, size_t l) { ew[j] += y.host[l] * x.host[i]; });
    for (size_t i = 0; i < ex.size(); i++)
        ex[i] += 2 * x.host[i]; // beta
    auto forward = static_cast<cudnnConvolutionFwdAlgo_t>(algo);
    auto data = static_cast<cudnnConvolutionBwdDataAlgo_t>(algo);
    auto filter = static_cast<cudnnConvolutionBwdFilterAlgo_t>(algo);
    size_t bytes[3];
    EXPECT(cudnnGetConvolutionForwardWorkspaceSize(p.handle, p.x_desc, p.w_desc, p.conv, p.y_desc,
                                                   forward, &bytes[0]) == CUDNN_STATUS_SUCCESS);
    EXPECT(cudnnGetConvolutionBackwardDataWorkspaceSize(p.handle, p.w_desc, p.y_desc, p.conv,
                                                        p.x_desc, data,
                                                        &bytes[1]) == CUDNN_STATUS_SUCCESS);
    EXPECT(cudnnGetConvolutionBackwardFilterWorkspaceSize(p.handle, p.x_desc, p.y_desc, p.conv,
                                                          p.w_desc, filter,
                                                          &bytes[2]) == CUDNN_STATUS_SUCCESS);
    char *space = allocate<char>(bytes[0] + bytes[1] + bytes[2] + 1);
    Values out(p.y_size(), p.half), dw(p.w_size(), p.half);
    EXPECT(cudnnConvolutionForward(p.handle, &one, p.x_desc, x.memory, p.w_desc, w.memory, p.conv,
                                   forward, space, bytes[0], &zero, p.y_desc,
                                   out.memory) == CUDNN_STATUS_SUCCESS);
    EXPECT(cudnnConvolutionBackwardFilter(p.handle, &one, p.x_desc, x.memory, p.y_desc, y.memory,
                                          p.conv, filter, space, bytes[2], &zero, p.w_desc,
                                          dw.memory) == CUDNN_STATUS_SUCCESS);
    EXPECT(cudnnConvolutionBackwardData(p.handle, &one, p.w_desc, w.memory, p.y_desc, y.memory,
                                        p.conv, data, space, bytes[1], &two, p.x_desc,
                                        x.memory) == CUDNN_STATUS_SUCCESS);
    EXPECT(largest_difference(out.all(), ey) <= tolerance);
    EXPECT(largest_difference(dw.all(), ew) <= 4 * tolerance); // many more products
    EXPECT(largest_difference(x.all(), ex) <= tolerance);
    EXPECT(p.half || tolerance < 1e-3 || largest_difference(out.all(), ey) > 1e-5);
    EXPECT(algo == 0 ||
           cudnnConvolutionForward(p.handle, &one, p.x_desc, x.memory, p.w_desc, w.memory, p.conv,
                                   forward, space, bytes[0] - 1, &zero, p.y_desc,
                                   out.memory) == CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
    cudaFree(space);
}

// What cuDNN lists is not all of use: some rows are not supported, one does not run, and with FMA
// one is for another math, with another workspace.
static void test_search(const Convolution &p)
{
    Values x(p.x_size(), p.half), w(p.w_size(), p.half), y(p.y_size(), p.half);
    cudnnConvolutionFwdAlgoPerf_t rows[16];
    int count, supported = 0, maths = 0;
    EXPECT(cudnnGetConvolutionForwardAlgorithm_v7(p.handle, p.x_desc, p.w_desc, p.conv, p.y_desc, 16,
                                                  &count, rows) == CUDNN_STATUS_SUCCESS);
    for (int i = 0; i < count; i++) {
        supported += rows[i].status == CUDNN_STATUS_SUCCESS;
        maths += rows[i].mathType == CUDNN_DEFAULT_MATH;
    }
    EXPECT(count >= 8 && supported == 3 + maths && maths == !p.half);
    EXPECT(p.half || rows[1].memory != rows[2].memory);
    EXPECT(cudnnConvolutionForward(p.handle, &one, p.x_desc, x.memory, p.w_desc, w.memory, p.conv,
                                   rows[0].algo, nullptr, 0, &zero, p.y_desc,
                                   y.memory) == CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT(cudnnFindConvolutionForwardAlgorithmEx(p.handle, p.x_desc, x.memory, p.w_desc, w.memory,
                                                  p.conv, p.y_desc, y.memory, 16, &count, rows,
                                                  nullptr, 0) == CUDNN_STATUS_SUCCESS);
    EXPECT(rows[1].algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
}

void test_convolutions()
{
    for (int i = 0; i < 8; i++) {
        bool nhwc = i % 2 == 0, half = i / 2 % 2 != 0;
        Convolution p(nhwc, half, 1 + i / 4, half ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
        test_convolution(p, i % 2, half ? 0.03 : 1e-5);
        test_search(p);
    }
    test_convolution(Convolution(true, false, 1, CUDNN_DEFAULT_MATH), 1, 0.01); // TensorFloat-32
}

void test_cudnn_refusals()
{
    Convolution p(true, false, 1, CUDNN_FMA_MATH), q(true, true, 1, CUDNN_TENSOR_OP_MATH);
    Values x(p.x_size(), false), w(p.w_size(), false), y(p.y_size(), false);
    auto forward = [&](cudnnTensorDescriptor_t xd, const void *xm, cudnnFilterDescriptor_t wd,
                       cudnnTensorDescriptor_t yd, void *ym) {
        return cudnnConvolutionForward(p.handle, &one, xd, xm, wd, w.memory, p.conv,
                                       CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &zero,
                                       yd, ym);
    };
    EXPECT(forward(p.x_desc, x.memory, p.w_desc, p.y_desc, y.memory) == CUDNN_STATUS_SUCCESS);
    EXPECT(forward(p.x_desc, x.host.data(), p.w_desc, p.y_desc, y.memory) ==
           CUDNN_STATUS_EXECUTION_FAILED);
    EXPECT(forward(p.x_desc, x.memory, p.w_desc, p.y_desc, w.memory) ==
           CUDNN_STATUS_EXECUTION_FAILED); // too short
    EXPECT(forward(q.x_desc, x.memory, p.w_desc, p.y_desc, y.memory) == CUDNN_STATUS_BAD_PARAM);
    EXPECT(forward(p.y_desc, y.memory, p.w_desc, p.y_desc, y.memory) ==
           CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    EXPECT(forward(p.x_desc, x.memory, p.w_desc, p.x_desc, x.memory) ==
           CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    EXPECT(forward(nullptr, x.memory, p.w_desc, p.y_desc, y.memory) ==
           CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    cudnnTensorDescriptor_t unset;
    cudnnCreateTensorDescriptor(&unset);
    EXPECT(forward(unset, x.memory, p.w_desc, p.y_desc, y.memory) == CUDNN_STATUS_BAD_PARAM);
    cudnnDestroyTensorDescriptor(unset);
    cudaStream_t stream;
    cudaSetDevice(1);
    cudaStreamCreate(&stream);
    EXPECT(forward(p.x_desc, x.memory, p.w_desc, p.y_desc, y.memory) == CUDNN_STATUS_BAD_PARAM);
    cudaSetDevice(0);
    EXPECT(cudnnSetStream(p.handle, stream) == CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
}

// ---- NCCL: mpirun -np N test_emulated nccl [duplicate].

int test_nccl(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bool duplicate = argc > 2 && strcmp(argv[2], "duplicate") == 0;
    EXPECT(cudaSetDevice(duplicate ? 0 : rank) == cudaSuccess);
    ncclUniqueId id;
    ncclComm_t comm;
    if (rank == 0)
        ncclGetUniqueId(&id);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    ncclResult_t result = ncclCommInitRank(&comm, size, id, rank);
    EXPECT(result == (duplicate && size > 1 ? ncclInvalidUsage : ncclSuccess));
    if (result == ncclSuccess) {
        const size_t count = 1000;
        std::vector<float> values(count, static_cast<float>(rank + 1));
        float *memory = upload(values), total = static_cast<float>(size * (size + 1)) / 2;
        EXPECT(ncclAllReduce(memory, memory, count, ncclFloat32, ncclSum, comm, nullptr) ==
               ncclSuccess);
        EXPECT(read(memory, count)[count - 1] == total);
        EXPECT(ncclAllReduce(memory, memory, count + 1, ncclFloat32, ncclSum, comm, nullptr) ==
               ncclInvalidArgument);
        __nv_bfloat16 *half =
            upload(std::vector<__nv_bfloat16>(count, __nv_bfloat16(static_cast<float>(rank))));
        EXPECT(ncclAllReduce(half, half, count, ncclBfloat16, ncclAvg, comm, nullptr) ==
               ncclSuccess);
        EXPECT(read(half, count)[7] == static_cast<float>(size - 1) / 2);
        float *own = upload(values);
        EXPECT(ncclBroadcast(own, own, count, ncclFloat32, size - 1, comm, nullptr) == ncclSuccess);
        EXPECT(read(own, count)[0] == static_cast<float>(size));
        EXPECT(ncclCommDestroy(comm) == ncclSuccess);
    }
    MPI_Finalize();
    return 0;
}
