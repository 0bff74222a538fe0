// Verdicts, points, what is to be looked at; overrides; what has changed.

#include "class/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "class/names.h"
#include "class/table.h"

// ---- Reading.

static cJSON *items(const cJSON *object, const char *field)
{
    return cJSON_GetObjectItemCaseSensitive(object, field);
}

double result_number(const cJSON *result, const char *field)
{
    double number = json_number(result, field);
    return isnan(number) ? 0 : number;
}

bool has_mark(const cJSON *result)
{
    return cJSON_IsNumber(items(result, "points"));
}

bool all_marked(const cJSON *student)
{
    const cJSON *result;
    bool all = true;
    cJSON_ArrayForEach (result, items(student, "results"))
        all = all && has_mark(result);
    return all;
}

double sum_of(const cJSON *student, const char *field)
{
    double sum = 0;
    const cJSON *result;
    cJSON_ArrayForEach (result, items(student, "results"))
        sum += result_number(result, field);
    return sum;
}

int days_late_of(const cJSON *student)
{
    int most = 0;
    const cJSON *result;
    cJSON_ArrayForEach (result, items(student, "results")) {
        int days = (int)result_number(result, "days_late");
        most = days > most ? days : most;
    }
    return most;
}

static const cJSON *find(const cJSON *array, const char *field, const char *text)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, array)
        if (strcmp(json_text(item, field), text) == 0)
            return item;
    return NULL;
}

const cJSON *student_of(const cJSON *grades, const char *id)
{
    const cJSON *student = find(items(grades, "students"), "id", id);
    if (!student)
        die("grades.json has no student '%s'", id);
    return student;
}

static const cJSON *result_before(const cJSON *grades, const char *id, const char *exercise)
{
    const cJSON *student = find(items(grades, "students"), "id", id);
    const cJSON *result = find(items(student, "results"), "exercise", exercise);
    return result ? result : find(items(student, "earlier"), "exercise", exercise);
}

// ---- Exercises.

typedef struct {
    char *name, *file;
    double points;
} ExercisePoints;

typedef struct {
    ExercisePoints *items;
    int count;
} Exercises;

static Exercises exercises_read(const char *path)
{
    Exercises all = {0};
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    CHECK(file);
    while (getline(&line, &room, file) > 0) {
        char *rest = line, *name = strsep(&rest, "\t\n"), *base = strsep(&rest, "\t\n"),
             *points = strsep(&rest, "\t\n");
        CHECK(points);
        all.items = enlarge(all.items, (size_t)all.count + 1, sizeof *all.items);
        all.items[all.count++] = (ExercisePoints){format_text("%s", name), format_text("%s", base),
                                                  read_double(points, NULL)};
    }
    free(line);
    fclose(file);
    return all;
}

static const ExercisePoints *exercise_named(const Exercises *all, const char *name)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0)
            return &all->items[i];
    return NULL;
}

// ---- One result.

char *result_key(const char *sha256, uint64_t seed, const char *kit, uint64_t stamp)
{
    char *text = format_text("%s\n%" PRIu64 "\n%s\n%" PRIu64, sha256, seed, kit, stamp),
         *hash = sha256_of(text, strlen(text));
    hash[16] = '\0';
    free(text);
    return hash;
}

// The check's own file, if it is about this file and this seed; else NULL, and why in *error. The
// caller deletes and frees.
static cJSON *check_of(const Collection *all, const char *kit, const cJSON *student,
                       const cJSON *file, char **error)
{
    char *key = result_key(json_text(file, "sha256"), (uint64_t)result_number(file, "seed"), kit,
                           (uint64_t)result_number(file, "stamp")),
         *path = format_text("%s/%s/%s.%s", all->results, json_text(student, "unit"),
                             json_text(file, "file"), key),
         *json = format_text("%s.json", path), *failed = format_text("%s.error", path);
    cJSON *check = NULL;
    *error = NULL;
    if (access(json, R_OK) == 0) {
        check = json_read(json);
        if (strcmp(json_text(check, "sha256"), json_text(file, "sha256")) != 0 ||
            json_number(check, "seed") != json_number(file, "seed")) {
            cJSON_Delete(check);
            check = NULL;
            *error = format_text("the verdict that is kept is about another file or another seed");
        }
    } else if (access(failed, R_OK) == 0) {
        size_t size;
        *error = file_bytes(failed, &size);
        (*error)[strcspn(*error, "\n")] = '\0';
    } else
        *error = format_text("it was not graded yet");
    free(key);
    free(path);
    free(json);
    free(failed);
    return check;
}

