// What safetensors.h promises: what was saved is read back, and no damaged file is believed.

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "child.h"
#include "data/safetensors.h"
#include "base/memory.h"
#include "base/format.h"

static char folder[] = "/tmp/test_safetensors.XXXXXX";
static char path[sizeof folder + 16];

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/case", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(path);                        // one test puts a folder there
    ck_assert_int_eq(rmdir(folder), 0); // fails if anything else was left behind
}

// -- Making files by hand -------------------------------------------------------------------------

static void write_bytes(const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

// Writes a file whose length field says `claimed`, with `header` and then `data_bytes` bytes of
// data that count 0, 1, 2 ...
static void write_case(uint64_t claimed, const char *header, size_t header_bytes, size_t data_bytes)
{
    size_t length = 8 + header_bytes + data_bytes;
    unsigned char *bytes = allocate(length, 1);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(claimed >> 8 * i);
    memcpy(bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + header_bytes + i] = (unsigned char)i;
    write_bytes(bytes, length);
    free(bytes);
}

static void write_header(const char *header, size_t data_bytes)
{
    write_case(strlen(header), header, strlen(header), data_bytes);
}

// -- Seeing the program end -----------------------------------------------------------------------

static void read_path(const void *unused)
{
    (void)unused;
    safetensors_free(safetensors_read(path));
}

// `act` must make the program exit with an error message that names the file and has `fault` in it.
static void assert_ends_with(void (*act)(const void *), const char *fault)
{
    Outcome outcome = assert_refused(act, NULL, fault);
    ck_assert_msg(strstr(outcome.err, path), "does not name the file: %s", outcome.err);
}

static void assert_read_refused(const char *fault)
{
    assert_ends_with(read_path, fault);
}

static void assert_header_refused(const char *header, size_t data_bytes, const char *fault)
{
    write_header(header, data_bytes);
    assert_read_refused(fault);
}

// -- Saving and reading back ----------------------------------------------------------------------

static const float floats[6] = {1.5f, -2, 3e-30f, 4, 5, -0.0f};
static const int32_t ints[3] = {INT32_MIN, 0, 7};

static void save_example(const void *unused)
{
    (void)unused;
    Safetensors *file = safetensors_new(NULL, NULL);
    safetensors_add(file, "dense/kernel", ST_FLOAT32, 2, (int64_t[]){2, 3}, floats);
    safetensors_add(file, "empty", ST_FLOAT32, 2, (int64_t[]){0, 3}, NULL);
    safetensors_add(file, "scalar", ST_FLOAT32, 0, NULL, floats);
    safetensors_add(file, "y \"\xc3\xa9\"", ST_INT32, 1, (int64_t[]){3}, ints);
    safetensors_set_metadata(file, "model", "lenet");
    safetensors_set_metadata(file, "model", "mlp \"quoted\" \xe2\x82\xac\n");
    safetensors_save(file, path);
    safetensors_free(file);
}

START_TEST(what_was_saved_is_read_back)
{
    save_example(NULL);
    Safetensors *file = safetensors_read(path);
    ck_assert_int_eq(safetensors_count(file), 4);
    const Safetensor *kernel = safetensors_find(file, "dense/kernel");
    ck_assert_int_eq(kernel->type, ST_FLOAT32);
    ck_assert_int_eq(kernel->ndims, 2);
    ck_assert_int_eq(kernel->dims[0], 2);
    ck_assert_int_eq(kernel->dims[1], 3);
    ck_assert_int_eq(kernel->count, 6);
    ck_assert_mem_eq(kernel->data, floats, sizeof floats);
    const Safetensor *y = safetensors_find(file, "y \"\xc3\xa9\"");
    ck_assert_int_eq(y->type, ST_INT32);
    ck_assert_mem_eq(y->data, ints, sizeof ints);
    ck_assert_int_eq(safetensors_find(file, "scalar")->ndims, 0);
    ck_assert_int_eq(safetensors_find(file, "scalar")->count, 1);
    ck_assert_int_eq(safetensors_find(file, "empty")->count, 0);
    ck_assert_str_eq(safetensors_metadata(file, "model"), "mlp \"quoted\" \xe2\x82\xac\n");
    safetensors_free(file);
}
END_TEST

START_TEST(what_is_not_there_is_null)
{
    save_example(NULL);
    Safetensors *file = safetensors_read(path);
    ck_assert_ptr_null(safetensors_find(file, "dense/Kernel"));
    ck_assert_ptr_null(safetensors_find(file, "__metadata__"));
    ck_assert_ptr_null(safetensors_metadata(file, "Model"));
    safetensors_free(file);
}
END_TEST

START_TEST(header_is_padded_so_that_data_begin_at_a_multiple_of_8)
{
    save_example(NULL);
    FILE *file = fopen(path, "rb");
    uint64_t length;
    ck_assert_uint_eq(fread(&length, 1, sizeof length, file), sizeof length);
    ck_assert_uint_eq(length % 8, 0);
    ck_assert_int_eq(fgetc(file), '{');
    fclose(file);
}
END_TEST

START_TEST(file_without_tensors_is_legal)
{
    write_header("{}   ", 0);
    Safetensors *file = safetensors_read(path);
    ck_assert_int_eq(safetensors_count(file), 0);
    ck_assert_ptr_null(safetensors_metadata(file, "model"));
    safetensors_free(file);
}
END_TEST

START_TEST(tensors_come_in_the_order_of_their_bytes)
{
    write_header(
        "{\"b\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[4,8]},\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[4,4]},\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}",
        8);
    Safetensors *file = safetensors_read(path);
    ck_assert_int_eq(safetensors_count(file), 3);
    ck_assert_str_eq(safetensors_at(file, 0)->name, "a");
    ck_assert_str_eq(safetensors_at(file, 1)->name, "none");
    ck_assert_str_eq(safetensors_at(file, 2)->name, "b");
    ck_assert_int_eq(*(const int32_t *)safetensors_at(file, 0)->data, 0x03020100);
    ck_assert_int_eq(*(const int32_t *)safetensors_at(file, 2)->data, 0x07060504);
    safetensors_free(file);
}
END_TEST

START_TEST(data_are_aligned_wherever_the_header_ends)
{
    const char *header = "{\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    for (size_t spaces = 0; spaces < 4; spaces++) {
        char *padded = format_text("%s%*s", header, (int)spaces, "");
        write_header(padded, 4);
        Safetensors *file = safetensors_read(path);
        const void *data = safetensors_at(file, 0)->data;
        ck_assert_uint_eq((uintptr_t)data % 4, 0);
        ck_assert_int_eq(*(const int32_t *)data, 0x03020100);
        safetensors_free(file);
        free(padded);
    }
}
END_TEST

