// Inside Winograd's convolution: from activations to transformed values, a strip of tiles at a
// time.

#ifndef HVDLAB_WINOGRAD_STRIP_H
#define HVDLAB_WINOGRAD_STRIP_H

#include "cpu/winograd/grid.h"

// What is transformed: activations, of the input or the gradient of the output.
typedef struct {
    const Grid *grid;
    const Activation *values;
    int blocks;
    bool gradient;
} StripSource;

static Plane plane_of(const StripSource *s, Tile t, int block)
{
    const Grid *g = s->grid;
    size_t chunk = (size_t)t.image * (size_t)s->blocks + (size_t)block;
    return (Plane){s->values + chunk * (size_t)g->height * (size_t)g->width * LANES, g->height,
                   g->width};
}

INLINE void transform_kind(bool rows, bool columns, bool gradient, Plane plane, Tile t, float *to,
                           size_t stride)
{
    if (gradient)
        transform_gradient(rows, columns, plane, t, to, stride);
    else
        transform_input(rows, columns, plane, t, to, stride);
}

INLINE void transform_tile(bool gradient, Plane plane, Tile t, float *to, size_t stride)
{
    if (t.short_rows && t.short_columns)
        transform_kind(true, true, gradient, plane, t, to, stride);
    else if (t.short_rows)
        transform_kind(true, false, gradient, plane, t, to, stride);
    else if (t.short_columns)
        transform_kind(false, true, gradient, plane, t, to, stride);
    else
        transform_kind(false, false, gradient, plane, t, to, stride);
}

static void clear_tile(float *to, size_t stride)
{
    for (int i = 0; i < PRODUCTS; i++)
        store(to + (size_t)i * stride, (Floats){0});
}

// Strip `strip` of the source becomes strip `place` of the panels.
static void transform_strip(const StripSource *s, int strip, const Panels *panels, int place)
{
    Tile tiles[STRIP];
    for (int i = 0; i < STRIP; i++)
        tiles[i] = tile_at(s->grid, strip * STRIP + i);
    for (int block = 0; block < s->blocks; block++)
        for (int i = 0; i < STRIP; i++) {
            float *to = panel(panels, place, block) + i * LANES;
            if (tiles[i].image < 0)
                clear_tile(to, panels->stride);
            else if (s->gradient)
                transform_tile(true, plane_of(s, tiles[i], block), tiles[i], to, panels->stride);
            else
                transform_tile(false, plane_of(s, tiles[i], block), tiles[i], to, panels->stride);
        }
}

#endif
