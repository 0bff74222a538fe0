// What dataset.h promises of files: data sets are read as their formats define them, and no damaged
// file is believed. What the sets hold is in test_images.c, CIFAR-10 in test_cifar10.c.

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "child.h"
#include "data/dataset.h"
#include "base/memory.h"
#include "scratch.h"

static void write_gzip(const char *name, const void *bytes, size_t length)
{
    gzFile file = gzopen(in_scratch(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(gzfwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

// Three images of two rows and four columns; pixel i of all is i.
static const uint8_t images[] = {0,  0,  8,  3,  0,  0,  0,  3,  0,  0,  0,  2, 0,  0,
                                 0,  4,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11,
                                 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 4};

// The two files, of which one will be the damaged one.
static void write_pair(void)
{
    write_in_scratch("images", images, sizeof images);
    write_in_scratch("labels", labels, sizeof labels);
}

static void write_changed_images(size_t position, uint8_t value)
{
    uint8_t changed[sizeof images];
    memcpy(changed, images, sizeof images);
    changed[position] = value;
    write_in_scratch("images", changed, sizeof changed);
}

// -- Seeing the program end -----------------------------------------------------------------------

static void read_pair(const void *unused)
{
    (void)unused;
    Dataset dataset = load_idx(in_scratch("images"), in_scratch("labels"), 10);
    dataset_free(&dataset);
}

// `act` must make the program exit with an error message that has `name` and `fault` in it.
static void assert_ends_with(void (*act)(const void *), const void *argument, const char *name,
                             const char *fault)
{
    Outcome outcome = assert_refused(act, argument, fault);
    ck_assert_msg(strstr(outcome.err, name), "no '%s': %s", name, outcome.err);
}

static void assert_images_refused(const char *fault)
{
    assert_ends_with(read_pair, NULL, in_scratch("images: "), fault);
}

static void assert_labels_refused(const char *fault)
{
    assert_ends_with(read_pair, NULL, in_scratch("labels: "), fault);
}

// -- IDX ------------------------------------------------------------------------------------------

static void assert_is_the_example(const Dataset *dataset)
{
    ck_assert_int_eq(dataset->count, 3);
    ck_assert_int_eq(dataset->height, 2);
    ck_assert_int_eq(dataset->width, 4);
    ck_assert_int_eq(dataset->channels, 1);
    ck_assert_int_eq(dataset->classes, 10);
    ck_assert_mem_eq(dataset->images, images + 16, 24);
    ck_assert_mem_eq(dataset->labels, labels + 8, 3);
}

START_TEST(idx_files_are_read)
{
    write_pair();
    Dataset dataset = load_idx(in_scratch("images"), in_scratch("labels"), 10);
    assert_is_the_example(&dataset);
    dataset_free(&dataset);
    ck_assert_ptr_null(dataset.images);
    ck_assert_int_eq(dataset.count, 0);
}
END_TEST

START_TEST(gzip_is_read_under_any_name)
{
    write_gzip("images", images, sizeof images);
    write_gzip("labels.gz", labels, sizeof labels);
    Dataset dataset = load_idx(in_scratch("images"), in_scratch("labels.gz"), 10);
    assert_is_the_example(&dataset);
    dataset_free(&dataset);
}
END_TEST

START_TEST(data_larger_than_one_piece_are_read)
{
    const size_t header_bytes = 16, pixels = 5000000;
    uint8_t *bytes = allocate(header_bytes + pixels, 1);
    memcpy(bytes, (uint8_t[]){0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 7, 208, 0, 0, 9, 196}, header_bytes);
    for (size_t i = 0; i < pixels; i++)
        bytes[header_bytes + i] = (uint8_t)(i * 7 + i / 1000);
    write_gzip("images", bytes, header_bytes + pixels);
    write_in_scratch("labels", (uint8_t[]){0, 0, 8, 1, 0, 0, 0, 1, 0}, 9);
    Dataset dataset = load_idx(in_scratch("images"), in_scratch("labels"), 10);
    ck_assert_int_eq(dataset.height, 2000);
    ck_assert_int_eq(dataset.width, 2500);
    ck_assert(memcmp(dataset.images, bytes + header_bytes, pixels) == 0);
    dataset_free(&dataset);
    free(bytes);
}
END_TEST

START_TEST(missing_file_is_named)
{
    assert_images_refused(strerror(ENOENT));
    write_in_scratch("images", images, sizeof images);
    assert_labels_refused(strerror(ENOENT));
}
END_TEST

START_TEST(folder_is_not_a_file)
{
    write_pair();
    unlink(in_scratch("labels"));
    ck_assert_int_eq(mkdir(in_scratch("labels"), 0700), 0);
    assert_labels_refused("folder");
}
END_TEST

START_TEST(wrong_magic_number_is_refused)
{
    write_pair();
    write_in_scratch("images", labels, sizeof labels);
    assert_images_refused("not an IDX file of images");
    write_changed_images(2, 9); // signed bytes
    assert_images_refused("not an IDX file of images");
    write_pair();
    write_in_scratch("labels", images, sizeof images);
    assert_labels_refused("not an IDX file of labels");
    write_in_scratch("labels", "<!DOCTYPE html>", 15);
    assert_labels_refused("a web page");
}
END_TEST

START_TEST(truncated_header_is_refused)
{
    for (size_t length = 0; length < 16; length++) {
        write_pair();
        write_in_scratch("images", images, length);
        assert_images_refused("ends inside its header");
    }
    write_pair();
    write_in_scratch("labels", labels, 7);
    assert_labels_refused("ends inside its header");
}
END_TEST

START_TEST(truncated_data_are_refused)
{
    write_pair();
    write_in_scratch("images", images, 16);
    assert_images_refused("cut short (0 of 24 bytes)");
    write_in_scratch("images", images, sizeof images - 1);
    assert_images_refused("cut short (23 of 24 bytes)");
    write_pair();
    write_in_scratch("labels", labels, sizeof labels - 1);
    assert_labels_refused("cut short (2 of 3 bytes)");
}
END_TEST

START_TEST(trailing_bytes_are_refused)
{
    write_pair();
    uint8_t longer[sizeof images + 1] = {0};
    memcpy(longer, images, sizeof images);
    write_in_scratch("images", longer, sizeof longer);
    assert_images_refused("goes on after its data");
    write_gzip("images", longer, sizeof longer);
    assert_images_refused("goes on after its data");
    write_gzip("images", images, sizeof images);
    FILE *file = fopen(in_scratch("images"), "ab"); // behind the gzip data, where zlib looks away
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs("more", file), 0);
    ck_assert_int_eq(fclose(file), 0);
    assert_images_refused("goes on after its data");
}
END_TEST

START_TEST(size_of_zero_is_refused)
{
    static const size_t last_bytes[] = {7, 11, 15}; // of each size in the header
    write_pair();
    for (int i = 0; i < 3; i++) {
        write_changed_images(last_bytes[i], 0);
        assert_images_refused("impossible size 0");
    }
}
END_TEST

START_TEST(size_of_more_than_31_bits_is_refused)
{
    write_pair();
    write_changed_images(4, 0x80);
    assert_images_refused("impossible size 2147483651");
}
END_TEST

// Headers, for 24 bytes of images and 3 labels, that agree in their count.
static void write_lie(uint32_t count, uint16_t height, uint16_t width)
{
    uint8_t lie[sizeof images], label_lie[sizeof labels];
    uint8_t counted[] = {(uint8_t)(count >> 24), (uint8_t)(count >> 16), (uint8_t)(count >> 8),
                         (uint8_t)count};
    uint8_t sides[] = {0, 0, (uint8_t)(height >> 8), (uint8_t)height,
                       0, 0, (uint8_t)(width >> 8),  (uint8_t)width};
    memcpy(lie, images, sizeof images);
    memcpy(label_lie, labels, sizeof labels);
    memcpy(lie + 4, counted, sizeof counted);
    memcpy(lie + 8, sides, sizeof sides);
    memcpy(label_lie + 4, counted, sizeof counted);
    write_in_scratch("images", lie, sizeof lie);
    write_in_scratch("labels", label_lie, sizeof label_lie);
}

START_TEST(sizes_beyond_the_bounds_are_refused)
{
    write_lie(3, 4097, 4);
    assert_images_refused("images of 4097x4; at most 4096x4096 are read");
    write_lie(3, 2, 4097);
    assert_images_refused("images of 2x4097; at most 4096x4096 are read");
    write_lie((1 << 20) + 1, 2, 4);
    assert_images_refused("1048577 images of 2x4; at most 1048576 and 1024 MiB are read");
    write_lie(65, 4096, 4096);
    assert_images_refused("65 images of 4096x4096; at most 1048576 and 1024 MiB are read");
    write_lie(0x7fffffff, 4096, 4096);
    assert_images_refused("2147483647 images");
}
END_TEST

// The most that a header may promise: there is no need for as much memory to see that it lies.
START_TEST(lying_header_takes_no_memory)
{
    write_lie(64, 4096, 4096);
    assert_images_refused("cut short (24 of 1073741824 bytes)");
}
END_TEST

// The labels are looked at before a single image is read.
START_TEST(headers_are_read_first)
{
    write_pair();
    write_in_scratch("images", images, 16);
    write_in_scratch("labels", (uint8_t[]){0, 0, 8, 1, 0, 0, 0, 2, 9, 0}, 10);
    assert_labels_refused("2 labels, but");
}
END_TEST

// In place of zlib's: takes the images' name away from their file while it is read.
static bool replace_while_reading;

int gzread(gzFile file, voidp to, unsigned length)
{
    int (*real)(gzFile, voidp, unsigned) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "gzread");
    if (replace_while_reading) {
        replace_while_reading = false;
        ck_assert_int_eq(rename(in_scratch("another"), in_scratch("images")), 0);
    }
    return real(file, to, length);
}

START_TEST(file_may_be_replaced_while_it_is_read)
{
    write_pair();
    write_gzip("images", images, sizeof images);
    write_in_scratch("another", "something else", 14);
    replace_while_reading = true;
    Dataset dataset = load_idx(in_scratch("images"), in_scratch("labels"), 10);
    assert_is_the_example(&dataset);
    dataset_free(&dataset);
}
END_TEST

START_TEST(different_counts_are_refused)
{
    write_pair();
    write_in_scratch("labels", (uint8_t[]){0, 0, 8, 1, 0, 0, 0, 2, 9, 0}, 10);
    assert_labels_refused("2 labels, but");
    assert_labels_refused("holds 3 images");
}
END_TEST

START_TEST(label_out_of_range_is_refused)
{
    write_pair();
    write_in_scratch("labels", (uint8_t[]){0, 0, 8, 1, 0, 0, 0, 3, 9, 10, 4}, 11);
    assert_labels_refused("label 10 of image 1");
}
END_TEST

// A gzip file of noise, for deflate cannot shorten it: most of its bytes are data.
static size_t write_noisy_gzip(uint8_t *packed, size_t capacity)
{
    uint8_t bytes[16 + 4096] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 64, 0, 0, 0, 64};
    uint32_t state = 1;
    for (size_t i = 16; i < sizeof bytes; i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(state >> 24);
    }
    write_gzip("images", bytes, sizeof bytes);
    write_in_scratch("labels", (uint8_t[]){0, 0, 8, 1, 0, 0, 0, 1, 9}, 9);
    FILE *file = fopen(in_scratch("images"), "rb");
    size_t length = fread(packed, 1, capacity, file);
    fclose(file);
    return length;
}

START_TEST(flipped_byte_in_gzip_is_refused)
{
    uint8_t packed[8192];
    size_t length = write_noisy_gzip(packed, sizeof packed);
    read_pair(NULL); // good as it is
    // Behind gzip's own header of 10 bytes; in the data, the check sum and the length.
    for (size_t i = 11; i < length; i += i < length - 9 ? 101 : 1) {
        packed[i] ^= 0x10;
        write_in_scratch("images", packed, length);
        assert_ends_with(read_pair, NULL, in_scratch("images"), "");
        packed[i] ^= 0x10;
    }
    packed[length / 2] ^= 0x10;
    write_in_scratch("images", packed, length);
    assert_images_refused("damaged");
}
END_TEST

START_TEST(gzip_that_was_cut_off_is_refused)
{
    uint8_t packed[8192];
    size_t length = write_noisy_gzip(packed, sizeof packed);
    for (size_t cut = 1; cut < length - 1; cut += cut < 9 ? 1 : 97) {
        write_in_scratch("images", packed, length - cut);
        assert_images_refused("damaged or cut short");
    }
}
END_TEST

// -- What the command line asks for ---------------------------------------------------------------

// The folder as --data-dir, with `count` blank training images of the given height.
static Args small_fashion_mnist(uint8_t count, uint8_t height)
{
    const size_t bytes = 16 + (size_t)count * height * 28;
    uint8_t *file = allocate(bytes, 1);
    memcpy(file, (uint8_t[]){0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, height, 0, 0, 0, 28}, 16);
    write_in_scratch("train-images-idx3-ubyte", file, bytes);
    memset(file, 0, bytes);
    memcpy(file, (uint8_t[]){0, 0, 8, 1, 0, 0, 0, count}, 8);
    write_gzip("train-labels-idx1-ubyte.gz", file, 8 + (size_t)count);
    free(file);
    return (Args){.data = DATA_FASHION_MNIST, .data_dir = scratch};
}

static void load_train(const void *args)
{
    Dataset dataset = load_data(args, TRAIN);
    dataset_free(&dataset);
}

static void load_test(const void *args)
{
    Dataset dataset = load_data(args, TEST);
    dataset_free(&dataset);
}

START_TEST(data_dir_holds_plain_and_gzip_files)
{
    Args args = small_fashion_mnist(5, 28);
    Dataset dataset = load_data(&args, TRAIN);
    ck_assert_int_eq(dataset.count, 5);
    dataset_free(&dataset);
}
END_TEST

START_TEST(plain_file_goes_before_gzip)
{
    Args args = small_fashion_mnist(5, 28);
    write_in_scratch("train-images-idx3-ubyte.gz", "", 0);
    Dataset dataset = load_data(&args, TRAIN);
    ck_assert_int_eq(dataset.count, 5);
    dataset_free(&dataset);
}
END_TEST

// What stands behind the images that are asked for is not even unpacked: here it is damaged.
START_TEST(no_more_images_are_read_than_asked_for)
{
    Args args = small_fashion_mnist(200, 28);
    args.images = 4;
    ck_assert_int_eq(truncate(in_scratch("train-images-idx3-ubyte"), 16 + 4 * 28 * 28), 0);
    Dataset dataset = load_data(&args, TRAIN);
    ck_assert_int_eq(dataset.count, 4);
    dataset_free(&dataset);
    args.images = 5;
    assert_ends_with(load_train, &args, in_scratch("train-images-idx3-ubyte: "), "cut short");
}
END_TEST

// Of a set that is too large as a whole.
START_TEST(the_first_images_of_a_huge_set_are_read)
{
    Args args = small_fashion_mnist(20, 28);
    const uint8_t eight_million[] = {0, 0x80, 0, 0};
    const char *names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
    uint8_t file[8 + 20] = {0, 0, 8, 1};
    write_in_scratch(names[1], file, sizeof file);
    for (int i = 0; i < 2; i++) {
        FILE *stream = fopen(in_scratch(names[i]), "r+b");
        ck_assert_int_eq(fseek(stream, 4, SEEK_SET), 0);
        ck_assert_uint_eq(fwrite(eight_million, 1, 4, stream), 4);
        fclose(stream);
    }
    args.images = 20;
    Dataset dataset = load_data(&args, TRAIN);
    ck_assert_int_eq(dataset.count, 20);
    dataset_free(&dataset);
    args.images = 0;
    assert_ends_with(load_train, &args, names[0], "8388608 images of 28x28; at most 1048576");
}
END_TEST

START_TEST(images_cuts_the_set_and_never_lengthens_it)
{
    Args args = small_fashion_mnist(5, 28);
    static const int asked[] = {0, 1, 4, 5, 6}, got[] = {5, 1, 4, 5, 5};
    for (int i = 0; i < 5; i++) {
        args.images = asked[i];
        Dataset dataset = load_data(&args, TRAIN);
        ck_assert_int_eq(dataset.count, got[i]);
        dataset_free(&dataset);
    }
}
END_TEST

static void rename_in_scratch(const char *from, const char *to)
{
    ck_assert_int_eq(rename(in_scratch(from), in_scratch(to)), 0);
}

START_TEST(data_dir_is_the_only_place)
{
    Args args = small_fashion_mnist(5, 28);
    // A test set where `make data` would put it, but not in --data-dir.
    ck_assert_int_eq(chdir(scratch), 0);
    ck_assert_int_eq(mkdir("data", 0700), 0);
    rename_in_scratch("train-images-idx3-ubyte", "data/t10k-images-idx3-ubyte");
    rename_in_scratch("train-labels-idx1-ubyte.gz", "data/t10k-labels-idx1-ubyte.gz");
    assert_ends_with(load_test, &args, scratch, "make data");
    assert_ends_with(load_test, &args, scratch, "apt install dataset-fashion-mnist");
    assert_ends_with(load_test, &args, scratch, "--data synthetic");
}
END_TEST

START_TEST(images_without_labels_are_refused)
{
    Args args = small_fashion_mnist(5, 28);
    unlink(in_scratch("train-labels-idx1-ubyte.gz"));
    assert_ends_with(load_train, &args, in_scratch("train-labels-idx1-ubyte"), "no such file");
}
END_TEST

START_TEST(other_sizes_than_28x28_are_refused)
{
    Args args = small_fashion_mnist(5, 27);
    assert_ends_with(load_train, &args, in_scratch("train-images-idx3-ubyte: "), "27x28");
}
END_TEST

// -------------------------------------------------------------------------------------------------

static void add_idx_tests(Suite *suite)
{
    TCase *idx = tcase_create("IDX");
    tcase_add_checked_fixture(idx, make_scratch, remove_scratch);
    tcase_set_timeout(idx, 30);
    tcase_add_test(idx, idx_files_are_read);
    tcase_add_test(idx, gzip_is_read_under_any_name);
    tcase_add_test(idx, data_larger_than_one_piece_are_read);
    tcase_add_test(idx, missing_file_is_named);
    tcase_add_test(idx, folder_is_not_a_file);
    tcase_add_test(idx, wrong_magic_number_is_refused);
    tcase_add_test(idx, truncated_header_is_refused);
    tcase_add_test(idx, truncated_data_are_refused);
    tcase_add_test(idx, trailing_bytes_are_refused);
    tcase_add_test(idx, size_of_zero_is_refused);
    tcase_add_test(idx, size_of_more_than_31_bits_is_refused);
    tcase_add_test(idx, sizes_beyond_the_bounds_are_refused);
    tcase_add_test(idx, headers_are_read_first);
    tcase_add_test(idx, file_may_be_replaced_while_it_is_read);
    tcase_add_test(idx, lying_header_takes_no_memory);
    tcase_add_test(idx, different_counts_are_refused);
    tcase_add_test(idx, label_out_of_range_is_refused);
    tcase_add_test(idx, flipped_byte_in_gzip_is_refused);
    tcase_add_test(idx, gzip_that_was_cut_off_is_refused);
    suite_add_tcase(suite, idx);
}

static void add_load_data_tests(Suite *suite)
{
    TCase *load = tcase_create("load_data");
    tcase_add_checked_fixture(load, make_scratch, remove_scratch);
    tcase_set_timeout(load, 30);
    tcase_add_test(load, data_dir_holds_plain_and_gzip_files);
    tcase_add_test(load, plain_file_goes_before_gzip);
    tcase_add_test(load, images_cuts_the_set_and_never_lengthens_it);
    tcase_add_test(load, no_more_images_are_read_than_asked_for);
    tcase_add_test(load, the_first_images_of_a_huge_set_are_read);
    tcase_add_test(load, data_dir_is_the_only_place);
    tcase_add_test(load, images_without_labels_are_refused);
    tcase_add_test(load, other_sizes_than_28x28_are_refused);
    suite_add_tcase(suite, load);
}

int main(void)
{
    Suite *suite = suite_create("dataset");
    add_idx_tests(suite);
    add_load_data_tests(suite);
    return run_suite(suite);
}
