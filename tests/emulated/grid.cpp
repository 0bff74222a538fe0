// Runs a grid on the CPU: block after block, and the threads of a block as fibers of this thread. A
// fiber runs one thread of the block after another, as plain calls, until one of them waits at a
// barrier; then that thread keeps the fiber, and the next one gets another. So a kernel without
// barriers costs calls, and one with them a switch of stacks for every wait.

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>
#define HVDLAB_EMULATED
#include "machine.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
unsigned char *emulated::shared_memory;

namespace
{
constexpr size_t stack_bytes = 256 << 10, guard_bytes = 4096;
constexpr size_t shared_default = 48 << 10, shared_most = 227 << 10;

// ---- Fibers.

// A place where running can go on: a stack that is not running.
struct Context {
#ifdef __x86_64__
    void *stack_pointer;
#else
    ucontext_t registers;
#endif
    void *bottom; // of the stack; NULL for the thread's own
    size_t size;
    void *fake_stack; // the address sanitizer's
};

#ifdef __x86_64__
// ucontext makes a system call for every switch. What a call must keep goes on the stack.
extern "C" void emulated_switch(void **from, void *to);
asm(R"(
    .text
    .globl emulated_switch
    .type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulated_switch, .-emulated_switch
)");
#endif

Context scheduler; // the stack that launch() was called on

#ifdef WITH_ASAN
// Where a fiber goes on: the sanitizer says whose stack it comes from, which may be another thread's
// than the last time.
void arrive(void *fake_stack)
{
    const void *bottom;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &scheduler.size);
    scheduler.bottom = const_cast<void *>(bottom);
}
#endif

void switch_stacks(Context &from, Context &to)
{
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
#endif
#ifdef __x86_64__
    emulated_switch(&from.stack_pointer, to.stack_pointer);
#else
    swapcontext(&from.registers, &to.registers);
#endif
#ifdef WITH_ASAN
    if (&from == &scheduler)
        __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
    else
        arrive(from.fake_stack);
#endif
}

void fiber_main();

void fiber_entry()
{
#ifdef WITH_ASAN
    arrive(nullptr);
#endif
    fiber_main();
}

// A fiber that begins with fiber_entry(). The page below its stack is closed: a kernel that needs a
// larger one ends.
Context *new_fiber()
{
    auto *fiber = new Context{};
    void *memory = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0)
        emulated::end_program("no memory for the stack of a thread");
    fiber->bottom = static_cast<char *>(memory) + guard_bytes;
    fiber->size = stack_bytes;
#ifdef __x86_64__
    auto **top = reinterpret_cast<void **>(static_cast<char *>(fiber->bottom) + stack_bytes);
    *--top = nullptr; // where fiber_entry would return to
    *--top = reinterpret_cast<void *>(fiber_entry);
    fiber->stack_pointer = top - 6; // six registers, zero
#else
    getcontext(&fiber->registers);
    fiber->registers.uc_stack.ss_sp = fiber->bottom;
    fiber->registers.uc_stack.ss_size = stack_bytes;
    makecontext(&fiber->registers, fiber_entry, 0);
#endif
    return fiber;
}

// ---- A block.

// The lanes that meet under one mask: two rounds of values, because a quick lane may bring its next
// value before a slow one has read the last.
struct Group {
    unsigned mask, arrived;
    int round;
    emulated::Meeting meetings[2];
};

struct Warp {
    unsigned ended; // lanes that have, or never were
    std::deque<Group> groups;
};

struct Thread {
    Context *fiber; // NULL while it does not wait
    const char *waits_for;
};

struct Block {
    const char *kernel;
    const std::function<void()> *thread;
    int size, started, ended;
    bool backward;
    int running; // the thread that runs
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::deque<int> ready; // threads whose barrier has opened
    std::vector<int> at_barrier;
    std::vector<Context *> idle;
    Context *fiber; // that runs
};
Block &block = *new Block{}; // never destroyed: its fibers stay, and are found by leak checkers

std::map<const void *, size_t> shared_limits;

