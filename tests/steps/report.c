// What a check found, on the screen and as JSON.

#include "report.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "lab.h"
#include "base/format.h"
#include "base/json.h"

#define WIDTH       100 // of a paragraph
#define USUAL_WIDTH 80  // of a terminal that does not say it
#define MIN_WIDTH   40

// A copy of what may come from a submission; the caller frees it.
static char *clean(const char *text)
{
    return text_clean(format_text("%s", text));
}

static Property *add(Report *report, const char *name)
{
    CHECK(report->count < MAX_PROPERTIES);
    Property *property = &report->properties[report->count++];
    property->name = clean(name);
    return property;
}

bool report_ok(Report *report, const char *name)
{
    return add(report, name)->ok = true;
}

void report_take_back(Report *report, int kept)
{
    int left = kept;
    for (int i = kept; i < report->count; i++)
        if (report->properties[i].ok)
            free(report->properties[i].name);
        else
            report->properties[left++] = report->properties[i];
    for (int i = left; i < report->count; i++)
        report->properties[i] = (Property){0};
    report->count = left;
}

// The library's own messages number the calls.
static char *with_calls_explained(char *evidence)
{
    static const char *const words =
        "(call 1 is the first one that all ranks make together, call 2 the second, and so on)";
    if (evidence && strstr(evidence, " (call ") && !strstr(evidence, words))
        text_add(&evidence, "\n%s", words);
    return evidence;
}

bool report_failure(Report *report, const char *name, const Diagnosis *diagnosis, char *evidence)
{
    Property *property = add(report, name);
    property->evidence = text_clean(with_calls_explained(evidence));
    if (property->evidence)
        say_one(property->evidence);
    property->mistake = clean(diagnosis->mistake);
    property->hint = clean(diagnosis->hint ? diagnosis->hint : report->exercise);
    if (!report->diagnosis)
        report->diagnosis = clean(diagnosis->name);
    return false;
}

void report_lost(Report *report, const Report *held)
{
    int first = 0;
    while (held->properties[first].ok)
        first++;
    const Property *property = &held->properties[first];
    char *title = exercise_title(held->exercise);
    char *name = format_text("%s no longer holds: %s", title, property->name);
    report_failure(report, name, &(Diagnosis){held->diagnosis, property->mistake, property->hint},
                   property->evidence ? format_text("%s", property->evidence) : NULL);
    free(name);
    free(title);
}

void report_note(Report *report, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *note = format_arguments(format, arguments);
    va_end(arguments);
    text_add(&report->notes, "%s%s", report->notes ? "\n" : "", text_clean(note));
    free(note);
}

bool report_passed(const Report *report)
{
    return !report->diagnosis;
}

// Columns that a text may take, at most `most`; 0: any number. Only a terminal has a limit of its
// own.
static size_t width(size_t most)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return most;
    size_t columns = size.ws_col == 0 ? USUAL_WIDTH : size.ws_col;
    columns = columns < MIN_WIDTH ? MIN_WIDTH : columns;
    return most && most < columns ? most : columns;
}

// The last space among so many columns; 0: there is none. An assignment is read as a whole.
static size_t last_space(const char *text, size_t columns, bool whole)
{
    while (columns > 0 && (text[columns] != ' ' ||
                           (whole && (text[columns + 1] == '=' || text[columns - 1] == '='))))
        columns--;
    return columns;
}

// Prints a line with `begin` before it; what does not fit goes to lines of their own, behind
// `indent` spaces.
static void print_line(const char *begin, size_t indent, const char *text, size_t columns)
{
    size_t length = strlen(text);
    printf("%s", begin);
    for (size_t before = strlen(begin); columns && before + length > columns; before = indent) {
        size_t end = last_space(text, columns - before, true);
        if (end == 0)
            end = last_space(text, columns - before, false);
        if (end == 0) // a word that is longer than a line
            end = strcspn(text, " ");
        if (end >= length)
            break;
        printf("%.*s\n%*s", (int)end, text, (int)indent, "");
        end += strspn(text + end, " ");
        text += end;
        length -= end;
    }
    puts(text);
}

static void print_lines(const char *begin, size_t indent, const char *lines)
{
    for (char *line; lines && (line = next_part(&lines, "\n")); free(line))
        print_line(begin, indent, line, width(0));
}

// A terminal breaks Chinese between any two characters; here a line would end only at a blank.
static size_t mistake_width(const char *text)
{
    while ((signed char)*text > 0)
        text++;
    return *text ? 0 : width(WIDTH);
}

static void print_property(const Property *property, const char *mistake_before)
{
    const char *mistake = "      likely mistake: ";
    print_lines(property->ok ? "ok    " : "FAIL  ", 6, property->name);
    if (property->ok)
        return;
    print_lines("          ", 12, property->evidence);
    bool again = mistake_before && strcmp(mistake_before, property->mistake) == 0;
    const char *text = again ? "the same" : property->mistake;
    print_line(mistake, strlen(mistake), text, mistake_width(text));
    printf("      for a hint: make hint-%s\n", property->hint);
}

