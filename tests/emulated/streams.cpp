// Streams, events and copies. A stream is a queue of work. Usually work is done as
// soon as it is there; EMULATED_STREAMS=lazy and =race put it off until something waits for it, so
// that a wait which is missing in a program shows in its numbers.

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>
#include "machine.h"

namespace emulated
{
namespace
{
using Work = std::function<void()>;

struct Queue {
    Device *device;
    bool blocking; // the default stream waits for it, and it for the default stream
    bool lazy;     // its work waits until something needs it
    std::deque<Work> work;
    uint64_t pushed, done;
};

// Where an event stands: behind that much work of a queue.
struct Mark {
    std::shared_ptr<Queue> queue;
    uint64_t at;
    bool timed;
    std::chrono::steady_clock::time_point time;
};
} // namespace
} // namespace emulated

using namespace emulated;

struct CUstream_st {
    std::shared_ptr<Queue> queue;
};

struct CUevent_st {
    Device *device;
    bool timed;
    std::shared_ptr<Mark> mark; // NULL before it is recorded
};

struct CUgraph_st {
    std::vector<Work> work; // of one stream, in its order
};

struct CUgraphExec_st {
    Device *device;
    std::vector<Work> work;
};

namespace emulated
{
namespace
{
// Never destroyed, because some programs keep streams until they end; so leak checkers find them.
auto &streams = *new std::set<CUstream_st *>;
auto &events = *new std::set<CUevent_st *>;
auto &default_streams = *new std::map<const Device *, CUstream_st *>;

// What this thread records; the stream is NULL where that is nothing. Other threads go on.
thread_local struct {
    CUstream_st *stream;
    CUgraph_st *graph;
    bool spoilt;
} recording;

// Whether a new stream puts its work off: with "lazy" all do, with "race" the first one does while
// those after it run ahead.
bool puts_off(bool others_before)
{
    const char *mode = getenv("EMULATED_STREAMS");
    return mode && (strcmp(mode, "lazy") == 0 || (strcmp(mode, "race") == 0 && !others_before));
}

void run_until(Queue &queue, uint64_t count)
{
    while (queue.done < count) {
        Work work = std::move(queue.work.front());
        queue.work.pop_front();
        queue.done++;
        Access access(queue.device);
        work();
    }
}

CUstream_st *default_stream(Device *device)
{
    CUstream_st *&stream = default_streams[device];
    if (!stream) {
        auto queue = std::make_shared<Queue>(Queue{device, true, puts_off(false), {}, 0, 0});
        stream = new CUstream_st{queue};
    }
    return stream;
}

// The stream behind a handle, or NULL where it is none that lives.
CUstream_st *find(cudaStream_t stream)
{
    if (!stream || stream == cudaStreamLegacy)
        return current() ? default_stream(current()) : nullptr;
    return streams.count(stream) ? stream : nullptr;
}

bool is_default(const CUstream_st *stream)
{
    return !streams.count(const_cast<CUstream_st *>(stream));
}

// What a queue must wait for by CUDA's rules for the default stream.
Work implied_waits(const CUstream_st *stream)
{
    std::vector<std::pair<std::shared_ptr<Queue>, uint64_t>> waits;
    auto add = [&waits](const std::shared_ptr<Queue> &queue) {
        if (queue->done < queue->pushed)
            waits.emplace_back(queue, queue->pushed);
    };
    Device *device = stream->queue->device;
    if (!is_default(stream) && stream->queue->blocking)
        add(default_stream(device)->queue);
    for (const CUstream_st *other : streams)
        if (is_default(stream) && other->queue->device == device && other->queue->blocking)
            add(other->queue);
    if (waits.empty())
        return nullptr;
    return [waits] {
        for (const auto &wait : waits)
            run_until(*wait.first, wait.second);
    };
}

void push(CUstream_st *stream, Work work)
{
    if (stream == recording.stream) {
        recording.graph->work.push_back(std::move(work));
        return;
    }
    Queue &queue = *stream->queue;
    Work before = implied_waits(stream);
    if (before)
        work = [before, work] {
            before();
            work();
        };
    queue.work.push_back(std::move(work));
    queue.pushed++;
    if (!queue.lazy)
        run_until(queue, queue.pushed);
}

cudaError_t push_checked(const char *caller, CUstream_st *stream, Work work)
{
    if (!stream)
        return refuse(cudaErrorInvalidResourceHandle, "%s: the stream does not exist", caller);
    push(stream, std::move(work));
    return cudaSuccess;
}

// Runs all that a stream still has to do.
cudaError_t wait_for(const char *caller, const CUstream_st *stream)
{
    if (!stream)
        return refuse(cudaErrorInvalidResourceHandle, "%s: the stream does not exist", caller);
    if (Work before = implied_waits(stream))
        before();
    run_until(*stream->queue, stream->queue->pushed);
    return cudaSuccess;
}
} // namespace

cudaError_t spoils_recording(const char *caller)
{
    if (!recording.stream)
        return cudaSuccess;
    recording.spoilt = true;
    return refuse(cudaErrorStreamCaptureUnsupported, "%s: not while a stream is captured", caller);
}

bool is_recording()
{
    return recording.stream != nullptr;
}

cudaError_t first_use(const char *caller, std::pair<const void *, int> what)
{
    static auto &used = *new std::set<std::pair<const Device *, std::pair<const void *, int>>>;
    bool first = used.insert({current(), what}).second;
    return first ? spoils_recording(caller) : cudaSuccess;
}

cudaError_t submit(const char *caller, cudaStream_t handle, Work work)
{
    if (cudaError_t error = start()) // that of a launch before
        return fail(error);
    CUstream_st *stream = find(handle);
    if (stream && stream->queue->device != current())
        return refuse(cudaErrorInvalidResourceHandle,
                      "%s: the stream is of device %d, and this is device %d", caller,
                      stream->queue->device->index, current()->index);
    return push_checked(caller, stream, std::move(work));
}

void finish(const Device *device)
{
    for (const CUstream_st *stream : streams)
        if (stream->queue->device == device)
            run_until(*stream->queue, stream->queue->pushed);
    auto own = default_streams.find(device);
    if (own != default_streams.end())
        run_until(*own->second->queue, own->second->queue->pushed);
}

bool stream_of(const Device *device, cudaStream_t stream)
{
    return !stream || stream == cudaStreamLegacy ||
           (streams.count(stream) && stream->queue->device == device);
}

} // namespace emulated

