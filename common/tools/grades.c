// grades: the results of `make grade` as one file, and that file in the forms that others read.
//
//     roster CLASS.csv          ID NAME EMAIL REPOSITORY REF of each student, 0x1f between them
//     collect FOLDER            FOLDER/grades.json, of its tasks.tsv, kit and results/
//     table GRADES.json         for the instructor: who, what, and which mistakes are common
//     page GRADES.json ID       for a student, without what an instructor alone may see
//     csv GRADES.json           a table of points; `junit`: JUnit's XML
//     gradescope GRADES.json ID         the results of one submission; `autolab`: the same
//     moodle GRADES.json SHEET.csv      Moodle's grading worksheet, filled in
//     canvas GRADES.json BOOK.csv NAME  a column of Canvas's grade book, filled in
//
// All but `collect` print. grades.json keeps what a regrade needs: the kit, seeds, seals, hashes.

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"
#include "run/args.h"

static const char usage[] =
    "usage: grades roster|collect|table|page|csv|junit|gradescope|autolab|moodle|canvas FILE "
    "[WORD]...";

// ---- Text.

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        die("cannot read %s: %s", path, strerror(errno));
    size_t room = 1 << 16, length = 0;
    char *text = allocate(room, 1);
    for (size_t bytes; (bytes = fread(text + length, 1, room - length - 1, file)) > 0;) {
        length += bytes;
        if (room - length < 1 << 12) {
            room *= 2;
            char *more = realloc(text, room);
            CHECK(more);
            text = more;
        }
    }
    if (ferror(file))
        die("cannot read %s: %s", path, strerror(errno));
    fclose(file);
    text[length] = '\0';
    return text;
}

// The bytes of the UTF-8 character that begins there; 0: none does.
static int character_length(const unsigned char *at)
{
    int length = *at < 0x80                  ? 1
                 : *at >= 0xc2 && *at < 0xe0 ? 2
                 : (*at & 0xf0) == 0xe0      ? 3
                 : *at >= 0xf0 && *at < 0xf5 ? 4
                                             : 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool surrogate = length == 3 && at[0] == 0xed && at[1] >= 0xa0,
         overlong =
             (length == 3 && at[0] == 0xe0 && at[1] < 0xa0) ||
             (length == 4 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90)));
    return surrogate || overlong ? 0 : length;
}

// What a submission printed may be no text: in place, what others' readers refuse becomes '?'.
static void clean_text(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        int length = character_length(at);
        if (length == 0 || (*at < ' ' && *at != '\n' && *at != '\t') || *at == 0x7f)
            *at = '?';
        at += length > 1 ? length : 1;
    }
}

static void clean_json(cJSON *item)
{
    if (cJSON_IsString(item))
        clean_text(item->valuestring);
    for (cJSON *child = item ? item->child : NULL; child; child = child->next)
        clean_json(child);
}

static void print_xml(const char *text)
{
    for (; *text; text++) {
        const char *name = *text == '&'    ? "&amp;"
                           : *text == '<'  ? "&lt;"
                           : *text == '>'  ? "&gt;"
                           : *text == '"'  ? "&quot;"
                           : *text == '\n' ? "&#10;"
                                           : NULL;
        if (name)
            fputs(name, stdout);
        else
            putchar(*text);
    }
}

// A spreadsheet takes a cell that begins so for a formula.
static void print_cell(const char *text, bool last)
{
    if (*text && strchr("=+-@\t\r", *text) && !(*text == '-' && isdigit((unsigned char)text[1])))
        printf(strpbrk(text, ",\"\n\r") ? "\"'" : "'");
    else if (strpbrk(text, ",\"\n\r"))
        putchar('"');
    for (const char *at = text; *at; at++) {
        if (*at == '"')
            putchar('"');
        putchar(*at);
    }
    if (strpbrk(text, ",\"\n\r"))
        putchar('"');
    fputs(last ? "\n" : ",", stdout);
}

// ---- Tables of comma-separated values (RFC 4180).

#define MAX_COLUMNS 512

typedef struct {
    char **cells;
    int count;
} Row;

typedef struct {
    Row *rows;
    int count;
} Table;

