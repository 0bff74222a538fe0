// The simulated devices: how many there are, which of them the program sees, their memory, and what
// is refused. Each device has an address range of its own, which is closed while no work runs, so
// that a host which follows a pointer of the device ends as on a real machine.

#include "machine.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace emulated
{

std::recursive_mutex lock;

namespace
{
constexpr size_t alignment = 256; // as the real cudaMalloc
constexpr size_t margin = 256;    // behind each allocation, to see who writes beyond its end
constexpr uint8_t margin_byte = 0xcd;
constexpr size_t page = 2 << 20;   // a large one
constexpr size_t filled = 1 << 20; // bytes of NaNs at the beginning and at the end of an allocation

struct Machine {
    bool read, driver, host_access;
    std::vector<Device> devices;
    std::vector<int> visible;
    std::map<uint8_t *, size_t> pinned;
    long fail_at; // the allocation that is to find no memory; 0: none
    long allocations;
    long fail_launch; // the launch that is to fail; 0: none
    long launches;
    cudaError_t sticky; // what every call returns after it
    pid_t process;
    struct sigaction old_handler;
} machine;

thread_local int current_number;
thread_local cudaError_t last_error;

long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

// As the real one: the list ends at the first number that names no device.
std::vector<int> read_visible(int count)
{
    std::vector<int> visible;
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; !text && i < count; i++)
        visible.push_back(i);
    for (char *end; text && *text; text = *end == ',' ? end + 1 : "") {
        long number = strtol(text, &end, 10);
        if (end == text || number < 0 || number >= count)
            break;
        visible.push_back(static_cast<int>(number));
    }
    return visible;
}

// At the end of the process: what it did with each device, in one line for each.
void report()
{
    const char *path = getenv("EMULATED_REPORT");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    int file = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    for (const Device &d : machine.devices)
        if (file >= 0 && d.usage.context)
            dprintf(file,
                    "rank %s device %d peak %zu left %zu allocations %ld launches %ld copies %ld "
                    "frees %ld host %ld waits %ld staged %ld plays %ld\n",
                    rank ? rank : "0", d.index, d.usage.peak, d.usage.bytes, d.usage.allocations,
                    d.usage.launches, d.usage.copies, d.usage.frees, d.usage.host_allocations,
                    d.usage.waits, d.usage.staged, d.usage.plays);
    if (file >= 0)
        close(file);
}

// A fault in the address range of a device gets a line that says what it is.
void on_fault(int signal, siginfo_t *info, void *context)
{
    for (const Device &d : machine.devices) {
        auto *address = static_cast<uint8_t *>(info->si_addr);
        if (!d.base || address < d.base || address >= d.base + 2 * d.bytes)
            continue;
        int open = 0;
        for (const Device &other : machine.devices)
            open += other.open;
        end_program("%s touches memory of device %d, at %p",
                    open ? "work of another device" : "host code", d.index, info->si_addr);
    }
    sigaction(signal, &machine.old_handler, nullptr); // not ours: fault again
    (void)context;
}

void read_environment()
{
    machine.read = true;
    machine.driver = setting("EMULATED_DRIVER", 1) != 0;
    machine.host_access = setting("EMULATED_HOST_ACCESS", 0) != 0;
    machine.fail_at = setting("EMULATED_FAIL_ALLOCATION", 0);
    machine.fail_launch = setting("EMULATED_FAIL_LAUNCH", 0);
    machine.process = getpid();
    int count = static_cast<int>(setting("EMULATED_DEVICES", 1));
    auto bytes = static_cast<size_t>(setting("EMULATED_MEMORY", 1l << 30));
    for (int i = 0; i < count; i++)
        machine.devices.push_back(Device{i, nullptr, bytes, 0, 0, {}, {}, {}, {}});
    machine.visible = read_visible(count);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &machine.old_handler);
    atexit(report);
}

