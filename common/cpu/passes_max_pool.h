// Inside the CPU backend's passes: max pooling. oneDNN's own hides a NaN that stands beside
// numbers, and is slow where a processor lacks AVX-512.
//
// Going forward, the place of each window's largest is noted in a byte, so that the way back reads
// neither the input nor the output: a quarter as many bytes as floats go by. A ReLU behind the pool
// has its say there, too: where it is closed, the place is one that no window has.

#ifndef HVDLAB_PASSES_MAX_POOL_H
#define HVDLAB_PASSES_MAX_POOL_H

#include "cpu/passes.h"
#include "cpu/simd.h"

typedef uint8_t Bytes __attribute__((vector_size(VECTOR), aligned(1), may_alias));

enum { CLOSED = MAX_POOL }; // the place where the ReLU lets nothing through

INLINE Floats choose(Ints mask, Floats yes, Floats no)
{
    return (Floats)(((Ints)yes & mask) | ((Ints)no & ~mask));
}

// How far a window's places are from each other, in elements.
typedef struct {
    int size, lanes;
    size_t row;
} Window;

INLINE size_t place_at(Window w, int k)
{
    return (size_t)(k / w.size) * w.row + (size_t)(k % w.size) * (size_t)w.lanes;
}

// The largest of a window and its place: the first of those that are equal, and NaN before all
// others.
INLINE Floats largest(const Activation *x, Window w, Ints *place)
{
    Floats best = load_activations(x);
    Ints where = {0};
    for (int k = 1; k < w.size * w.size; k++) {
        Floats value = load_activations(x + place_at(w, k));
        Ints better = ~(Ints)(value <= best) & (Ints)(best == best);
        best = choose(better, value, best);
        where = (where & ~better) | (k & better);
    }
    *place = where;
    return best;
}

INLINE void pool_vector(Window w, bool relu, const Activation *x, Activation *y, uint8_t *places)
{
    Ints place;
    Floats best = largest(x, w, &place);
    if (relu) {
        Ints open = relu_mask(best);
        best = select_if(open, best);
        place = (place & open) | (CLOSED & ~open);
    }
    store_activations(y, best);
    *(Bytes *)places = __builtin_convertvector(place, Bytes);
}

INLINE void pool_vector_back(Window w, const Activation *y_gradient, const uint8_t *places,
                             Activation *x_gradient)
{
    Floats gradient = load_activations(y_gradient);
    Ints place = __builtin_convertvector(*(const Bytes *)places, Ints);
    for (int k = 0; k < w.size * w.size; k++)
        store_activations(x_gradient + place_at(w, k), select_if((Ints)(place == k), gradient));
}

// The same for one lane, where these don't fill a vector.
static void pool_lane(Window w, bool relu, const Activation *x, Activation *y, uint8_t *place)
{
    float best = widened(*x);
    *place = 0;
    for (int k = 1; k < w.size * w.size; k++) {
        float value = widened(x[place_at(w, k)]);
        if (!(value <= best) && best == best) {
            best = value;
            *place = (uint8_t)k;
        }
    }
    if (relu && best <= 0) {
        best = 0;
        *place = CLOSED;
    }
    *y = rounded(best);
}

static void pool_lane_back(Window w, Activation y_gradient, uint8_t place, Activation *x_gradient)
{
    for (int k = 0; k < w.size * w.size; k++)
        x_gradient[place_at(w, k)] = place == k ? y_gradient : 0;
}

// Where a vector begins: the last one may overlap the one before it, and give the same once more.
INLINE int vector_at(int lane, int lanes)
{
    return lane + VECTOR <= lanes ? lane : lanes - VECTOR;
}

// One line of windows, of one block of channels.
INLINE void pool_line(int lanes, int size, bool relu, const MaxPool *p, const Activation *x,
                      Activation *y, uint8_t *places)
{
    Window w = {size, lanes, (size_t)p->width * (size_t)lanes};
    for (int i = 0; i < p->width / size; i++, x += size * lanes, y += lanes, places += lanes) {
        for (int lane = 0; lane < lanes && lanes < VECTOR; lane++)
            pool_lane(w, relu, x + lane, y + lane, places + lane);
        for (int lane = 0; lane < lanes && lanes >= VECTOR; lane += VECTOR) {
            int at = vector_at(lane, lanes);
            pool_vector(w, relu, x + at, y + at, places + at);
        }
    }
}