void set_running(int index)
{
    auto i = static_cast<unsigned>(index);
    block.running = index;
    threadIdx.x = i % blockDim.x;
    threadIdx.y = i / blockDim.x % blockDim.y;
    threadIdx.z = i / (blockDim.x * blockDim.y);
}

Warp &warp_of(int thread)
{
    return block.warps[static_cast<size_t>(thread / 32)];
}

// Opens the meeting of a group when all its lanes that live are there.
void open_if_complete(int warp, Group &group)
{
    if (!group.arrived ||
        (group.arrived | (block.warps[static_cast<size_t>(warp)].ended & group.mask)) != group.mask)
        return;
    group.meetings[group.round].present = group.arrived;
    for (int lane = 0; lane < 32; lane++)
        if (group.arrived >> lane & 1)
            block.ready.push_back(32 * warp + lane);
    group.arrived = 0;
    group.round ^= 1;
}

void end_thread(int index)
{
    block.ended++;
    Warp &warp = warp_of(index);
    warp.ended |= 1u << index % 32;
    for (Group &group : warp.groups)
        open_if_complete(index / 32, group);
}

// What a fiber does: threads that nobody has begun, until there are none.
void fiber_main()
{
    for (;;) {
        while (block.started < block.size) {
            int i = block.started++;
            set_running(block.backward ? block.size - 1 - i : i);
            (*block.thread)();
            end_thread(block.running);
        }
        block.idle.push_back(block.fiber);
        switch_stacks(*block.fiber, scheduler);
    }
}

void resume(Context *fiber)
{
    block.fiber = fiber;
    switch_stacks(scheduler, *fiber);
}

// The running thread waits until it is in block.ready.
void wait(const char *what)
{
    int index = block.running;
    Thread &thread = block.threads[static_cast<size_t>(index)];
    thread.waits_for = what;
    thread.fiber = block.fiber;
    switch_stacks(*thread.fiber, scheduler);
    thread.fiber = nullptr;
    set_running(index);
}

[[noreturn]] void stuck()
{
    int waiting = 0, example = -1;
    for (int i = 0; i < block.size; i++)
        if (block.threads[static_cast<size_t>(i)].fiber) {
            waiting++;
            example = i;
        }
    emulated::end_program("%s: %d of %d threads of block (%u, %u, %u) wait at a barrier that the "
                          "others do not reach; thread %d waits in %s",
                          block.kernel, waiting, block.size, blockIdx.x, blockIdx.y, blockIdx.z,
                          example, block.threads[static_cast<size_t>(example)].waits_for);
}

void begin_block()
{
    block.started = block.ended = 0;
    block.threads.assign(static_cast<size_t>(block.size), Thread{});
    block.warps.assign(static_cast<size_t>((block.size + 31) / 32), Warp{});
    if (block.size % 32)
        block.warps.back().ended = ~0u << block.size % 32;
}

void run_block()
{
    begin_block();
    while (block.ended < block.size) {
        if (block.started < block.size) {
            if (block.idle.empty())
                block.idle.push_back(new_fiber());
            Context *fiber = block.idle.back();
            block.idle.pop_back();
            resume(fiber);
        } else if (!block.ready.empty()) {
            int index = block.backward ? block.ready.back() : block.ready.front();
            block.backward ? block.ready.pop_back() : block.ready.pop_front();
            resume(block.threads[static_cast<size_t>(index)].fiber);
        } else {
            stuck();
        }
    }
}

void run_grid(const char *name, const std::function<void()> &thread, dim3 grid, dim3 threads,
              size_t shared)
{
    if (block.size)
        emulated::end_program("%s: launched from a kernel", name);
    const char *order = getenv("EMULATED_ORDER");
    block.backward = order && strcmp(order, "backward") == 0;
    block.kernel = name;
    block.thread = &thread;
    block.size = static_cast<int>(threads.x * threads.y * threads.z);
    std::unique_ptr<unsigned char, decltype(&free)> memory(
        static_cast<unsigned char *>(aligned_alloc(128, (shared + 127) / 128 * 128)), free);
    emulated::shared_memory = memory.get();
    blockDim = threads;
    gridDim = grid;
    uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t b = block.backward ? blocks - 1 - i : i;
        blockIdx.x = static_cast<unsigned>(b % grid.x);
        blockIdx.y = static_cast<unsigned>(b / grid.x % grid.y);
        blockIdx.z = static_cast<unsigned>(b / grid.x / grid.y);
        if (shared)
            memset(emulated::shared_memory, 0xff, shared);
        run_block();
    }
    block.size = 0;
}

