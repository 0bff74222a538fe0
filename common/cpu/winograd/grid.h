// Inside Winograd's convolution: how images are divided into tiles, and how transformed tiles lie
// in memory.

#ifndef HVDLAB_WINOGRAD_GRID_H
#define HVDLAB_WINOGRAD_GRID_H

#include "cpu/winograd/winograd.h"
#include "cpu/winograd/tile.h"

static inline int pieces(int count, int size)
{
    return (count + size - 1) / size;
}

static inline int min(int a, int b)
{
    return a < b ? a : b;
}

static inline int max(int a, int b)
{
    return a > b ? a : b;
}

// ---- Tiles. A row of pixels is divided into as few tiles as possible, of four pixels, and of
// three where that is enough. Tiles of a kind stand together, since they lack the same products.

enum { KINDS = 4 };
static const bool short_rows[KINDS] = {false, false, true, true};
static const bool short_columns[KINDS] = {false, true, true, false};

// Strips with tiles that have a product: those before `head`, and from `tail` on.
typedef struct {
    int head, tail;
} Present;

typedef struct {
    int height, width, batch;
    int rows[2], columns[2]; // of tiles in an image: full ones, short ones
    int first[KINDS + 1];    // the first tile of each kind
    int strips;
    Present present[2][2]; // where rows or columns are LEFT_OUT
} Grid;

static inline void divide(int length, int *counts)
{
    int all = pieces(length, OUT);
    counts[1] = min(all, all * OUT - length);
    counts[0] = all - counts[1];
}

static inline Grid grid_of(const WinogradShape *s)
{
    Grid g = {.height = s->height, .width = s->width, .batch = s->batch};
    divide(s->height, g.rows);
    divide(s->width, g.columns);
    for (int k = 0; k < KINDS; k++)
        g.first[k + 1] =
            g.first[k] + s->batch * g.rows[short_rows[k]] * g.columns[short_columns[k]];
    g.strips = pieces(g.first[KINDS], STRIP);
    int full = pieces(g.first[1], STRIP), full_rows = pieces(g.first[2], STRIP);
    g.present[0][0] = (Present){g.strips, g.strips};
    g.present[1][0] = (Present){full_rows, g.strips};
    g.present[0][1] = (Present){full, max(full, g.first[3] / STRIP)};
    g.present[1][1] = (Present){full, g.strips};
    return g;
}

static inline Present product_present(const Grid *g, int product)
{
    return g->present[product / POINTS == LEFT_OUT][product % POINTS == LEFT_OUT];
}

static inline Interval common_part(Interval a, Interval b)
{
    return (Interval){max(a.begin, b.begin), min(a.end, b.end)};
}

// Image -1: there is no such tile, the strip is filled up.
static inline Tile tile_at(const Grid *g, int index)
{
    int kind = 0;
    while (kind < KINDS && index >= g->first[kind + 1])
        kind++;
    if (kind == KINDS)
        return (Tile){.image = -1};
    Tile t = {.short_rows = short_rows[kind], .short_columns = short_columns[kind]};
    int across = g->columns[t.short_columns], each = across * g->rows[t.short_rows];
    int place = (index - g->first[kind]) % each;
    t.image = (index - g->first[kind]) / each;
    t.y = place / across * OUT;
    if (t.short_rows)
        t.y = g->rows[0] * OUT + place / across * (OUT - 1);
    t.x = place % across * OUT;
    if (t.short_columns)
        t.x = g->columns[0] * OUT + place % across * (OUT - 1);
    return t;
}

// ---- Transformed values: PRODUCTS matrices (strips, blocks, STRIP, LANES).

enum { STRIP_BYTES = PRODUCTS * BLOCK * (int)sizeof(float) }; // of a block

typedef struct {
    float *values;
    int blocks;
    size_t stride; // between the matrices
} Panels;

// Not a multiple of a page, or all products of a tile would compete for the same places in a cache.
static inline size_t spread(size_t floats)
{
    return (floats + 1023) / 1024 * 1024 + 16;
}

static inline Panels panels_of(int strips, int blocks)
{
    return (Panels){NULL, blocks, spread((size_t)strips * (size_t)blocks * BLOCK)};
}

static inline Panels panels_at(float *values, Panels p)
{
    p.values = values;
    return p;
}

static inline size_t panels_size(Panels p)
{
    return p.stride * PRODUCTS;
}

static inline float *panel(const Panels *p, int strip, int block)
{
    return p->values + ((size_t)strip * (size_t)p->blocks + (size_t)block) * BLOCK;
}

#endif