// ---- Streams.

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    ENTER();
    bool blocking = !(flags & cudaStreamNonBlocking);
    current()->usage.context = true;
    auto queue =
        std::make_shared<Queue>(Queue{current(), blocking, puts_off(!streams.empty()), {}, 0, 0});
    *stream = new CUstream_st{queue};
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ENTER();
    if (!streams.count(stream))
        return refuse(cudaErrorInvalidResourceHandle, "cudaStreamDestroy: there is no such stream");
    if (cudaError_t error = wait_for("cudaStreamDestroy", stream))
        return error;
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaStreamSynchronize"))
        return error;
    current()->usage.waits++;
    return wait_for("cudaStreamSynchronize", find(stream));
}

// ---- Events.

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER();
    *event = new CUevent_st{current(), !(flags & cudaEventDisableTiming), nullptr};
    events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER();
    if (!events.erase(event))
        return refuse(cudaErrorInvalidResourceHandle, "cudaEventDestroy: there is no such event");
    delete event;
    return cudaSuccess;
}

static cudaError_t check_event(const char *caller, cudaEvent_t event)
{
    if (events.count(event))
        return cudaSuccess;
    return refuse(cudaErrorInvalidResourceHandle, "%s: there is no such event", caller);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaEventRecord")) // CUDA can; this recording can't
        return error;
    if (cudaError_t error = check_event("cudaEventRecord", event))
        return error;
    CUstream_st *stream = find(handle);
    if (stream && stream->queue->device != event->device)
        return refuse(cudaErrorInvalidResourceHandle,
                      "cudaEventRecord: the event is of device %d, the stream of device %d",
                      event->device->index, stream->queue->device->index);
    auto mark = std::make_shared<Mark>();
    mark->timed = event->timed;
    if (cudaError_t error = push_checked("cudaEventRecord", stream,
                                         [mark] { mark->time = std::chrono::steady_clock::now(); }))
        return error;
    mark->queue = stream->queue;
    mark->at = stream->queue->pushed;
    event->mark = mark;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
    ENTER();
    if (cudaError_t error = check_event("cudaStreamWaitEvent", event))
        return error;
    CUstream_st *stream = find(handle);
    auto mark = event->mark;
    return push_checked("cudaStreamWaitEvent", stream, [mark] {
        if (mark) // one that was never recorded is no reason to wait
            run_until(*mark->queue, mark->at);
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaEventSynchronize"))
        return error;
    if (cudaError_t error = check_event("cudaEventSynchronize", event))
        return error;
    if (event->mark)
        run_until(*event->mark->queue, event->mark->at);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    ENTER();
    for (cudaEvent_t event : {begin, end}) {
        if (cudaError_t error = check_event("cudaEventElapsedTime", event))
            return error;
        if (!event->mark || !event->timed)
            return refuse(cudaErrorInvalidResourceHandle,
                          "cudaEventElapsedTime: an event is not recorded, or takes no time");
        if (event->mark->queue->done < event->mark->at)
            return fail(cudaErrorNotReady);
    }
    std::chrono::duration<float, std::milli> elapsed = end->mark->time - begin->mark->time;
    *milliseconds = elapsed.count();
    return cudaSuccess;
}

// ---- Graphs: what one stream would have done. A thread records one at a time.

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaStreamBeginCapture"))
        return error;
    if (!streams.count(handle))
        return refuse(cudaErrorStreamCaptureUnsupported,
                      "cudaStreamBeginCapture: the default stream, or none");
    const char *works = getenv("EMULATED_GRAPHS");
    recording = {handle, new CUgraph_st{}, works &&strcmp(works, "0") == 0};
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    ENTER();
    *graph = nullptr;
    if (!handle || handle != recording.stream)
        return refuse(cudaErrorInvalidValue, "cudaStreamEndCapture: the stream is not captured");
    bool spoilt = recording.spoilt;
    if (spoilt)
        delete recording.graph;
    else
        *graph = recording.graph;
    recording = {nullptr, nullptr, false};
    return spoilt ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    ENTER();
    *exec = new CUgraphExec_st{current(), graph->work};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER();
    if (exec->device != current())
        return refuse(cudaErrorInvalidValue, "cudaGraphLaunch: the graph is of device %d",
                      exec->device->index);
    current()->usage.plays++;
    return submit("cudaGraphLaunch", stream, [work = exec->work] {
        for (const Work &one : work)
            one();
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ENTER();
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ENTER();
    delete graph;
    return cudaSuccess;
}

// ---- Copies.

// Why this end of a copy is not where `kind` says it is.
static std::string wrong_end(const void *memory, size_t bytes, bool device)
{
    return device ? why_not(*current(), memory, bytes) : why_not_host(memory, bytes);
}

static cudaError_t copy(const char *caller, void *to, const void *from, size_t bytes,
                        cudaMemcpyKind kind, cudaStream_t handle)
{
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return refuse(cudaErrorInvalidMemcpyDirection, "%s: kind %d", caller, kind);
    bool any = kind == cudaMemcpyDefault;
    bool to_device = any ? on_any_device(to)
                         : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = any ? on_any_device(from)
                           : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    std::string why = wrong_end(to, bytes, to_device);
    if (!why.empty())
        return refuse(cudaErrorInvalidValue, "%s: to %p: %s", caller, to, why.c_str());
    why = wrong_end(from, bytes, from_device);
    if (!why.empty())
        return refuse(cudaErrorInvalidValue, "%s: from %p: %s", caller, from, why.c_str());
    current()->usage.copies++;
    bool pageable = (!from_device && !pinned(from)) || (!to_device && !pinned(to));
    if (cudaError_t error = pageable ? spoils_recording(caller) : cudaSuccess)
        return error;

    // Memory that is not pinned is read before the call returns, and written before it returns.
    std::vector<uint8_t> staged;
    if (!from_device && !pinned(from) && bytes)
        staged.assign(static_cast<const uint8_t *>(from),
                      static_cast<const uint8_t *>(from) + bytes);
    cudaError_t error = submit(caller, handle, [to, from, bytes, staged] {
        memmove(to, staged.empty() ? from : staged.data(), bytes);
    });
    if (error == cudaSuccess && !to_device && !pinned(to))
        error = wait_for(caller, find(handle));
    return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER();
    return copy("cudaMemcpyAsync", to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    ENTER();
    Device *receiver = visible_device(to_device), *sender = visible_device(from_device);
    if (!receiver || !sender)
        return refuse(cudaErrorInvalidDevice, "cudaMemcpyPeerAsync: from device %d to device %d",
                      from_device, to_device);
    std::string why = why_not(*receiver, to, bytes);
    if (why.empty())
        why = why_not(*sender, from, bytes);
    if (!why.empty())
        return refuse(cudaErrorInvalidValue, "cudaMemcpyPeerAsync: %s", why.c_str());
    current()->usage.copies++;
    current()->usage.staged +=
        receiver != sender && !receiver->peers.count(sender->index) && !sender->peers.count(receiver->index);
    return submit("cudaMemcpyPeerAsync", stream, [=] {
        Access one(receiver), other(sender);
        memmove(to, from, bytes);
    });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    ENTER();
    if (cudaError_t error = spoils_recording("cudaMemcpy"))
        return error;
    if (cudaError_t error = copy("cudaMemcpy", to, from, bytes, kind, nullptr))
        return error;
    current()->usage.waits++;
    return wait_for("cudaMemcpy", find(nullptr));
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    ENTER();
    std::string why = why_not(*current(), memory, bytes);
    if (!why.empty())
        return refuse(cudaErrorInvalidValue, "cudaMemset(%p): %s", memory, why.c_str());
    current()->usage.copies++;
    return submit("cudaMemset", stream, [=] { memset(memory, value, bytes); });
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    return cudaMemsetAsync(memory, value, bytes, nullptr);
}
