// Learning platforms' and programs' forms. platforms.c has the columns' names and their sources.

#include "class/forms.h"

#include <archive.h>
#include <archive_entry.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "class/names.h"
#include "class/pages.h"
#include "class/platforms.h"
#include "class/results.h"
#include "class/roster.h"
#include "class/table.h"

static const cJSON *items(const cJSON *object, const char *field)
{
    return cJSON_GetObjectItemCaseSensitive(object, field);
}

static bool has_passed(const cJSON *result)
{
    return cJSON_IsTrue(items(result, "passed"));
}

// ---- Tables.

static void print_own(FILE *out, const char *text, const char *behind)
{
    cell_print(out, text, ',', true, behind);
}

static void print_points(FILE *out, const cJSON *result)
{
    if (result && has_mark(result))
        fprintf(out, "%g", result_number(result, "points"));
    fputs(",", out);
}

// "ring: older upload not taken", of each exercise. The caller frees it.
static char *remarks_of(const cJSON *student)
{
    char *text = format_text("%s", "");
    const cJSON *result;
    cJSON_ArrayForEach (result, items(student, "results"))
        if (*json_text(result, "remark"))
            text_add(&text, "%s%s: %s", *text ? "; " : "", json_text(result, "exercise"),
                     json_text(result, "remark"));
    return text;
}

void print_csv(FILE *out, const cJSON *grades)
{
    const cJSON *student = cJSON_GetArrayItem(items(grades, "students"), 0), *result;
    fprintf(out, "id,name,email,");
    cJSON_ArrayForEach (result, items(student, "results"))
        fprintf(out, "%s,%s verdict,", json_text(result, "exercise"),
                json_text(result, "exercise"));
    fprintf(out, "points,days late,remarks\n");
    cJSON_ArrayForEach (student, items(grades, "students")) {
        char *remarks = remarks_of(student);
        print_own(out, json_text(student, "id"), ",");
        print_own(out, json_text(student, "name"), ",");
        print_own(out, json_text(student, "email"), ",");
        cJSON_ArrayForEach (result, items(student, "results")) {
            print_points(out, result);
            print_own(out, json_text(result, "verdict"), ",");
        }
        if (all_marked(student)) // a sum of some is no result
            fprintf(out, "%g", sum_of(student, "points"));
        fprintf(out, ",%d,", days_late_of(student));
        print_own(out, remarks, "\n");
        free(remarks);
    }
}

static const cJSON *result_named(const cJSON *student, const char *exercise)
{
    static const char *const fields[] = {"results", "earlier"};
    const cJSON *result;
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach (result, items(student, fields[i]))
            if (strcmp(json_text(result, "exercise"), exercise) == 0)
                return result;
    return NULL;
}

void print_book(FILE *out, const cJSON *grades)
{
    const cJSON *student, *result;
    const char *names[256];
    int count = 0;
    static const char *const fields[] = {"earlier", "results"};
    for (int f = 0; f < 2; f++)
        cJSON_ArrayForEach (student, items(grades, "students"))
            cJSON_ArrayForEach (result, items(student, fields[f])) {
                const char *name = json_text(result, "exercise");
                bool known = false;
                for (int i = 0; i < count; i++)
                    known = known || strcmp(names[i], name) == 0;
                if (!known && count < 256)
                    names[count++] = name;
            }
    fprintf(out, "id,name,email,");
    for (int i = 0; i < count; i++)
        print_own(out, names[i], ",");
    fprintf(out, "points\n");
    cJSON_ArrayForEach (student, items(grades, "students")) {
        double points = 0;
        bool whole = true;
        print_own(out, json_text(student, "id"), ",");
        print_own(out, json_text(student, "name"), ",");
        print_own(out, json_text(student, "email"), ",");
        for (int i = 0; i < count; i++) {
            result = result_named(student, names[i]);
            print_points(out, result);
            points += result ? result_number(result, "points") : 0;
            whole = whole && (!result || has_mark(result));
        }
        if (whole) // as in print_csv
            fprintf(out, "%g", points);
        fputs("\n", out);
    }
}

// ---- Continuous integration.

// What has no mark is an error of the grading, no failure of the student's.
static void print_case(FILE *out, const cJSON *result)
{
    fprintf(out, "    <testcase name=\"%s\" classname=\"hvdlab\" time=\"%.3f\"",
            json_text(result, "exercise"), result_number(result, "seconds"));
    if (has_passed(result)) {
        fprintf(out, "/>\n");
        return;
    }
    const char *element = has_mark(result) ? "failure" : "error",
               *verdict = json_text(result, "verdict");
    char *text = text_of_result(result);
    fprintf(out, "><%s type=\"%s\" message=\"%s\">", element, verdict, verdict);
    print_escaped(out, text);
    fprintf(out, "</%s></testcase>\n", element);
    free(text);
}

