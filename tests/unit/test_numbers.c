// Numbers of files and variables, in whichever locale the program works.

#include <locale.h>
#include <stdint.h>

#include "child.h"
#include "base/json.h"
#include "base/numbers.h"
#include "base/setting.h"

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
    environment_seconds("HVD_STALL_SECONDS", 1);
}

START_TEST(seconds_in_variables_are_decimal)
{
    static const char *const wrong[] = {"0,5", "-1", "+1", "nan", "inf", "0x1", " 1", "1 ", "2e6"};
    setlocale(LC_ALL, "");
    setenv("HVD_STALL_SECONDS", "0.5", 1);
    ck_assert_double_eq(environment_seconds("HVD_STALL_SECONDS", 1), 0.5);
    setenv("HVD_STALL_SECONDS", "", 1);
    ck_assert_double_eq(environment_seconds("HVD_STALL_SECONDS", 1), 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("HVD_STALL_SECONDS", wrong[i], 1);
        assert_refused(read_seconds, NULL, "is not a number of seconds from 0 to 1000000");
    }
    unsetenv("HVD_STALL_SECONDS");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numbers");
    TCase *tests = tcase_create("locales");
    tcase_add_test(tests, numbers_have_a_point_in_any_locale);
    tcase_add_test(tests, seconds_in_variables_are_decimal);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