// The cell that begins at *at, which moves to the character behind it. The caller frees it.
static char *read_cell(const char **at)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    CHECK(out);
    bool quoted = **at == '"';
    for (*at += quoted; **at && (quoted || !strchr(",\n\r", **at)); (*at)++) {
        if (quoted && **at == '"' && (*at)[1] != '"') {
            quoted = false; // what follows, up to the comma, belongs to the cell all the same
            continue;
        }
        *at += quoted && **at == '"'; // a doubled one
        putc(**at, out);
    }
    fclose(out);
    clean_text(text);
    return text;
}

static Table read_table(const char *path)
{
    char *text = read_file(path);
    const char *at = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text; // a byte order mark
    Table table = {0};
    while (*at) {
        char *cells[MAX_COLUMNS];
        Row row = {0};
        for (bool more = true; more;) {
            if (row.count == MAX_COLUMNS)
                die("%s: a row of more than %d cells", path, MAX_COLUMNS);
            cells[row.count++] = read_cell(&at);
            more = *at == ',';
            at += more;
        }
        at += *at == '\r';
        at += *at == '\n';
        row.cells = allocate((size_t)row.count, sizeof *row.cells);
        memcpy(row.cells, cells, (size_t)row.count * sizeof *cells);
        table.rows = realloc(table.rows, (size_t)(table.count + 1) * sizeof *table.rows);
        CHECK(table.rows);
        table.rows[table.count++] = row;
    }
    free(text);
    if (table.count == 0)
        die("%s is empty", path);
    return table;
}

// The number of a column, by its name in the first row, small letters and capitals alike; -1: there
// is none.
static int column(const Table *table, const char *name)
{
    for (int i = 0; i < table->rows[0].count; i++)
        if (strcasecmp(table->rows[0].cells[i], name) == 0)
            return i;
    return -1;
}

static const char *cell(const Row *row, int number)
{
    return number >= 0 && number < row->count ? row->cells[number] : "";
}

static void set_cell(Row *row, int number, char *text)
{
    if (number < row->count)
        row->cells[number] = text;
}

static void print_row(const Row *row)
{
    for (int i = 0; i < row->count; i++)
        print_cell(row->cells[i], i == row->count - 1);
}

static void print_roster(const char *path)
{
    static const char *const names[] = {"id", "name", "email", "repository", "ref"};
    Table table = read_table(path);
    int columns[5];
    for (int i = 0; i < 5; i++)
        columns[i] = column(&table, names[i]);
    if (columns[0] < 0)
        die("%s: the first row names no column \"id\"", path);
    for (int r = 1; r < table.count; r++) {
        if (!*cell(&table.rows[r], columns[0]))
            continue;
        for (int i = 0; i < 5; i++) {
            char *text = format_text("%s", cell(&table.rows[r], columns[i]));
            for (char *at = text; *at; at++)
                if (strchr("\t\n\r\x1f", *at))
                    *at = ' ';
            printf("%s%s", text, i < 4 ? "\x1f" : "\n");
            free(text);
        }
    }
}

// ---- grades.json.

static cJSON *read_json(const char *path)
{
    char *text = read_file(path);
    cJSON *object = cJSON_Parse(text);
    if (!object)
        die("%s is not JSON", path);
    free(text);
    return object;
}

static double number_of(const cJSON *object, const char *field)
{
    double number = json_number(object, field);
    return isnan(number) ? 0 : number;
}

static cJSON *items_of(const cJSON *object, const char *field)
{
    return cJSON_GetObjectItemCaseSensitive(object, field);
}

// A line of tasks.tsv: ID NAME EMAIL EXERCISE FILE POINTS STATE SEED SHA256, a tab between them.
// STATE is "graded", or why there is no result.
enum { T_ID, T_NAME, T_EMAIL, T_EXERCISE, T_FILE, T_POINTS, T_STATE, T_SEED, T_HASH, T_COUNT };

static void split_task(char *line, char *fields[T_COUNT])
{
    for (int i = 0; i < T_COUNT; i++)
        fields[i] = strsep(&line, "\t\n");
    CHECK(fields[T_COUNT - 1]);
}

