// cuBLAS: products of matrices that lie column by column.

#include <cublas_v2.h>
#include <dnnl.h>
#include <omp.h>
#include <vector>
#include "elements.h"

using namespace emulated;

struct cublasContext : Handle {
    cublasMath_t math;
    bool workspace; // the user's; cuBLAS's own can't be recorded
};

namespace
{
auto &handles = *new std::set<cublasContext *>; // never destroyed, as the streams

struct Matrix {
    const char *name;
    const void *memory;
    Type type;
    int rows, columns, stride; // as they lie there
};

bool to_type(cudaDataType type, Type *result)
{
    *result = type == CUDA_R_16BF ? Type::bfloat16 : Type::float32;
    return type == CUDA_R_16BF || type == CUDA_R_32F;
}

cublasStatus_t check(const char *caller, const Matrix &m)
{
    if (m.rows < 0 || m.columns < 0 || m.stride < m.rows || m.stride < 1) {
        complain("%s: %s is %d x %d with a leading dimension of %d", caller, m.name, m.rows,
                 m.columns, m.stride);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    size_t elements = 0;
    if (m.rows > 0 && m.columns > 0)
        elements = static_cast<size_t>(m.columns - 1) * static_cast<size_t>(m.stride) +
                   static_cast<size_t>(m.rows);
    return in_memory(caller, m.name, m.memory, elements * size_of(m.type))
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

size_t place(const Matrix &m, int row, int column)
{
    return static_cast<size_t>(column) * static_cast<size_t>(m.stride) + static_cast<size_t>(row);
}

// Dense and row by row: column by column, that is the transposed matrix.
std::vector<float> dense(const Matrix &m, bool rounded)
{
    std::vector<float> values;
    values.reserve(static_cast<size_t>(m.rows) * static_cast<size_t>(m.columns));
    for (int column = 0; column < m.columns; column++)
        for (int row = 0; row < m.rows; row++) {
            float value = load(m.type, m.memory, place(m, row, column));
            values.push_back(rounded && m.type == Type::float32 ? tf32(value) : value);
        }
    return values;
}

// c = alpha op(a) op(b) + beta c. Row by row that is c' = op(b)' op(a)'.
void run(bool transpose_a, bool transpose_b, int k, float alpha, const Matrix &a, const Matrix &b,
         float beta, const Matrix &c, bool rounded)
{
    std::vector<float> x = dense(a, rounded), y = dense(b, rounded);
    std::vector<float> product(static_cast<size_t>(c.rows) * static_cast<size_t>(c.columns));
    if (k > 0 && !product.empty() && alpha != 0)
        multiply(transpose_b, transpose_a, c.columns, c.rows, k, y.data(), x.data(), false,
                 product.data());
    for (int column = 0; column < c.columns; column++)
        for (int row = 0; row < c.rows; row++)
            blend(c.type, const_cast<void *>(c.memory), place(c, row, column), alpha,
                  product[static_cast<size_t>(column) * static_cast<size_t>(c.rows) +
                          static_cast<size_t>(row)],
                  beta);
}
} // namespace

void emulated::multiply(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a,
                        const float *b, bool add, float *c)
{
    // oneDNN plans for as many threads as it asks for, and leaves out what those that OpenMP does not
    // give would compute.
    omp_set_dynamic(0);
    if (omp_get_max_active_levels() < 1)
        omp_set_num_threads(1);
    dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1, a, transpose_a ? m : k,
               b, transpose_b ? k : n, add ? 1.0f : 0.0f, c, n);
}

bool emulated::in_memory(const char *caller, const char *name, const void *memory, size_t bytes)
{
    std::string why = why_not(*current(), memory, bytes);
    if (!why.empty())
        complain("%s: %s, %zu bytes at %p: %s", caller, name, bytes, memory, why.c_str());
    return why.empty();
}

#define ENTER_BLAS(handle)                                                                         \
    std::lock_guard<std::recursive_mutex> guard(lock);                                             \
    if (!usable(__func__, handles, handle))                                                        \
    return CUBLAS_STATUS_NOT_INITIALIZED

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!library_starts())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext{{current(), nullptr}, CUBLAS_DEFAULT_MATH, false};
    handles.insert(*handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    ENTER_BLAS(handle);
    finish(handle->device);
    handles.erase(handle);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    ENTER_BLAS(handle);
    if (!stream_of(handle->device, stream)) {
        complain("cublasSetStream: the stream is not of the handle's device");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->stream = stream;
    handle->workspace = false; // as its manual says
    return CUBLAS_STATUS_SUCCESS;
}

// Not used for anything here, but it must be what it is said to be.
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *memory, size_t bytes)
{
    ENTER_BLAS(handle);
    std::string why = why_not(*handle->device, memory, bytes);
    if (!why.empty()) {
        complain("cublasSetWorkspace(%p): %s", memory, why.c_str());
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = true;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    ENTER_BLAS(handle);
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *a, cudaDataType atype, int lda, const void *b,
                            cudaDataType btype, int ldb, const void *beta, void *c,
                            cudaDataType ctype, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t)
{
    ENTER_BLAS(handle);
    bool ta = transa != CUBLAS_OP_N, tb = transb != CUBLAS_OP_N;
    Matrix x = {"A", a, Type::float32, ta ? k : m, ta ? m : k, lda};
    Matrix y = {"B", b, Type::float32, tb ? n : k, tb ? k : n, ldb};
    Matrix z = {"C", c, Type::float32, m, n, ldc};
    bool known = to_type(atype, &x.type) && to_type(btype, &y.type) && to_type(ctype, &z.type);
    if (!known || x.type != y.type || (z.type == Type::bfloat16 && x.type != z.type)) {
        complain("cublasGemmEx: the types %d, %d, %d do not go together", atype, btype, ctype);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (const Matrix *matrix : {&x, &y, &z})
        if (cublasStatus_t status = check(__func__, *matrix))
            return status;
    bool rounded = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                   compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                   (compute == CUBLAS_COMPUTE_32F && handle->math == CUBLAS_TF32_TENSOR_OP_MATH);
    float factor = *static_cast<const float *>(alpha), old = *static_cast<const float *>(beta);
    if (first_use(__func__, {handle, 0}) || (!handle->workspace && spoils_recording(__func__)))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    current()->usage.launches++;
    cudaError_t error =
        submit(__func__, handle->stream, [=] { run(ta, tb, k, factor, x, y, old, z, rounded); });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const float *alpha,
                           const float *a, int lda, const float *b, int ldb, const float *beta,
                           float *c, int ldc)
{
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda, b, CUDA_R_32F,
                        ldb, beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "the operation completed successfully";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality requested is not supported";
    default:
        return "an error of cuBLAS";
    }
}
