// CIFAR-10's binary version, of which a file always has 30,730,000 bytes. So an input tells how a
// good one is changed: the first byte whether it is cut (1), made longer (2) or neither, the next
// four where it ends or by how much it grows, and then come changes of five bytes each, a place and
// the byte that goes there. A first byte of 0 leaves the rest as the file. Of a full file only few
// can be read in a second.

#include "fuzz.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "data/dataset.h"

enum { RECORD = 3073, RECORDS = 10000, FULL = RECORD * RECORDS, MAX_CHANGES = 64 };

static uint8_t good[FULL];

static char *test_batch; // a link to what is written for each input
static char folder[] = "/tmp/fuzz_cifar10.XXXXXX";

static void remove_folder(void)
{
    unlink(test_batch);
    rmdir(folder);
}

static void prepare(void)
{
    for (int i = 0; i < RECORDS; i++)
        good[(size_t)i * RECORD] = (uint8_t)(i % 10);
    FUZZ_CHECK(mkdtemp(folder));
    FUZZ_CHECK(asprintf(&test_batch, "%s/test_batch.bin", folder) > 0);
    FUZZ_CHECK(symlink(fuzz_file(0, "", 0), test_batch) == 0);
    atexit(remove_folder);
}

static void load(void *unused)
{
    (void)unused;
    Dataset dataset = load_cifar10(folder, TEST);
    for (int i = 0; i < dataset.count; i++)
        FUZZ_CHECK(dataset.labels[i] < 10);
    dataset_free(&dataset);
}

static size_t number(const uint8_t *bytes)
{
    return bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
}

static void write_changed(const uint8_t *bytes, size_t size)
{
    size_t length = FULL, changes = (size - 5) / 5, where = number(bytes + 1);
    if (bytes[0] == 1)
        length = where % FULL;
    fuzz_file(0, good, length);
    FILE *file = fopen(test_batch, "r+b");
    FUZZ_CHECK(file);
    for (size_t i = 0; i < changes && i < MAX_CHANGES; i++) {
        const uint8_t *change = bytes + 5 + i * 5;
        FUZZ_CHECK(fseek(file, (long)(number(change) % FULL), SEEK_SET) == 0);
        FUZZ_CHECK(fputc(change[4], file) != EOF);
    }
    if (bytes[0] == 2) {
        FUZZ_CHECK(fseek(file, FULL, SEEK_SET) == 0);
        for (size_t i = 0; i <= where % RECORD; i++)
            FUZZ_CHECK(fputc(0, file) != EOF);
    }
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!test_batch)
        prepare();
    if (size < 1)
        return 0;
    if (bytes[0] == 0 || size < 5)
        fuzz_file(0, bytes + 1, size - 1);
    else
        write_changed(bytes, size);
    fuzz_call(load, NULL, FREES_ALL);
    return 0;
}
