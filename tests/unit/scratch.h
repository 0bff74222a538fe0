// A folder of a test's own, for what it writes.

#ifndef HVDLAB_TESTS_SCRATCH_H
#define HVDLAB_TESTS_SCRATCH_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/format.h"

static char scratch[64]; // its path

static inline void make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/hvdlab-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
}

// With all that is in it.
static inline void remove_scratch(void)
{
    char *command = format_text("rm -r %s", scratch);
    ck_assert_int_eq(system(command), 0);
    free(command);
}

// The path of a file there. It is good until the fourth call after this one.
static inline const char *in_scratch(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline void write_in_scratch(const char *name, const void *bytes, size_t length)
{
    FILE *file = fopen(in_scratch(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

#endif
