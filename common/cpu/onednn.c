// oneDNN's C interface, 2.x and 3.x. Everything that differs between the two is in the first part.

#include "cpu/onednn.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ != dnnl_success)                                                               \
            onednn_failed(#call, status_);                                                         \
    } while (0)

_Noreturn static void onednn_failed(const char *call, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        die("out of memory; a smaller --batch-size or --width needs less");
    die("oneDNN failed with status %d in %s", (int)status, call);
}

// If oneDNN gets no memory for generated code, it writes to address 0. A primitive, or a matrix
// product, needs a few MiB.
static void leave_room_for_code(void)
{
    need_room((size_t)16 << 20, "oneDNN");
}

const OneDnn *onednn_of(Device *device)
{
    pthread_mutex_lock(&device->lock);
    OneDnn *dnn = device->state;
    if (!dnn) {
        device->state = dnn = allocate(1, sizeof *dnn);
        OK(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0));
        OK(dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags));
    }
    pthread_mutex_unlock(&device->lock);
    return dnn;
}

// Working memory comes from the caller, so that all primitives share one piece.
static dnnl_primitive_attr_t attributes(void)
{
    dnnl_primitive_attr_t attr;
    leave_room_for_code();
    OK(dnnl_primitive_attr_create(&attr));
    OK(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    return attr;
}

static const dnnl_dims_t one = {1, 1};

#if DNNL_VERSION_MAJOR >= 3

static const dnnl_dims_t zero = {0, 0};

Desc desc_create_typed(int ndims, const int *dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_dims_t sizes;
    for (int i = 0; i < ndims; i++)
        sizes[i] = dims[i];
    dnnl_memory_desc_t desc;
    OK(dnnl_memory_desc_create_with_tag(&desc, ndims, sizes, type, tag));
    return desc;
}

void desc_free(Desc desc)
{
    if (desc)
        OK(dnnl_memory_desc_destroy((dnnl_memory_desc_t)desc));
}

static dnnl_primitive_desc_t made(dnnl_status_t status, dnnl_primitive_desc_t pd,
                                  dnnl_primitive_attr_t attr)
{
    OK(dnnl_primitive_attr_destroy(attr));
    if (status == dnnl_unimplemented)
        return NULL;
    OK(status);
    return pd;
}

dnnl_primitive_desc_t convolution_forward(const Convolution *c)
{
    dnnl_dims_t pad = {c->kernel_size / 2, c->kernel_size / 2};
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        &pd, c->dnn->engine, dnnl_forward_training, c->algorithm, c->input, c->kernel, c->bias,
        c->output, one, zero, pad, pad, attr);
    return made(status, pd, attr);
}

dnnl_primitive_desc_t convolution_backward_input(const Convolution *c, dnnl_primitive_desc_t hint)
{
    dnnl_dims_t pad = {c->kernel_size / 2, c->kernel_size / 2};
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_convolution_backward_data_primitive_desc_create(
        &pd, c->dnn->engine, c->algorithm, c->input, c->kernel, c->output, one, zero, pad, pad,
        hint, attr);
    return made(status, pd, attr);
}

dnnl_primitive_desc_t convolution_backward_kernel(const Convolution *c, dnnl_primitive_desc_t hint)
{
    dnnl_dims_t pad = {c->kernel_size / 2, c->kernel_size / 2};
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_convolution_backward_weights_primitive_desc_create(
        &pd, c->dnn->engine, c->algorithm, c->input, c->kernel, c->bias, c->output, one, zero, pad,
        pad, hint, attr);
    return made(status, pd, attr);
}

dnnl_primitive_desc_t inner_product_forward(const InnerProduct *p)
{
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_inner_product_forward_primitive_desc_create(
        &pd, p->dnn->engine, dnnl_forward_training, p->input, p->kernel, NULL, p->output, attr);
    return made(status, pd, attr);
}

dnnl_primitive_desc_t inner_product_backward_input(const InnerProduct *p,
                                                   dnnl_primitive_desc_t hint)
{
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_inner_product_backward_data_primitive_desc_create(
        &pd, p->dnn->engine, p->input, p->kernel, p->output, hint, attr);
    return made(status, pd, attr);
}

dnnl_primitive_desc_t inner_product_backward_kernel(const InnerProduct *p,
                                                    dnnl_primitive_desc_t hint)
{
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_inner_product_backward_weights_primitive_desc_create(
        &pd, p->dnn->engine, p->input, p->kernel, p->bias, p->output, hint, attr);
    return made(status, pd, attr);
}

#else // 2.x

Desc desc_create_typed(int ndims, const int *dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_dims_t sizes;
    for (int i = 0; i < ndims; i++)
        sizes[i] = dims[i];
    dnnl_memory_desc_t *desc = allocate(1, sizeof *desc);
    OK(dnnl_memory_desc_init_by_tag(desc, ndims, sizes, type, tag));
    return desc;
}

