// cuDNN's handle and descriptors.

#include "cudnn_types.h"

using namespace emulated;

// Never destroyed, as the streams.
std::set<cudnnContext *> &emulated::cudnn_handles = *new std::set<cudnnContext *>;

cudnnStatus_t emulated::bad(cudnnStatus_t status, const char *caller, const char *why)
{
    complain("%s: %s", caller, why);
    return status;
}

cudnnStatus_t emulated::start_work(const char *caller, cudnnHandle_t handle,
                                   std::function<void()> work)
{
    current()->usage.launches++;
    cudaError_t error = submit(caller, handle->stream, std::move(work));
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

static bool to_type(cudnnDataType_t type, Type *result)
{
    *result = type == CUDNN_DATA_BFLOAT16 ? Type::bfloat16 : Type::float32;
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_FLOAT;
}

// ---- The library.

size_t cudnnGetVersion()
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static const std::map<cudnnStatus_t, const char *> names = {
        {CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
        {CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
        {CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
        {CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
        {CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
        {CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
        {CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"},
        {CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
        {CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE"},
        {CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "CUDNN_STATUS_NOT_SUPPORTED_LAYOUT"},
        {CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"},
    };
    auto found = names.find(status);
    return found == names.end() ? "CUDNN_UNKNOWN_STATUS" : found->second;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!library_starts())
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{{current(), nullptr}};
    cudnn_handles.insert(*handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    ENTER_CUDNN(handle);
    finish(handle->device);
    cudnn_handles.erase(handle);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    ENTER_CUDNN(handle);
    if (!stream_of(handle->device, stream))
        return bad(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, __func__,
                   "the stream is not of the handle's device");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

// ---- Descriptors.

#define DESCRIPTOR(Name)                                                                           \
    cudnnStatus_t cudnnCreate##Name##Descriptor(cudnn##Name##Descriptor_t *desc)                   \
    {                                                                                              \
        *desc = new cudnn##Name##Struct{};                                                         \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }                                                                                              \
    cudnnStatus_t cudnnDestroy##Name##Descriptor(cudnn##Name##Descriptor_t desc)                   \
    {                                                                                              \
        delete desc;                                                                               \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }

DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t desc, cudnnDataType_t type,
                                           int n, int c, int h, int w, int n_stride, int c_stride,
                                           int h_stride, int w_stride)
{
    Tensor t = {true, Type::float32, n, c, h, w, {n_stride, c_stride, h_stride, w_stride}};
    if (!desc || !to_type(type, &t.type))
        return bad(CUDNN_STATUS_NOT_SUPPORTED, __func__, "float and bfloat16 are there");
    if (n < 1 || c < 1 || h < 1 || w < 1 || n_stride < 1 || c_stride < 1 || h_stride < 1 ||
        w_stride < 1)
        return bad(CUDNN_STATUS_BAD_PARAM, __func__, "a dimension or stride is below 1");
    *desc = t;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    bool nhwc = format == CUDNN_TENSOR_NHWC;
    if (static_cast<double>(n) * c * h * w > 2147483647)
        return bad(CUDNN_STATUS_NOT_SUPPORTED, __func__, "more elements than an int counts");
    return cudnnSetTensor4dDescriptorEx(desc, type, n, c, h, w, c * h * w, nhwc ? 1 : h * w,
                                        nhwc ? w * c : w, nhwc ? c : 1);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    Filter f = {true, Type::float32, format == CUDNN_TENSOR_NHWC, k, c, h, w};
    if (!desc || !to_type(type, &f.type))
        return bad(CUDNN_STATUS_NOT_SUPPORTED, __func__, "float and bfloat16 are there");
    if (k < 1 || c < 1 || h < 1 || w < 1)
        return bad(CUDNN_STATUS_BAD_PARAM, __func__, "a dimension is below 1");
    *desc = f;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    if (!desc || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1)
        return bad(CUDNN_STATUS_BAD_PARAM, __func__, "a padding or stride is too small");
    if (dilation_h != 1 || dilation_w != 1 || mode != CUDNN_CROSS_CORRELATION ||
        compute != CUDNN_DATA_FLOAT)
        return bad(CUDNN_STATUS_NOT_SUPPORTED, __func__,
                   "cross-correlation in float without dilation is there");
    *desc = {true, pad_h, pad_w, stride_h, stride_w, CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, cudnnMathType_t math)
{
    desc->math = math;
    return CUDNN_STATUS_SUCCESS;
}
