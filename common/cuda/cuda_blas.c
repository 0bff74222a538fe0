// The CUDA backend's matrix products, by cuBLAS.
//
// cuBLAS is loaded when the first product asks for it, not when the program starts: it takes 60 ms
// and 200 MiB to load, which a process that computes on the CPU should not pay.

#include "cuda/backend_cuda_inside.h"

#include <cublas_v2.h>
#include <dlfcn.h>
#include "base/error.h"
#include "base/memory.h"

struct CudaBlas {
    cublasHandle_t handle;
};

// The library, the same for all GPUs.
static struct {
    __typeof__(cublasCreate) *create;
    __typeof__(cublasSetStream) *set_stream;
    __typeof__(cublasSetWorkspace) *set_workspace;
    __typeof__(cublasGemmEx) *multiply;
    __typeof__(cublasGetStatusString) *words;
} blas;

#define WORKSPACE_BYTES ((size_t)32 << 20) // as its manual advises for Hopper; others need less

#define CUBLAS(call) check((call), #call, __FILE__, __LINE__)

static void check(cublasStatus_t status, const char *call, const char *file, int line)
{
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        cuda_check(cudaErrorMemoryAllocation, call, file, line);
    cuda_check_words(status == CUBLAS_STATUS_SUCCESS ? NULL : blas.words(status), call, file, line);
}

// A function's name as the header's macros make it: cublasCreate is cublasCreate_v2.
#define NAME_OF(function)  WORDS_OF(function)
#define WORDS_OF(function) #function

static void find(void *function, void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (!address)
        die("this cuBLAS has no %s; build the kit again, with the CUDA that is installed", name);
    *(void **)function = address;
}

#define TEXT_OF(number) WORDS_OF(number)

static void load(void)
{
    void *library = dlopen(HVDLAB_CUBLAS, RTLD_NOW | RTLD_LOCAL);
#ifdef CUBLAS_VER_MAJOR
    if (!library) // on another machine than the one that it was built on: where the linker finds it
        library = dlopen("libcublas.so." TEXT_OF(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
#endif
    if (!library)
        die("cuBLAS cannot be loaded: %s", dlerror());
    find(&blas.create, library, NAME_OF(cublasCreate));
    find(&blas.set_stream, library, NAME_OF(cublasSetStream));
    find(&blas.set_workspace, library, NAME_OF(cublasSetWorkspace));
    find(&blas.multiply, library, NAME_OF(cublasGemmEx));
    find(&blas.words, library, NAME_OF(cublasGetStatusString));
}

void cuda_blas_start(void)
{
    static pthread_once_t loaded = PTHREAD_ONCE_INIT;
    CudaParts *parts = cuda_parts();
    if (parts->blas)
        return;
    pthread_once(&loaded, load);
    parts->blas = allocate(1, sizeof *parts->blas);
    cublasStatus_t status = blas.create(&parts->blas->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        cuda_library_failed("cuBLAS", blas.words(status));
    cublasHandle_t handle = parts->blas->handle;
    CUBLAS(blas.set_stream(handle, cuda_stream()));
    // Otherwise cuBLAS would allocate memory in the middle of a step.
    CUBLAS(blas.set_workspace(handle, cuda_allocate(WORKSPACE_BYTES), WORKSPACE_BYTES));
}

void cuda_matrix_multiply(Transposed transposed, int rows, int columns, int inner, const void *a,
                          const void *b, float *c)
{
    static const float one = 1, zero = 0;
    cudaDataType type = image_element() == ELEMENT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasOperation_t a_as = transposed == TRANSPOSED_A ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b_as = transposed == TRANSPOSED_B ? CUBLAS_OP_T : CUBLAS_OP_N;
    // cuBLAS is column-major, so it computes the transpose in the same memory: c' = b' a'.
    CUBLAS(blas.multiply(cuda_parts()->blas->handle, b_as, a_as, columns, rows, inner, &one, b,
                         type, b_as == CUBLAS_OP_T ? inner : columns, a, type,
                         a_as == CUBLAS_OP_T ? rows : inner, &zero, c, CUDA_R_32F, columns,
                         may_use_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT));
}
