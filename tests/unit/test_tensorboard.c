// What common/train/tensorboard.h promises: files that TensorBoard reads. The tests read them back
// with a decoder of their own, whose checksum goes bit by bit; tests/golden/read_events.py does the
// same with TensorBoard itself.

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "child.h"
#include "train/tensorboard.h"
#include "base/format.h"
#include "scratch.h"

typedef struct {
    uint8_t bytes[65536];
    size_t size;
} Contents;

// The one file of a folder, whose name must be that of an event file.
static Contents read_only_file(const char *folder)
{
    static Contents contents;
    contents.size = 0;
    int files = 0;
    DIR *directory = opendir(folder);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        files++;
        ck_assert_int_eq(strncmp(entry->d_name, "events.out.tfevents.", 20), 0);
        char *path = format_text("%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        contents.size = fread(contents.bytes, 1, sizeof contents.bytes, file);
        fclose(file);
        free(path);
    }
    closedir(directory);
    ck_assert_int_eq(files, 1);
    return contents;
}

static uint32_t crc32c(const void *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static uint64_t little_endian(const uint8_t *bytes, int count)
{
    uint64_t number = 0;
    for (int i = count - 1; i >= 0; i--)
        number = number << 8 | bytes[i];
    return number;
}

static void check_masked_crc(const uint8_t *bytes, size_t count, const uint8_t *stored)
{
    uint32_t unmasked = (uint32_t)little_endian(stored, 4) - 0xa282ead8u;
    ck_assert_uint_eq(unmasked >> 17 | unmasked << 15, crc32c(bytes, count));
}

// The payload of the frame at *position, which moves on to the next frame.
static const uint8_t *next_payload(const Contents *contents, size_t *position, size_t *size)
{
    const uint8_t *frame = contents->bytes + *position;
    ck_assert_uint_ge(contents->size - *position, 16);
    *size = little_endian(frame, 8);
    ck_assert_uint_le(*size, contents->size - *position - 16);
    check_masked_crc(frame, 8, frame + 8);
    check_masked_crc(frame + 12, *size, frame + 12 + *size);
    *position += 16 + *size;
    return frame + 12;
}

typedef struct {
    double wall_time;
    int64_t step;
    char version[32];
    char tag[512];
    float value;
} Event;

static uint64_t varint(const uint8_t **at)
{
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return number;
    }
}

static void take_text(const uint8_t **at, uint64_t length, char *text, size_t size)
{
    ck_assert_uint_lt(length, size);
    memcpy(text, *at, length);
    text[length] = '\0';
    *at += length;
}

// Reads the fields of Event, Summary and Summary.Value from a payload. The inner messages need no
// call of their own: when one begins, so does its parent's last field.
static Event decode(const uint8_t *payload, size_t size)
{
    enum {
        WALL_TIME = 0x09,
        STEP = 0x10,
        VERSION = 0x1a,
        SUMMARY = 0x2a,
        TAG = 0x0a,
        VALUE = 0x15
    };
    Event event = {0};
    const uint8_t *at = payload, *end = payload + size;
    bool in_value = false;
    while (at < end) {
        uint64_t key = varint(&at);
        if (key == WALL_TIME) {
            memcpy(&event.wall_time, at, 8);
            at += 8;
        } else if (key == STEP) {
            event.step = (int64_t)varint(&at);
        } else if (key == VERSION) {
            take_text(&at, varint(&at), event.version, sizeof event.version);
        } else if (key == SUMMARY) {
            ck_assert_uint_eq(varint(&at), (uint64_t)(end - at));
            ck_assert_uint_eq(varint(&at), 0x0a); // Summary.value
            ck_assert_uint_eq(varint(&at), (uint64_t)(end - at));
            in_value = true;
        } else if (key == TAG && in_value) {
            take_text(&at, varint(&at), event.tag, sizeof event.tag);
        } else if (key == VALUE && in_value) {
            memcpy(&event.value, at, 4);
            at += 4;
        } else {
            ck_abort_msg("unknown field %u", (unsigned)key);
        }
    }
    ck_assert_ptr_eq(at, end);
    return event;
}

static Event next_event(const Contents *contents, size_t *position)
{
    size_t size;
    const uint8_t *payload = next_payload(contents, position, &size);
    return decode(payload, size);
}

