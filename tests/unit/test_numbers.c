// Numbers of files and variables, in whichever locale the program works; text that anybody wrote.

#include <limits.h>
#include <locale.h>
#include <stdint.h>
#include <string.h>

#include "child.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/numbers.h"
#include "base/setting.h"
#include "observe/trace.h"

// As tests/unit/test_locale.sh has it: in a locale with a decimal comma.
START_TEST(numbers_have_a_point_in_any_locale)
{
    setlocale(LC_ALL, "");
    char text[32], *end;
    print_number(text, sizeof text, "%.17g %.2f", 0.5, 1.25);
    ck_assert_str_eq(text, "0.5 1.25");
    ck_assert_double_eq(read_double("0.5 7", &end), 0.5);
    ck_assert_str_eq(end, " 7");
    ck_assert_str_eq(float_text(0.1f).text, "0.1");
    ck_assert_float_eq(read_float("0.1", NULL), 0.1f);
    cJSON *list = json_parse("[0.25,1e-3]");
    char *json = json_print(list, false);
    ck_assert_str_eq(json, "[0.25,0.001]");
    free(json);
    cJSON_Delete(list);
}
END_TEST

static void read_seconds(const void *unused)
{
    (void)unused;
    setting_seconds(HVD_STALL_SECONDS);
}

START_TEST(seconds_in_variables_are_decimal)
{
    static const char *const wrong[] = {"0,5", "-1", "+1", "nan", "inf", "0x1", " 1", "1 ", "2e6"};
    setlocale(LC_ALL, "");
    setenv("HVD_STALL_SECONDS", "0.5", 1);
    ck_assert_double_eq(setting_seconds(HVD_STALL_SECONDS), 0.5);
    setenv("HVD_STALL_SECONDS", "", 1);
    ck_assert_double_eq(setting_seconds(HVD_STALL_SECONDS), 10);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("HVD_STALL_SECONDS", wrong[i], 1);
        assert_refused(read_seconds, NULL, "is not a number of seconds from 0 to 1000000");
    }
    unsetenv("HVD_STALL_SECONDS");
}
END_TEST

static void read_all_settings(const void *unused)
{
    (void)unused;
    setting_count(HVDLAB_PATIENCE);
    setting_bytes(HVD_FUSION_THRESHOLD);
    setting_choice(HVD_HIERARCHICAL);
}

static const struct {
    Setting setting;
    const char *text, *message;
} wrong_settings[] = {
    {HVDLAB_PATIENCE, "1001", "HVDLAB_PATIENCE=1001 is not a whole number from 1 to 1000"},
    {HVDLAB_PATIENCE, "0", "is not a whole number from 1"},
    {HVDLAB_PATIENCE, "1 ", "is not a whole number from 1"},
    {HVD_FUSION_THRESHOLD, "-1", "HVD_FUSION_THRESHOLD=-1 is not a number of bytes, 0 or more"},
    {HVD_FUSION_THRESHOLD, "16M", "is not a number of bytes"},
    {HVD_HIERARCHICAL, "yes", "HVD_HIERARCHICAL=yes is not auto, 0 or 1"},
    {HVD_HIERARCHICAL, "aut", "is not auto, 0 or 1"},
    {HVD_HIERARCHICAL, "auto|0", "is not auto, 0 or 1"},
};

START_TEST(settings_of_another_kind_are_refused)
{
    setenv(setting_name(wrong_settings[_i].setting), wrong_settings[_i].text, 1);
    assert_refused(read_all_settings, NULL, wrong_settings[_i].message);
}
END_TEST

START_TEST(settings_have_defaults_and_words)
{
    ck_assert_int_eq(setting_count(HVDLAB_PATIENCE), 0);
    ck_assert_uint_eq(setting_bytes(HVD_FUSION_THRESHOLD), 16 << 20);
    ck_assert_str_eq(setting_choice_text(HVD_TRANSPORT), "auto");
    setenv("HVD_TRANSPORT", "mpi", 1);
    ck_assert_int_eq(setting_choice(HVD_TRANSPORT), 2);
    ck_assert_str_eq(setting_choice_text(HVD_TRANSPORT), "mpi");
    setenv("HVD_FUSION_THRESHOLD", "0", 1);
    ck_assert_uint_eq(setting_bytes(HVD_FUSION_THRESHOLD), 0);
    setenv("HVD_SWEEP", "", 1);
    ck_assert_ptr_null(setting_text(HVD_SWEEP));
}
END_TEST