void report_print(const Report *report)
{
    const char *mistake = NULL;
    for (int i = 0; i < report->count; i++) {
        print_property(&report->properties[i], mistake);
        mistake = report->properties[i].mistake;
    }
    print_lines("note  ", 6, report->notes);
    if (report->untouched)
        print_lines("note  ", 6, "untouched: this is the file as it was handed out");
    char *title = exercise_title(report->exercise);
    if (report_passed(report))
        printf("%s: passed\n", title);
    else
        printf("%s: failed: %s\n", title, report->diagnosis);
    free(title);
    fflush(stdout);
}

static cJSON *text_or_null(const char *text)
{
    if (!text)
        return cJSON_CreateNull();
    char *copy = clean(text);
    cJSON *string = cJSON_CreateString(copy);
    free(copy);
    return string;
}

static cJSON *property_object(const Property *property)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "text", property->name);
    cJSON_AddBoolToObject(object, "ok", property->ok);
    cJSON_AddItemToObject(object, "evidence", text_or_null(property->evidence));
    cJSON_AddItemToObject(object, "mistake", text_or_null(property->mistake));
    return object;
}

static cJSON *properties_of(const Report *report)
{
    cJSON *properties = cJSON_CreateArray();
    for (int i = 0; i < report->count; i++)
        cJSON_AddItemToArray(properties, property_object(&report->properties[i]));
    return properties;
}

// ---- From one process to another.

char *report_text(const Report *report)
{
    cJSON *object = cJSON_CreateObject(), *properties = properties_of(report), *property;
    int i = 0;
    cJSON_ArrayForEach (property, properties)
        cJSON_AddItemToObject(property, "hint", text_or_null(report->properties[i++].hint));
    cJSON_AddItemToObject(object, "diagnosis", text_or_null(report->diagnosis));
    cJSON_AddItemToObject(object, "note", text_or_null(report->notes));
    cJSON_AddItemToObject(object, "properties", properties);
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}

static void take_property(Report *report, const cJSON *property, const char *diagnosis)
{
    const char *name = json_text(property, "text"), *evidence = json_text(property, "evidence");
    if (cJSON_IsTrue(cJSON_GetObjectItem(property, "ok")))
        report_ok(report, name);
    else
        report_failure(
            report, name,
            &(Diagnosis){diagnosis, json_text(property, "mistake"), json_text(property, "hint")},
            *evidence ? format_text("%s", evidence) : NULL);
}

bool report_take(Report *report, const char *text)
{
    cJSON *object = cJSON_Parse(text);
    const cJSON *properties = cJSON_GetObjectItem(object, "properties"), *property;
    const char *diagnosis = json_text(object, "diagnosis"), *note = json_text(object, "note");
    int count = cJSON_GetArraySize(properties);
    bool fits = cJSON_IsArray(properties) && report->count + count <= MAX_PROPERTIES;
    bool failed = false;
    cJSON_ArrayForEach (property, properties)
        failed = failed || !cJSON_IsTrue(cJSON_GetObjectItem(property, "ok"));
    fits = fits && failed == (*diagnosis != '\0');
    if (fits)
        cJSON_ArrayForEach (property, properties)
            take_property(report, property, diagnosis);
    if (fits && *note)
        report_note(report, "%s", note);
    cJSON_Delete(object);
    return fits;
}

void report_write_json(const Report *report, const char *path)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "exercise", report->exercise);
    if (is_step(report->exercise))
        cJSON_AddNumberToObject(object, "step", atoi(report->exercise));
    cJSON_AddItemToObject(object, "file", text_or_null(report->file));
    cJSON_AddBoolToObject(object, "passed", report_passed(report));
    cJSON_AddItemToObject(object, "diagnosis", text_or_null(report->diagnosis));
    cJSON_AddNumberToObject(object, "seconds", report->seconds);
    cJSON_AddItemToObject(object, "note", text_or_null(report->notes));
    cJSON_AddItemToObject(object, "seal", text_or_null(report->seal));
    cJSON_AddItemToObject(object, "seed",
                          report->seed ? cJSON_CreateNumber((double)report->seed)
                                       : cJSON_CreateNull());
    cJSON_AddItemToObject(object, "sha256", text_or_null(report->sha256));
    cJSON_AddBoolToObject(object, "untouched", report->untouched);
    cJSON_AddItemToObject(object, "look_at", text_or_null(report->look_at));
    cJSON_AddItemToObject(object, "properties", properties_of(report));
    json_write(object, path);
    cJSON_Delete(object);
}

void report_free(Report *report)
{
    for (int i = 0; i < report->count; i++) {
        free(report->properties[i].name);
        free(report->properties[i].evidence);
        free(report->properties[i].mistake);
        free(report->properties[i].hint);
    }
    free(report->diagnosis);
    free(report->notes);
    *report = (Report){0};
}
