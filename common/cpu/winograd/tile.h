// Inside Winograd's convolution: the transforms of one tile, LANES channels at a time.
//
// To convolve is to multiply polynomials, and a polynomial of degree 5 is known when its values at
// six points are known. So, in one dimension: four outputs of a filter g of three taps depend on
// six inputs d. Evaluate the filter at six points (G g), bring the inputs to the same points
// (B^T d), multiply point by point, and go back to four outputs:
//
//     y = A^T ((G g) . (B^T d))          6 multiplications; the definition has 4 x 3 = 12
//
// In two dimensions each transform is done to the columns and then to the rows of a tile: 36
// multiplications in place of 144. The transforms are linear, so the sum over channels is taken
// between them, and each of the 36 becomes a product of matrices.
//
// The derivative of the same formula is the gradient of the kernel:
//
//     dg = G^T ((A dy) . (B^T d))
//
// The points are 0, P, -P, Q, -Q and infinity. Any will do in exact arithmetic. With 1 and 2 the
// matrices are those of the paper; these lose fewer digits.
//
// A tile of three outputs needs five points: -Q is left out. So that the filter's values serve it
// too, the other points' factors in B^T are those that G has for six points.

#ifndef HVDLAB_WINOGRAD_TILE_H
#define HVDLAB_WINOGRAD_TILE_H

#include "cpu/simd.h"

enum { OUT = 4, TAPS = 3, POINTS = OUT + TAPS - 1, PRODUCTS = POINTS * POINTS };

#define P  0.625f
#define Q  1.5f
#define PP (P * P)
#define QQ (Q * Q)
// Products of the differences between a point and the others.
#define N0 (PP * QQ)
#define NP (2 * PP * (PP - QQ))
#define NQ (2 * QQ * (QQ - PP))

// Where the products with -Q are; a short tile has none.
#define LEFT_OUT 4

// B^T
INLINE void input_1d(bool is_short, const Floats *d, Floats *v)
{
    if (is_short) {
        v[0] = PP * QQ * d[0] - PP * Q * d[1] - QQ * d[2] + Q * d[3];
        v[1] = (P + Q) * (d[3] - P * Q * d[1] + (P - Q) * d[2]);
        v[2] = (Q - P) * (d[3] + P * Q * d[1] - (P + Q) * d[2]);
        v[3] = 2 * Q * (d[3] - PP * d[1]);
        v[4] = (Floats){0};
        v[5] = d[4] - Q * d[3] - PP * d[2] + PP * Q * d[1];
        return;
    }
    Floats even_p = d[4] - QQ * d[2], odd_p = P * (d[3] - QQ * d[1]);
    Floats even_q = d[4] - PP * d[2], odd_q = Q * (d[3] - PP * d[1]);
    v[0] = PP * QQ * d[0] - (PP + QQ) * d[2] + d[4];
    v[1] = even_p + odd_p;
    v[2] = even_p - odd_p;
    v[3] = even_q + odd_q;
    v[4] = even_q - odd_q;
    v[5] = PP * QQ * d[1] - (PP + QQ) * d[3] + d[5];
}

// A^T
INLINE void output_1d(bool is_short, const Floats *m, Floats *y)
{
    Floats sum = m[1] + m[2], difference = P * (m[1] - m[2]);
    if (is_short) {
        y[0] = m[0] + sum + m[3];
        y[1] = difference + Q * m[3];
        y[2] = PP * sum + QQ * m[3] + m[5];
        y[3] = (Floats){0};
        return;
    }
    Floats sum_q = m[3] + m[4], difference_q = Q * (m[3] - m[4]);
    y[0] = m[0] + sum + sum_q;
    y[1] = difference + difference_q;
    y[2] = PP * sum + QQ * sum_q;
    y[3] = PP * difference + QQ * difference_q + m[5];
}

