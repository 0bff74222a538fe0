// Which lines of a trace are events (common/observe/events.def), and what is said of the others.

#include <stdlib.h>
#include <string.h>
#include "child.h"
#include "base/format.h"
#include "steps/event_rules.h"

static const Job job = {5, 3}; // three workers, two servers

static const char *const events[] = {
    "{\"event\":\"affinity\",\"t\":1}\n",
    "{\"event\":\"affinity\",\"t\":1.5,\"replica\":2}\t0123456789abcdef\n",
    "{\"event\":\"call\",\"t\":0,\"function\":\"a [ { \\\" }\"}\n",
    "{\"t\":1,\"function\":\"hvd_rank\",\"event\":\"call\"}\n",
    "{\"event\":\"train_begin\",\"t\":1,\"weights\":null,\"statistics\":-1e300}\n",
    "{\"event\":\"ps_pull\",\"t\":1,\"server\":1}\n",
    "{\"event\":\"wait_begin\",\"t\":1,\"function\":\"MPI_Wait\",\"requests\":\"\"}\n",
    "{\"event\":\"wait_begin\",\"t\":1,\"function\":\"MPI_Wait\",\"requests\":\"3,0,14\"}\n",
    "{\"event\":\"wait_begin\",\"t\":1,\"function\":\"MPI_Waitall\",\"requests\":\"3\",\"handles\":7}\n",
    "{\"event\":\"piece\",\"t\":1,\"count\":3}\n",
    "{\"event\":\"staged_batch_end\",\"t\":1,\"batch\":0,\"stage\":1,\"arena\":0}\n",
    "{\"event\":\"message_begin\",\"t\":1,\"function\":\"MPI_Send\",\"name\":\"\",\"to\":4,\"to_tag\":-7,\"bytes\":8,\"from\":null,\"from_tag\":null,\"room\":null,\"before\":null}\n",
};

START_TEST(what_the_table_has_is_an_event)
{
    char *fault;
    cJSON *event = event_of_line(events[_i], strlen(events[_i]), job, &fault);
    ck_assert_msg(event && !fault, "%s: %s", events[_i], fault);
    cJSON_Delete(event);
}
END_TEST

static const struct {
    const char *line, *fault;
} others[] = {
    {"", "no JSON object"},
    {"{}\n", "it has no name"},
    {"{\"event\":3,\"t\":1}\n", "it has no name"},
    {"{\"event\":\"affinity\",\"t\":1\n", "it is no JSON"},
    {"{\"event\":\"affinity\",\"t\":1}{\"event\":\"affinity\",\"t\":1}\n", "another in it"},
    {"[{\"event\":\"affinity\",\"t\":1}]\n", "no JSON object"},
    {"{\"event\":\"affinity\",\"t\":{\"a\":1}}\n", "another in it"},
    {"{\"event\":\"no_such\",\"t\":1}\n", "there is no event no_such"},
    {"{\"event\":\"affinity\"}\n", "affinity lacks t"},
    {"{\"event\":\"affinity\",\"t\":null,\"x\":1}\n", "affinity has no field x"},
    {"{\"event\":\"affinity\",\"t\":1,\"t\":1}\n", "affinity has t twice"},
    {"{\"event\":\"affinity\",\"t\":1e999}\n", "t is no number"},
    {"{\"event\":\"affinity\",\"t\":\"1\"}\n", "t is no number"},
    {"{\"event\":\"affinity\",\"t\":1,\"replica\":256}\n", "replica is 256"},
    {"{\"event\":\"affinity\",\"t\":1,\"replica\":-1}\n", "replica is -1"},
    {"{\"event\":\"call\",\"t\":1,\"function\":7}\n", "function is no text"},
    {"{\"event\":\"ps_pull\",\"t\":1,\"server\":2}\n", "server is 2"},
    {"{\"event\":\"ps_sent\",\"t\":1,\"worker\":3,\"version\":0,\"weights\":1}\n", "worker is 3"},
    {"{\"event\":\"ps_sent\",\"t\":1,\"worker\":0.5,\"version\":0,\"weights\":1}\n",
     "worker is 0.5"},
    {"{\"event\":\"ps_sent\",\"t\":1,\"worker\":null,\"version\":0,\"weights\":1}\n", "no number"},
    {"{\"event\":\"fit_end\",\"t\":1,\"epochs\":1000000000}\n", "epochs is 1000000000"},
    {"{\"event\":\"wait_end\",\"t\":1,\"function\":\"\",\"requests\":\"1,-2\"}\n", "no list"},
    {"{\"event\":\"wait_end\",\"t\":1,\"function\":\"\",\"requests\":\"1,\"}\n", "no list"},
    {"{\"event\":\"wait_end\",\"t\":1,\"function\":\"\",\"requests\":\"9999999999\"}\n", "no list"},
};

START_TEST(what_the_table_does_not_have_is_none)
{
    char *fault;
    cJSON *event = event_of_line(others[_i].line, strlen(others[_i].line), job, &fault);
    ck_assert_msg(!event && strstr(fault, others[_i].fault), "%s: %s", others[_i].line, fault);
    free(fault);
}
END_TEST

START_TEST(a_line_has_a_length)
{
    char *fault,
        *longest = format_text("{\"event\":\"call\",\"t\":1,\"function\":\"%*s\"}", 1 << 20, "");
    ck_assert_ptr_null(event_of_line(longest, strlen(longest), job, &fault));
    ck_assert_str_eq(fault, "it is longer than a megabyte");
    free(fault);
    free(longest);
}
END_TEST

START_TEST(a_line_has_no_byte_0)
{
    static const char line[] = "{\"event\":\"affinity\",\"t\":1}\0\n";
    char *fault;
    ck_assert_ptr_null(event_of_line(line, sizeof line - 1, job, &fault));
    free(fault);
}
END_TEST

int main(void)
{
    TCase *lines = tcase_create("lines");
    tcase_add_loop_test(lines, what_the_table_has_is_an_event, 0, sizeof events / sizeof *events);
    tcase_add_loop_test(lines, what_the_table_does_not_have_is_none, 0,
                        sizeof others / sizeof *others);
    tcase_add_test(lines, a_line_has_a_length);
    tcase_add_test(lines, a_line_has_no_byte_0);
    Suite *suite = suite_create("events");
    suite_add_tcase(suite, lines);
    return run_suite(suite);
}
