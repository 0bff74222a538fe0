// Rosters, and the worksheets that link them with a platform's numbers.

#include "class/roster.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "class/names.h"
#include "class/platforms.h"
#include "class/table.h"

// ---- Times.

// Does the system know "Europe/Berlin"? (Its folder has other files and folders, too.)
static bool is_zone(const char *name)
{
    static const char signs[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/";
    char *path = format_text("/usr/share/zoneinfo/%s", name), magic[4] = "";
    FILE *file = strspn(name, signs) == strlen(name) ? fopen(path, "re") : NULL;
    bool known = file && fread(magic, 1, 4, file) == 4 && memcmp(magic, "TZif", 4) == 0;
    if (file)
        fclose(file);
    free(path);
    return known;
}

// What stands behind the time of day: "", " Europe/Berlin", "+02:00", "Z". False: it is none.
static bool read_zone(const char *text, struct tm *time, long long *seconds)
{
    int hours, minutes = 0, used = 0;
    char sign;
    text += strspn(text, " ");
    if (*text == '\0') {
        time->tm_isdst = -1;
        *seconds = mktime(time);
        return true;
    }
    if (strcasecmp(text, "Z") == 0 || strcasecmp(text, "UTC") == 0 ||
        strcasecmp(text, "GMT") == 0) {
        *seconds = timegm(time);
        return true;
    }
    if ((sscanf(text, "%c%2d:%2d%n", &sign, &hours, &minutes, &used) == 3 ||
         sscanf(text, "%c%2d%2d%n", &sign, &hours, &minutes, &used) == 3) &&
        strchr("+-", sign) && text[used] == '\0') {
        *seconds = timegm(time) - (sign == '-' ? -1 : 1) * (hours * 3600LL + minutes * 60LL);
        return true;
    }
    if (!is_zone(text))
        return false;
    char *before = getenv("TZ") ? format_text("%s", getenv("TZ")) : NULL;
    setenv("TZ", text, 1);
    tzset();
    time->tm_isdst = -1;
    *seconds = mktime(time);
    if (before)
        setenv("TZ", before, 1);
    else
        unsetenv("TZ");
    tzset();
    free(before);
    return true;
}

long long read_time(const char *text)
{
    static const char *const forms[] = {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M",
                                        "%Y-%m-%dT%H:%M",    "%d.%m.%Y %H:%M",    "%Y-%m-%d"};
    text += strspn(text, " ");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm time = {.tm_hour = 23, .tm_min = 59, .tm_sec = 59};
        const char *rest = strptime(text, forms[i], &time);
        if (rest && strstr(forms[i], "%H") && !strstr(forms[i], "%S"))
            time.tm_sec = 0;
        // The calendar has the day: 30 February would become one in March.
        struct tm day = {.tm_year = time.tm_year, .tm_mon = time.tm_mon, .tm_mday = time.tm_mday};
        timegm(&day);
        if (day.tm_mday != time.tm_mday)
            continue;
        // A longer form has been tried before: behind a date alone no time of day may stand.
        long long seconds = 0;
        if (rest && read_zone(rest, &time, &seconds))
            return seconds;
    }
    return 0;
}

char *time_text(long long time)
{
    char text[64];
    time_t seconds = (time_t)time;
    struct tm parts;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&seconds, &parts));
    return format_text("%s", text);
}

// ---- The roster.

static void add_alias(Class *class, const char *text, int student)
{
    char *key = folded(text);
    if (!*key) {
        free(key);
        return;
    }
    class->aliases =
        enlarge(class->aliases, (size_t) class->alias_count + 1, sizeof *class->aliases);
    class->aliases[class->alias_count++] = (Alias){key, student};
}

static int add_student(Class *class, Student student)
{
    student.folder = safe_name(student.id);
    class->students = enlarge(class->students, (size_t) class->count + 1, sizeof *class->students);
    class->students[class->count] = student;
    add_alias(class, student.id, class->count);
    add_alias(class, student.email, class->count);
    return class->count++;
}

int class_add(Class *class, const char *id, const char *name, const char *email)
{
    char *empty = "";
    return add_student(class, (Student){.id = format_text("%s", id),
                                        .name = format_text("%s", name),
                                        .email = format_text("%s", email),
                                        .repository = empty,
                                        .ref = empty,
                                        .team = empty});
}

// A cell without blanks around it, in one line. The caller frees it.
static char *tidy_cell(const Table *table, int row, int column)
{
    const char *cell = table_cell(table, row, column);
    cell += strspn(cell, " \t\r\n");
    char *text = format_text("%s", cell);
    for (char *at = text; *at; at++)
        *at = strchr("\t\n\r", *at) ? ' ' : *at;
    for (size_t length = strlen(text); length > 0 && text[length - 1] == ' ';)
        text[--length] = '\0';
    return text;
}