// A
INLINE void gradient_1d(bool is_short, const Floats *g, Floats *z)
{
    if (is_short) {
        Floats even = g[0] + PP * g[2], odd = P * g[1];
        z[0] = g[0];
        z[1] = even + odd;
        z[2] = even - odd;
        z[3] = g[0] + Q * g[1] + QQ * g[2];
        z[4] = (Floats){0};
        z[5] = g[2];
        return;
    }
    Floats even_p = g[0] + PP * g[2], odd_p = P * (g[1] + PP * g[3]);
    Floats even_q = g[0] + QQ * g[2], odd_q = Q * (g[1] + QQ * g[3]);
    z[0] = g[0];
    z[1] = even_p + odd_p;
    z[2] = even_p - odd_p;
    z[3] = even_q + odd_q;
    z[4] = even_q - odd_q;
    z[5] = g[3];
}

// G
INLINE void kernel_1d(const Floats *g, Floats *u)
{
    Floats even_p = (g[0] + PP * g[2]) * (1 / NP), odd_p = g[1] * (P / NP);
    Floats even_q = (g[0] + QQ * g[2]) * (1 / NQ), odd_q = g[1] * (Q / NQ);
    u[0] = g[0] * (1 / N0);
    u[1] = even_p + odd_p;
    u[2] = even_p - odd_p;
    u[3] = even_q + odd_q;
    u[4] = even_q - odd_q;
    u[5] = g[2];
}

// G^T
INLINE void kernel_gradient_1d(const Floats *u, Floats *g)
{
    Floats sum_p = (u[1] + u[2]) * (1 / NP), sum_q = (u[3] + u[4]) * (1 / NQ);
    g[0] = u[0] * (1 / N0) + sum_p + sum_q;
    g[1] = (u[1] - u[2]) * (P / NP) + (u[3] - u[4]) * (Q / NQ);
    g[2] = PP * sum_p + QQ * sum_q + u[5];
}

// Where a tile is: its first output pixel, in the image with that number; and whether it is of
// three rows, or of three columns.
typedef struct {
    int image, y, x;
    bool short_rows, short_columns;
} Tile;

// One block of channels of one image.
typedef struct {
    const Activation *values;
    int height, width;
} Plane;

// Pixels outside of the image are zeros.
static const Activation outside[POINTS * LANES];

// The rows of `count` x `count` pixels from (y, x) on; those without a pixel in the plane are
// outside. Bit c of the result says whether column c is in the plane.
INLINE unsigned find_rows(int count, Plane plane, int y, int x, const Activation **rows)
{
    unsigned inside = 0;
    for (int i = 0; i < count; i++) {
        rows[i] = outside;
        if (y + i >= 0 && y + i < plane.height)
            rows[i] = plane.values + ((ptrdiff_t)(y + i) * plane.width + x) * LANES;
        inside |= (unsigned)(x + i >= 0 && x + i < plane.width) << i;
    }
    return inside;
}

// 6 x 6 pixels around a tile (a short one looks at fewer) to PRODUCTS vectors, `stride` floats
// apart.
INLINE void transform_input(bool short_rows, bool short_columns, Plane plane, Tile tile, float *to,
                            size_t stride)
{
    const Activation *rows[POINTS];
    unsigned inside = find_rows(POINTS, plane, tile.y - 1, tile.x - 1, rows);
    Floats half[POINTS][POINTS];
    for (int c = 0; c < POINTS; c++) {
        Floats d[POINTS] = {{0}}, v[POINTS];
        if (inside >> c & 1)
            for (int r = 0; r < POINTS; r++)
                d[r] = load_activations(rows[r] + c * LANES);
        input_1d(short_rows, d, v);
        for (int r = 0; r < POINTS; r++)
            half[r][c] = v[r];
    }
    for (int r = 0; r < POINTS; r++) {
        Floats v[POINTS];
        input_1d(short_columns, half[r], v);
        for (int c = 0; c < POINTS; c++)
            store(to + (size_t)(r * POINTS + c) * stride, v[c]);
    }
}