START_TEST(unknown_members_of_a_tensor_are_ignored)
{
    write_header("{\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4],\"note\":{}}}", 4);
    Safetensors *file = safetensors_read(path);
    ck_assert_int_eq(safetensors_count(file), 1);
    safetensors_free(file);
}
END_TEST

static void save_under_a_file_size_limit(const void *unused)
{
    (void)unused;
    const int64_t count = 4096;
    float *zeros = allocate((size_t)count, sizeof *zeros);
    Safetensors *file = safetensors_new(NULL, NULL);
    safetensors_add(file, "zeros", ST_FLOAT32, 1, &count, zeros);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 4096, .rlim_max = 4096});
    safetensors_save(file, path);
}

START_TEST(failed_write_leaves_the_old_file_and_nothing_else)
{
    write_header("{}", 0);
    assert_ends_with(save_under_a_file_size_limit, strerror(EFBIG));
    Safetensors *file = safetensors_read(path);
    ck_assert_int_eq(safetensors_count(file), 0);
    safetensors_free(file);
}
END_TEST

START_TEST(failed_rename_leaves_nothing_behind)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    assert_ends_with(save_example, strerror(EISDIR));
}
END_TEST

START_TEST(saving_into_a_missing_folder_ends_the_program)
{
    snprintf(path, sizeof path, "%s/no/case", folder);
    assert_ends_with(save_example, strerror(ENOENT));
}
END_TEST

// -- The file as a whole --------------------------------------------------------------------------

START_TEST(missing_file_is_named)
{
    assert_read_refused(strerror(ENOENT));
}
END_TEST

START_TEST(folder_is_not_a_file)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    assert_read_refused("folder");
}
END_TEST

START_TEST(empty_file_is_refused)
{
    write_bytes("", 0);
    assert_read_refused("empty");
}
END_TEST

