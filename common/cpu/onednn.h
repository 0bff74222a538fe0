// Inside the CPU backend: the part of oneDNN that it uses, in one form for the C interfaces of 2.x
// and 3.x, which differ in how memory and operations are described.
//
// A `Desc` says how a tensor lies in memory. A `Call` is one primitive that is ready to run: it
// knows the layout that the primitive wants of each argument and the layout that the caller has,
// and reorders where they differ.

#ifndef HVDLAB_ONEDNN_H
#define HVDLAB_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <stdbool.h>
#include <stddef.h>
#include "run/device.h"

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t Desc;
#else
typedef const dnnl_memory_desc_t *Desc;
#endif

// What oneDNN computes with on one device; made when it is first asked for.
typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream; // does what it is told at once, in the thread that tells it
} OneDnn;
const OneDnn *onednn_of(Device *device);

// A float tensor with oneDNN's logical dimensions (batch, channels, height, width for activations,
// out, in, height, width for kernels), whatever the order in memory; or one of another type. Free
// with desc_free.
Desc desc_create(int ndims, const int *dims, dnnl_format_tag_t tag);
Desc desc_create_typed(int ndims, const int *dims, dnnl_data_type_t type, dnnl_format_tag_t tag);
void desc_free(Desc desc);
size_t desc_bytes(Desc desc);
bool desc_same(Desc a, Desc b);

// A convolution with stride 1 and 'same' padding. The layouts may be `any`.
typedef struct {
    const OneDnn *dnn;
    dnnl_alg_kind_t algorithm;
    int kernel_size;
    Desc input, kernel, bias, output; // bias NULL: without
} Convolution;

// Primitive descriptors: what to compute and by which implementation. NULL where oneDNN has none.
dnnl_primitive_desc_t convolution_forward(const Convolution *c);
dnnl_primitive_desc_t convolution_backward_input(const Convolution *c, dnnl_primitive_desc_t hint);
dnnl_primitive_desc_t convolution_backward_kernel(const Convolution *c, dnnl_primitive_desc_t hint);

// output = input kernel, for matrices (batch, in) and (out, in) in oneDNN's order. The bias is only
// for its gradient; NULL: without.
typedef struct {
    const OneDnn *dnn;
    Desc input, kernel, bias, output;
} InnerProduct;
dnnl_primitive_desc_t inner_product_forward(const InnerProduct *p);
dnnl_primitive_desc_t inner_product_backward_input(const InnerProduct *p,
                                                   dnnl_primitive_desc_t hint);
dnnl_primitive_desc_t inner_product_backward_kernel(const InnerProduct *p,
                                                    dnnl_primitive_desc_t hint);

// True for an implementation that is correct but very slow.
bool is_reference(dnnl_primitive_desc_t pd);

// The layout that an implementation has chosen for its source (dnnl_query_src_md), its weights
// (dnnl_query_weights_md; index 1 is the bias), and so on; owned by the descriptor.
Desc chosen_desc(dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

#define MAX_PORTS 6

// One argument of a call.
typedef struct {
    int argument;
    dnnl_memory_t inside;     // what the primitive sees
    dnnl_memory_t outside;    // the caller's; the same object where the layouts agree
    dnnl_primitive_t reorder; // NULL where they agree
    bool written;             // by the primitive
    size_t scratch_offset;    // of `inside` where it is a copy
} Port;

typedef struct {
    const OneDnn *dnn;
    dnnl_primitive_t primitive;
    Port ports[MAX_PORTS];
    int port_count;
    size_t scratch_bytes; // working memory that call_run needs
} Call;

// Describes an argument for call_prepare.
typedef struct {
    int argument; // DNNL_ARG_...
    dnnl_query_t what;
    int index;
    Desc outside; // the layout that the caller has
    bool written;
} PortSpec;

// Makes a call of a descriptor, which it frees.
Call call_prepare(const OneDnn *dnn, dnnl_primitive_desc_t pd, const PortSpec *ports, int count);
// A call that only changes a layout.
Call call_reorder(const OneDnn *dnn, Desc from, Desc to);

void call_free(Call *call);

// Runs it on memory[0], memory[1], ..., one for each port in order.
void call_run(Call *call, void *scratch, void *const *memory);

// The widest instruction set that oneDNN uses here (DNNL_MAX_CPU_ISA limits it).
bool onednn_has_avx2(void);
bool onednn_has_avx512(void);
bool onednn_has_amx(void);

// c = a b for row-major matrices (rows, inner) (inner, columns); a flag says that a matrix lies
// transposed in memory.
void matrix_multiply(bool transpose_a, bool transpose_b, int rows, int columns, int inner,
                     const float *a, const float *b, float *c);

#endif
