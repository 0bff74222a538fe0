// Caches: they keep the elements of the first pass, in memory or in a file. If a pass stops before
// its end, a later one continues it, so that no element is read twice.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "data/pipeline_inside.h"

typedef struct {
    Pipeline stage;
    int64_t position; // in this pass
    int64_t kept;
    bool complete;   // nothing more comes
    Element *memory; // what is kept, where there is no file

    int file;
    char *path;
    int *counts; // images of each element in the file

    Element arriving; // where it is still to be augmented
    Scratch scratch;
} Cache;

// ---- Where it is kept.

static void keep_in_memory(Cache *cache, const Element *element)
{
    size_t count = (size_t)cache->kept + 1;
    cache->memory = enlarge(cache->memory, count, sizeof *cache->memory);
    Element *added = &cache->memory[cache->kept];
    *added = new_element(cache->stage.source, cache->stage.form);
    memcpy(added->block, element->block, element->block_bytes);
    added->count = element->count;
    add_held(&cache->stage.source->cached, cache->stage.form, added);
}

_Noreturn static void end_of_file(const Cache *cache, const char *verb, ssize_t moved)
{
    die("%s: cannot %s: %s", cache->path, verb,
        moved < 0 ? strerror(errno) : "the file is shorter than it was");
}

// Writes all of an element's block, at its offset in the file.
static void write_block(const Cache *cache, const Element *element)
{
    off_t place = (off_t)element->block_bytes * (off_t)cache->kept;
    for (size_t done = 0; done < element->block_bytes;) {
        ssize_t moved = pwrite(cache->file, (char *)element->block + done,
                               element->block_bytes - done, place + (off_t)done);
        if (moved <= 0)
            end_of_file(cache, "write", moved);
        done += (size_t)moved;
    }
}

static void read_block(const Cache *cache, Element *element)
{
    off_t place = (off_t)element->block_bytes * (off_t)cache->position;
    for (size_t done = 0; done < element->block_bytes;) {
        ssize_t moved = pread(cache->file, (char *)element->block + done,
                              element->block_bytes - done, place + (off_t)done);
        if (moved <= 0)
            end_of_file(cache, "read", moved);
        done += (size_t)moved;
    }
}

static void keep_in_file(Cache *cache, const Element *element)
{
    write_block(cache, element);
    cache->counts = enlarge(cache->counts, (size_t)cache->kept + 1, sizeof *cache->counts);
    cache->counts[cache->kept] = element->count;
    add_held(&cache->stage.source->filed, cache->stage.form, element);
}

static void keep(Cache *cache, const Element *element)
{
    if (cache->path)
        keep_in_file(cache, element);
    else
        keep_in_memory(cache, element);
    cache->kept++;
}

static void recall(Cache *cache, Element *element)
{
    if (cache->path) {
        read_block(cache, element);
        element->count = cache->counts[cache->position];
    } else {
        const Element *kept = &cache->memory[cache->position];
        memcpy(element->block, kept->block, kept->block_bytes);
        element->count = kept->count;
    }
}

// ---- The stage.

static bool pull(Cache *cache, Element *element)
{
    Pipeline *upstream = cache->stage.upstream;
    bool pending = upstream->form.pending;
    if (cache->complete || !upstream->next(upstream, pending ? &cache->arriving : element)) {
        cache->complete = true;
        return false;
    }
    if (pending)
        prepare(cache->stage.source, upstream->form, &cache->arriving, &cache->scratch, element);
    keep(cache, element);
    return true;
}

static bool next_kept(Pipeline *stage, Element *element)
{
    Cache *cache = (Cache *)stage;
    if (cache->position < cache->kept)
        recall(cache, element);
    else if (!pull(cache, element))
        return false;
    cache->position++;
    add_own_work(element->count);
    return true;
}

static void rewind_cache(Pipeline *stage)
{
    Cache *cache = (Cache *)stage;
    cache->position = 0;
    if (!stage->settled)
        stage->upstream->rewind(stage->upstream);
    stage->settled = true;
}

static void free_cache(Pipeline *stage)
{
    Cache *cache = (Cache *)stage;
    for (int64_t i = 0; cache->memory && i < cache->kept; i++)
        free_element(&cache->memory[i]);
    free(cache->memory);
    if (cache->path)
        close(cache->file);
    free(cache->path);
    free(cache->counts);
    free_element(&cache->arriving);
    free_scratch(&cache->scratch);
}

static Cache *new_cache(Pipeline *p, const char *caller, char *name)
{
    Cache *cache = new_stage(sizeof *cache, p, caller, name);
    cache->stage.next = next_kept;
    cache->stage.rewind = rewind_cache;
    cache->stage.free = free_cache;
    if (p->form.pending) {
        cache->stage.form = prepared(p->form);
        cache->arriving = new_element(p->source, p->form);
        cache->scratch = allocate_scratch(&p->source->format);
    }
    return cache;
}

Pipeline *pipeline_cache(Pipeline *p)
{
    return &new_cache(p, __func__, format_text("cache"))->stage;
}

Pipeline *pipeline_cache_in_file(Pipeline *p, const char *path)
{
    if (!path || !*path)
        die("%s: there is no path", __func__);
    Cache *cache = new_cache(p, __func__, format_text("cache_in_file"));
    cache->path = format_text("%s.XXXXXX", path);
    cache->file = mkostemp(cache->path, O_CLOEXEC);
    if (cache->file < 0)
        die("%s: cannot make a file of that name: %s", path, strerror(errno));
    unlink(cache->path);
    return &cache->stage;
}