void desc_free(Desc desc)
{
    free((void *)(uintptr_t)desc);
}

static dnnl_primitive_desc_t made(const OneDnn *dnn, const void *op_desc,
                                  dnnl_primitive_desc_t hint)
{
    dnnl_primitive_attr_t attr = attributes();
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_primitive_desc_create(&pd, op_desc, attr, dnn->engine, hint);
    OK(dnnl_primitive_attr_destroy(attr));
    if (status == dnnl_unimplemented)
        return NULL;
    OK(status);
    return pd;
}

dnnl_primitive_desc_t convolution_forward(const Convolution *c)
{
    dnnl_dims_t pad = {c->kernel_size / 2, c->kernel_size / 2};
    dnnl_convolution_desc_t desc;
    OK(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, c->algorithm, c->input,
                                          c->kernel, c->bias, c->output, one, pad, pad));
    return made(c->dnn, &desc, NULL);
}

dnnl_primitive_desc_t convolution_backward_input(const Convolution *c, dnnl_primitive_desc_t hint)
{
    dnnl_dims_t pad = {c->kernel_size / 2, c->kernel_size / 2};
    dnnl_convolution_desc_t desc;
    OK(dnnl_convolution_backward_data_desc_init(&desc, c->algorithm, c->input, c->kernel, c->output,
                                                one, pad, pad));
    return made(c->dnn, &desc, hint);
}

dnnl_primitive_desc_t convolution_backward_kernel(const Convolution *c, dnnl_primitive_desc_t hint)
{
    dnnl_dims_t pad = {c->kernel_size / 2, c->kernel_size / 2};
    dnnl_convolution_desc_t desc;
    OK(dnnl_convolution_backward_weights_desc_init(&desc, c->algorithm, c->input, c->kernel,
                                                   c->bias, c->output, one, pad, pad));
    return made(c->dnn, &desc, hint);
}

dnnl_primitive_desc_t inner_product_forward(const InnerProduct *p)
{
    dnnl_inner_product_desc_t desc;
    OK(dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, p->input, p->kernel, NULL,
                                            p->output));
    return made(p->dnn, &desc, NULL);
}

dnnl_primitive_desc_t inner_product_backward_input(const InnerProduct *p,
                                                   dnnl_primitive_desc_t hint)
{
    dnnl_inner_product_desc_t desc;
    OK(dnnl_inner_product_backward_data_desc_init(&desc, p->input, p->kernel, p->output));
    return made(p->dnn, &desc, hint);
}

dnnl_primitive_desc_t inner_product_backward_kernel(const InnerProduct *p,
                                                    dnnl_primitive_desc_t hint)
{
    dnnl_inner_product_desc_t desc;
    OK(dnnl_inner_product_backward_weights_desc_init(&desc, p->input, p->kernel, p->bias,
                                                     p->output));
    return made(p->dnn, &desc, hint);
}

#endif

// From here on both versions are alike.

Desc desc_create(int ndims, const int *dims, dnnl_format_tag_t tag)
{
    return desc_create_typed(ndims, dims, dnnl_f32, tag);
}

size_t desc_bytes(Desc desc)
{
    return desc ? dnnl_memory_desc_get_size(desc) : 0;
}

bool desc_same(Desc a, Desc b)
{
    return dnnl_memory_desc_equal(a, b);
}

bool is_reference(dnnl_primitive_desc_t pd)
{
    const char *name = "";
    OK(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name));
    return strncmp(name, "ref", 3) == 0;
}

Desc chosen_desc(dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(pd, what, index);
}

static dnnl_memory_t memory_create(const OneDnn *dnn, Desc desc)
{
    dnnl_memory_t memory;
    OK(dnnl_memory_create(&memory, desc, dnn->engine, DNNL_MEMORY_NONE));
    return memory;
}

static dnnl_primitive_t reorder_create(const OneDnn *dnn, Desc from, Desc to)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    leave_room_for_code();
    OK(dnnl_reorder_primitive_desc_create(&pd, from, dnn->engine, to, dnn->engine, NULL));
    OK(dnnl_primitive_create(&primitive, pd));
    OK(dnnl_primitive_desc_destroy(pd));
    return primitive;
}

static size_t take_scratch(Call *call, size_t bytes)
{
    size_t offset = call->scratch_bytes;
    call->scratch_bytes += (bytes + 63) / 64 * 64;
    return offset;
}