// Why a launch is not possible; NULL where it is.
const char *why_not_launch(const void *kernel, dim3 grid, dim3 threads, size_t shared)
{
    if (static_cast<uint64_t>(threads.x) * threads.y * threads.z > 1024)
        return "more than 1024 threads in a block";
    if (threads.x > 1024 || threads.y > 1024 || threads.z > 64)
        return "a dimension of the block is too large";
    if (!threads.x || !threads.y || !threads.z || !grid.x || !grid.y || !grid.z)
        return "a dimension is 0";
    if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
        return "a dimension of the grid is too large";
    auto limit = shared_limits.find(kernel);
    if (shared > (limit == shared_limits.end() ? shared_default : limit->second))
        return "more shared memory than the kernel may have";
    return nullptr;
}
} // namespace

void emulated::launch(const char *name, const void *kernel, dim3 grid, dim3 threads, size_t shared,
                      cudaStream_t stream, std::function<void()> thread)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (cudaError_t none = start()) {
        fail(none);
        return;
    }
    if (const char *why = why_not_launch(kernel, grid, threads, shared)) {
        refuse(cudaErrorInvalidConfiguration, "%s: %s", name, why);
        return;
    }
    if (first_use(name, {kernel, 0}))
        return;
    current()->usage.launches++;
    count_launch();
    submit(name, stream, [=] { run_grid(name, thread, grid, threads, shared); });
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    ENTER();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) > shared_most)
        return emulated::refuse(cudaErrorInvalidValue,
                                "cudaFuncSetAttribute: %d bytes of shared memory", value);
    shared_limits[kernel] = static_cast<size_t>(value);
    return cudaSuccess;
}

// EMULATED_PTX=75: a build for older GPUs, which the driver compiles again.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
    ENTER();
    const char *ptx = getenv("EMULATED_PTX");
    attributes->binaryVersion = 90;
    attributes->ptxVersion = ptx ? atoi(ptx) : 90;
    return cudaSuccess;
}

// ---- What kernels call.

void __syncthreads()
{
    block.at_barrier.push_back(block.running);
    if (static_cast<int>(block.at_barrier.size()) == block.size) {
        // In the order of their numbers again, not of their arrival.
        std::sort(block.at_barrier.begin(), block.at_barrier.end());
        block.ready.insert(block.ready.end(), block.at_barrier.begin(), block.at_barrier.end());
        block.at_barrier.clear();
    }
    wait("__syncthreads");
}

int emulated::lane()
{
    return block.running % 32;
}

const emulated::Meeting &emulated::meet(unsigned mask, uint64_t value)
{
    unsigned own = 1u << lane();
    int warp = block.running / 32;
    Group *group = nullptr;
    for (Group &other : warp_of(block.running).groups) {
        if (other.mask == mask)
            group = &other;
        else if (other.arrived & mask)
            end_program("%s: lanes of a warp meet under different masks, %08x and %08x",
                        block.kernel, other.mask, mask);
    }
    if (!(mask & own))
        end_program("%s: lane %d is not in its own mask, %08x", block.kernel, lane(), mask);
    if (!group) {
        warp_of(block.running).groups.push_back({});
        group = &warp_of(block.running).groups.back();
        group->mask = mask;
    }
    Meeting &meeting = group->meetings[group->round];
    meeting.values[lane()] = value;
    group->arrived |= own;
    open_if_complete(warp, *group);
    wait("a meeting of its warp");
    return meeting;
}

void emulated::absent(int lane, const Meeting &meeting)
{
    end_program("%s: a shuffle reads from lane %d, which does not take part (%08x do)",
                block.kernel, lane, meeting.present);
}