START_TEST(file_shorter_than_its_length_field_is_refused)
{
    write_bytes("\2\0\0\0\0\0\0", 7);
    assert_read_refused("too short");
}
END_TEST

START_TEST(header_length_beyond_the_file_is_refused)
{
    write_case(3, "{}", 2, 0);
    assert_read_refused("ends inside its header");
}
END_TEST

START_TEST(header_length_above_the_limit_is_refused)
{
    write_case(2097153, "{}", 2, 0);
    assert_read_refused("header length 2097153 is above the limit of 2097152");
    write_case(UINT64_MAX, "{}", 2, 0);
    assert_read_refused("header length");
}
END_TEST

START_TEST(header_must_be_a_json_object)
{
    static const char *const headers[] = {
        "",
        "[]",
        "1",
        "\"a\"",
        "null",
        " {}",
        "{",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "\xef\xbb\xbf{}", // a byte order mark
        "{\x01}",         // cJSON alone would take it for a space
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        assert_header_refused(headers[i], 0, "the header is not a JSON object");
}
END_TEST

START_TEST(endless_nesting_is_refused)
{
    const size_t depth = 1000000;
    char *header = allocate(depth + 6, 1);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', depth);
    assert_header_refused(header, 0, "the header is not a JSON object");
    free(header);
}
END_TEST

START_TEST(nul_in_a_name_is_refused)
{
    write_case(8, "{\"a\0\":1}", 8, 0);
    assert_read_refused("the header is not a JSON object");
    assert_header_refused("{\"a\\u0000b\":1}", 0, "the header is not a JSON object");
}
END_TEST

START_TEST(escaped_backslash_before_u0000_is_no_nul)
{
    write_header("{\"__metadata__\":{\"path\":\"C:\\\\u0000\"}}", 0);
    Safetensors *file = safetensors_read(path);
    ck_assert_str_eq(safetensors_metadata(file, "path"), "C:\\u0000");
    safetensors_free(file);
}
END_TEST

START_TEST(only_spaces_may_follow_the_json_object)
{
    assert_header_refused("{} x", 0, "goes on after");
    assert_header_refused("{}\n", 0, "goes on after");
    assert_header_refused("{}{}", 0, "goes on after");
    write_case(3, "{}\0", 3, 0);
    assert_read_refused("the header is not a JSON object");
}
END_TEST

START_TEST(header_must_be_utf8)
{
    static const char *const texts[] = {
        "\xff",             // never a byte of UTF-8
        "\x80",             // continues nothing
        "\xc3",             // not continued
        "\xc0\xaf",         // '/', longer than needed
        "\xe0\x80\xaf",     // the same
        "\xed\xa0\x80",     // half of a surrogate pair
        "\xf4\x90\x80\x80", // above U+10FFFF
        "\xe2\x82",         // cut short
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *header = format_text("{\"__metadata__\":{\"a\":\"%s\"}}", texts[i]);
        assert_header_refused(header, 0, "UTF-8");
        free(header);
    }
    assert_header_refused("{}\xc3", 0, "UTF-8"); // cut short by the end of the header
}
END_TEST

START_TEST(metadata_must_be_strings)
{
    assert_header_refused("{\"__metadata__\":[]}", 0, "__metadata__");
    assert_header_refused("{\"__metadata__\":{\"width\":1}}", 0, "'width' is not a string");
    assert_header_refused("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "'a' appears twice");
}
END_TEST

// -- One tensor -----------------------------------------------------------------------------------

static void assert_tensor_refused(const char *description, size_t data_bytes, const char *fault)
{
    char *header = format_text("{\"a\":%s}", description);
    assert_header_refused(header, data_bytes, fault);
    free(header);
}

static void assert_shape_refused(const char *shape, const char *fault)
{
    char *text = format_text("{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,8]}", shape);
    assert_tensor_refused(text, 8, fault);
    free(text);
}

static void assert_offsets_refused(const char *offsets, const char *fault)
{
    char *text = format_text("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":%s}", offsets);
    assert_tensor_refused(text, 8, fault);
    free(text);
}

START_TEST(tensor_must_be_an_object)
{
    assert_tensor_refused("1", 0, "'a' is not a JSON object");
    assert_tensor_refused("{\"shape\":[2],\"data_offsets\":[0,8]}", 8, "no dtype");
    assert_tensor_refused("{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}", 8, "no dtype");
    assert_tensor_refused("{\"dtype\":\"F32\",\"data_offsets\":[0,8]}", 8, "no shape");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[2]}", 8, "no data_offsets");
    // Names are compared letter by letter.
    assert_tensor_refused("{\"DTYPE\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", 8,
                          "no dtype");
}
END_TEST

START_TEST(other_types_are_refused_by_name)
{
    static const char *const types[] = {"BF16", "F16", "F64", "I64", "U8", "BOOL", "f32", ""};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char *text =
            format_text("{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,8]}", types[i]);
        char *fault = format_text("has type %s;", types[i]);
        assert_tensor_refused(text, 8, fault);
        free(fault);
        free(text);
    }
}
END_TEST