static cJSON *result_of(const char *folder, char *fields[T_COUNT])
{
    cJSON *result = cJSON_CreateObject();
    double points = atof(fields[T_POINTS]);
    cJSON_AddStringToObject(result, "exercise", fields[T_EXERCISE]);
    cJSON_AddNumberToObject(result, "max_points", points);
    bool graded = strcmp(fields[T_STATE], "graded") == 0;
    char *path = format_text("%s/results/%s/%s.json", folder, fields[T_ID], fields[T_FILE]);
    cJSON *check = graded ? read_json(path) : NULL;
    bool passed = cJSON_IsTrue(items_of(check, "passed"));
    cJSON_AddNumberToObject(result, "points", passed ? points : 0);
    cJSON_AddBoolToObject(result, "passed", passed);
    cJSON_AddStringToObject(result, "verdict",
                            passed   ? "passed"
                            : graded ? json_text(check, "diagnosis")
                                     : fields[T_STATE]);
    cJSON_AddStringToObject(result, "sha256", fields[T_HASH]);
    static const char *const kept[] = {"seed", "seal", "look_at", "note", "seconds", "properties"};
    for (size_t i = 0; check && i < sizeof kept / sizeof *kept; i++)
        if (items_of(check, kept[i]))
            cJSON_AddItemToObject(result, kept[i],
                                  cJSON_DetachItemFromObjectCaseSensitive(check, kept[i]));
    cJSON_Delete(check);
    free(path);
    return result;
}

static void write_json(const cJSON *object, const char *path)
{
    char *text = cJSON_Print(object), *fresh = format_text("%s.new", path);
    FILE *file = fopen(fresh, "we");
    if (!file || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0 || rename(fresh, path) != 0)
        die("cannot write %s: %s", path, strerror(errno));
    free(fresh);
    free(text);
}

// The tasks of a student follow one another.
static void collect(const char *folder)
{
    char *path = format_text("%s/tasks.tsv", folder), *line = NULL,
         *kit = format_text("%s/kit", folder);
    FILE *file = fopen(path, "re");
    size_t room = 0;
    if (!file)
        die("cannot read %s: %s", path, strerror(errno));
    cJSON *grades = cJSON_CreateObject(), *student = NULL, *results = NULL;
    char *version = read_file(kit);
    version[strcspn(version, "\n")] = '\0';
    char *whole = format_text("%s %s", HVDLAB_VERSION, version);
    cJSON_AddStringToObject(grades, "kit", whole);
    free(whole);
    cJSON *students = cJSON_AddArrayToObject(grades, "students");
    while (getline(&line, &room, file) > 0) {
        char *fields[T_COUNT];
        split_task(line, fields);
        if (!student || strcmp(json_text(student, "id"), fields[T_ID]) != 0) {
            cJSON_AddItemToArray(students, student = cJSON_CreateObject());
            cJSON_AddStringToObject(student, "id", fields[T_ID]);
            cJSON_AddStringToObject(student, "name", fields[T_NAME]);
            cJSON_AddStringToObject(student, "email", fields[T_EMAIL]);
            results = cJSON_AddArrayToObject(student, "results");
        }
        cJSON_AddItemToArray(results, result_of(folder, fields));
    }
    fclose(file);
    free(line);
    free(path);
    free(kit);
    free(version);
    clean_json(grades);
    path = format_text("%s/grades.json", folder);
    write_json(grades, path);
    free(path);
    cJSON_Delete(grades);
}

static const cJSON *student_of(const cJSON *grades, const char *id)
{
    const cJSON *student;
    cJSON_ArrayForEach(student, items_of(grades, "students")) if (strcmp(json_text(student, "id"),
                                                                         id) == 0) return student;
    die("grades.json has no student '%s'", id);
}

static double sum_of(const cJSON *student, const char *field)
{
    double sum = 0;
    const cJSON *result;
    cJSON_ArrayForEach(result, items_of(student, "results")) sum += number_of(result, field);
    return sum;
}

// ---- For people.

static int by_count(const void *a, const void *b)
{
    const cJSON *const *x = a, *const *y = b;
    double more = (*y)->valuedouble - (*x)->valuedouble;
    return more > 0 ? 1 : more < 0 ? -1 : strcmp((*x)->string, (*y)->string);
}