void vcomplain(const char *format, va_list arguments)
{
    char line[512];
    vsnprintf(line, sizeof line, format, arguments);
    fprintf(stderr, "emulated GPU: %s\n", line);
}
} // namespace

void complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vcomplain(format, arguments);
    va_end(arguments);
}

void end_program(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vcomplain(format, arguments);
    va_end(arguments);
    _exit(70); // no handlers: what runs at exit may need the device
}

cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t refuse(cudaError_t error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vcomplain(format, arguments);
    va_end(arguments);
    return fail(error);
}

cudaError_t start()
{
    if (!machine.read)
        read_environment();
    if (!machine.driver)
        return cudaErrorInsufficientDriver;
    if (machine.process != getpid()) // a child that was forked can't use its parent's
        return cudaErrorInitializationError;
    if (machine.sticky != cudaSuccess)
        return machine.sticky;
    return machine.visible.empty() ? cudaErrorNoDevice : cudaSuccess;
}

void count_launch()
{
    if (++machine.launches == machine.fail_launch)
        machine.sticky = cudaErrorIllegalAddress;
}

int visible_count()
{
    return static_cast<int>(machine.visible.size());
}

Device *visible_device(int number)
{
    if (start() != cudaSuccess || number < 0 || number >= visible_count())
        return nullptr;
    return &machine.devices[static_cast<size_t>(machine.visible[static_cast<size_t>(number)])];
}

Device *machine_device(int index)
{
    start();
    bool there = index >= 0 && index < static_cast<int>(machine.devices.size());
    return there ? &machine.devices[static_cast<size_t>(index)] : nullptr;
}

Device *current()
{
    return visible_device(current_number);
}

// ---- Memory.

static void protect(const Device *device, int protection)
{
    if (!machine.host_access && device->reached > 0)
        mprotect(device->base, device->reached, protection);
}

Access::Access(Device *device_) : device(device_)
{
    if (device->open++ == 0)
        protect(device, PROT_READ | PROT_WRITE);
}

Access::~Access()
{
    if (--device->open == 0)
        protect(device, PROT_NONE);
}

// The allocation that an address lies in, or NULL.
static const std::pair<uint8_t *const, size_t> *around(const std::map<uint8_t *, size_t> &blocks,
                                                       const void *memory)
{
    auto *address = static_cast<uint8_t *>(const_cast<void *>(memory));
    auto next = blocks.upper_bound(address);
    if (next == blocks.begin())
        return nullptr;
    auto block = std::prev(next);
    return address < block->first + block->second ? &*block : nullptr;
}

bool on_any_device(const void *memory)
{
    auto *address = static_cast<const uint8_t *>(memory);
    for (const Device &d : machine.devices)
        if (d.base && address >= d.base && address < d.base + 2 * d.bytes)
            return true;
    return false;
}

std::string why_not(const Device &device, const void *memory, size_t bytes)
{
    char text[160] = "";
    auto *address = static_cast<const uint8_t *>(memory);
    if (auto *block = around(device.live, memory)) {
        auto left = static_cast<size_t>(block->first + block->second - address);
        if (bytes > left)
            snprintf(text, sizeof text, "%zu bytes are meant, and %zu are left in this allocation",
                     bytes, left);
        return text;
    }
    if (bytes == 0)
        return text;
    for (const Device &other : machine.devices)
        if (&other != &device && around(other.live, memory))
            snprintf(text, sizeof text, "it is memory of device %d, and this is device %d",
                     other.index, device.index);
    if (!*text && around(device.freed, memory))
        snprintf(text, sizeof text, "it was freed");
    if (!*text)
        snprintf(text, sizeof text, memory ? "it is not memory of the device" : "it is NULL");
    return text;
}

std::string why_not_host(const void *memory, size_t bytes)
{
    if (on_any_device(memory))
        return "it is memory of a device";
    auto *address = static_cast<const uint8_t *>(memory);
    auto *block = around(machine.pinned, memory);
    if (block && address + bytes > block->first + block->second)
        return "the pinned memory is too short";
    return memory || bytes == 0 ? "" : "it is NULL";
}

