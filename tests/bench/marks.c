// Marks: CUDA events, or times.

#include "marks.h"

#include <stdlib.h>
#include "base/util.h"

#ifdef HVDLAB_CUDA
#include "cuda/cuda_device.h"
#include "sys/device.h"
#endif

typedef struct {
    double time;
    void *event; // on a GPU: a cudaEvent_t, made once and used again after marks_forget
} Mark;

static struct {
    Mark *list;
    int count, capacity;
} marks;

static Mark *next_mark(void)
{
    if (marks.count == marks.capacity) {
        int more = marks.capacity ? 2 * marks.capacity : 256;
        Mark *list = realloc(marks.list, (size_t)more * sizeof *list);
        CHECK(list);
        for (int i = marks.capacity; i < more; i++)
            list[i] = (Mark){0, NULL};
        marks.list = list;
        marks.capacity = more;
    }
    return &marks.list[marks.count++];
}

#ifdef HVDLAB_CUDA

static void stamp(Mark *m)
{
    m->time = seconds_now();
    if (!device_is_gpu())
        return;
    cudaEvent_t event = m->event;
    if (!event)
        CUDA(cudaEventCreate(&event));
    CUDA(cudaEventRecord(event, cuda_stream()));
    m->event = event;
}

static double time_between(const Mark *begin, const Mark *end)
{
    float milliseconds;
    if (!end->event)
        return end->time - begin->time;
    CUDA(cudaEventSynchronize(end->event));
    CUDA(cudaEventElapsedTime(&milliseconds, begin->event, end->event));
    return 1e-3 * (double)milliseconds;
}

#else

static void stamp(Mark *m)
{
    m->time = seconds_now();
}

static double time_between(const Mark *begin, const Mark *end)
{
    return end->time - begin->time;
}

#endif

int mark(void)
{
    stamp(next_mark());
    return marks.count - 1;
}

double seconds_between(int begin, int end)
{
    return time_between(&marks.list[begin], &marks.list[end]);
}

void marks_forget(void)
{
    marks.count = 0;
}