static const struct {
    const char *text, *clean;
} unclean[] = {
    {"", ""},
    {"two lines\nof text", "two lines\nof text"},
    {"Gr\u00fc\u00dfe, \u674e\u660e, \U0001f600", "Gr\u00fc\u00dfe, \u674e\u660e, \U0001f600"},
    {"\x1b[2J\x1b]0;title\a", "?[2J?]0;title?"},
    {"a\tb\rc\x7f", "a b?c?"},
    {"\xc2\x85\xc2\x9b"
     "31m",
     "??31m"},                              // control characters of two bytes
    {"ok \u202e\u2066", "ok ??"},           // they turn the line around
    {"\xff\xc0\xaf\xed\xa0\x80", "??????"}, // not UTF-8: a long form, half of a pair
    {"\xf4\x90\x80\x80\xf8\x88", "??????"}, // behind the last character
    {"cut \xe6\x9d", "cut ??"},
    {"cut \xf0", "cut ?"},
    {"\xe6"
     "(\x9d",
     "?(?"},
};

START_TEST(text_clean_leaves_what_can_be_shown)
{
    char *text = format_text("%s", unclean[_i].text);
    ck_assert_str_eq(text_clean(text), unclean[_i].clean);
    free(text);
    ck_assert_ptr_null(text_clean(NULL));
}
END_TEST

// Checkpoints, traces and sweeps have them: another program must find the same.
START_TEST(hashes_keep_their_values)
{
    const char *text = "The quick brown fox jumps over the lazy dog, twice.";
    ck_assert_uint_eq(hash_text(""), 0xcbf29ce484222325);
    ck_assert_uint_eq(hash_text("a"), 0xaf63dc4c8601ec8c);
    ck_assert_uint_eq(hash_text("foobar"), 0x85944171f73967e8);
    ck_assert_uint_eq(hash_bytes(hash_text("foo"), "bar", 3), 0x85944171f73967e8);
    ck_assert_uint_eq(hash_words(1, text, strlen(text)), 0x9600e006bc279ee4);
    ck_assert_uint_eq(hash_words(1, "", 0), 0xadf334e58e8463d5);
    ck_assert_uint_eq(trace_signature(1, 2, "line", 4), 0x278216c7c8dd4862);
}
END_TEST

static const struct {
    const char *text;
    uint64_t largest, number;
    const char *behind;
} digits[] = {
    {"0", 0, 0, ""},     {"17,4", 17, 17, ",4"},
    {"18", 17, 0, NULL}, {"", 9, 0, NULL},
    {" 1", 9, 0, NULL},  {"-1", UINT64_MAX, 0, NULL},
    {"+1", 9, 0, NULL},  {"18446744073709551615", UINT64_MAX, UINT64_MAX, ""},
    {"007x", 7, 7, "x"}, {"18446744073709551616", UINT64_MAX, 0, NULL},
};

START_TEST(digits_are_read_up_to_their_end)
{
    uint64_t number;
    const char *behind = read_digits(digits[_i].text, digits[_i].largest, &number);
    ck_assert_pstr_eq(behind, digits[_i].behind);
    if (behind)
        ck_assert_uint_eq(number, digits[_i].number);
    bool all = behind && *behind == '\0';
    ck_assert_int_eq(read_whole_number(digits[_i].text, digits[_i].largest, &number), all);
    if (digits[_i].largest <= LONG_MAX)
        ck_assert_int_eq(whole_number(digits[_i].text, (long)digits[_i].largest),
                         all ? (long)digits[_i].number : -1);
    ck_assert_int_eq(whole_number(NULL, 9), -1);
}
END_TEST

START_TEST(text_grows)
{
    char *text = NULL;
    text_add(&text, "%s", "");
    ck_assert_str_eq(text, "");
    for (int i = 0; i < 1000; i++)
        text_add(&text, "%s%d", i ? "," : "", i % 10);
    ck_assert_uint_eq(strlen(text), 1999);
    ck_assert_str_eq(text + 1990, "5,6,7,8,9");
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numbers");
    TCase *tests = tcase_create("locales");
    tcase_add_test(tests, numbers_have_a_point_in_any_locale);
    tcase_add_test(tests, seconds_in_variables_are_decimal);
    tcase_add_loop_test(tests, settings_of_another_kind_are_refused, 0,
                        sizeof wrong_settings / sizeof *wrong_settings);
    tcase_add_test(tests, settings_have_defaults_and_words);
    tcase_add_test(tests, hashes_keep_their_values);
    tcase_add_loop_test(tests, digits_are_read_up_to_their_end, 0, sizeof digits / sizeof *digits);
    tcase_add_test(tests, text_grows);
    tcase_add_loop_test(tests, text_clean_leaves_what_can_be_shown, 0,
                        sizeof unclean / sizeof *unclean);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
