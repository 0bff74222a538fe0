// Data sets: reads IDX and CIFAR-10 files, draws synthetic images, finds the files of the command
// line. Does not trust a header's sizes: memory grows only with the bytes that were read.

#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/rng.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/format.h"
#include "data/hooks.h"
#include "observe/span.h"
#include "observe/trace.h"

// -- Files, plain or gzip -------------------------------------------------------------------------

typedef struct {
    const char *path;
    int file;      // the stream's; it closes it
    gzFile stream; // zlib passes plain bytes through as they are
    uLong crc;     // of the bytes read so far, and their number
    size_t bytes;
} GzipFile;

// All queries use one descriptor: meanwhile the name may get another file, or none.
static GzipFile open_source(const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait for a writer
    if (file < 0 || fstat(file, &status) != 0)
        die("%s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        die("%s: this is a folder, not a file", path);
    if (!S_ISREG(status.st_mode))
        die("%s: not a regular file", path);
    GzipFile source = {.path = path, .file = file, .stream = gzdopen(file, "rb")};
    if (source.stream == NULL || gzbuffer(source.stream, 1 << 18) != 0)
        die("%s: out of memory to read it", path);
    return source;
}

static _Noreturn void die_damaged(const GzipFile *source)
{
    int code;
    const char *fault = gzerror(source->stream, &code);
    if (code == Z_MEM_ERROR)
        die("%s: out of memory to read it", source->path);
    if (code == Z_ERRNO)
        die("%s: %s", source->path, strerror(errno));
    // zlib's message begins with a file name of its own.
    const char *behind_name = strstr(fault, ": ");
    die("%s: %s (the file is damaged or cut short)", source->path,
        behind_name ? behind_name + 2 : fault);
}

// Reads up to `bytes` bytes and returns how many there were.
static size_t read_some(GzipFile *source, uint8_t *to, size_t bytes)
{
    const size_t largest = 1 << 30; // gzread counts in int
    size_t done = 0;
    while (done < bytes) {
        size_t left = bytes - done;
        int got = gzread(source->stream, to + done, (unsigned)(left < largest ? left : largest));
        if (got < 0)
            die_damaged(source);
        if (got == 0)
            break;
        source->crc = crc32(source->crc, to + done, (uInt)got);
        source->bytes += (size_t)got;
        done += (size_t)got;
    }
    // For a truncated gzip file only this code differs from a normal end.
    int code;
    gzerror(source->stream, &code);
    if (code != Z_OK && code != Z_STREAM_END)
        die_damaged(source);
    return done;
}

// Reads exactly `bytes` bytes, which the caller frees. A header can claim gigabytes that do not
// exist, so memory is allocated in pieces, each as large as all before it.
static uint8_t *read_exactly(GzipFile *source, size_t bytes)
{
    size_t capacity = 1 << 20, done = 0;
    uint8_t *data = NULL;
    while (done < bytes) {
        capacity = 2 * capacity < bytes ? 2 * capacity : bytes;
        uint8_t *larger = realloc(data, capacity);
        if (larger == NULL)
            die("%s: not enough memory for %zu bytes", source->path, bytes);
        data = larger;
        size_t got = read_some(source, data + done, capacity - done);
        done += got;
        if (done < capacity)
            die("%s: the file is cut short (%zu of %zu bytes)", source->path, done, bytes);
    }
    return data;
}

// A gzip file ends in the checksum and the length of its content. zlib ignores bytes after them, so
// only these last eight bytes show such bytes.
static bool ends_in_its_trailer(const GzipFile *source)
{
    uint8_t last[8];
    struct stat status;
    bool there = fstat(source->file, &status) == 0 &&
                 pread(source->file, last, sizeof last, status.st_size - (off_t)sizeof last) ==
                     (ssize_t)sizeof last;
    uint32_t expected[] = {(uint32_t)source->crc, (uint32_t)source->bytes};
    for (size_t i = 0; there && i < sizeof last; i++)
        there = last[i] == (uint8_t)(expected[i / 4] >> i % 4 * 8);
    return there;
}

// The file must end here. Reading one more byte also makes zlib compare gzip's checksum.
static void close_at_end(GzipFile *source)
{
    uint8_t byte;
    if (read_some(source, &byte, 1) != 0 ||
        (!gzdirect(source->stream) && !ends_in_its_trailer(source)))
        die("%s: the file goes on after its data, or is made of several gzip files (gunzip it)",
            source->path);
    if (gzclose(source->stream) != Z_OK)
        die("%s: the file is damaged", source->path);
}

// -- IDX ------------------------------------------------------------------------------------------

// An IDX magic number: two zero bytes, the type (8: unsigned bytes), the number of dimensions.
enum { IDX_LABELS = 0x00000801, IDX_IMAGES = 0x00000803 };

enum { MAX_IDX_DIMS = 3 };

static uint32_t read_big_endian(GzipFile *source)
{
    uint8_t bytes[4];
    if (read_some(source, bytes, sizeof bytes) != sizeof bytes)
        die("%s: the file ends inside its header", source->path);
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

// Reads the header's sizes into `dims`.
static void read_idx_header(GzipFile *source, uint32_t magic, int *dims)
{
    uint32_t found = read_big_endian(source);
    if (found >> 24 == '<')
        die("%s: not an IDX file, but a web page, which a download may leave: fetch it again",
            source->path);
    if (found != magic)
        die("%s: not an IDX file of %s (it begins with 0x%08x, not 0x%08x)", source->path,
            magic == IDX_IMAGES ? "images" : "labels", found, magic);
    int count = (int)(magic & 0xff);
    for (int i = 0; i < count; i++) {
        uint32_t dim = read_big_endian(source);
        if (dim == 0 || dim > INT_MAX)
            die("%s: impossible size %u in the header", source->path, dim);
        dims[i] = (int)dim;
    }
}

// The maximum number of bytes to read. More than any data set of small images has, and less than a
// machine's memory: a short gzip file can contain gigabytes.
enum { MAX_SIDE = 4096, MAX_IMAGES = 1 << 20, MAX_BYTES = 1 << 30 };

// A pair of IDX files whose headers have been read.
typedef struct {
    GzipFile images, labels;
    int count, height, width;
} IdxPair;

static IdxPair open_idx(const char *images_path, const char *labels_path)
{
    int dims[MAX_IDX_DIMS], label_count;
    IdxPair pair = {.images = open_source(images_path)};
    read_idx_header(&pair.images, IDX_IMAGES, dims);
    pair.labels = open_source(labels_path);
    read_idx_header(&pair.labels, IDX_LABELS, &label_count);
    pair.count = dims[0];
    pair.height = dims[1];
    pair.width = dims[2];
    if (label_count != pair.count)
        die("%s: %d labels, but %s holds %d images", labels_path, label_count, images_path,
            pair.count);
    return pair;
}

static void check_size(const IdxPair *pair, int count)
{
    if (pair->height > MAX_SIDE || pair->width > MAX_SIDE)
        die("%s: images of %dx%d; at most %dx%d are read", pair->images.path, pair->height,
            pair->width, MAX_SIDE, MAX_SIDE);
    if (count > MAX_IMAGES || count > MAX_BYTES / (pair->height * pair->width))
        die("%s: %d images of %dx%d; at most %d and %d MiB are read (--images N takes the first N)",
            pair->images.path, pair->count, pair->height, pair->width, MAX_IMAGES, MAX_BYTES >> 20);
}

// Reads the first `bytes` bytes; if that is the file's expected size, the file must end there.
static uint8_t *read_and_close(GzipFile *source, size_t bytes, bool all)
{
    uint8_t *data = read_exactly(source, bytes);
    if (all)
        close_at_end(source);
    else
        gzclose(source->stream);
    return data;
}

static void check_labels(const char *path, const uint8_t *labels, int count, int classes)
{
    for (int i = 0; i < count; i++) {
        if (labels[i] >= classes)
            die("%s: label %d of image %d is not below %d", path, labels[i], i, classes);
    }
}

// The first `images` images of the pair, or all where that is 0 or more than there are.
static Dataset read_idx(IdxPair *pair, int classes, int images)
{
    bool all = images < 1 || images >= pair->count;
    int count = all ? pair->count : images;
    check_size(pair, count);
    Dataset dataset = {.channels = 1,
                       .classes = classes,
                       .count = count,
                       .height = pair->height,
                       .width = pair->width};
    size_t image_bytes = (size_t)pair->height * (size_t)pair->width;
    dataset.images = read_and_close(&pair->images, (size_t)count * image_bytes, all);
    dataset.labels = read_and_close(&pair->labels, (size_t)count, all);
    check_labels(pair->labels.path, dataset.labels, count, classes);
    return dataset;
}

Dataset load_idx(const char *images_path, const char *labels_path, int classes)
{
    IdxPair pair = open_idx(images_path, labels_path);
    return read_idx(&pair, classes, 0);
}

// -- CIFAR-10 -------------------------------------------------------------------------------------

enum {
    CIFAR_SIDE = 32,
    CIFAR_CHANNELS = 3,
    CIFAR_CLASSES = 10,
    CIFAR_PIXELS = CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_IMAGE_BYTES = CIFAR_PIXELS * CIFAR_CHANNELS,
    CIFAR_RECORD_BYTES = 1 + CIFAR_IMAGE_BYTES,
    CIFAR_FILE_RECORDS = 10000,
    CIFAR_TRAIN_FILES = 5,
};

// A record holds its image as three planes; a data set holds the three values of a pixel together.
static void interleave_planes(const uint8_t *planes, uint8_t *image)
{
    for (int channel = 0; channel < CIFAR_CHANNELS; channel++) {
        for (int pixel = 0; pixel < CIFAR_PIXELS; pixel++)
            image[pixel * CIFAR_CHANNELS + channel] = *planes++;
    }
}

// Appends one file to the images of the data set.
static void append_cifar10_file(Dataset *dataset, const char *folder, const char *name)
{
    char *path = format_text("%s/%s", folder, name);
    GzipFile source = open_source(path);
    uint8_t *records = read_exactly(&source, (size_t)CIFAR_FILE_RECORDS * CIFAR_RECORD_BYTES);
    close_at_end(&source);
    uint8_t *labels = dataset->labels + dataset->count;
    for (size_t i = 0; i < CIFAR_FILE_RECORDS; i++) {
        const uint8_t *record = records + i * CIFAR_RECORD_BYTES;
        size_t position = (size_t)dataset->count + i;
        labels[i] = record[0];
        interleave_planes(record + 1, dataset->images + position * CIFAR_IMAGE_BYTES);
    }
    check_labels(path, labels, CIFAR_FILE_RECORDS, CIFAR_CLASSES);
    dataset->count += CIFAR_FILE_RECORDS;
    free(records);
    free(path);
}

Dataset load_cifar10(const char *folder, Split split)
{
    size_t images = (size_t)CIFAR_FILE_RECORDS * (split == TRAIN ? CIFAR_TRAIN_FILES : 1);
    Dataset dataset = {
        .images = allocate(images, CIFAR_IMAGE_BYTES),
        .labels = allocate(images, 1),
        .height = CIFAR_SIDE,
        .width = CIFAR_SIDE,
        .channels = CIFAR_CHANNELS,
        .classes = CIFAR_CLASSES,
    };
    if (split == TEST)
        append_cifar10_file(&dataset, folder, "test_batch.bin");
    for (int i = 1; split == TRAIN && i <= CIFAR_TRAIN_FILES; i++) {
        char *name = format_text("data_batch_%d.bin", i);
        append_cifar10_file(&dataset, folder, name);
        free(name);
    }
    return dataset;
}

// -- Synthetic images -----------------------------------------------------------------------------

enum {
    SYNTHETIC_SIDE = 28,
    SYNTHETIC_CLASSES = 10,
    SYNTHETIC_TRAIN_IMAGES = 6000,
    SYNTHETIC_TEST_IMAGES = 1000,
    SYNTHETIC_SHIFT = 2,                                 // pixels, at most, in each direction
    PATTERN_SIDE = SYNTHETIC_SIDE + 2 * SYNTHETIC_SHIFT, // room for the shift
    PATTERN_WAVES = 6,
};

// A class: a smooth image of mean 0 and standard deviation 1.
typedef struct {
    float pixels[PATTERN_SIDE][PATTERN_SIDE];
} Pattern;

// Adds a standing wave of random height and length. It is symmetric about the middle column,
// because training flips images left to right and a flipped image must still show its class.
static void add_wave(Pattern *pattern, Rng *rng)
{
    const float full_turn = 6.28318531f, middle = (PATTERN_SIDE - 1) / 2.0f;
    // Radians per pixel; at most 3 waves fit into an image, so that a shift changes little of it.
    float turn_y = full_turn * 3.0f * rng_uniform(rng) / (float)SYNTHETIC_SIDE;
    float turn_x = full_turn * 3.0f * rng_uniform(rng) / (float)SYNTHETIC_SIDE;
    float phase = full_turn * rng_uniform(rng);
    float height = rng_normal(rng);
    for (int y = 0; y < PATTERN_SIDE; y++) {
        float at_row = height * cosf(turn_y * (float)y + phase);
        for (int x = 0; x < PATTERN_SIDE; x++)
            pattern->pixels[y][x] += at_row * cosf(turn_x * ((float)x - middle));
    }
}

static void normalize_pattern(Pattern *pattern)
{
    float *pixels = &pattern->pixels[0][0];
    const int count = PATTERN_SIDE * PATTERN_SIDE;
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) {
        sum += pixels[i];
        squares += (double)pixels[i] * pixels[i];
    }
    double mean = sum / count, deviation = sqrt(squares / count - mean * mean);
    for (int i = 0; i < count; i++)
        pixels[i] = (float)((pixels[i] - mean) / deviation);
}

static Pattern draw_pattern(uint64_t seed, int label)
{
    Rng rng = rng_stream_of(seed, RNG_SYNTHETIC_DATA, (uint64_t)label);
    Pattern pattern = {0};
    for (int i = 0; i < PATTERN_WAVES; i++)
        add_wave(&pattern, &rng);
    normalize_pattern(&pattern);
    return pattern;
}

static float uniform_between(Rng *rng, float low, float high)
{
    return low + (high - low) * rng_uniform(rng);
}

// Draws one image of a class: its pattern with a small shift, other brightness and contrast, and
// noise.
static void draw_image(const Pattern *pattern, Rng *rng, uint8_t *image)
{
    uint32_t top = rng_below(rng, 2 * SYNTHETIC_SHIFT + 1);
    uint32_t left = rng_below(rng, 2 * SYNTHETIC_SHIFT + 1);
    float brightness = uniform_between(rng, 90, 160), contrast = uniform_between(rng, 15, 45);
    const float noise = 40;
    for (uint32_t y = 0; y < SYNTHETIC_SIDE; y++) {
        for (uint32_t x = 0; x < SYNTHETIC_SIDE; x++) {
            float value = brightness + contrast * pattern->pixels[top + y][left + x] +
                          noise * rng_normal(rng);
            *image++ = (uint8_t)fminf(fmaxf(value, 0), 255);
        }
    }
}

Dataset synthetic_data(Split split, uint64_t seed, int images)
{
    Dataset dataset = {
        .count = split == TRAIN ? SYNTHETIC_TRAIN_IMAGES : SYNTHETIC_TEST_IMAGES,
        .height = SYNTHETIC_SIDE,
        .width = SYNTHETIC_SIDE,
        .channels = 1,
        .classes = SYNTHETIC_CLASSES,
    };
    size_t count = (size_t)dataset.count, image_bytes = SYNTHETIC_SIDE * SYNTHETIC_SIDE;
    size_t drawn = images > 0 && (size_t)images < count ? (size_t)images : count;
    dataset.images = allocate(drawn, image_bytes);
    dataset.labels = allocate(drawn, 1);
    Pattern patterns[SYNTHETIC_CLASSES];
    for (int label = 0; label < SYNTHETIC_CLASSES; label++)
        patterns[label] = draw_pattern(seed, label);
    // The streams after the classes' own: one for each split.
    Rng rng = rng_stream_of(seed, RNG_SYNTHETIC_DATA, SYNTHETIC_CLASSES + (uint64_t)split);
    uint32_t *order = allocate(count, sizeof *order);
    rng_permutation(&rng, order, (uint32_t)count);
    for (size_t i = 0; i < drawn; i++) {
        dataset.labels[i] = (uint8_t)(order[i] % SYNTHETIC_CLASSES); // as many of each class
        draw_image(&patterns[dataset.labels[i]], &rng, dataset.images + i * image_bytes);
    }
    free(order);
    dataset.count = (int)drawn;
    return dataset;
}

// -- What the command line asks for ---------------------------------------------------------------

enum { FASHION_SIDE = 28, FASHION_CLASSES = 10 };

// Without --seed the synthetic images are still the same on every rank and in every run.
enum { SYNTHETIC_SEED = 20170825 };

// The path of a file in a folder, plain or gzip; NULL where there is neither. The caller frees it.
static char *find_file(const char *folder, const char *name)
{
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        char *path = format_text("%s/%s%s", folder, name, endings[i]);
        if (access(path, F_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

// Loads a split of Fashion-MNIST, or its first images, from a folder; false if it has no images.
// Images without labels are an error, not a reason to search elsewhere.
static bool load_from_folder(const char *folder, Split split, int images, Dataset *dataset)
{
    const char *images_name = split == TRAIN ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels_name = split == TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    char *images_path = find_file(folder, images_name);
    if (images_path == NULL)
        return false;
    char *labels_path = find_file(folder, labels_name);
    if (labels_path == NULL)
        die("%s/%s: no such file, plain or .gz", folder, labels_name);
    IdxPair pair = open_idx(images_path, labels_path);
    if (pair.height != FASHION_SIDE || pair.width != FASHION_SIDE)
        die("%s: the images are %dx%d, not %dx%d", images_path, pair.height, pair.width,
            FASHION_SIDE, FASHION_SIDE);
    *dataset = read_idx(&pair, FASHION_CLASSES, images);
    free(images_path);
    free(labels_path);
    return true;
}

static Dataset load_fashion_mnist(const char *data_dir, Split split, int images)
{
    const char *folders[] = {"/usr/share/datasets/fashion-mnist", "data"}; // Debian's, make data's
    int count = 2;
    if (data_dir != NULL) {
        folders[0] = data_dir;
        count = 1;
    }
    Dataset dataset;
    for (int i = 0; i < count; i++) {
        if (load_from_folder(folders[i], split, images, &dataset))
            return dataset;
    }
    die("no Fashion-MNIST in %s%s%s: run `make data`, or `apt install dataset-fashion-mnist`, or "
        "use `--data synthetic`",
        folders[0], count == 2 ? " or " : "", count == 2 ? folders[1] : "");
}

void (*images_were_loaded)(const char *split, const uint8_t *images, size_t bytes,
                           const uint8_t *labels, int count);

Dataset dataset_loaded(Dataset dataset, Split split)
{
    images_were_loaded(split == TRAIN ? "train" : "test", dataset.images,
                       (size_t)dataset.height * (size_t)dataset.width * (size_t)dataset.channels,
                       dataset.labels, dataset.count);
    lives_until_exit(dataset.images);
    lives_until_exit(dataset.labels);
    return dataset;
}

void check_load(const char *caller, const Args *args, Split split)
{
    if (!args)
        die("%s: there are no Args (NULL)", caller);
    if (split != TRAIN && split != TEST)
        die("%s: there is no part %d of the data; it is TRAIN or TEST", caller, (int)split);
    if (args->images < 0)
        die("%s: %d images", caller, args->images);
}

Dataset load_data(const Args *args, Split split)
{
    check_load(__func__, args, split);
    span_begin(SPAN_LOAD, "load the data", -1, -1);
    uint64_t seed = settings()->seeded ? settings()->seed : SYNTHETIC_SEED;
    Dataset dataset = args->data == DATA_SYNTHETIC
                          ? synthetic_data(split, seed, args->images)
                          : load_fashion_mnist(args->data_dir, split, args->images);
    span_end();
    return dataset_loaded(dataset, split);
}

void dataset_free(Dataset *dataset)
{
    if (!dataset)
        return;
    free(dataset->images);
    free(dataset->labels);
    *dataset = (Dataset){0};
}

// -- Parts of a data set --------------------------------------------------------------------------

static size_t image_bytes_of(const Dataset *dataset)
{
    return (size_t)dataset->height * (size_t)dataset->width * (size_t)dataset->channels;
}

Dataset dataset_select(const Dataset *dataset, const int *numbers, int count)
{
    if (!dataset || (!numbers && count != 0))
        die("dataset_select: there %s (NULL)", dataset ? "are no numbers" : "is no data set");
    if (count < 0)
        die("dataset_select: %d images", count);
    size_t bytes = image_bytes_of(dataset);
    Dataset selected = *dataset;
    selected.count = count;
    selected.images = allocate((size_t)count, bytes);
    selected.labels = allocate((size_t)count, 1);
    lives_until_exit(selected.images);
    lives_until_exit(selected.labels);
    for (int i = 0; i < count; i++) {
        if (numbers[i] < 0 || numbers[i] >= dataset->count)
            die("dataset_select: there is no image %d (number %d of %d in the list): the data "
                "set's are 0 to %d",
                numbers[i], i + 1, count, dataset->count - 1);
        size_t from = (size_t)numbers[i];
        memcpy(selected.images + (size_t)i * bytes, dataset->images + from * bytes, bytes);
        selected.labels[i] = dataset->labels[from];
    }
    return selected;
}

Dataset dataset_range(const Dataset *dataset, int first, int count)
{
    if (!dataset || first < 0 || count < 1 || count > dataset->count - first)
        die("dataset_range: %d images from number %d on: the data set has %d", count, first,
            dataset ? dataset->count : 0);
    int *numbers = allocate((size_t)count, sizeof *numbers);
    for (int i = 0; i < count; i++)
        numbers[i] = first + i;
    Dataset range = dataset_select(dataset, numbers, count);
    free(numbers);
    return range;
}

Dataset dataset_by_class(const Dataset *dataset)
{
    if (!dataset)
        die("dataset_by_class: there is no data set (NULL)");
    int *numbers = allocate((size_t)dataset->count, sizeof *numbers);
    int placed = 0;
    for (int label = 0; label < dataset->classes; label++)
        for (int i = 0; i < dataset->count; i++)
            if (dataset->labels[i] == label)
                numbers[placed++] = i;
    Dataset sorted = dataset_select(dataset, numbers, placed);
    free(numbers);
    return sorted;
}

Dataset shard_dataset(const Dataset *dataset, int index, int count)
{
    if (!dataset)
        die("shard_dataset: there is no data set (NULL)");
    if (index < 0 || index >= count)
        die("shard_dataset: there is no share %d of %d", index, count);
    trace_call();
    int *numbers = allocate((size_t)dataset->count, sizeof *numbers);
    int own = 0;
    for (int64_t i = index; i < dataset->count; i += count)
        numbers[own++] = (int)i;
    Dataset shard = dataset_select(dataset, numbers, own);
    free(numbers);
    return shard;
}

// -- Statistics -----------------------------------------------------------------------------------

Statistics image_statistics(const Dataset *dataset)
{
    if (!dataset)
        die("image_statistics: there is no data set (NULL)");
    size_t channels = (size_t)dataset->channels;
    size_t pixels = (size_t)dataset->count * (size_t)dataset->height * (size_t)dataset->width;
    Statistics statistics = {0};
    if (pixels == 0)
        die("image_statistics: there are no images");
    trace("statistics", NUMBER("images", dataset->count));
    CHECK(channels <= sizeof statistics.mean / sizeof *statistics.mean);
    for (size_t channel = 0; channel < channels; channel++) {
        uint64_t sum = 0, squares = 0; // exact, for as many images as memory can hold
        for (size_t i = channel; i < pixels * channels; i += channels) {
            uint64_t value = dataset->images[i];
            sum += value;
            squares += value * value;
        }
        double mean = (double)sum / (double)pixels;
        double variance = (double)squares / (double)pixels - mean * mean;
        statistics.mean[channel] = (float)mean;
        statistics.std[channel] = (float)sqrt(fmax(variance, 0)); // rounding may fall below 0
    }
    return statistics;
}