// "ring: not-summed   7 students".
static void print_mistakes(const cJSON *grades)
{
    cJSON *counts = cJSON_CreateObject();
    const cJSON *student, *result, *item;
    cJSON_ArrayForEach(student, items_of(grades, "students"))
        cJSON_ArrayForEach(result, items_of(student, "results"))
    {
        if (cJSON_IsTrue(items_of(result, "passed")))
            continue;
        char *name =
            format_text("%s: %s", json_text(result, "exercise"), json_text(result, "verdict"));
        cJSON *count = items_of(counts, name);
        if (count)
            cJSON_SetNumberValue(count, count->valuedouble + 1);
        else
            cJSON_AddNumberToObject(counts, name, 1);
        free(name);
    }
    int count = cJSON_GetArraySize(counts), i = 0;
    const cJSON **sorted = allocate((size_t)count + 1, sizeof *sorted);
    cJSON_ArrayForEach(item, counts) sorted[i++] = item;
    qsort(sorted, (size_t)count, sizeof *sorted, by_count);
    printf("\nWhat did not pass, the most frequent first:\n");
    for (i = 0; i < count; i++)
        printf("  %3.0f  %s\n", sorted[i]->valuedouble, sorted[i]->string);
    free(sorted);
    cJSON_Delete(counts);
}

static void print_table(const cJSON *grades)
{
    const cJSON *student, *result;
    printf("%-16s %-10s %-30s %7s %8s  %s\n", "student", "exercise", "verdict", "points", "seconds",
           "look at");
    cJSON_ArrayForEach(student, items_of(grades, "students"))
        cJSON_ArrayForEach(result, items_of(student, "results"))
    {
        char *look = format_text("%s", json_text(result, "look_at"));
        for (char *at = look; *at; at++)
            *at = *at == '\n' ? ';' : *at;
        printf("%-16s %-10s %-30s %7g %8.1f  %s\n", json_text(student, "id"),
               json_text(result, "exercise"), json_text(result, "verdict"),
               number_of(result, "points"), number_of(result, "seconds"), look);
        free(look);
    }
    print_mistakes(grades);
}

// What a check says of a submission, as lines; `out` may be a string (text_of_result) or the
// screen.
static void print_result(FILE *out, const cJSON *result)
{
    const cJSON *property;
    cJSON_ArrayForEach(property, items_of(result, "properties"))
    {
        bool ok = cJSON_IsTrue(items_of(property, "ok"));
        fprintf(out, "%-4s  %s\n", ok ? "ok" : "FAIL", json_text(property, "text"));
        if (ok)
            continue;
        for (const char *at = json_text(property, "evidence"); *at;) {
            size_t length = strcspn(at, "\n");
            fprintf(out, "          %.*s\n", (int)length, at);
            at += length + (at[length] == '\n');
        }
        fprintf(out, "      likely mistake: %s\n", json_text(property, "mistake"));
    }
    if (*json_text(result, "note"))
        fprintf(out, "note  %s\n", json_text(result, "note"));
    fprintf(
        out, "%s: %s%s\n", json_text(result, "exercise"),
        cJSON_IsTrue(items_of(result, "passed")) ? "" : "failed: ", json_text(result, "verdict"));
}

static void print_page(const cJSON *grades, const char *id)
{
    const cJSON *student = student_of(grades, id), *result;
    printf("%s: %g of %g points\n", id, sum_of(student, "points"), sum_of(student, "max_points"));
    cJSON_ArrayForEach(result, items_of(student, "results"))
    {
        putchar('\n');
        print_result(stdout, result);
    }
}

// ---- For programs.

static void print_csv(const cJSON *grades)
{
    const cJSON *student = cJSON_GetArrayItem(items_of(grades, "students"), 0), *result;
    printf("id,name,email");
    cJSON_ArrayForEach(result, items_of(student, "results"))
        printf(",%s,%s verdict", json_text(result, "exercise"), json_text(result, "exercise"));
    printf(",points\n");
    cJSON_ArrayForEach(student, items_of(grades, "students"))
    {
        print_cell(json_text(student, "id"), false);
        print_cell(json_text(student, "name"), false);
        print_cell(json_text(student, "email"), false);
        cJSON_ArrayForEach(result, items_of(student, "results"))
        {
            printf("%g,", number_of(result, "points"));
            print_cell(json_text(result, "verdict"), false);
        }
        printf("%g\n", sum_of(student, "points"));
    }
}

