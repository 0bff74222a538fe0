// What the stand-in promises (README.md): devices, refusals, barriers and shuffles, streams. Each
// case runs in a process of its own, with its own settings, and says how that process must end.
// test_libraries.cpp holds the libraries against plain loops.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>
#include "test_emulated.h"

// ---- Devices.

static void no_device()
{
    int count = 5;
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
    EXPECT(cudaGetLastError() == cudaErrorNoDevice && cudaGetLastError() == cudaSuccess);
    void *memory;
    EXPECT(cudaMalloc(&memory, 4) == cudaErrorNoDevice);
}

static void no_driver()
{
    int count = 5;
    EXPECT(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver && count == 0);
}

static void renumbered_devices() // CUDA_VISIBLE_DEVICES=2,0,9,1 of 3
{
    int count, device;
    cudaDeviceProp first, second;
    EXPECT(cudaGetDeviceCount(&count) == cudaSuccess && count == 2);
    EXPECT(cudaGetDeviceProperties(&first, 0) == cudaSuccess);
    EXPECT(cudaGetDeviceProperties(&second, 1) == cudaSuccess);
    EXPECT(first.pciBusID == 3 && second.pciBusID == 1);
    EXPECT(memcmp(&first.uuid, &second.uuid, sizeof first.uuid) != 0);
    EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice && cudaSetDevice(-1) != cudaSuccess);
    EXPECT(cudaSetDevice(1) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess && device == 1);
    char *memory;
    EXPECT(cudaMalloc(&memory, 1000) == cudaSuccess);
    EXPECT(emulated_usage(0).bytes == 1024 && emulated_usage(2).bytes == 0);
    EXPECT(cudaFree(memory) == cudaSuccess && emulated_usage(0).peak == 1024);
}

// ---- Memory.

static void memory_runs_out() // EMULATED_MEMORY=1048576
{
    void *a, *b;
    EXPECT(cudaMalloc(&a, 600000) == cudaSuccess);
    EXPECT(cudaMalloc(&b, 600000) == cudaErrorMemoryAllocation && b == nullptr);
    EXPECT(cudaFree(a) == cudaSuccess && cudaMalloc(&b, 600000) == cudaSuccess);
    size_t available, total;
    EXPECT(cudaMemGetInfo(&available, &total) == cudaSuccess);
    EXPECT(total == 1048576 && available == total - 600064);
    emulated_fail_allocation(1);
    EXPECT(cudaMalloc(&a, 4) == cudaSuccess && cudaMalloc(&a, 4) == cudaErrorMemoryAllocation);
    EXPECT(cudaMalloc(&a, 4) == cudaSuccess);
}