bool pinned(const void *memory)
{
    return around(machine.pinned, memory) != nullptr;
}

// What an allocation takes of the device's memory, and of its address range.
static size_t rounded(size_t bytes)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

// The first gap that is large enough. The address range is twice the memory, so there nearly always
// is one; a real device can run out in this way, too.
static uint8_t *find_gap(const Device &device, size_t bytes)
{
    uint8_t *place = device.base;
    for (const auto &block : device.live) {
        if (place + bytes <= block.first)
            return place;
        place = block.first + rounded(block.second) + margin;
    }
    return place + bytes <= device.base + 2 * device.bytes ? place : nullptr;
}

// The address range, in large pages where the system has them: there are fewer to open and close.
static void reserve(Device &device)
{
    size_t bytes = 2 * device.bytes;
    int protection = machine.host_access ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *range =
        mmap(nullptr, bytes + page, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return;
    uintptr_t base = (reinterpret_cast<uintptr_t>(range) + page - 1) / page * page;
    device.base = reinterpret_cast<uint8_t *>(base);
    madvise(device.base, bytes, MADV_HUGEPAGE);
}

static uint8_t *take(Device &device, size_t bytes)
{
    device.usage.context = true;
    if (!device.base)
        reserve(device);
    size_t whole = rounded(bytes) + margin;
    uint8_t *place = device.base ? find_gap(device, whole) : nullptr;
    if (!place)
        return nullptr;
    size_t end = static_cast<size_t>(place - device.base) + whole;
    end = std::min((end + page - 1) / page * page, 2 * device.bytes);
    if (end > device.reached)
        device.reached = end;
    Access access(&device);
    ASAN_UNPOISON_MEMORY_REGION(place, whole);
    // Nothing may count on zeros; but large workspaces are mostly not used.
    memset(place, 0xff, bytes < filled ? bytes : filled);
    if (bytes > filled)
        memset(place + bytes - filled, 0xff, filled);
    memset(place + bytes, margin_byte, whole - bytes);
    ASAN_POISON_MEMORY_REGION(place + bytes, whole - bytes);
    return place;
}

static void give_back(Device &device, uint8_t *memory, size_t bytes)
{
    Access access(&device);
    size_t whole = rounded(bytes) + margin;
    ASAN_UNPOISON_MEMORY_REGION(memory, whole);
    for (size_t i = bytes; i < whole; i++)
        if (memory[i] != margin_byte)
            end_program("something wrote %zu bytes behind an allocation of %zu bytes", i - bytes,
                        bytes);
    auto first = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
    auto last = (reinterpret_cast<uintptr_t>(memory) + whole) / page * page;
    if (last > first)
        madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
    ASAN_POISON_MEMORY_REGION(memory, whole);
}

// Counts every attempt to allocate.
static bool wanted_to_fail()
{
    return ++machine.allocations == machine.fail_at;
}

bool library_starts()
{
    if (start() != cudaSuccess || wanted_to_fail())
        return false;
    current()->usage.allocations++;
    return true;
}

} // namespace emulated

