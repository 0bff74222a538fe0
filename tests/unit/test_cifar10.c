// What dataset.h promises of CIFAR-10: its files are read as the format defines them, and no
// damaged one is believed.

#include <errno.h>
#include <string.h>
#include "base/memory.h"
#include "child.h"
#include "data/cifar10.h"
#include "scratch.h"

enum { CIFAR_RECORDS = 10000, CIFAR_RECORD = 3073, CIFAR_PLANE = 1024 };

static uint8_t cifar_value(int file, int record, int channel, int pixel)
{
    return (uint8_t)(file * 50 + record * 3 + channel * 85 + pixel);
}

static const char *cifar_name(int file)
{
    static char name[32];
    if (file == 0)
        return "test_batch.bin";
    snprintf(name, sizeof name, "data_batch_%d.bin", file);
    return name;
}

// File 0 is the test set, 1 to 5 are the training set. Of the bytes, `length` are written, and the
// last label is `last_label`.
static void write_cifar(int file, size_t length, uint8_t last_label)
{
    const size_t whole = (size_t)CIFAR_RECORDS * CIFAR_RECORD;
    uint8_t *bytes = allocate(whole + 1, 1), *to = bytes;
    for (int record = 0; record < CIFAR_RECORDS; record++) {
        *to++ = (uint8_t)(record == CIFAR_RECORDS - 1 ? last_label : (record + file) % 10);
        for (int channel = 0; channel < 3; channel++) {
            for (int pixel = 0; pixel < CIFAR_PLANE; pixel++)
                *to++ = cifar_value(file, record, channel, pixel);
        }
    }
    write_in_scratch(cifar_name(file), bytes, length);
    free(bytes);
}

static const size_t cifar_bytes = (size_t)CIFAR_RECORDS * CIFAR_RECORD;

static void read_cifar_test(const void *unused)
{
    (void)unused;
    Dataset dataset = load_cifar10(scratch, TEST);
    dataset_free(&dataset);
}

static void assert_cifar_refused(const char *fault)
{
    Outcome outcome = assert_refused(read_cifar_test, NULL, fault);
    const char *name = in_scratch("test_batch.bin: ");
    ck_assert_msg(strstr(outcome.err, name), "no '%s': %s", name, outcome.err);
}

static void assert_cifar_image(const Dataset *dataset, int position, int file, int record)
{
    const uint8_t *image = dataset->images + (size_t)position * 3 * CIFAR_PLANE;
    for (int i = 0; i < 3 * CIFAR_PLANE; i++)
        ck_assert_uint_eq(image[i], cifar_value(file, record, i % 3, i / 3));
    ck_assert_int_eq(dataset->labels[position], (record + file) % 10);
}

START_TEST(cifar10_test_set_is_read)
{
    write_cifar(0, cifar_bytes, 9);
    Dataset dataset = load_cifar10(scratch, TEST);
    ck_assert_int_eq(dataset.count, 10000);
    ck_assert_int_eq(dataset.height, 32);
    ck_assert_int_eq(dataset.width, 32);
    ck_assert_int_eq(dataset.channels, 3);
    ck_assert_int_eq(dataset.classes, 10);
    assert_cifar_image(&dataset, 0, 0, 0);
    assert_cifar_image(&dataset, 9999, 0, 9999);
    dataset_free(&dataset);
}
END_TEST

START_TEST(cifar10_training_set_is_five_files_in_order)
{
    for (int file = 1; file <= 5; file++)
        write_cifar(file, cifar_bytes, (uint8_t)((CIFAR_RECORDS - 1 + file) % 10));
    Dataset dataset = load_cifar10(scratch, TRAIN);
    ck_assert_int_eq(dataset.count, 50000);
    for (int file = 1; file <= 5; file++) {
        assert_cifar_image(&dataset, (file - 1) * CIFAR_RECORDS, file, 0);
        assert_cifar_image(&dataset, file * CIFAR_RECORDS - 1, file, CIFAR_RECORDS - 1);
    }
    dataset_free(&dataset);
}
END_TEST

START_TEST(cifar10_data_are_the_files_that_are_named)
{
    write_cifar(0, cifar_bytes, 9);
    Args args = {.data_dir = scratch, .images = 7};
    Dataset dataset = load_cifar10_data(&args, TEST);
    ck_assert_int_eq(dataset.count, 7);
    assert_cifar_image(&dataset, 6, 0, 6);
    dataset_free(&dataset);
}
END_TEST

// Gray, with a frame of two pixels.
START_TEST(cifar10_data_may_be_generated)
{
    enum { IMAGES = 3, SIDE = 32, FRAME = 2 };
    Args args = {.data = DATA_SYNTHETIC, .images = IMAGES};
    Dataset gray = synthetic_data(TRAIN, 10, IMAGES), dataset = load_cifar10_data(&args, TRAIN);
    ck_assert(dataset.count == IMAGES && dataset.classes == 10 && dataset.channels == 3);
    ck_assert(dataset.height == SIDE && dataset.width == SIDE);
    ck_assert_mem_eq(dataset.labels, gray.labels, IMAGES);
    for (int i = 0; i < IMAGES * SIDE * SIDE * 3; i++) {
        int image = i / 3 / SIDE / SIDE, y = i / 3 / SIDE % SIDE - FRAME, x = i / 3 % SIDE - FRAME;
        bool inside = y >= 0 && y < gray.height && x >= 0 && x < gray.width;
        int pixel = (image * gray.height + y) * gray.width + x;
        ck_assert_uint_eq(dataset.images[i], inside ? gray.images[pixel] : 0);
    }
    dataset_free(&gray);
    dataset_free(&dataset);
}
END_TEST

START_TEST(damaged_cifar10_is_refused)
{
    assert_cifar_refused(strerror(ENOENT));
    write_cifar(0, 0, 0);
    assert_cifar_refused("cut short (0 of");
    write_cifar(0, cifar_bytes - 1, 0);
    assert_cifar_refused("cut short (30729999 of 30730000 bytes)");
    write_cifar(0, cifar_bytes - CIFAR_RECORD, 0); // whole records, but not all of them
    assert_cifar_refused("cut short");
    write_cifar(0, cifar_bytes + 1, 0);
    assert_cifar_refused("goes on after its data");
    write_cifar(0, cifar_bytes, 10);
    assert_cifar_refused("label 10 of image 9999");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cifar10");
    TCase *cifar = tcase_create("CIFAR-10");
    tcase_add_checked_fixture(cifar, make_scratch, remove_scratch);
    tcase_set_timeout(cifar, 60);
    tcase_add_test(cifar, cifar10_test_set_is_read);
    tcase_add_test(cifar, cifar10_training_set_is_five_files_in_order);
    tcase_add_test(cifar, cifar10_data_are_the_files_that_are_named);
    tcase_add_test(cifar, cifar10_data_may_be_generated);
    tcase_add_test(cifar, damaged_cifar10_is_refused);
    suite_add_tcase(suite, cifar);
    return run_suite(suite);
}