static void move_field(cJSON *to, const char *name, cJSON *from, const char *field)
{
    if (items(from, field))
        cJSON_AddItemToObject(to, name, cJSON_DetachItemFromObjectCaseSensitive(from, field));
}

// Appends to a field, behind a separator where there is a text already.
static void append(cJSON *result, const char *field, const char *separator, const char *text)
{
    const char *before = json_text(result, field);
    char *both = format_text("%s%s%s", before, *before ? separator : "", text);
    cJSON_DeleteItemFromObjectCaseSensitive(result, field);
    cJSON_AddStringToObject(result, field, both);
    free(both);
}

static void add_remark(cJSON *result, const char *text)
{
    append(result, "remark", "; ", text);
}

static void add_points(cJSON *result, const Collection *all, bool passed, double most)
{
    double days = result_number(result, "days_late"), part = 1 - all->penalty / 100 * days;
    cJSON_AddNumberToObject(result, "points", passed ? round(most * fmax(part, 0) * 1e6) / 1e6 : 0);
    if (days > 0) {
        char *text = format_text("%g day%s late%s", days, days == 1 ? "" : "s",
                                 passed && all->penalty > 0 ? ", with the penalty for it" : "");
        add_remark(result, text);
        free(text);
    }
}

static cJSON *result_of(const Collection *all, const ExercisePoints *exercise, const cJSON *student,
                        const cJSON *before)
{
    const cJSON *file = find(items(student, "files"), "exercise", exercise->name);
    cJSON *result = cJSON_CreateObject();
    const char *state = json_text(file, "state");
    bool taken = strcmp(state, "taken") == 0;
    char *error = NULL;
    cJSON *check = taken ? check_of(all, all->kit, student, file, &error) : NULL;
    if (taken && !check && all->only && before) {
        free(error);
        check = check_of(all, json_text(before, "kit"), student, file, &error);
    }
    cJSON_AddStringToObject(result, "exercise", exercise->name);
    cJSON_AddNumberToObject(result, "max_points", exercise->points);
    bool passed = cJSON_IsTrue(items(check, "passed"));
    cJSON_AddBoolToObject(result, "passed", passed);
    cJSON_AddStringToObject(result, "verdict",
                            passed  ? "passed"
                            : check ? json_text(check, "diagnosis")
                            : taken ? "not-graded"
                                    : state);
    static const char *const kept[] = {"seed", "sha256", "from", "time", "days_late", "untouched"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (items(file, kept[i]))
            cJSON_AddItemToObject(result, kept[i], cJSON_Duplicate(items(file, kept[i]), true));
    if (cJSON_IsTrue(items(file, "untouched")))
        add_remark(result, "untouched: the file as it was handed out");
    if (*json_text(file, "note"))
        add_remark(result, json_text(file, "note"));
    if (error)
        add_remark(result, error);
    bool marked = check || strcmp(state, "missing") == 0 || strcmp(state, "too-large") == 0;
    if (marked)
        add_points(result, all, passed, exercise->points);
    else
        cJSON_AddNullToObject(result, "points");
    static const char *const found[] = {"seal", "look_at", "note", "seconds", "properties"};
    for (size_t i = 0; check && i < sizeof found / sizeof *found; i++)
        move_field(result, found[i], check, found[i]);
    cJSON_Delete(check);
    free(error);
    return result;
}

// ---- The same as another's.

static void add_look(cJSON *result, const char *text)
{
    append(result, "look_at", "\n", text);
}

// Who else has handed in the same code: "s05, s07 and 3 others"; NULL: nobody. The caller frees it.
static char *same_code(const cJSON *students, const cJSON *student, const char *exercise,
                       const char *code)
{
    const cJSON *other;
    char *names = NULL;
    int count = 0;
    cJSON_ArrayForEach (other, students) {
        const cJSON *file = find(items(other, "files"), "exercise", exercise);
        if (strcmp(json_text(other, "unit"), json_text(student, "unit")) != 0 &&
            strcmp(json_text(file, "code"), code) == 0 && ++count <= 3)
            text_add(&names, "%s%s", count > 1 ? ", " : "", json_text(other, "id"));
    }
    if (count > 3)
        text_add(&names, " and %d others", count - 3);
    return names;
}

static void look_at_code(cJSON *result, const cJSON *students, const cJSON *student)
{
    const cJSON *file = find(items(student, "files"), "exercise", json_text(result, "exercise"));
    const char *code = json_text(file, "code");
    if (!*code || cJSON_IsTrue(items(file, "untouched")))
        return;
    if (cJSON_IsTrue(items(file, "solution")))
        add_look(result, "the same as the solution");
    char *names = same_code(students, student, json_text(result, "exercise"), code);
    if (names) {
        char *text = format_text("the same as %s", names);
        add_look(result, text);
        free(text);
        free(names);
    }
}

// ---- Overrides.

typedef struct {
    Table table;
    int id, exercise, points, reason;
} Overrides;

static Overrides overrides_read(const char *path)
{
    Overrides all = {.table = table_read(path)};
    all.id = table_column(&all.table, (const char *const[]){"id", NULL});
    all.exercise = table_column(&all.table, (const char *const[]){"exercise", NULL});
    all.points = table_column(&all.table, (const char *const[]){"points", NULL});
    all.reason = table_column(&all.table, (const char *const[]){"reason", NULL});
    if (all.id < 0 || all.exercise < 0 || all.points < 0)
        die("%s: the first row must name the columns id, exercise, points and reason", path);
    return all;
}

// A number of points, with a point or a comma; exits where it is none.
static double points_of(const Overrides *all, int row)
{
    char *text = format_text("%s", table_cell(&all->table, row, all->points)), *end;
    for (char *at = text; *at; at++)
        *at = *at == ',' ? '.' : *at;
    double points = read_double(text, &end);
    end += strspn(end, " ");
    if (end == text || *end || !isfinite(points) || points < 0)
        die("%s: row %d: \"%s\" is no number of points", all->table.path, row + 1,
            table_cell(&all->table, row, all->points));
    free(text);
    return points;
}

static bool is_row_of(const Overrides *all, int row, const char *id, const char *exercise)
{
    return same_name(table_cell(&all->table, row, all->id), id) &&
           same_name(table_cell(&all->table, row, all->exercise), exercise);
}

static bool is_word_of(const char *word, const char *words)
{
    char *copy = format_text("%s", words), *rest;
    bool found = false;
    for (char *at = strtok_r(copy, " ", &rest); at && !found; at = strtok_r(NULL, " ", &rest))
        found = same_name(at, word);
    free(copy);
    return found;
}

void check_overrides(const char *path, const char *taken_path, const char *exercises)
{
    Overrides all = overrides_read(path);
    cJSON *taken = json_read(taken_path);
    for (int r = 1; r < all.table.count; r++) {
        const char *id = table_cell(&all.table, r, all.id);
        const char *exercise = table_cell(&all.table, r, all.exercise);
        const cJSON *student;
        bool known = false;
        points_of(&all, r);
        if (!is_word_of(exercise, exercises))
            die("%s: row %d: there is no exercise \"%s\"", path, r + 1, exercise);
        cJSON_ArrayForEach (student, items(taken, "students"))
            known = known || same_name(json_text(student, "id"), id);
        if (!known)
            die("%s: row %d: there is no student \"%s\"", path, r + 1, id);
    }
    cJSON_Delete(taken);
}

static void apply_override(cJSON *result, const char *id, const Overrides *all)
{
    for (int r = 1; r < all->table.count; r++) {
        if (!is_row_of(all, r, id, json_text(result, "exercise")))
            continue;
        double points = points_of(all, r);
        cJSON *change = cJSON_CreateObject();
        cJSON_AddNumberToObject(change, "points", points);
        cJSON_AddStringToObject(change, "reason", table_cell(&all->table, r, all->reason));
        cJSON_AddItemToObject(change, "was", cJSON_Duplicate(items(result, "points"), true));
        cJSON_DeleteItemFromObjectCaseSensitive(result, "override");
        cJSON_AddItemToObject(result, "override", change);
        cJSON_DeleteItemFromObjectCaseSensitive(result, "points");
        cJSON_AddNumberToObject(result, "points", points);
        char *text =
            format_text("points changed by hand: %s", table_cell(&all->table, r, all->reason));
        add_remark(result, text);
        free(text);
    }
}

// ---- All.

static void clean_json(cJSON *item)
{
    if (cJSON_IsString(item))
        clean_text(item->valuestring);
    for (cJSON *child = item ? item->child : NULL; child; child = child->next)
        clean_json(child);
}

// What other weeks brought, of exercises that are not graded now.
static cJSON *earlier_of(const cJSON *before, const char *id, const Exercises *now)
{
    cJSON *earlier = cJSON_CreateArray();
    const cJSON *student = find(items(before, "students"), "id", id), *result;
    static const char *const fields[] = {"earlier", "results"};
    for (int i = 0; i < 2; i++)
        cJSON_ArrayForEach (result, items(student, fields[i]))
            if (!exercise_named(now, json_text(result, "exercise")))
                cJSON_AddItemToArray(earlier, cJSON_Duplicate(result, true));
    return earlier;
}

cJSON *collect_results(const Collection *all)
{
    Exercises exercises = exercises_read(all->exercises);
    cJSON *taken = json_read(all->taken), *before = all->before ? json_read(all->before) : NULL;
    Overrides overrides = all->overrides ? overrides_read(all->overrides) : (Overrides){0};
    cJSON *grades = cJSON_CreateObject(), *students = cJSON_CreateArray();
    const cJSON *student, *known = items(taken, "students");
    cJSON_AddStringToObject(grades, "kit", all->kit);
    cJSON_AddNumberToObject(grades, "penalty", all->penalty);
    cJSON_AddItemToObject(grades, "students", students);
    cJSON_ArrayForEach (student, known) {
        const char *id = json_text(student, "id");
        cJSON *object = cJSON_CreateObject(), *results = cJSON_CreateArray();
        static const char *const kept[] = {"id", "name", "email", "team", "unit"};
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (items(student, kept[i]))
                cJSON_AddStringToObject(object, kept[i], json_text(student, kept[i]));
        for (int i = 0; i < exercises.count; i++) {
            cJSON *result = result_of(all, &exercises.items[i], student, before);
            look_at_code(result, known, student);
            if (all->overrides)
                apply_override(result, id, &overrides);
            cJSON_AddItemToArray(results, result);
        }
        cJSON_AddItemToObject(object, "results", results);
        cJSON_AddItemToObject(object, "earlier", earlier_of(before, id, &exercises));
        cJSON_AddItemToArray(students, object);
    }
    cJSON_AddItemToObject(grades, "not_understood",
                          cJSON_Duplicate(items(taken, "not_understood"), true));
    clean_json(grades);
    cJSON_Delete(taken);
    cJSON_Delete(before);
    return grades;
}

int print_changes(const cJSON *before, const cJSON *after)
{
    int count = 0;
    const cJSON *student, *result;
    cJSON_ArrayForEach (student, items(after, "students"))
        cJSON_ArrayForEach (result, items(student, "results")) {
            const cJSON *old =
                result_before(before, json_text(student, "id"), json_text(result, "exercise"));
            if (!old || !has_mark(old) ||
                strcmp(json_text(old, "sha256"), json_text(result, "sha256")) != 0 ||
                strcmp(json_text(old, "verdict"), json_text(result, "verdict")) == 0)
                continue;
            if (count++ == 0)
                printf("The same files have other verdicts than before:\n");
            printf("  %s  %s: %s, before: %s\n", json_text(student, "id"),
                   json_text(result, "exercise"), json_text(result, "verdict"),
                   json_text(old, "verdict"));
        }
    return count;
}