START_TEST(the_tests_checksum_is_crc_32c)
{
    ck_assert_uint_eq(crc32c("123456789", 9), 0xe3069283u);
}
END_TEST

START_TEST(a_file_begins_with_its_version)
{
    event_file_close(event_file_open(scratch));
    Contents contents = read_only_file(scratch);
    size_t position = 0;
    Event event = next_event(&contents, &position);
    ck_assert_str_eq(event.version, "brain.Event:2");
    ck_assert_double_le(event.wall_time, (double)time(NULL) + 1);
    ck_assert_double_gt(event.wall_time, (double)time(NULL) - 60);
    ck_assert_uint_eq(position, contents.size);
}
END_TEST

START_TEST(scalars_come_back)
{
    char long_tag[301];
    memset(long_tag, 'x', 300);
    long_tag[300] = '\0';
    const Event written[] = {
        {.tag = "epoch_loss", .step = 0, .value = 0.8294f},
        {.tag = "epoch_val_accuracy", .step = 300, .value = -1e-30f},
        {.tag = "128 is the first number of two bytes", .step = 128, .value = 128},
        {.tag = "", .step = INT64_MAX, .value = 0},
        {.tag = "before the beginning", .step = -1, .value = 1e30f},
    };
    enum { COUNT = sizeof written / sizeof written[0] };
    EventFile *file = event_file_open(scratch);
    for (int i = 0; i < COUNT; i++)
        event_file_scalar(file, written[i].tag, written[i].step, written[i].value);
    event_file_scalar(file, long_tag, 1, 1);
    event_file_close(file);

    Contents contents = read_only_file(scratch);
    size_t position = 0;
    next_event(&contents, &position);
    for (int i = 0; i < COUNT; i++) {
        Event read = next_event(&contents, &position);
        ck_assert_str_eq(read.tag, written[i].tag);
        ck_assert_int_eq(read.step, written[i].step);
        ck_assert_float_eq(read.value, written[i].value);
        ck_assert_double_gt(read.wall_time, (double)time(NULL) - 60);
    }
    ck_assert_str_eq(next_event(&contents, &position).tag, long_tag);
    ck_assert_uint_eq(position, contents.size);
}
END_TEST

START_TEST(a_scalar_is_there_at_once)
{
    EventFile *file = event_file_open(scratch);
    size_t before = read_only_file(scratch).size;
    event_file_scalar(file, "loss", 1, 1);
    ck_assert_uint_gt(read_only_file(scratch).size, before);
    event_file_close(file);
}
END_TEST

START_TEST(the_name_has_time_host_and_process)
{
    event_file_close(event_file_open(scratch));
    DIR *directory = opendir(scratch);
    ck_assert_ptr_nonnull(directory);
    struct dirent *entry;
    while ((entry = readdir(directory)) && entry->d_name[0] == '.')
        ;
    ck_assert_ptr_nonnull(entry);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    char *end = format_text(".%s.%d", host, (int)getpid());
    long long seconds = strtoll(entry->d_name + strlen("events.out.tfevents."), NULL, 10);
    ck_assert_int_gt(seconds, time(NULL) - 60);
    ck_assert_ptr_nonnull(strstr(entry->d_name, end));
    free(end);
    closedir(directory);
}
END_TEST

START_TEST(folders_are_made_as_needed)
{
    static const char *const names[] = {"a/b/c", "trailing/", "double//slash"};
    for (int i = 0; i < 3; i++) {
        char *folder = format_text("%s/%s", scratch, names[i]);
        event_file_close(event_file_open(folder));
        ck_assert_uint_gt(read_only_file(folder).size, 0);
        free(folder);
    }
}
END_TEST

START_TEST(a_relative_folder_will_do)
{
    ck_assert_int_eq(chdir(scratch), 0);
    event_file_close(event_file_open("./logs"));
    ck_assert_uint_gt(read_only_file("logs").size, 0);
}
END_TEST

static void open_and_close(const void *folder)
{
    event_file_close(event_file_open(folder));
}

START_TEST(a_folder_that_cannot_be_made_ends_the_program)
{
    char *file = format_text("%s/file", scratch), *folder = format_text("%s/logs", file);
    fclose(fopen(file, "w"));
    Outcome outcome = run_in_child(open_and_close, folder);
    char *line = format_text("test_tensorboard: cannot create the folder %s: File exists\n", file);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_str_eq(outcome.err, line);
    free(line);
    free(folder);
    free(file);
}
END_TEST