START_TEST(shape_must_fit_the_bytes)
{
    assert_shape_refused("[3]", "do not fit");
    assert_shape_refused("[1]", "do not fit");
    assert_shape_refused("[]", "do not fit");
    assert_shape_refused("[2,0]", "do not fit");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9]}", 9,
                          "do not fit");
}
END_TEST

START_TEST(dimensions_must_be_whole_numbers)
{
    assert_shape_refused("2", "no shape");
    assert_shape_refused("[-2]", "whole number");
    assert_shape_refused("[-1,-2]", "whole number");
    assert_shape_refused("[2.5]", "whole number");
    assert_shape_refused("[\"2\"]", "whole number");
    assert_shape_refused("[null]", "whole number");
    assert_shape_refused("[1e999]", "whole number");
    assert_shape_refused("[9007199254740993]", "whole number"); // 2^53 + 1: a double has no such
    assert_shape_refused("[1,1,1,1,1,1,1,1,2]", "more than 8 dimensions");
}
END_TEST

START_TEST(huge_shape_does_not_overflow)
{
    // 2^65 elements wrap to none.
    assert_shape_refused("[4294967296,4294967296,2]", "impossibly large");
    assert_shape_refused("[4503599627370496,512]", "do not fit"); // 2^61: times 4 is 2^63
    // 2^62 floats wrap to no bytes at all.
    assert_tensor_refused(
        "{\"dtype\":\"F32\",\"shape\":[2147483648,2147483648],\"data_offsets\":[0,0]}", 0,
        "do not fit");
}
END_TEST

START_TEST(offsets_must_be_whole_numbers)
{
    assert_offsets_refused("8", "no data_offsets");
    assert_offsets_refused("[0]", "no data_offsets");
    assert_offsets_refused("[0,4,8]", "no data_offsets");
    assert_offsets_refused("[-8,0]", "whole number");
    assert_offsets_refused("[0,-8]", "whole number");
    assert_offsets_refused("[0.5,8.5]", "whole number");
    assert_offsets_refused("[0,\"8\"]", "whole number");
    assert_offsets_refused("[0,1e300]", "whole number");
}
END_TEST

START_TEST(offsets_must_lie_inside_the_file)
{
    assert_offsets_refused("[8,0]", "ends before it begins");
    assert_offsets_refused("[4,12]", "outside the file");
    assert_offsets_refused("[8,16]", "outside the file");
    assert_offsets_refused("[4503599627370496,4503599627370504]", "outside the file");
}
END_TEST

// -- Tensors together -----------------------------------------------------------------------------

#define TWO_FLOATS(name, offsets)                                                                  \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" offsets "]}"

START_TEST(overlap_is_refused)
{
    assert_header_refused("{" TWO_FLOATS("a", "0,8") "," TWO_FLOATS("b", "4,12") "}", 12,
                          "'a' and 'b' overlap");
    assert_header_refused("{" TWO_FLOATS("a", "0,8") "," TWO_FLOATS("b", "0,8") "}", 8, "overlap");
}
END_TEST

START_TEST(hole_is_refused)
{
    assert_header_refused("{" TWO_FLOATS("a", "4,12") "}", 12, "hole before tensor 'a'");
    assert_header_refused("{" TWO_FLOATS("a", "0,8") "," TWO_FLOATS("b", "12,20") "}", 20,
                          "hole before tensor 'b'");
}
END_TEST

