// Inside the stand-in: the simulated devices and their memory, and how work reaches them. What the
// libraries (cuDNN, cuBLAS, NCCL, the grid runner) need of the runtime.

#ifndef EMULATED_MACHINE_H
#define EMULATED_MACHINE_H

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include "cuda_runtime.h"
#include "emulated.h"

namespace emulated
{

struct Device {
    int index;      // on the machine
    uint8_t *base;  // of its address range; NULL before its first allocation
    size_t bytes;   // of memory that it has
    size_t reached; // bytes from base that were ever allocated
    int open;       // how many Access objects live
    std::map<uint8_t *, size_t> live, freed;
    EmulatedUsage usage;
    std::set<int> peers; // the devices whose memory it reaches directly
};

// Every call from outside holds it.
extern std::recursive_mutex lock;

// The environment, read once; an error where there is no driver or no device.
cudaError_t start();
// The device that this thread works on, one that the program sees, and one of the machine; NULL
// where there is none.
Device *current();
Device *visible_device(int number);
int visible_count();
Device *machine_device(int index);

// Says on standard error why a call is refused.
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Notes an error for cudaGetLastError and returns it; refuse() also says why.
cudaError_t fail(cudaError_t error);
cudaError_t refuse(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// What would hang or crash a GPU.
[[noreturn]] void end_program(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Why `bytes` bytes at `memory` are not all in one allocation of the device; empty where they are.
std::string why_not(const Device &device, const void *memory, size_t bytes);
// The same for memory of the host.
std::string why_not_host(const void *memory, size_t bytes);
bool pinned(const void *memory);
bool on_any_device(const void *memory);

// Device memory can be touched only while one of these lives, so that a host that follows a
// pointer of the device is caught, as on a real machine.
class Access
{
  public:
    explicit Access(Device *device);
    ~Access();
    Access(const Access &) = delete;
    Access &operator=(const Access &) = delete;

  private:
    Device *device;
};

// ---- Work (streams.cpp).

// Runs `work` in the order of the stream, which must be of the current device: at once, or later
// where EMULATED_STREAMS says so. `caller` is for the error's line.
cudaError_t submit(const char *caller, cudaStream_t stream, std::function<void()> work);
// Whether a library finds what it needs; counts as an allocation.
bool library_starts();
// Where this thread records a stream: what a recording can't hold spoils it, and is refused.
cudaError_t spoils_recording(const char *caller);
// The first use of a kernel, or of a library's handle for something, loads code: that can't be
// recorded.
cudaError_t first_use(const char *caller, std::pair<const void *, int> what);
// Whether this thread records a stream.
bool is_recording();
// A launch that is to fail on the device, when it runs (EMULATED_FAIL_LAUNCH): from then on every
// call fails.
void count_launch();
// Runs all work of all streams of a device.
void finish(const Device *device);
// True where `stream` is one of the device's own, or its default stream.
bool stream_of(const Device *device, cudaStream_t stream);

} // namespace emulated

// How every call of the runtime begins.
#define ENTER()                                                                                    \
    std::lock_guard<std::recursive_mutex> guard(emulated::lock);                                   \
    if (cudaError_t none = emulated::start())                                                      \
    return emulated::fail(none)

#endif