START_TEST(no_folder_at_all_ends_the_program)
{
    Outcome outcome = run_in_child(open_and_close, "");
    ck_assert_int_eq(outcome.status, 2);
    ck_assert_ptr_nonnull(strstr(outcome.err, "cannot create the folder"));
}
END_TEST

static void write_beyond_the_limit(const void *folder)
{
    // A limit on the size of files fails a write as a full disk does. It also holds for the file
    // that takes standard error, which needs less.
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 1000, .rlim_max = RLIM_INFINITY});
    EventFile *file = event_file_open(folder);
    for (int step = 0; step < 100; step++)
        event_file_scalar(file, "loss", step, 1);
}

// Said once where it happens and once at the end, and no more lines than these two.
static void assert_log_given_up(const Outcome *outcome, const char *reason)
{
    char *begin =
        format_text("test_tensorboard: warning: cannot write the log %s/events.", scratch);
    char *end = format_text("%s\n", reason);
    const char *second = strchr(outcome->err, '\n') + 1;
    ck_assert_int_eq(outcome->status, 1);
    ck_assert_str_eq(outcome->out, "");
    ck_assert_int_eq(strncmp(outcome->err, begin, strlen(begin)), 0);
    ck_assert_ptr_nonnull(strstr(outcome->err, "; the training goes on without it\n"));
    ck_assert_int_eq(strncmp(second, "test_tensorboard: the log ", 26), 0);
    ck_assert_ptr_nonnull(strstr(second, end));
    ck_assert_str_eq(strchr(second, '\n'), "\n");
    free(begin);
    free(end);
}

START_TEST(a_write_that_fails_is_a_warning_and_leaves_whole_records)
{
    Outcome outcome = run_in_child(write_beyond_the_limit, scratch);
    assert_log_given_up(&outcome, "is not complete: File too large");
    Contents contents = read_only_file(scratch);
    size_t position = 0;
    ck_assert_str_eq(next_event(&contents, &position).version, "brain.Event:2");
    for (int step = 0; position < contents.size; step++)
        ck_assert_int_eq(next_event(&contents, &position).step, step);
    ck_assert_uint_gt(contents.size, 900);
}
END_TEST

static void write_into_nothing(const void *folder)
{
    EventFile *file = event_file_open(folder);
    event_file_scalar(file, "loss", 0, 1);
    char *command = format_text("rm -r %s/*", scratch);
    ck_assert_int_eq(system(command), 0);
    for (int step = 1; step < 4; step++)
        event_file_scalar(file, "loss", step, 1);
    event_file_close(file);
}

START_TEST(a_folder_that_is_deleted_is_noticed)
{
    char *folder = format_text("%s/logs", scratch);
    Outcome outcome = run_in_child(write_into_nothing, folder);
    ck_assert_int_eq(outcome.status, 1);
    ck_assert_ptr_nonnull(strstr(outcome.err, "it has been deleted; the training goes on"));
    ck_assert_ptr_nonnull(strstr(outcome.err, "is not complete: it has been deleted\n"));
    free(folder);
}
END_TEST

int main(void)
{
    unsetenv("OMPI_COMM_WORLD_RANK");
    Suite *suite = suite_create("tensorboard");

    TCase *files = tcase_create("event files");
    tcase_add_checked_fixture(files, make_scratch, remove_scratch);
    tcase_add_test(files, the_tests_checksum_is_crc_32c);
    tcase_add_test(files, a_file_begins_with_its_version);
    tcase_add_test(files, scalars_come_back);
    tcase_add_test(files, a_scalar_is_there_at_once);
    tcase_add_test(files, the_name_has_time_host_and_process);
    tcase_add_test(files, folders_are_made_as_needed);
    tcase_add_test(files, a_relative_folder_will_do);
    suite_add_tcase(suite, files);

    TCase *faults = tcase_create("faults");
    tcase_add_checked_fixture(faults, make_scratch, remove_scratch);
    tcase_add_test(faults, a_folder_that_cannot_be_made_ends_the_program);
    tcase_add_test(faults, no_folder_at_all_ends_the_program);
    tcase_add_test(faults, a_write_that_fails_is_a_warning_and_leaves_whole_records);
    tcase_add_test(faults, a_folder_that_is_deleted_is_noticed);
    suite_add_tcase(suite, faults);

    return run_suite(suite);
}