static void memory_says_whose_it_is() // EMULATED_DEVICES=2
{
    char *memory, *pinned, own;
    cudaPointerAttributes a;
    EXPECT(cudaSetDevice(1) == cudaSuccess && cudaMalloc(&memory, 100) == cudaSuccess);
    EXPECT(cudaMallocHost(&pinned, 100) == cudaSuccess && cudaSetDevice(0) == cudaSuccess);
    EXPECT(cudaPointerGetAttributes(&a, memory + 99) == cudaSuccess);
    EXPECT(a.type == cudaMemoryTypeDevice && a.device == 1 && a.devicePointer == memory + 99);
    EXPECT(cudaPointerGetAttributes(&a, pinned + 99) == cudaSuccess);
    EXPECT(a.type == cudaMemoryTypeHost && a.hostPointer == pinned + 99);
    EXPECT(cudaPointerGetAttributes(&a, &own) == cudaSuccess);
    EXPECT(a.type == cudaMemoryTypeUnregistered && a.devicePointer == nullptr);
    EXPECT(cudaFree(memory) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
    EXPECT(cudaPointerGetAttributes(&a, memory) == cudaSuccess);
    EXPECT(a.type == cudaMemoryTypeUnregistered);
}

static void third_allocation_fails() // EMULATED_FAIL_ALLOCATION=3
{
    void *memory;
    for (int i = 1; i <= 4; i++)
        EXPECT((cudaMalloc(&memory, 4) == cudaSuccess) == (i != 3));
    emulated_fail_allocation(1);
    for (int i = 1; i <= 3; i++) {
        EXPECT((cudaMallocHost(&memory, 4) == cudaSuccess) == (i != 2));
        EXPECT(cudaFreeHost(memory) == cudaSuccess);
    }
}

static void usage_is_counted()
{
    cudaStream_t stream;
    cudaEvent_t event;
    void *memory, *host;
    float value = 0;
    EXPECT(cudaStreamCreate(&stream) == cudaSuccess && cudaEventCreate(&event) == cudaSuccess);
    EXPECT(cudaMalloc(&memory, 4) == cudaSuccess && cudaMallocHost(&host, 4) == cudaSuccess);
    EXPECT(cudaMemcpyAsync(memory, host, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    EXPECT(cudaEventRecord(event, stream) == cudaSuccess);
    EXPECT(cudaEventSynchronize(event) == cudaSuccess && emulated_usage(0).waits == 0);
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess && emulated_usage(0).waits == 1);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && emulated_usage(0).waits == 2);
    EXPECT(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(emulated_usage(0).waits == 3 && emulated_usage(0).frees == 0);
    EXPECT(cudaFree(memory) == cudaSuccess && cudaFreeHost(host) == cudaSuccess);
    EXPECT(emulated_usage(0).frees == 1 && emulated_usage(0).host_allocations == 2);
}

static void foreign_pointers()
{
    std::vector<float> host(256);
    float *device = allocate<float>(256), *freed = allocate<float>(64);
    EXPECT(cudaFree(freed) == cudaSuccess && cudaFree(nullptr) == cudaSuccess);
    EXPECT(cudaFree(freed) == cudaErrorInvalidValue);
    EXPECT(cudaFree(device + 1) == cudaErrorInvalidValue);
    EXPECT(cudaFree(host.data()) == cudaErrorInvalidValue);
    EXPECT(cudaFreeHost(host.data()) == cudaErrorInvalidValue);
    auto copy = [&](const void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
        return cudaMemcpy(const_cast<void *>(to), from, bytes, kind);
    };
    EXPECT(copy(device, host.data(), 1024, cudaMemcpyHostToDevice) == cudaSuccess);
    EXPECT(copy(host.data(), device, 1024, cudaMemcpyDefault) == cudaSuccess);
    EXPECT(copy(host.data(), device, 1028, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(copy(device + 250, host.data(), 28, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(copy(host.data(), device, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(copy(host.data(), host.data(), 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(copy(freed, host.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    EXPECT(cudaMemset(host.data(), 0, 4) == cudaErrorInvalidValue);
    EXPECT(cudaMemset(device, 0, 2000) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
}

static void fresh_memory_is_nan()
{
    float *device = allocate<float>(3), host[3];
    EXPECT(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(host[0] != host[0] && host[2] != host[2]);
}

static void other_device() // EMULATED_DEVICES=2
{
    float *memory = allocate<float>(16), host[16] = {};
    cudaStream_t stream;
    cudaEvent_t event;
    EXPECT(cudaStreamCreate(&stream) == cudaSuccess && cudaEventCreate(&event) == cudaSuccess);
    EXPECT(cudaSetDevice(1) == cudaSuccess);
    EXPECT(cudaMemcpy(host, memory, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    float *own = allocate<float>(16);
    EXPECT(cudaMemcpyPeerAsync(own, 1, memory, 0, 64, nullptr) == cudaSuccess);
    EXPECT(cudaMemcpyPeerAsync(own, 0, memory, 0, 64, nullptr) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpyPeerAsync(own, 1, memory, 2, 64, nullptr) == cudaErrorInvalidDevice);
    EXPECT(cudaMemcpyPeerAsync(own, 1, memory, 0, 65, nullptr) == cudaErrorInvalidValue);
    EXPECT(cudaMemsetAsync(own, 0, 4, stream) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord(event, nullptr) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    EXPECT(emulated_usage(0).allocations == 1 && emulated_usage(1).allocations == 1);
}

static __global__ void put(float *to, float value)
{
    to[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static void kernel_on_other_device() // EMULATED_DEVICES=2
{
    float *memory = allocate<float>(16);
    cudaSetDevice(1);
    LAUNCH(put, 1, 16, 0, nullptr, memory, 1.0f);
}

static void host_follows_pointer()
{
    float *memory = allocate<float>(16);
    memory[3] = 1;
}

static void write_behind_the_end()
{
    float *memory = allocate<float>(16);
    LAUNCH(put, 1, 17, 0, nullptr, memory, 1.0f);
    cudaFree(memory);
}

// ---- Launches.

static __global__ void shared_sum(const float *from, float *to)
{
    SHARED_ARRAY(float, values);
    unsigned i = threadIdx.x;
    values[i] = from[blockIdx.x * blockDim.x + i];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (i < half)
            values[i] += values[i + half];
        __syncthreads();
    }
    if (i == 0)
        to[blockIdx.x] = values[0];
}

static void launches()
{
    float *memory = allocate<float>(2048);
    auto result = [&](dim3 grid, dim3 block, size_t shared) {
        cudaGetLastError();
        LAUNCH(put, grid, block, shared, nullptr, memory, 3.0f);
        return cudaGetLastError();
    };
    EXPECT(result(2, 1024, 0) == cudaSuccess && read(memory, 2048)[2047] == 3);
    EXPECT(result(1, 1025, 0) == cudaErrorInvalidConfiguration);
    EXPECT(result(1, dim3(32, 33), 0) == cudaErrorInvalidConfiguration);
    EXPECT(result(1, dim3(1, 1, 128), 0) == cudaErrorInvalidConfiguration);
    EXPECT(result(0, 32, 0) == cudaErrorInvalidConfiguration);
    EXPECT(result(dim3(1, 65536), 1, 0) == cudaErrorInvalidConfiguration);
    EXPECT(result(1, 32, 48 << 10) == cudaSuccess);
    EXPECT(result(1, 32, (48 << 10) + 1) == cudaErrorInvalidConfiguration);
    auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    EXPECT(cudaFuncSetAttribute(put, most, 228 << 10) == cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(put, most, 100 << 10) == cudaSuccess);
    EXPECT(result(1, 32, 100 << 10) == cudaSuccess);

    std::vector<float> values(3 * 256);
    for (size_t i = 0; i < values.size(); i++)
        values[i] = static_cast<float>(i % 256 + 1000 * (i / 256));
    float *from = upload(values), *to = allocate<float>(3);
    LAUNCH(shared_sum, 3, 256, 256 * sizeof(float), nullptr, from, to);
    for (size_t b = 0; b < 3; b++)
        EXPECT(read(to, 3)[b] == 255 * 128 + 256000 * static_cast<float>(b));
}

static __global__ void warps(int *to, int count)
{
    int i = static_cast<int>(threadIdx.x + blockDim.x * threadIdx.y), lane = i % 32, value = i;
    for (int lanes = 16; lanes > 0; lanes /= 2)
        value += __shfl_xor_sync(~0u, value, lanes);
    to[i] = value; // the sum of the warp
    to[count + i] = __shfl_down_sync(~0u, i, 3);
    to[2 * count + i] = __shfl_sync(~0u, i, 5, 8);
    to[3 * count + i] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
    unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
    double other = 0;
    for (int turn = 0; turn < (lane < 16 ? 1 : 3); turn++) // halves need not go together
        other = __shfl_up_sync(half, 0.5 + i, 1, 16);
    to[4 * count + i] = static_cast<int>(2 * other);
}

static void shuffles()
{
    const int n = 96;
    int *memory = allocate<int>(5 * n);
    LAUNCH(warps, 1, dim3(48, 2), 0, nullptr, memory, n);
    std::vector<int> result = read(memory, 5 * n);
    for (int i = 0; i < n; i++) {
        auto at = [&](int row) { return result[static_cast<size_t>(row * n + i)]; };
        int lane = i % 32, first = i - lane;
        EXPECT(at(0) == 32 * first + 496);
        EXPECT(at(1) == (lane < 29 ? i + 3 : i));
        EXPECT(at(2) == i / 8 * 8 + 5);
        EXPECT(at(3) == 0x49249249);
        EXPECT(at(4) == 2 * (lane % 16 ? i - 1 : i) + 1);
    }
}

static __global__ void part_of_a_block_waits(unsigned count)
{
    if (threadIdx.x < count)
        __syncthreads();
}

static void barrier_not_reached()
{
    LAUNCH(part_of_a_block_waits, 2, 64, 0, nullptr, 40);
}

static __global__ void warp_with_a_gap(int *to)
{
    if (threadIdx.x != 5)
        to[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
}

static void lane_not_there()
{
    LAUNCH(warp_with_a_gap, 1, 32, 0, nullptr, allocate<int>(32));
}

// Lacks a barrier between writing and reading.
static __global__ void racy(int *to)
{
    __shared__ int values[64];
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    to[threadIdx.x] = values[threadIdx.x / 2];
    values[threadIdx.x] = -1;
}

// Lacks the second barrier.
static __global__ void racy_later(int *to)
{
    __shared__ int values[64];
    __syncthreads();
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    to[threadIdx.x] = values[threadIdx.x / 2];
    values[threadIdx.x] = -1;
}

static void race_shows() // EMULATED_ORDER=backward
{
    int *memory = allocate<int>(64);
    LAUNCH(racy, 1, 64, 0, nullptr, memory);
    EXPECT(read(memory, 64)[63] != 31);
    LAUNCH(racy_later, 1, 64, 0, nullptr, memory);
    EXPECT(read(memory, 64)[63] != 31);
}

static __global__ void count_up(int *total, float *sum)
{
    atomicAdd(total, 1);
    atomicAdd(sum, 0.5f);
}

static void atomics()
{
    int *total = upload(std::vector<int>{0});
    float *sum = upload(std::vector<float>{0});
    LAUNCH(count_up, dim3(2, 3), 100, 0, nullptr, total, sum);
    EXPECT(read(total, 1)[0] == 600 && read(sum, 1)[0] == 300);
}

// ---- Streams, with EMULATED_STREAMS=lazy.

static void missing_wait()
{
    float *memory = upload(std::vector<float>(64, 1.0f)), *pinned;
    EXPECT(cudaMallocHost(&pinned, 64 * sizeof(float)) == cudaSuccess);
    cudaStream_t a, b;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    LAUNCH(put, 1, 64, 0, a, memory, 2.0f);
    cudaMemcpyAsync(pinned, memory, 256, cudaMemcpyDeviceToHost, b);
    cudaStreamSynchronize(b);
    EXPECT(pinned[0] == 1); // b did not wait for a
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
    cudaMemcpyAsync(pinned, memory, 256, cudaMemcpyDeviceToHost, b);
    EXPECT(pinned[0] == 1); // nor the host for b
    cudaStreamSynchronize(b);
    EXPECT(pinned[0] == 2);
    LAUNCH(put, 1, 64, 0, a, memory, 3.0f);
    EXPECT(read(memory, 1)[0] == 2); // the default stream does not wait for such a one
    cudaDeviceSynchronize();
    EXPECT(read(memory, 1)[0] == 3);
    cudaFreeHost(pinned);
}

static void runs_ahead() // EMULATED_STREAMS=race
{
    float *memory = upload(std::vector<float>(64, 1.0f)), *copy = allocate<float>(64);
    cudaStream_t a, b;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    LAUNCH(put, 1, 64, 0, a, memory, 2.0f);
    cudaMemcpyAsync(copy, memory, 256, cudaMemcpyDeviceToDevice, b);
    cudaEventRecord(event, b);
    cudaStreamWaitEvent(a, event, 0);
    cudaStreamSynchronize(a);
    EXPECT(read(copy, 1)[0] == 1); // b did not wait for a
    LAUNCH(put, 1, 64, 0, a, memory, 3.0f);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);
    cudaMemcpyAsync(copy, memory, 256, cudaMemcpyDeviceToDevice, b);
    EXPECT(read(copy, 1)[0] == 3);
}

static void default_stream_waits()
{
    float *memory = upload(std::vector<float>(64, 1.0f));
    cudaStream_t a;
    cudaStreamCreate(&a);
    LAUNCH(put, 1, 64, 0, a, memory, 2.0f);
    EXPECT(read(memory, 1)[0] == 2);
    cudaMemsetAsync(memory, 0, 256, nullptr);
    LAUNCH(put, 1, 1, 0, a, memory, 5.0f);
    cudaStreamSynchronize(a);
    EXPECT(read(memory, 2)[0] == 5 && read(memory, 2)[1] == 0);
}

static void events_take_time()
{
    cudaEvent_t begin, end;
    float *memory = allocate<float>(1 << 20), elapsed = -1;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    EXPECT(cudaEventElapsedTime(&elapsed, begin, end) == cudaErrorInvalidResourceHandle);
    cudaEventRecord(begin, nullptr);
    LAUNCH(put, 1024, 1024, 0, nullptr, memory, 2.0f);
    cudaEventRecord(end, nullptr);
    EXPECT(cudaEventSynchronize(end) == cudaSuccess);
    EXPECT(cudaEventElapsedTime(&elapsed, begin, end) == cudaSuccess && elapsed > 0);
}

static __global__ void add_one(float *to)
{
    to[threadIdx.x] += 1;
}

static void graphs()
{
    float *memory = upload(std::vector<float>(64, 1.0f));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorInvalidValue);
    // The first use of a kernel loads its code, which can't be recorded.
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    LAUNCH(add_one, 1, 64, 0, stream, memory);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    LAUNCH(add_one, 1, 64, 0, stream, memory);
    LAUNCH(add_one, 1, 64, 0, stream, memory);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    cudaStreamSynchronize(stream);
    EXPECT(read(memory, 1)[0] == 1); // nothing of it was done
    EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    EXPECT(cudaGraphDestroy(graph) == cudaSuccess);
    for (int i = 0; i < 3; i++)
        EXPECT(cudaGraphLaunch(exec, stream) == cudaSuccess);
    cudaStreamSynchronize(stream);
    EXPECT(read(memory, 64)[63] == 7 && emulated_usage(0).plays == 3);
    EXPECT(cudaGraphExecDestroy(exec) == cudaSuccess);

    float *other, host[1] = {0};
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    EXPECT(cudaMalloc(&other, 4) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaMemcpyAsync(host, memory, 4, cudaMemcpyDeviceToHost, stream) ==
           cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    EXPECT(cudaMalloc(&other, 4) == cudaSuccess);
}

// ---- The cases.

struct Case {
    const char *name;
    void (*run)();
    const char *settings; // NAME=VALUE NAME=VALUE
    const char *words;    // of the line with which the process ends; NULL: it ends well
};

static const Case cases[] = {
    {"no device", no_device, "EMULATED_DEVICES=0", nullptr},
    {"none visible", no_device, "CUDA_VISIBLE_DEVICES=", nullptr},
    {"one visible that is not there", no_device, "CUDA_VISIBLE_DEVICES=7", nullptr},
    {"no driver", no_driver, "EMULATED_DRIVER=0", nullptr},
    {"renumbered devices", renumbered_devices, "EMULATED_DEVICES=3 CUDA_VISIBLE_DEVICES=2,0,9,1",
     nullptr},
    {"memory says whose it is", memory_says_whose_it_is, "EMULATED_DEVICES=2", nullptr},
    {"memory runs out", memory_runs_out, "EMULATED_MEMORY=1048576", nullptr},
    {"the third allocation fails", third_allocation_fails, "EMULATED_FAIL_ALLOCATION=3", nullptr},
    {"counting", usage_is_counted, "", nullptr},
    {"foreign pointers", foreign_pointers, "", nullptr},
    {"fresh memory", fresh_memory_is_nan, "", nullptr},
    {"another device", other_device, "EMULATED_DEVICES=2", nullptr},
    {"a kernel on another device", kernel_on_other_device, "EMULATED_DEVICES=2",
     "work of another device touches memory of device 0"},
    {"the host follows a pointer", host_follows_pointer, "",
     "host code touches memory of device 0"},
    {"a write behind the end", write_behind_the_end, "", "something wrote 0 bytes behind"},
    {"launches", launches, "", nullptr},
    {"launches, backward", launches, "EMULATED_ORDER=backward", nullptr},
    {"launches, lazy", launches, "EMULATED_STREAMS=lazy", nullptr},
    {"shuffles", shuffles, "", nullptr},
    {"shuffles, backward", shuffles, "EMULATED_ORDER=backward", nullptr},
    {"a barrier that is not reached", barrier_not_reached, "",
     "40 of 64 threads of block (0, 0, 0) wait at a barrier"},
    {"a lane that is not there", lane_not_there, "", "a shuffle reads from lane 5"},
    {"a race", race_shows, "EMULATED_ORDER=backward", nullptr},
    {"atomics", atomics, "", nullptr},
    {"a missing wait", missing_wait, "EMULATED_STREAMS=lazy", nullptr},
    {"a stream that runs ahead", runs_ahead, "EMULATED_STREAMS=race", nullptr},
    {"the default stream", default_stream_waits, "EMULATED_STREAMS=lazy", nullptr},
    {"events", events_take_time, "EMULATED_STREAMS=lazy", nullptr},
    {"graphs", graphs, "", nullptr},
    {"graphs, lazy", graphs, "EMULATED_STREAMS=lazy", nullptr},
    {"matrices", test_matrices, "", nullptr},
    {"convolutions", test_convolutions, "", nullptr},
    {"convolutions, lazy", test_convolutions, "EMULATED_STREAMS=lazy", nullptr},
    {"what cuDNN refuses", test_cudnn_refusals, "EMULATED_DEVICES=2", nullptr},
};

// In the child: never returns.
[[noreturn]] static void run_child(const Case &c, FILE *errors)
{
    dup2(fileno(errors), STDERR_FILENO);
    std::string settings = c.settings;
    for (char *word = strtok(&settings[0], " "); word; word = strtok(nullptr, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
    c.run();
    exit(0);
}

static bool run_case(const Case &c)
{
    FILE *errors = tmpfile();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_child(c, errors);
    int status = -1;
    waitpid(child, &status, 0);
    std::string text;
    rewind(errors);
    for (int letter; (letter = fgetc(errors)) != EOF;)
        text += static_cast<char>(letter);
    fclose(errors);
    bool ended = WIFEXITED(status) && WEXITSTATUS(status) == (c.words ? 70 : 0);
    // The address sanitizer is quicker to see a write behind the end.
    bool sanitized = c.words && text.find("AddressSanitizer: use-after-poison") != text.npos;
    bool good = (ended && (!c.words || text.find(c.words) != text.npos)) || sanitized;
    if (!good)
        printf("%s: status %d, and on standard error:\n%s", c.name, status, text.c_str());
    return good;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "nccl") == 0)
        return test_nccl(argc, argv);
    int failures = 0;
    for (const Case &c : cases)
        failures += !run_case(c);
    printf("%zu cases, %d failed\n", sizeof cases / sizeof *cases, failures);
    return failures > 0;
}