static void add_port(Call *call, dnnl_primitive_desc_t pd, const PortSpec *spec)
{
    Desc inside = chosen_desc(pd, spec->what, spec->index);
    Port *port = &call->ports[call->port_count++];
    *port = (Port){.argument = spec->argument, .written = spec->written};
    port->inside = memory_create(call->dnn, inside);
    port->outside = port->inside;
    if (desc_same(inside, spec->outside))
        return;
    port->outside = memory_create(call->dnn, spec->outside);
    port->reorder = spec->written ? reorder_create(call->dnn, inside, spec->outside)
                                  : reorder_create(call->dnn, spec->outside, inside);
    port->scratch_offset = take_scratch(call, desc_bytes(inside));
}

Call call_prepare(const OneDnn *dnn, dnnl_primitive_desc_t pd, const PortSpec *ports, int count)
{
    CHECK(pd && count < MAX_PORTS);
    Call call = {.dnn = dnn};
    leave_room_for_code();
    OK(dnnl_primitive_create(&call.primitive, pd));
    for (int i = 0; i < count; i++)
        add_port(&call, pd, &ports[i]);

    // oneDNN's own working memory, last of the ports.
    Desc scratchpad = chosen_desc(pd, dnnl_query_scratchpad_md, 0);
    Port *port = &call.ports[call.port_count];
    *port = (Port){.argument = DNNL_ARG_SCRATCHPAD, .inside = memory_create(dnn, scratchpad)};
    port->scratch_offset = take_scratch(&call, desc_bytes(scratchpad));
    OK(dnnl_primitive_desc_destroy(pd));
    return call;
}

Call call_reorder(const OneDnn *dnn, Desc from, Desc to)
{
    Call call = {.dnn = dnn, .primitive = reorder_create(dnn, from, to), .port_count = 2};
    call.ports[0] = (Port){.argument = DNNL_ARG_FROM, .inside = memory_create(dnn, from)};
    call.ports[0].outside = call.ports[0].inside;
    call.ports[1] =
        (Port){.argument = DNNL_ARG_TO, .inside = memory_create(dnn, to), .written = true};
    call.ports[1].outside = call.ports[1].inside;
    return call;
}

void call_free(Call *call)
{
    for (int i = 0; i < MAX_PORTS; i++) {
        Port *port = &call->ports[i];
        if (port->reorder) {
            dnnl_primitive_destroy(port->reorder);
            dnnl_memory_destroy(port->outside);
        }
        if (port->inside)
            dnnl_memory_destroy(port->inside);
    }
    if (call->primitive)
        dnnl_primitive_destroy(call->primitive);
    *call = (Call){0};
}

// Setting a handle may cost a pass over the tensor's padding, so it is done only on change.
static void point(dnnl_memory_t memory, void *to)
{
    void *now;
    OK(dnnl_memory_get_data_handle(memory, &now));
    if (now != to)
        OK(dnnl_memory_set_data_handle(memory, to));
}

static void run_reorder(dnnl_stream_t stream, dnnl_primitive_t reorder, dnnl_memory_t from,
                        dnnl_memory_t to)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    OK(dnnl_primitive_execute(reorder, stream, 2, args));
}

void call_run(Call *call, void *scratch, void *const *memory)
{
    dnnl_exec_arg_t args[MAX_PORTS];
    int count = call->port_count;
    dnnl_stream_t stream = call->dnn->stream;
    for (int i = 0; i < count; i++) {
        Port *port = &call->ports[i];
        point(port->outside, memory[i]);
        if (port->reorder)
            point(port->inside, (char *)scratch + port->scratch_offset);
        if (port->reorder && !port->written)
            run_reorder(stream, port->reorder, port->outside, port->inside);
        args[i] = (dnnl_exec_arg_t){port->argument, port->inside};
    }
    if (call->ports[count].inside) {
        Port *scratchpad = &call->ports[count];
        point(scratchpad->inside, (char *)scratch + scratchpad->scratch_offset);
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, scratchpad->inside};
    }
    OK(dnnl_primitive_execute(call->primitive, stream, count, args));
    for (int i = 0; i < call->port_count; i++)
        if (call->ports[i].reorder && call->ports[i].written)
            run_reorder(stream, call->ports[i].reorder, call->ports[i].inside,
                        call->ports[i].outside);
    OK(dnnl_stream_wait(stream));
}

static bool has_isa(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

bool onednn_has_avx2(void)
{
    return has_isa(dnnl_cpu_isa_avx2);
}

bool onednn_has_avx512(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core);
}

bool onednn_has_amx(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_amx);
}

void matrix_multiply(bool transpose_a, bool transpose_b, int rows, int columns, int inner,
                     const float *a, const float *b, float *c)
{
    static atomic_flag made = ATOMIC_FLAG_INIT; // its code, by the first call
    if (!atomic_flag_test_and_set(&made))
        leave_room_for_code();
    OK(dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', rows, columns, inner, 1, a,
                  transpose_a ? rows : inner, b, transpose_b ? inner : columns, 0, c, columns));
}