void print_junit(FILE *out, const cJSON *grades)
{
    const cJSON *student, *result;
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    cJSON_ArrayForEach (student, items(grades, "students")) {
        int tests = 0, failures = 0, errors = 0;
        cJSON_ArrayForEach (result, items(student, "results")) {
            tests++;
            failures += has_mark(result) && !has_passed(result);
            errors += !has_mark(result);
        }
        fprintf(out, "  <testsuite name=\"");
        print_escaped(out, json_text(student, "id"));
        fprintf(out, "\" tests=\"%d\" failures=\"%d\" errors=\"%d\">\n", tests, failures, errors);
        cJSON_ArrayForEach (result, items(student, "results"))
            print_case(out, result);
        fprintf(out, "  </testsuite>\n");
    }
    fprintf(out, "</testsuites>\n");
}

static void print_object(FILE *out, cJSON *object, bool lines)
{
    char *text = lines ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    fprintf(out, "%s\n", text);
    free(text);
    cJSON_Delete(object);
}

// https://gradescope-autograders.readthedocs.io/en/latest/specs/: results.json.
void print_gradescope(FILE *out, const cJSON *grades, const char *id)
{
    const cJSON *student = student_of(grades, id), *result;
    if (!all_marked(student))
        die("%s: an exercise could not be graded", id);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "score", sum_of(student, "points"));
    cJSON_AddNumberToObject(object, "execution_time", (int)sum_of(student, "seconds"));
    cJSON_AddStringToObject(object, "visibility", "visible");
    cJSON_AddStringToObject(object, "stdout_visibility", "hidden");
    cJSON *tests = cJSON_AddArrayToObject(object, "tests");
    int number = 0;
    cJSON_ArrayForEach (result, items(student, "results")) {
        char *text = text_of_result(result), *name = format_text("%d", ++number);
        if (*json_text(result, "remark"))
            text_add(&text, "%s\n", json_text(result, "remark"));
        cJSON *test = cJSON_CreateObject();
        cJSON_AddNumberToObject(test, "score", result_number(result, "points"));
        cJSON_AddNumberToObject(test, "max_score", result_number(result, "max_points"));
        cJSON_AddStringToObject(test, "status", has_passed(result) ? "passed" : "failed");
        cJSON_AddStringToObject(test, "name", json_text(result, "exercise"));
        cJSON_AddStringToObject(test, "number", name);
        cJSON_AddStringToObject(test, "output", text);
        cJSON_AddStringToObject(test, "output_format", "text");
        cJSON_AddStringToObject(test, "visibility", "visible");
        cJSON_AddItemToArray(tests, test);
        free(text);
        free(name);
    }
    print_object(out, object, true);
}

void print_autolab(FILE *out, const cJSON *grades, const char *id)
{
    const cJSON *result;
    cJSON *object = cJSON_CreateObject(), *scores = cJSON_AddObjectToObject(object, "scores");
    cJSON_ArrayForEach (result, items(student_of(grades, id), "results"))
        cJSON_AddNumberToObject(scores, json_text(result, "exercise"),
                                result_number(result, "points"));
    print_object(out, object, false);
}

// ---- Moodle and Canvas.

// "ring: passed", a line for each exercise. The caller frees it.
static char *summary_of(const cJSON *student)
{
    char *text = NULL;
    const cJSON *result;
    cJSON_ArrayForEach (result, items(student, "results")) {
        text_add(&text, "%s%s: %s", text ? "\n" : "", json_text(result, "exercise"),
                 json_text(result, "verdict"));
        if (*json_text(result, "remark") && !has_passed(result))
            text_add(&text, " (%s)", json_text(result, "remark"));
    }
    return text ? text : format_text("%s", "");
}

// The students of grades.json as a class, which a platform's table is linked with.
static Class class_of(const cJSON *grades, const char *worksheet, const char *book,
                      const char *column)
{
    Class class = {0};
    const cJSON *student;
    cJSON_ArrayForEach (student, items(grades, "students"))
        class_add(&class, json_text(student, "id"), json_text(student, "name"),
                  json_text(student, "email"));
    class_link(&class, worksheet, book, column);
    return class;
}

static const cJSON *student_number(const cJSON *grades, int number)
{
    return number < 0 ? NULL : cJSON_GetArrayItem(items(grades, "students"), number);
}

// The decimal separator of a worksheet: that of its numbers, else that of its language.
static char separator_of(const Table *table, int grade, int maximum)
{
    for (int r = 1; r < table->count; r++)
        if (strchr(table_cell(table, r, maximum), ',') || strchr(table_cell(table, r, grade), ','))
            return ',';
    static const char *const with_comma[] = {"Bewertung", "Note", "Calificación"};
    bool comma = false;
    for (int i = 0;
         i < 3 && (maximum < 0 || table->count < 2 || !strchr(table_cell(table, 1, maximum), '.'));
         i++)
        comma = comma || same_name(table->rows[0].cells[grade], with_comma[i]);
    return comma ? ',' : '.';
}