using namespace emulated;

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaMalloc"))
        return error;
    Device &d = *current();
    *memory = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    size_t used = d.usage.bytes + rounded(bytes);
    uint8_t *place = wanted_to_fail() || used > d.bytes ? nullptr : take(d, bytes);
    if (!place)
        return fail(cudaErrorMemoryAllocation);
    d.live[place] = bytes;
    for (auto old = d.freed.lower_bound(place);
         old != d.freed.end() && old->first < place + rounded(bytes);)
        old = d.freed.erase(old);
    d.usage.bytes = used;
    d.usage.peak = used > d.usage.peak ? used : d.usage.peak;
    d.usage.allocations++;
    *memory = place;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaFree"))
        return error;
    if (!memory)
        return cudaSuccess;
    auto *place = static_cast<uint8_t *>(memory);
    for (Device &d : machine.devices) {
        auto block = d.live.find(place);
        if (block == d.live.end())
            continue;
        finish(&d);
        give_back(d, place, block->second);
        d.usage.bytes -= rounded(block->second);
        d.usage.frees++;
        d.freed[place] = block->second;
        d.live.erase(block);
        return cudaSuccess;
    }
    std::string why = why_not(*current(), memory, 1);
    return refuse(cudaErrorInvalidValue, "cudaFree(%p): %s", memory,
                  why.empty() ? "it is not the beginning of an allocation" : why.c_str());
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaMallocHost"))
        return error;
    bool fails = bytes && wanted_to_fail();
    *memory = bytes && !fails ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : nullptr;
    if (bytes && !*memory)
        return fail(cudaErrorMemoryAllocation);
    if (bytes)
        machine.pinned[static_cast<uint8_t *>(*memory)] = bytes;
    current()->usage.host_allocations++;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaFreeHost"))
        return error;
    if (memory && !machine.pinned.erase(static_cast<uint8_t *>(memory)))
        return refuse(cudaErrorInvalidValue, "cudaFreeHost(%p): it is not from cudaMallocHost",
                      memory);
    for (const Device &d : machine.devices)
        finish(&d);
    current()->usage.host_allocations++;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *memory)
{
    ENTER();
    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
    auto *place = const_cast<void *>(memory);
    for (size_t i = 0; i < machine.devices.size(); i++)
        if (around(machine.devices[i].live, memory))
            *attributes = {cudaMemoryTypeDevice, static_cast<int>(i), place, nullptr};
    if (around(machine.pinned, memory))
        *attributes = {cudaMemoryTypeHost, 0, place, place};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    ENTER();
    *total = current()->bytes;
    *available = *total - current()->usage.bytes;
    return cudaSuccess;
}

// ---- Devices.

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    ENTER();
    *count = visible_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER();
    if (!visible_device(device))
        return refuse(cudaErrorInvalidDevice, "cudaSetDevice(%d): there are %d", device,
                      visible_count());
    current_number = device;
    current()->usage.context = true; // since CUDA 12 it makes one
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER();
    *device = current_number;
    return cudaSuccess;
}

// EMULATED_PEERS=0: a machine whose devices can't reach each other.
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER();
    if (!visible_device(device) || !visible_device(peer))
        return refuse(cudaErrorInvalidDevice, "cudaDeviceCanAccessPeer: from %d to %d", device, peer);
    *can = device != peer && setting("EMULATED_PEERS", 1) != 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    int can = 0;
    if (cudaError_t error = cudaDeviceCanAccessPeer(&can, current_number, peer))
        return error;
    if (!can)
        return refuse(cudaErrorPeerAccessUnsupported, "cudaDeviceEnablePeerAccess(%d)", peer);
    visible_device(peer)->usage.context = true;
    bool before = !current()->peers.insert(visible_device(peer)->index).second;
    return before ? fail(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaDeviceSynchronize"))
        return error;
    current()->usage.waits++;
    finish(current());
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    start();
    *version = machine.driver ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// ---- Errors.

cudaError_t cudaGetLastError()
{
    cudaError_t error = machine.sticky != cudaSuccess ? machine.sticky : last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

// ---- For tests.

EmulatedUsage emulated_usage(int device)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    const Device *d = machine_device(device);
    return d ? d->usage : EmulatedUsage{};
}

void emulated_fail_allocation(int successes)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    start();
    machine.fail_at = successes < 0 ? 0 : machine.allocations + successes + 1;
}

// Open MPI's own answer is about the libraries it was built with; a test may want the other one.
extern "C" int MPIX_Query_cuda_support()
{
    return setting("EMULATED_CUDA_AWARE_MPI", 0) != 0;
}