START_TEST(bytes_after_the_last_tensor_are_refused)
{
    assert_header_refused("{" TWO_FLOATS("a", "0,8") "}", 9, "1 bytes follow");
    assert_header_refused("{}", 4, "4 bytes follow");
}
END_TEST

START_TEST(file_that_was_cut_off_is_refused)
{
    save_example(NULL);
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    for (off_t length = 0; length < status.st_size; length++) {
        save_example(NULL);
        ck_assert_int_eq(truncate(path, length), 0);
        assert_read_refused(""); // in which words depends on the place
    }
}
END_TEST

START_TEST(name_that_appears_twice_is_refused)
{
    assert_header_refused("{" TWO_FLOATS("a", "0,8") "," TWO_FLOATS("a", "8,16") "}", 16,
                          "'a' appears twice");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
        "'dtype' appears twice");
    assert_header_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "appears twice");
}
END_TEST

START_TEST(name_with_a_line_break_still_makes_one_line)
{
    assert_header_refused("{\"x\\ny\":2}", 0, "'x?y' is not");
}
END_TEST

static Suite *safetensors_suite(void)
{
    Suite *suite = suite_create("safetensors");

    TCase *saving = tcase_create("saving and reading");
    tcase_add_checked_fixture(saving, make_folder, remove_folder);
    tcase_add_test(saving, what_was_saved_is_read_back);
    tcase_add_test(saving, what_is_not_there_is_null);
    tcase_add_test(saving, header_is_padded_so_that_data_begin_at_a_multiple_of_8);
    tcase_add_test(saving, file_without_tensors_is_legal);
    tcase_add_test(saving, tensors_come_in_the_order_of_their_bytes);
    tcase_add_test(saving, data_are_aligned_wherever_the_header_ends);
    tcase_add_test(saving, unknown_members_of_a_tensor_are_ignored);
    tcase_add_test(saving, failed_write_leaves_the_old_file_and_nothing_else);
    tcase_add_test(saving, failed_rename_leaves_nothing_behind);
    tcase_add_test(saving, saving_into_a_missing_folder_ends_the_program);
    suite_add_tcase(suite, saving);

    TCase *file = tcase_create("the file and its header");
    tcase_add_checked_fixture(file, make_folder, remove_folder);
    tcase_add_test(file, missing_file_is_named);
    tcase_add_test(file, folder_is_not_a_file);
    tcase_add_test(file, empty_file_is_refused);
    tcase_add_test(file, file_shorter_than_its_length_field_is_refused);
    tcase_add_test(file, header_length_beyond_the_file_is_refused);
    tcase_add_test(file, header_length_above_the_limit_is_refused);
    tcase_add_test(file, header_must_be_a_json_object);
    tcase_add_test(file, endless_nesting_is_refused);
    tcase_add_test(file, nul_in_a_name_is_refused);
    tcase_add_test(file, escaped_backslash_before_u0000_is_no_nul);
    tcase_add_test(file, only_spaces_may_follow_the_json_object);
    tcase_add_test(file, header_must_be_utf8);
    tcase_add_test(file, metadata_must_be_strings);
    suite_add_tcase(suite, file);

    TCase *tensor = tcase_create("tensors");
    tcase_add_checked_fixture(tensor, make_folder, remove_folder);
    tcase_set_timeout(tensor, 30);
    tcase_add_test(tensor, tensor_must_be_an_object);
    tcase_add_test(tensor, other_types_are_refused_by_name);
    tcase_add_test(tensor, shape_must_fit_the_bytes);
    tcase_add_test(tensor, dimensions_must_be_whole_numbers);
    tcase_add_test(tensor, huge_shape_does_not_overflow);
    tcase_add_test(tensor, offsets_must_be_whole_numbers);
    tcase_add_test(tensor, offsets_must_lie_inside_the_file);
    tcase_add_test(tensor, overlap_is_refused);
    tcase_add_test(tensor, hole_is_refused);
    tcase_add_test(tensor, bytes_after_the_last_tensor_are_refused);
    tcase_add_test(tensor, file_that_was_cut_off_is_refused);
    tcase_add_test(tensor, name_that_appears_twice_is_refused);
    tcase_add_test(tensor, name_with_a_line_break_still_makes_one_line);
    suite_add_tcase(suite, tensor);
    return suite;
}

int main(void)
{
    return run_suite(safetensors_suite());
}