static void print_junit(const cJSON *grades)
{
    const cJSON *student, *result;
    printf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    cJSON_ArrayForEach(student, items_of(grades, "students"))
    {
        int tests = 0, failures = 0;
        cJSON_ArrayForEach(result, items_of(student, "results"))
        {
            tests++;
            failures += !cJSON_IsTrue(items_of(result, "passed"));
        }
        printf("  <testsuite name=\"");
        print_xml(json_text(student, "id"));
        printf("\" tests=\"%d\" failures=\"%d\" errors=\"0\">\n", tests, failures);
        cJSON_ArrayForEach(result, items_of(student, "results"))
        {
            printf("    <testcase name=\"%s\" classname=\"hvdlab\" time=\"%.3f\"",
                   json_text(result, "exercise"), number_of(result, "seconds"));
            if (cJSON_IsTrue(items_of(result, "passed"))) {
                printf("/>\n");
                continue;
            }
            printf("><failure type=\"%s\" message=\"%s\">", json_text(result, "verdict"),
                   json_text(result, "verdict"));
            char *text = NULL;
            size_t size = 0;
            FILE *out = open_memstream(&text, &size);
            CHECK(out);
            print_result(out, result);
            fclose(out);
            print_xml(text);
            free(text);
            printf("</failure></testcase>\n");
        }
        printf("  </testsuite>\n");
    }
    printf("</testsuites>\n");
}

static void print_object(cJSON *object, bool lines)
{
    char *text = lines ? cJSON_Print(object) : cJSON_PrintUnformatted(object);
    puts(text);
    free(text);
    cJSON_Delete(object);
}

// https://gradescope-autograders.readthedocs.io/en/latest/specs/: results.json.
static void print_gradescope(const cJSON *grades, const char *id)
{
    const cJSON *student = student_of(grades, id), *result;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "score", sum_of(student, "points"));
    cJSON_AddNumberToObject(object, "execution_time", (int)sum_of(student, "seconds"));
    cJSON_AddStringToObject(object, "visibility", "visible");
    cJSON_AddStringToObject(object, "stdout_visibility", "hidden");
    cJSON *tests = cJSON_AddArrayToObject(object, "tests");
    int number = 0;
    cJSON_ArrayForEach(result, items_of(student, "results"))
    {
        char *text = NULL, *name = format_text("%d", ++number);
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        CHECK(out);
        print_result(out, result);
        fclose(out);
        cJSON *test = cJSON_CreateObject();
        cJSON_AddNumberToObject(test, "score", number_of(result, "points"));
        cJSON_AddNumberToObject(test, "max_score", number_of(result, "max_points"));
        cJSON_AddStringToObject(test, "status",
                                cJSON_IsTrue(items_of(result, "passed")) ? "passed" : "failed");
        cJSON_AddStringToObject(test, "name", json_text(result, "exercise"));
        cJSON_AddStringToObject(test, "number", name);
        cJSON_AddStringToObject(test, "output", text);
        cJSON_AddStringToObject(test, "output_format", "text");
        cJSON_AddStringToObject(test, "visibility", "visible");
        cJSON_AddItemToArray(tests, test);
        free(text);
        free(name);
    }
    print_object(object, true);
}

// The last line that an Autolab grader prints.
static void print_autolab(const cJSON *grades, const char *id)
{
    const cJSON *result;
    cJSON *object = cJSON_CreateObject(), *scores = cJSON_AddObjectToObject(object, "scores");
    cJSON_ArrayForEach(result, items_of(student_of(grades, id), "results"))
        cJSON_AddNumberToObject(scores, json_text(result, "exercise"), number_of(result, "points"));
    print_object(object, false);
}

// One line for each exercise.
static char *summary_of(const cJSON *student)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    CHECK(out);
    const cJSON *result;
    cJSON_ArrayForEach(result, items_of(student, "results"))
        fprintf(out, "%s%s: %s", ftell(out) > 0 ? "\n" : "", json_text(result, "exercise"),
                json_text(result, "verdict"));
    fclose(out);
    return text;
}

