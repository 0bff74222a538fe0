// Finds a loaded image by its address, then by its content. Only traced runs use it; they are small.

#include "watch/images.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/format.h"
#include "observe/trace.h"

typedef struct {
    const char *split;
    const uint8_t *first; // where the program has, or had, its first image
    uint8_t *images;      // a copy of all of them
    uint8_t *labels;      // and of their labels
    size_t bytes;         // of one
    int count;
} Loaded;

static Loaded *loaded;
static size_t loaded_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards both

void watch_loaded(const char *split, const uint8_t *images, size_t bytes, const uint8_t *labels,
                  int count)
{
    if (!trace_on())
        return;
    Loaded set = {.split = split,
                  .first = images,
                  .images = allocate((size_t)count, bytes),
                  .labels = allocate((size_t)count, 1),
                  .bytes = bytes,
                  .count = count};
    memcpy(set.images, images, (size_t)count * bytes);
    memcpy(set.labels, labels, (size_t)count);
    pthread_mutex_lock(&lock);
    loaded = enlarge(loaded, loaded_count + 1, sizeof *loaded);
    loaded[loaded_count++] = set;
    pthread_mutex_unlock(&lock);
    lives_until_exit(set.images);
    lives_until_exit(set.labels);
    lives_until_exit(loaded);
}

// Its index among these images; -1: it is none of them.
static int place_in(const Loaded *set, const uint8_t *image)
{
    uintptr_t first = (uintptr_t)set->first, address = (uintptr_t)image;
    size_t place = address >= first ? (address - first) / set->bytes : SIZE_MAX;
    if (place < (size_t)set->count && !memcmp(set->images + place * set->bytes, image, set->bytes))
        return (int)place;
    for (int i = 0; i < set->count; i++)
        if (memcmp(set->images + (size_t)i * set->bytes, image, set->bytes) == 0)
            return i;
    return -1;
}

typedef struct {
    const char *split; // "train", "test"; "": no such image was loaded
    int number;        // its place in what was loaded; -1: no such image
    int label;         // that it was loaded with
} Origin;

// The image of `bytes` bytes: the one at this address, else the first one with equal bytes.
static Origin origin_of(const uint8_t *image, size_t bytes)
{
    Origin origin = {.split = "", .number = -1};
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < loaded_count && origin.number < 0; i++) {
        int place = loaded[i].bytes == bytes ? place_in(&loaded[i], image) : -1;
        if (place >= 0)
            origin = (Origin){
                .split = loaded[i].split, .number = place, .label = loaded[i].labels[place]};
    }
    pthread_mutex_unlock(&lock);
    return origin;
}

void watch_drawn(const DrawnImages *drawn)
{
    int *numbers = allocate((size_t)drawn->count, sizeof *numbers), mislabeled = 0;
    const char *split = "";
    for (int i = 0; i < drawn->count; i++) {
        uint32_t place = drawn->places[i];
        Origin origin = origin_of(drawn->images + place * drawn->bytes, drawn->bytes);
        numbers[i] = origin.number >= 0 ? origin.number : (int)place;
        split = origin.split;
        mislabeled += origin.number >= 0 && drawn->labels[i] != origin.label;
    }
    char *places = numbers_text(numbers, drawn->count);
    trace("images", NUMBER("batches", drawn->batches), NUMBER("permutation", drawn->permutation),
          NUMBER("step", drawn->step), TEXT("split", split), TEXT("drawn", places),
          NUMBER("mislabeled", mislabeled));
    free(places);
    free(numbers);
}