static char *names_of_columns(const Table *table)
{
    char *text = NULL;
    for (int i = 0; i < table->rows[0].count; i++)
        text_add(&text, "%s\"%s\"", i ? ", " : "", table->rows[0].cells[i]);
    return text;
}

Class class_read(const char *path)
{
    Class class = {.open = !path};
    if (!path)
        return class;
    static const char *const names[][2] = {{"id"},  {"name"}, {"email"},   {"repository"},
                                           {"ref"}, {"team"}, {"deadline"}};
    Table table = table_read(path);
    int columns[7];
    for (int i = 0; i < 7; i++)
        columns[i] = table_column(&table, names[i]);
    // Moodle's worksheet may be the roster: its identifiers are "Participant 123", and its other
    // columns have names of their own.
    bool worksheet =
        table_column(&table, moodle_identifier) >= 0 && table_column(&table, moodle_grade) >= 0;
    if (worksheet) {
        columns[0] = table_column(&table, moodle_identifier);
        columns[1] = table_column(&table, moodle_name);
        columns[2] = table_column(&table, moodle_email);
    }
    if (columns[0] < 0)
        die("%s: the first row names no column \"id\"; it has %s", path, names_of_columns(&table));
    for (int r = 1; r < table.count; r++) {
        char *cells[7];
        for (int i = 0; i < 7; i++)
            cells[i] = tidy_cell(&table, r, columns[i]);
        if (worksheet)
            cells[0] = format_text("%s", moodle_participant(cells[0]));
        bool empty = true;
        for (int i = 0; i < table.rows[r].count; i++)
            empty = empty && table.rows[r].cells[i][strspn(table.rows[r].cells[i], " ")] == '\0';
        // (A grade book has rows that are no student's.)
        if (!*cells[0] && (empty || table_column(&table, canvas_student) >= 0))
            continue;
        if (!*cells[0])
            die("%s: row %d has no id", path, r + 1);
        for (int i = 0; i < class.count; i++)
            if (same_name(class.students[i].id, cells[0]))
                die("%s: two students have the id %s", path, cells[0]);
        Student student = {.id = cells[0],
                           .name = cells[1],
                           .email = cells[2],
                           .repository = cells[3],
                           .ref = cells[4],
                           .team = cells[5],
                           .deadline = *cells[6] ? read_time(cells[6]) : 0};
        if (*cells[6] && student.deadline == 0)
            die("%s: the deadline \"%s\" of %s is no date such as 2026-10-01 23:59 Europe/Berlin",
                path, cells[6], cells[0]);
        add_student(&class, student);
    }
    if (class.count == 0)
        die("%s: there is no student in it", path);
    return class;
}

// ---- Who is meant.

int class_find(const Class *class, const char *text)
{
    char *key = folded(text);
    int found = -1;
    for (int i = 0; i < class->alias_count && *key; i++)
        if (strcmp(class->aliases[i].text, key) == 0) {
            if (found >= 0 && found != class->aliases[i].student) {
                found = -1;
                break;
            }
            found = class->aliases[i].student;
        }
    free(key);
    return found;
}

// Letters and digits alone, beginning with the word number `first`. The caller frees it.
static char *squeezed(const char *name, int first)
{
    char *key = folded(name), *out = allocate(strlen(key) + 1, 1);
    size_t length = 0;
    for (int round = 0; round < 2; round++) {
        int word = 0;
        bool before = false;
        for (const char *at = key; *at; at++) {
            bool inside = isalnum((unsigned char)*at) || (unsigned char)*at >= 0x80;
            word += inside && !before;
            before = inside || *at == '-' || *at == '\''; // within a word
            if (inside && (word > first) == (round == 0))
                out[length++] = *at;
        }
    }
    free(key);
    return out;
}

static bool is_name(const char *name, const char *wanted)
{
    bool same = false;
    for (int first = 0; first < 5 && !same; first++) {
        char *key = squeezed(name, first);
        same = *key && strcmp(key, wanted) == 0;
        free(key);
    }
    return same;
}

int class_find_name(const Class *class, const char *name, int *all)
{
    char *wanted = squeezed(name, 0);
    int found = -1, count = 0;
    for (int i = 0; i < class->count && *wanted; i++)
        if (is_name(class->students[i].name, wanted))
            found = i, count++;
    free(wanted);
    if (all)
        *all = count;
    return count == 1 ? found : -1;
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; length >= 3 && (at = strstr(at, word)); at++) {
        bool begins =
            at == text || !(isalnum((unsigned char)at[-1]) || (unsigned char)at[-1] >= 0x80);
        unsigned char behind = (unsigned char)at[length];
        if (begins && !isalnum(behind) && behind < 0x80)
            return true;
    }
    return false;
}

int class_find_team(const Class *class, const char *name)
{
    for (int i = 0; i < class->count; i++)
        if (*class->students[i].team && same_name(class->students[i].team, name))
            return i;
    return -1;
}

