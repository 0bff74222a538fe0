// The parts of a pipeline. A stage gives its next element, an image or a batch, and takes elements
// from the stage before it. One thread at a time pulls elements; any thread can augment and
// standardise one later (`prepare`).

#ifndef HVDLAB_PIPELINE_INSIDE_H
#define HVDLAB_PIPELINE_INSIDE_H

#include <stdatomic.h>
#include "data/augment_inside.h"
#include "data/pipeline.h"

// The form of a stage's elements.
typedef struct {
    int size;     // images in one, at most; 1 before there are batches
    bool batches; // they are batches
    bool floats;  // standardised; else bytes
    bool pending; // still to be augmented
} Form;

// One element. What the pointers point to lies in `block`.
typedef struct {
    int count;         // images
    int *labels;       // of each
    uint32_t *numbers; // its place in the data set
    Rng *streams;      // by which it is to be augmented
    uint8_t *bytes;    // NULL where there are floats
    float *floats;
    void *block;
    size_t block_bytes;
} Element;

// What stages keep.
typedef struct {
    atomic_llong images, bytes;
} Held;

// The source of a pipeline, which all its stages know, and what is counted on the way.
typedef struct {
    Dataset dataset; // its images and labels belong to the caller
    Format format;
    int batch_size;    // 0 before there are batches
    bool short_batch;  // the last one of a pass is given, too
    atomic_llong read; // images, so far
    atomic_llong passes;
    atomic_bool skipping;                // images are passed over, and no disk is waited for
    Held cached, filed, buffered, ahead; // in memory, in files, by shuffles, by prefetches
} Source;

typedef enum { DRAWS_NOTHING, DRAWS_ORDER, DRAWS_AUGMENTATION } Draws;

// A stage; its own struct begins with this.
struct Pipeline {
    // The next element of this pass in place of *element, whose memory may be exchanged for other
    // memory of the same form. False, also when asked again: the pass is over.
    bool (*next)(Pipeline *stage, Element *element);
    void (*rewind)(Pipeline *stage); // a pass begins; also the first one
    void (*pause)(Pipeline *stage);  // threads stop until rewind; NULL: it has none
    void (*free)(Pipeline *stage);   // what it owns, but not the stages before it

    Pipeline *upstream; // NULL: the first stage
    Source *source;
    Form form;
    char *name;   // for traces: "shuffle 1000"
    bool taken;   // by the next stage
    bool settled; // a cache that has begun: what is before it goes on by itself
    bool repeats;
    Draws draws;
    uint64_t seed;  // of what it draws
    int64_t passes; // since it was seeded
    int64_t limit;  // of elements that are worth preparing, since then
    int64_t skip;   // elements that a stage with threads passes over when the pass begins
};

// A stage of `size` bytes after `upstream`, which it takes, giving the same form. `caller` is the
// function that makes it.
void *new_stage(size_t size, Pipeline *upstream, const char *caller, char *name);

// The first stage, in the files' order, or in that of a permutation for each pass.
Pipeline *first_stage(const Dataset *dataset, Statistics statistics, bool permuted);

// As pipeline_prefetch, with as many elements ahead as keep all loader threads busy.
Pipeline *prefetch_for_threads(Pipeline *p);

// Elements of a form.
Element new_element(const Source *source, Form form);
void free_element(Element *element);
void swap_elements(Element *a, Element *b);

// What a stage gives once it has been prepared.
Form prepared(Form form);

// Does what is left to do: writes `raw`, of that form, to `out`, of the form prepared(form).
void prepare(const Source *source, Form form, const Element *raw, Scratch *scratch, Element *out);

// Images that the calling thread has handled so far, one count for each stage that did something
// with one.
int64_t own_work(void);
void add_own_work(int images);

// Another element of that form is kept.
void add_held(Held *held, Form form, const Element *element);

#endif
