// Elements: images and batches on their way through a pipeline.

#include "data/pipeline_inside.h"

#include <stdlib.h>
#include <string.h>
#include "base/memory.h"

static _Thread_local int64_t images_done; // by this thread

int64_t own_work(void)
{
    return images_done;
}

void add_own_work(int images)
{
    images_done += images;
}

void add_held(Held *held, Form form, const Element *element)
{
    atomic_fetch_add_explicit(&held->images, form.size, memory_order_relaxed);
    atomic_fetch_add_explicit(&held->bytes, (long long)element->block_bytes, memory_order_relaxed);
}

Element new_element(const Source *source, Form form)
{
    size_t size = (size_t)form.size, values = size * image_length(&source->format);
    size_t pixels =
        (values * (form.floats ? sizeof(float) : 1) + 7) / 8 * 8; // what follows: aligned
    Element element = {.block_bytes =
                           pixels + size * (sizeof(Rng) + sizeof(int) + sizeof(uint32_t))};
    element.block = allocate(1, element.block_bytes);
    if (form.floats)
        element.floats = element.block;
    else
        element.bytes = element.block;
    element.streams = (Rng *)((char *)element.block + pixels);
    element.labels = (int *)(element.streams + size);
    element.numbers = (uint32_t *)(element.labels + size);
    return element;
}

void free_element(Element *element)
{
    free(element->block);
    *element = (Element){0};
}

void swap_elements(Element *a, Element *b)
{
    Element kept = *a;
    *a = *b;
    *b = kept;
}

Form prepared(Form form)
{
    form.floats = true;
    form.pending = false;
    return form;
}

void prepare(const Source *source, Form form, const Element *raw, Scratch *scratch, Element *out)
{
    const Format *format = &source->format;
    size_t length = image_length(format);
    for (int i = 0; i < raw->count; i++) {
        size_t at = (size_t)i * length;
        Pixels image = {.bytes = raw->bytes ? raw->bytes + at : NULL,
                        .floats = raw->floats ? raw->floats + at : NULL};
        if (form.pending)
            augment_randomly(format, image, raw->streams[i], scratch, out->floats + at);
        else
            standardize_image(format, image, out->floats + at);
        out->labels[i] = raw->labels[i];
        out->numbers[i] = raw->numbers[i];
    }
    out->count = raw->count;
    add_own_work(raw->count);
}