int class_find_within(const Class *class, const char *text)
{
    char *key = folded(text);
    int found = -1, count = 0;
    for (int i = 0; i < class->count; i++) {
        char *id = folded(class->students[i].id), *login = folded(class->students[i].email);
        login[strcspn(login, "@")] = '\0';
        if (has_word(key, id) || has_word(key, login))
            found = i, count++;
        free(id);
        free(login);
    }
    free(key);
    return count == 1 ? found : -1;
}

// ---- Moodle and Canvas.

// A platform's table: the column of its own numbers, and columns that a roster may have.
typedef struct {
    const char *path;
    Table table;
    bool moodle;
    int number, name, keys[3]; // -1: there is none
} Sheet;

static const char *number_in(const Sheet *sheet, int row)
{
    const char *cell = table_cell(&sheet->table, row, sheet->number);
    return sheet->moodle ? moodle_participant(cell) : cell;
}

// The student whom the row's number or another of its columns names; -1: none does. Numbers of
// different columns look alike: a row that is two students would get the points of one of them.
static int student_by_keys(const Class *class, const Sheet *sheet, int row)
{
    int found = class_find(class, number_in(sheet, row)), by = sheet->number;
    for (int i = 0; i < 3; i++) {
        int other = class_find(class, table_cell(&sheet->table, row, sheet->keys[i]));
        if (other < 0 || other == found)
            continue;
        if (found >= 0)
            die("%s: row %d is student %s by its \"%s\", and student %s by its \"%s\": take the "
                "roster's ids from another column",
                sheet->path, row + 1, class->students[found].id, sheet->table.rows[0].cells[by],
                class->students[other].id, sheet->table.rows[0].cells[sheet->keys[i]]);
        found = other;
        by = sheet->keys[i];
    }
    return found;
}

// rows[student]: the row that is theirs; 0: none.
static void find_rows(const Class *class, const Sheet *sheet, int *rows)
{
    for (int r = 1; r < sheet->table.count; r++) {
        int student = *number_in(sheet, r) ? student_by_keys(class, sheet, r) : -1;
        if (student < 0)
            continue;
        if (rows[student] > 0)
            die("%s: rows %d and %d are both student %s: remove one of them", sheet->path,
                rows[student] + 1, r + 1, class->students[student].id);
        rows[student] = r;
    }
}

// The same by name, for students whom no column names; -1: several rows have the name.
static void find_names(const Class *class, const Sheet *sheet, const int *rows, int *named)
{
    for (int r = 1; r < sheet->table.count && sheet->name >= 0; r++) {
        int student = class_find_name(class, table_cell(&sheet->table, r, sheet->name), NULL);
        if (student >= 0 && rows[student] == 0 && *number_in(sheet, r) &&
            student_by_keys(class, sheet, r) < 0)
            named[student] = named[student] == 0 ? r : -1;
    }
}

static void link_sheet(Class *class, const Sheet *sheet)
{
    int *rows = allocate((size_t) class->count + 1, sizeof *rows);
    int *named = allocate((size_t) class->count + 1, sizeof *named);
    find_rows(class, sheet, rows);
    find_names(class, sheet, rows, named);
    for (int i = 0; i < class->count; i++) {
        int row = rows[i] > 0 ? rows[i] : named[i];
        if (row > 0 && class_find(class, number_in(sheet, row)) < 0)
            add_alias(class, number_in(sheet, row), i);
    }
    free(rows);
    free(named);
}

static void link_worksheet(Class *class, const char *path)
{
    Table table = table_read(path);
    const Sheet sheet = {path,
                         table,
                         true,
                         table_column(&table, moodle_identifier),
                         table_column(&table, moodle_name),
                         {table_column(&table, moodle_email), table_column(&table, moodle_number),
                          table_column(&table, moodle_user)}};
    if (sheet.number < 0 || table_column(&table, moodle_grade) < 0)
        die("%s is no grading worksheet of Moodle's: it lacks a column \"Identifier\" or "
            "\"Grade\"; it has %s",
            path, names_of_columns(&table));
    link_sheet(class, &sheet);
}

static void link_book(Class *class, const char *path, const char *wanted)
{
    Table table = table_read(path);
    const Sheet sheet = {
        path,
        table,
        false,
        table_column(&table, canvas_id),
        table_column(&table, canvas_student),
        {table_column(&table, canvas_user), table_column(&table, canvas_login), -1}};
    if (sheet.number < 0)
        die("%s is no grade book of Canvas's: it has no column \"ID\", but %s", path,
            names_of_columns(&table));
    if (table_column(&table, (const char *const[]){wanted, NULL}) < 0)
        die("%s has no column \"%s\", but %s", path, wanted, names_of_columns(&table));
    link_sheet(class, &sheet);
}

void class_link(Class *class, const char *worksheet, const char *book, const char *column)
{
    if (worksheet)
        link_worksheet(class, worksheet);
    if (book)
        link_book(class, book, column);
}
