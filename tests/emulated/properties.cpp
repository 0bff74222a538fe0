// What a program may ask about devices and errors.

#include <cstdio>
#include <cstdlib>
#include "machine.h"

using namespace emulated;

// One machine's devices differ in the bus, all else is equal.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    ENTER();
    const Device *d = visible_device(device);
    if (!d)
        return refuse(cudaErrorInvalidDevice, "cudaGetDeviceProperties(%d)", device);
    *p = {};
    snprintf(p->name, sizeof p->name, "Emulated GPU %d", d->index);
    snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "emulated-%d", d->index);
    const char *capability = getenv("EMULATED_CAPABILITY");
    if (!capability || sscanf(capability, "%d.%d", &p->major, &p->minor) != 2)
        p->major = 9;
    p->totalGlobalMem = d->bytes;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->multiProcessorCount = 4;
    p->maxThreadsPerMultiProcessor = 2048;
    p->l2CacheSize = 1 << 20;
    p->pciBusID = d->index + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    const std::map<cudaDeviceAttr, int> values = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(p.sharedMemPerBlock)},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(p.sharedMemPerBlockOptin)},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
    };
    auto found = values.find(attribute);
    if (found == values.end())
        return refuse(cudaErrorInvalidValue, "cudaDeviceGetAttribute: attribute %d", attribute);
    *value = found->second;
    return cudaSuccess;
}

// ---- Errors.

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &entry : errors)
        if (entry.error == error)
            return entry.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &entry : errors)
        if (entry.error == error)
            return entry.text;
    return "unrecognized error code";
}