INLINE void pool_line_back(int lanes, int size, const MaxPool *p, const Activation *y_gradient,
                           const uint8_t *places, Activation *x_gradient)
{
    Window w = {size, lanes, (size_t)p->width * (size_t)lanes};
    int across = p->width / size;
    for (int i = 0; i < across; i++) {
        for (int lane = 0; lane < lanes && lanes < VECTOR; lane++)
            pool_lane_back(w, y_gradient[lane], places[lane], x_gradient + lane);
        for (int lane = 0; lane < lanes && lanes >= VECTOR; lane += VECTOR) {
            int at = vector_at(lane, lanes);
            pool_vector_back(w, y_gradient + at, places + at, x_gradient + at);
        }
        x_gradient += size * lanes;
        y_gradient += lanes;
        places += lanes;
    }
    // Columns that fill no window.
    for (int y = 0; y < size; y++)
        memset(x_gradient + (size_t)y * w.row, 0,
               (size_t)(p->width - across * size) * (size_t)lanes * sizeof *x_gradient);
}

// The windows that models use get loops of their own.
INLINE void pool_line_of(int lanes, const MaxPool *p, const Activation *x, Activation *y,
                         uint8_t *places)
{
    if (p->size == 2 && p->relu)
        pool_line(lanes, 2, true, p, x, y, places);
    else if (p->size == 2)
        pool_line(lanes, 2, false, p, x, y, places);
    else
        pool_line(lanes, p->size, p->relu, p, x, y, places);
}

INLINE void pool_line_back_of(int lanes, const MaxPool *p, const Activation *y_gradient,
                              const uint8_t *places, Activation *x_gradient)
{
    if (p->size == 2)
        pool_line_back(lanes, 2, p, y_gradient, places, x_gradient);
    else
        pool_line_back(lanes, p->size, p, y_gradient, places, x_gradient);
}

// Elements from one line of windows to the next.
INLINE size_t line_of_windows(const MaxPool *p)
{
    return (size_t)p->size * (size_t)p->width * (size_t)p->lanes;
}

INLINE size_t line_of_results(const MaxPool *p)
{
    return (size_t)(p->width / p->size) * (size_t)p->lanes;
}

static void max_pool_forward(const MaxPool *p, const void *input, void *output, uint8_t *places)
{
    const Activation *x = input;
    Activation *y = output;
    int lines = p->height / p->size;
    size_t chunk = (size_t)p->height * (size_t)p->width * (size_t)p->lanes;
#pragma omp parallel
    {
        Interval mine = my_share(p->chunks * lines);
        for (int i = mine.begin; i < mine.end; i++) {
            const Activation *from =
                x + (size_t)(i / lines) * chunk + (size_t)(i % lines) * line_of_windows(p);
            size_t to = (size_t)i * line_of_results(p);
            if (p->lanes == 2 * VECTOR)
                pool_line_of(2 * VECTOR, p, from, y + to, places + to);
            else if (p->lanes == VECTOR)
                pool_line_of(VECTOR, p, from, y + to, places + to);
            else
                pool_line_of(p->lanes, p, from, y + to, places + to);
        }
    }
}

static void max_pool_backward(const MaxPool *p, const void *output_gradient, const uint8_t *places,
                              void *input_gradient)
{
    const Activation *y_gradient = output_gradient;
    Activation *x_gradient = input_gradient;
    int lines = p->height / p->size;
    size_t chunk = (size_t)p->height * (size_t)p->width * (size_t)p->lanes;
    size_t filled = (size_t)lines * line_of_windows(p);
#pragma omp parallel
    {
        Interval mine = my_share(p->chunks * lines);
        for (int i = mine.begin; i < mine.end; i++) {
            Activation *begin = x_gradient + (size_t)(i / lines) * chunk;
            Activation *to = begin + (size_t)(i % lines) * line_of_windows(p);
            size_t from = (size_t)i * line_of_results(p);
            if (p->lanes == 2 * VECTOR)
                pool_line_back_of(2 * VECTOR, p, y_gradient + from, places + from, to);
            else if (p->lanes == VECTOR)
                pool_line_back_of(VECTOR, p, y_gradient + from, places + from, to);
            else
                pool_line_back_of(p->lanes, p, y_gradient + from, places + from, to);
            if (i % lines == lines - 1) // lines that fill no window
                memset(begin + filled, 0, (chunk - filled) * sizeof *begin);
        }
    }
}

#endif
