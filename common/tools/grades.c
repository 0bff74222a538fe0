// grades: what `make grade` does beside checking; common/scripts/grade.sh calls it.
//
// clang-format off
//     roster CLASS.csv               ID FOLDER REPOSITORY REF DEADLINE of each student, 0x1f between
//     time TEXT                      seconds since 1970 of a deadline
//     stamp SECRET FOLDER            the code and the seed of a package's stamp (class/take.h)
//     take NAME=VALUE...             which files are graded (class/take.h)
//     taken TAKEN.json               the same, for people
//     overrides FILE TAKEN.json EXERCISES  exits where a row makes no sense
//     collect NAME=VALUE...          grades.json (class/results.h), to `to`
//     changes OLD NEW                which verdicts of the same files differ
//     table|csv|book|junit GRADES.json
//     page|html GRADES.json ID       for a student
//     pages GRADES.json FOLDER       FOLDER/ID.txt and .html of every student
//     gradescope|autolab GRADES.json ID
//     moodle GRADES.json SHEET.csv
//     canvas GRADES.json BOOK.csv COLUMN
//     feedback GRADES.json SHEET.csv PAGES ZIP
// clang-format on

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/json.h"
#include "base/numbers.h"
#include "class/forms.h"
#include "class/names.h"
#include "class/pages.h"
#include "class/results.h"
#include "class/roster.h"
#include "class/take.h"

static _Noreturn void usage(void)
{
    die("usage: grades VERB WORD...: the verbs stand in common/tools/grades.c; make grade "
        "calls them");
}

// ---- Words NAME=VALUE.

typedef struct {
    char **items;
    int count;
} Arguments;

// NULL where it is not there, or empty.
static const char *value(Arguments words, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < words.count; i++)
        if (strncmp(words.items[i], name, length) == 0 && words.items[i][length] == '=' &&
            words.items[i][length + 1])
            return words.items[i] + length + 1;
    return NULL;
}

static double number(Arguments words, const char *name)
{
    return value(words, name) ? read_double(value(words, name), NULL) : 0;
}

// The secret in a file; NULL: there is no file. (As an argument anybody could read it, by ps.)
static char *secret_in(const char *path)
{
    size_t size;
    char *text = path ? file_bytes(path, &size) : NULL;
    for (size_t end = text ? strlen(text) : 0; end > 0 && text[end - 1] == '\n';)
        text[--end] = '\0';
    return text;
}

static void print_stamp(const char *path, const char *folder)
{
    char *secret = secret_in(path);
    Stamp stamp = stamp_of(secret, folder);
    printf("%s %" PRIu64 "\n", stamp.code, stamp.seed);
    free(secret);
}

static void take(Arguments words)
{
    char *secret = secret_in(value(words, "secret"));
    take_submissions(&(Request){.submissions = value(words, "submissions"),
                                .roster = value(words, "roster"),
                                .worksheet = value(words, "worksheet"),
                                .book = value(words, "book"),
                                .column = value(words, "column"),
                                .repositories = value(words, "repositories"),
                                .exercises = value(words, "exercises"),
                                .originals = value(words, "originals"),
                                .solutions = value(words, "solutions"),
                                .secret = secret,
                                .kit = value(words, "kit"),
                                .only = value(words, "only"),
                                .deadline = (long long)number(words, "deadline"),
                                .stamps = value(words, "stamps") != NULL,
                                .to = value(words, "to")});
    free(secret);
}

static void collect(Arguments words)
{
    cJSON *grades = collect_results(&(Collection){.taken = value(words, "taken"),
                                                  .results = value(words, "results"),
                                                  .exercises = value(words, "exercises"),
                                                  .kit = value(words, "kit"),
                                                  .before = value(words, "before"),
                                                  .overrides = value(words, "overrides"),
                                                  .penalty = number(words, "penalty"),
                                                  .only = value(words, "only") != NULL});
    json_write(grades, value(words, "to"));
    cJSON_Delete(grades);
}

// ---- Others.

static void print_roster(const char *path)
{
    Class class = class_read(path);
    for (int i = 0; i < class.count; i++) {
        const Student *student = &class.students[i];
        printf("%s\x1f%s\x1f%s\x1f%s\x1f%lld\n", student->id, student->folder, student->repository,
               student->ref, student->deadline);
    }
}

