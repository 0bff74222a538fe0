// Inside the stand-in: what the files of cuDNN share. Descriptors, and where an element lies.

#ifndef EMULATED_CUDNN_TYPES_H
#define EMULATED_CUDNN_TYPES_H

#include <cudnn.h>
#include "elements.h"

struct cudnnContext : emulated::Handle {
};

struct cudnnTensorStruct {
    bool set;
    emulated::Type type;
    int n, c, h, w;
    int strides[4]; // of n, c, h, w, in elements
};

struct cudnnFilterStruct {
    bool set;
    emulated::Type type;
    bool nhwc;
    int k, c, h, w;
};

struct cudnnConvolutionStruct {
    bool set;
    int pad_h, pad_w, stride_h, stride_w;
    cudnnMathType_t math;
};

namespace emulated
{
extern std::set<cudnnContext *> &cudnn_handles;

using Tensor = cudnnTensorStruct;
using Filter = cudnnFilterStruct;

inline size_t place(const Tensor &t, int n, int c, int h, int w)
{
    return static_cast<size_t>(n) * static_cast<size_t>(t.strides[0]) +
           static_cast<size_t>(c) * static_cast<size_t>(t.strides[1]) +
           static_cast<size_t>(h) * static_cast<size_t>(t.strides[2]) +
           static_cast<size_t>(w) * static_cast<size_t>(t.strides[3]);
}

inline size_t bytes_of(const Tensor &t)
{
    return (place(t, t.n - 1, t.c - 1, t.h - 1, t.w - 1) + 1) * size_of(t.type);
}

inline int output_size(int in, int pad, int window, int stride)
{
    return (in + 2 * pad - window) / stride + 1;
}

// alpha and beta lie in the host's memory.
inline float factor(const void *memory)
{
    return *static_cast<const float *>(memory);
}

// Says why a call is refused, and returns the status.
cudnnStatus_t bad(cudnnStatus_t status, const char *caller, const char *why);
// Puts work on the handle's stream.
cudnnStatus_t start_work(const char *caller, cudnnHandle_t handle, std::function<void()> work);
} // namespace emulated

// How a call with a handle begins.
#define ENTER_CUDNN(handle)                                                                        \
    std::lock_guard<std::recursive_mutex> guard(emulated::lock);                                   \
    if (!emulated::usable(__func__, emulated::cudnn_handles, handle))                              \
    return CUDNN_STATUS_BAD_PARAM

#endif