static double number_of(const char *cell)
{
    char *text = format_text("%s", cell);
    for (char *at = text; *at; at++)
        *at = *at == ',' ? '.' : *at;
    double number = read_double(text, NULL);
    free(text);
    return number;
}

// The points, for a column in which all are `most` (0: it does not say), to the hundredth.
static double scaled(const cJSON *student, double most)
{
    double all = sum_of(student, "max_points"), points = sum_of(student, "points");
    return most > 0 && all > 0 ? round(points / all * most * 100) / 100 : points;
}

static char *grade_text(double points, char separator)
{
    char *text = format_text("%.2f", points);
    *strchr(text, '.') = separator;
    return text;
}

// Its "Last modified (grade)" stays: by it Moodle sees that nobody has changed the grade since.
void print_moodle(FILE *out, const cJSON *grades, const char *path)
{
    Table table = table_read(path);
    Class class = class_of(grades, path, NULL, NULL);
    int identifier = table_column(&table, moodle_identifier),
        grade = table_column(&table, moodle_grade),
        feedback = table_column(&table, moodle_feedback),
        maximum = table_column(&table, moodle_maximum);
    char separator = separator_of(&table, grade, maximum);
    for (int r = 1; r < table.count; r++) {
        const cJSON *student = student_number(
            grades, class_find(&class, moodle_participant(table_cell(&table, r, identifier))));
        if (!student)
            continue;
        double most = number_of(table_cell(&table, r, maximum));
        if (all_marked(student))
            table_set(&table, r, grade, grade_text(scaled(student, most), separator));
        if (feedback >= 0)
            table_set(&table, r, feedback, summary_of(student));
    }
    table_print(out, &table);
}

void print_canvas(FILE *out, const cJSON *grades, const char *path, const char *column)
{
    Table table = table_read(path);
    Class class = class_of(grades, NULL, path, column);
    int id = table_column(&table, canvas_id),
        points = table_column(&table, (const char *const[]){column, NULL});
    double possible = 0; // "    Points Possible", the row that says how many the column has
    for (int r = 1; r < table.count; r++)
        if (same_name(table_cell(&table, r, 0), "Points Possible"))
            possible = number_of(table_cell(&table, r, points));
    for (int r = 1; r < table.count; r++) {
        const cJSON *student =
            student_number(grades, class_find(&class, table_cell(&table, r, id)));
        const char *cell =
            table_cell(&table, r, points); // excused, or not assigned to this student
        bool excused = strcmp(cell, "EX") == 0 || strcmp(cell, "N/A") == 0;
        if (student && all_marked(student) && !excused)
            table_set(&table, r, points, format_text("%g", scaled(student, possible)));
    }
    table_print(out, &table);
}

// ---- Moodle's feedback files.

static void add_to_zip(struct archive *zip, const char *name, const char *path)
{
    size_t size;
    char *bytes = file_bytes(path, &size);
    struct archive_entry *entry = archive_entry_new();
    archive_entry_update_pathname_utf8(entry, name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_mtime(entry, 315532800, 0); // 1980, where a zip's time begins
    archive_entry_set_size(entry, (la_int64_t)size);
    if (archive_write_header(zip, entry) != ARCHIVE_OK ||
        archive_write_data(zip, bytes, size) != (la_ssize_t)size)
        die("cannot write the zip: %s", archive_error_string(zip));
    archive_entry_free(entry);
    free(bytes);
}

void write_feedback(const cJSON *grades, const char *path, const char *pages, const char *file)
{
    Table table = table_read(path);
    Class class = class_of(grades, path, NULL, NULL);
    int identifier = table_column(&table, moodle_identifier),
        name = table_column(&table, moodle_name);
    struct archive *zip = archive_write_new();
    CHECK(zip);
    archive_write_set_format_zip(zip);
    if (archive_write_set_options(zip, "zip:hdrcharset=UTF-8") < ARCHIVE_WARN ||
        archive_write_open_filename(zip, file) != ARCHIVE_OK)
        die("cannot write %s: %s", file, archive_error_string(zip));
    for (int r = 1; r < table.count; r++) {
        const char *number = moodle_participant(table_cell(&table, r, identifier));
        int student = class_find(&class, number);
        if (student < 0)
            continue;
        char *page = format_text("%s/%s.html", pages, class.students[student].folder),
             *inside = moodle_feedback_name(table_cell(&table, r, name), number, "check.html");
        if (access(page, R_OK) == 0)
            add_to_zip(zip, inside, page);
        free(page);
        free(inside);
    }
    if (archive_write_close(zip) != ARCHIVE_OK)
        die("cannot write %s: %s", file, archive_error_string(zip));
    archive_write_free(zip);
}