// The student of a row, by the texts in these columns; NULL: none. Columns of -1 are not there.
static const cJSON *student_in(const cJSON *grades, const Row *row, const int columns[], int count)
{
    const cJSON *student;
    cJSON_ArrayForEach(student, items_of(grades, "students")) for (int i = 0; i < count; i++)
    {
        const char *text = cell(row, columns[i]);
        static const char participant[] = "Participant ";
        if (strncmp(text, participant, sizeof participant - 1) == 0)
            text += sizeof participant - 1;
        if (*text && (strcmp(text, json_text(student, "id")) == 0 ||
                      strcmp(text, json_text(student, "email")) == 0))
            return student;
    }
    return NULL;
}

// The worksheet that Moodle lets one download ("Download grading worksheet"). Its "Last modified
// (grade)" stays: by it Moodle sees that nobody has changed the grade since.
static void print_moodle(const cJSON *grades, const char *path)
{
    Table table = read_table(path);
    int grade = column(&table, "Grade"), comments = column(&table, "Feedback comments"),
        most = column(&table, "Maximum Grade");
    const int columns[] = {column(&table, "Identifier"), column(&table, "Email address")};
    if (columns[0] < 0 || grade < 0)
        die("%s is no grading worksheet of Moodle's: it has no column \"Identifier\" or \"Grade\"",
            path);
    for (int r = 0; r < table.count; r++) {
        Row *row = &table.rows[r];
        const cJSON *student = r == 0 ? NULL : student_in(grades, row, columns, 2);
        if (student) {
            double all = sum_of(student, "max_points"), points = sum_of(student, "points"),
                   maximum = atof(cell(row, most));
            set_cell(row, grade,
                     format_text("%.2f", maximum > 0 && all > 0 ? points / all * maximum : points));
            if (comments >= 0)
                set_cell(row, comments, summary_of(student));
        }
        print_row(row);
    }
}

// The grade book as Canvas exports it, with the assignment's column.
static void print_canvas(const cJSON *grades, const char *path, const char *name)
{
    Table table = read_table(path);
    int points = column(&table, name);
    const int columns[] = {column(&table, "ID"), column(&table, "SIS User ID"),
                           column(&table, "SIS Login ID")};
    if (points < 0 || columns[0] < 0)
        die("%s is no grade book of Canvas's with a column \"%s\"", path, name);
    for (int r = 0; r < table.count; r++) {
        const cJSON *student = r == 0 ? NULL : student_in(grades, &table.rows[r], columns, 3);
        if (student)
            set_cell(&table.rows[r], points, format_text("%g", sum_of(student, "points")));
        print_row(&table.rows[r]);
    }
}

int main(int argc, char **argv)
{
    json_use_memory();
    const char *verb = argc > 2 ? argv[1] : "";
    if (argc == 3 && strcmp(verb, "roster") == 0)
        print_roster(argv[2]);
    else if (argc == 3 && strcmp(verb, "collect") == 0)
        collect(argv[2]);
    else if (argc >= 3 && argc <= 5) {
        cJSON *grades = read_json(argv[2]);
        if (argc == 3 && strcmp(verb, "table") == 0)
            print_table(grades);
        else if (argc == 3 && strcmp(verb, "csv") == 0)
            print_csv(grades);
        else if (argc == 3 && strcmp(verb, "junit") == 0)
            print_junit(grades);
        else if (argc == 4 && strcmp(verb, "page") == 0)
            print_page(grades, argv[3]);
        else if (argc == 4 && strcmp(verb, "gradescope") == 0)
            print_gradescope(grades, argv[3]);
        else if (argc == 4 && strcmp(verb, "autolab") == 0)
            print_autolab(grades, argv[3]);
        else if (argc == 4 && strcmp(verb, "moodle") == 0)
            print_moodle(grades, argv[3]);
        else if (argc == 5 && strcmp(verb, "canvas") == 0)
            print_canvas(grades, argv[3], argv[4]);
        else
            die("%s", usage);
        cJSON_Delete(grades);
    } else
        die("%s", usage);
    return 0;
}