static void print_time(const char *text)
{
    long long seconds = read_time(text);
    if (seconds == 0)
        die("DEADLINE=%s is no date such as 2026-10-01 23:59 Europe/Berlin", text);
    printf("%lld\n", seconds);
}

static void write_pages(const cJSON *grades, const char *folder)
{
    static void (*const printers[])(FILE *, const cJSON *, const cJSON *) = {print_page,
                                                                             print_html};
    static const char *const endings[] = {"txt", "html"};
    const cJSON *student;
    cJSON_ArrayForEach (student, cJSON_GetObjectItemCaseSensitive(grades, "students"))
        for (int i = 0; i < 2; i++) {
            char *name = safe_name(json_text(student, "id")),
                 *path = format_text("%s/%s.%s", folder, name, endings[i]), *text = NULL;
            size_t size = 0;
            FILE *out = open_memstream(&text, &size);
            CHECK(out);
            printers[i](out, grades, student);
            fclose(out);
            file_replace(path, text, size);
            free(text);
            free(name);
            free(path);
        }
}

// What grades.json is turned into. False: there is no such verb.
static bool print_form(const char *verb, const cJSON *grades, int count, char **words)
{
    if (count == 0 && strcmp(verb, "table") == 0)
        print_table(stdout, grades);
    else if (count == 0 && strcmp(verb, "csv") == 0)
        print_csv(stdout, grades);
    else if (count == 0 && strcmp(verb, "book") == 0)
        print_book(stdout, grades);
    else if (count == 0 && strcmp(verb, "junit") == 0)
        print_junit(stdout, grades);
    else if (count == 1 && strcmp(verb, "page") == 0)
        print_page(stdout, grades, student_of(grades, words[0]));
    else if (count == 1 && strcmp(verb, "html") == 0)
        print_html(stdout, grades, student_of(grades, words[0]));
    else if (count == 1 && strcmp(verb, "pages") == 0)
        write_pages(grades, words[0]);
    else if (count == 1 && strcmp(verb, "gradescope") == 0)
        print_gradescope(stdout, grades, words[0]);
    else if (count == 1 && strcmp(verb, "autolab") == 0)
        print_autolab(stdout, grades, words[0]);
    else if (count == 1 && strcmp(verb, "moodle") == 0)
        print_moodle(stdout, grades, words[0]);
    else if (count == 2 && strcmp(verb, "canvas") == 0)
        print_canvas(stdout, grades, words[0], words[1]);
    else if (count == 3 && strcmp(verb, "feedback") == 0)
        write_feedback(grades, words[0], words[1], words[2]);
    else
        return false;
    return true;
}

static void print_difference(const char *before, const char *after)
{
    cJSON *old = json_read(before), *new = json_read(after);
    print_changes(old, new);
    cJSON_Delete(old);
    cJSON_Delete(new);
}

int main(int argc, char **argv)
{
    json_use_memory();
    // Names are UTF-8, whatever the user's locale; numbers have a point.
    setlocale(LC_CTYPE, "C.UTF-8");
    if (argc < 3)
        usage();
    const char *verb = argv[1];
    Arguments words = {argv + 2, argc - 2};
    if (strcmp(verb, "roster") == 0)
        print_roster(argv[2]);
    else if (strcmp(verb, "time") == 0)
        print_time(argv[2]);
    else if (strcmp(verb, "stamp") == 0 && argc == 4)
        print_stamp(argv[2], argv[3]);
    else if (strcmp(verb, "take") == 0)
        take(words);
    else if (strcmp(verb, "taken") == 0)
        print_taken(argv[2]);
    else if (strcmp(verb, "collect") == 0)
        collect(words);
    else if (strcmp(verb, "overrides") == 0 && argc == 5)
        check_overrides(argv[2], argv[3], argv[4]);
    else if (strcmp(verb, "changes") == 0 && argc == 4)
        print_difference(argv[2], argv[3]);
    else {
        cJSON *grades = json_read(argv[2]);
        if (!print_form(verb, grades, argc - 3, argv + 3))
            usage();
        cJSON_Delete(grades);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        die("standard output could not be written");
    return 0;
}