// The output's gradient in a tile, 4 x 4 pixels, to PRODUCTS vectors.
INLINE void transform_gradient(bool short_rows, bool short_columns, Plane plane, Tile tile,
                               float *to, size_t stride)
{
    const Activation *rows[OUT];
    unsigned inside = find_rows(OUT, plane, tile.y, tile.x, rows);
    Floats half[POINTS][OUT];
    for (int c = 0; c < OUT; c++) {
        Floats g[OUT] = {{0}}, z[POINTS];
        if (inside >> c & 1)
            for (int r = 0; r < OUT; r++)
                g[r] = load_activations(rows[r] + c * LANES);
        gradient_1d(short_rows, g, z);
        for (int r = 0; r < POINTS; r++)
            half[r][c] = z[r];
    }
    for (int r = 0; r < POINTS; r++) {
        Floats z[POINTS];
        gradient_1d(short_columns, half[r], z);
        for (int c = 0; c < POINTS; c++)
            store(to + (size_t)(r * POINTS + c) * stride, z[c]);
    }
}

// PRODUCTS vectors to the pixels of a tile, of which those in the plane `to` are written.
INLINE void transform_output(bool short_rows, bool short_columns, const float *from, size_t stride,
                             Floats bias, bool relu, Plane plane, Tile tile, Activation *to)
{
    int rows = OUT - short_rows, columns = OUT - short_columns;
    Floats half[OUT][POINTS];
    for (int c = 0; c < POINTS; c++) {
        Floats m[POINTS], y[OUT];
        for (int r = 0; r < POINTS; r++)
            m[r] = load(from + (size_t)(r * POINTS + c) * stride);
        output_1d(short_rows, m, y);
        for (int r = 0; r < rows; r++)
            half[r][c] = y[r];
    }
    to += ((ptrdiff_t)tile.y * plane.width + tile.x) * LANES;
    for (int r = 0; r < rows && tile.y + r < plane.height; r++, to += plane.width * LANES) {
        Floats y[OUT];
        output_1d(short_columns, half[r], y);
        for (int c = 0; c < columns; c++) {
            y[c] += bias;
            if (relu)
                y[c] = select_if(relu_mask(y[c]), y[c]);
            if (tile.x + c < plane.width)
                store_activations(to + c * LANES, y[c]);
        }
    }
}

// 3 x 3 taps, `tap` floats apart (negative: turned by half a turn), to PRODUCTS vectors.
INLINE void transform_kernel(const float *from, ptrdiff_t tap, float *to, size_t stride)
{
    Floats half[POINTS][TAPS];
    for (int c = 0; c < TAPS; c++) {
        Floats g[TAPS], u[POINTS];
        for (int r = 0; r < TAPS; r++)
            g[r] = load(from + (r * TAPS + c) * tap);
        kernel_1d(g, u);
        for (int r = 0; r < POINTS; r++)
            half[r][c] = u[r];
    }
    for (int r = 0; r < POINTS; r++) {
        Floats u[POINTS];
        kernel_1d(half[r], u);
        for (int c = 0; c < POINTS; c++)
            store(to + (size_t)(r * POINTS + c) * stride, u[c]);
    }
}

// PRODUCTS vectors to the gradient of 3 x 3 taps.
INLINE void transform_kernel_gradient(const float *from, size_t stride, float *to, size_t tap)
{
    Floats half[TAPS][POINTS];
    for (int c = 0; c < POINTS; c++) {
        Floats u[POINTS], g[TAPS];
        for (int r = 0; r < POINTS; r++)
            u[r] = load(from + (size_t)(r * POINTS + c) * stride);
        kernel_gradient_1d(u, g);
        for (int r = 0; r < TAPS; r++)
            half[r][c] = g[r];
    }
    for (int r = 0; r < TAPS; r++) {
        Floats g[TAPS];
        kernel_gradient_1d(half[r], g);
        for (int c = 0; c < TAPS; c++)
            store(to + (size_t)(r * TAPS + c) * tap, g[c]);
    }
}

#endif
