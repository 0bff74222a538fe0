// Tables and pages of grades.json.

#include "class/pages.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "class/results.h"
#include <unistr.h>

#define WIDTH 100

static const cJSON *items(const cJSON *object, const char *field)
{
    return cJSON_GetObjectItemCaseSensitive(object, field);
}

// ---- Lines.

static int width_of(const char *text)
{
    return (int)u8_mbsnlen((const uint8_t *)text, strlen(text));
}

// A line in lines of at most WIDTH characters, each behind `margin` others; a word is not divided.
static void print_words(FILE *out, int margin, const char *line, size_t length)
{
    int at = margin;
    for (bool begins = true; length > 0;) {
        size_t size = strcspn(line, " ");
        size = size < length ? size : length;
        char *word = format_text("%.*s", (int)size, line);
        int width = width_of(word);
        if (!begins && at + 1 + width > WIDTH) {
            fprintf(out, "\n%*s", margin, "");
            at = margin;
            begins = true;
        }
        fprintf(out, "%s%s", begins ? "" : " ", word);
        at += width + !begins;
        begins = false;
        free(word);
        line += size;
        length -= size;
        if (length > 0)
            line++, length--;
    }
    fputc('\n', out);
}

// Lines, the first one behind `first`, the others behind as many blanks. A line that fits, a row of
// a table for one, stays as it is.
static void print_wrapped(FILE *out, const char *first, const char *text)
{
    int margin = width_of(first);
    for (const char *before = first; *text; before = NULL) {
        size_t length = strcspn(text, "\n");
        char *line = format_text("%.*s", (int)length, text);
        fprintf(out, "%*s", margin, before ? before : "");
        if (margin + width_of(line) <= WIDTH)
            fprintf(out, "%s\n", line);
        else
            print_words(out, margin, line, length);
        free(line);
        text += length + (text[length] == '\n');
    }
}

// ---- A result.

static void print_property(FILE *out, const cJSON *property)
{
    bool ok = cJSON_IsTrue(items(property, "ok"));
    print_wrapped(out, ok ? "ok    " : "FAIL  ", json_text(property, "text"));
    if (ok)
        return;
    print_wrapped(out, "          ", json_text(property, "evidence"));
    if (*json_text(property, "mistake"))
        print_wrapped(out, "      likely mistake: ", json_text(property, "mistake"));
}

void print_result(FILE *out, const cJSON *result)
{
    const cJSON *property;
    bool passed = cJSON_IsTrue(items(result, "passed"));
    cJSON_ArrayForEach (property, items(result, "properties"))
        print_property(out, property);
    if (*json_text(result, "note"))
        print_wrapped(out, "note  ", json_text(result, "note"));
    fprintf(out, "%s: %s%s\n", json_text(result, "exercise"),
            passed || !has_mark(result) ? "" : "failed: ", json_text(result, "verdict"));
}

char *text_of_result(const cJSON *result)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    CHECK(out);
    print_result(out, result);
    fclose(out);
    return text;
}

// ---- Students' pages.

// "ring: 3 of 3 points"; what was graded, and how one grades it at home. Lines, which the caller
// frees.
static char *heading_of(const cJSON *result)
{
    char *text = NULL;
    if (has_mark(result))
        text_add(&text, "%s: %g of %g points\n", json_text(result, "exercise"),
                 result_number(result, "points"), result_number(result, "max_points"));
    else
        text_add(&text, "%s: no points yet (%s)\n", json_text(result, "exercise"),
                 json_text(result, "verdict"));
    if (*json_text(result, "from"))
        text_add(&text, "graded: %s%s%s\n", json_text(result, "from"),
                 *json_text(result, "time") ? ", of " : "", json_text(result, "time"));
    if (*json_text(result, "remark"))
        text_add(&text, "%s\n", json_text(result, "remark"));
    return text;
}

// How the student gets the same verdict, and help. The caller frees it.
static char *advice_of(const cJSON *result)
{
    char *text = NULL;
    const char *exercise = json_text(result, "exercise");
    if (items(result, "properties"))
        text_add(&text, "The same check at home: make check-%s SEED=%.0f\n", exercise,
                 result_number(result, "seed"));
    if (has_mark(result) && !cJSON_IsTrue(items(result, "passed")))
        text_add(&text, "A hint: make hint-%s\n", exercise);
    return text;
}

static char *title_of(const cJSON *student)
{
    const char *name = json_text(student, "name"), *team = json_text(student, "team");
    return format_text("%s%s%s%s%s%s: %g of %g points", name, *name ? " (" : "",
                       json_text(student, "id"), *name ? ")" : "", *team ? ", team " : "", team,
                       sum_of(student, "points"), sum_of(student, "max_points"));
}

void print_page(FILE *out, const cJSON *grades, const cJSON *student)
{
    const cJSON *result;
    char *title = title_of(student);
    fprintf(out, "%s\nkit %s\n", title, json_text(grades, "kit"));
    cJSON_ArrayForEach (result, items(student, "results")) {
        char *heading = heading_of(result), *advice = advice_of(result);
        fprintf(out, "\n");
        print_wrapped(out, "", heading);
        fprintf(out, "\n");
        print_result(out, result);
        fputs(advice ? advice : "", out);
        free(heading);
        free(advice);
    }
    free(title);
}

void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *name = *text == '&'    ? "&amp;"
                           : *text == '<'  ? "&lt;"
                           : *text == '>'  ? "&gt;"
                           : *text == '"'  ? "&quot;"
                           : *text == '\n' ? "&#10;"
                                           : NULL;
        if (name)
            fputs(name, out);
        else
            fputc(*text, out);
    }
}

static void print_element(FILE *out, const char *element, const char *text)
{
    fprintf(out, "<%s>", element);
    print_escaped(out, text);
    fprintf(out, "</%.*s>\n", (int)strcspn(element, " "), element);
}

static void print_html_property(FILE *out, const cJSON *property)
{
    bool ok = cJSON_IsTrue(items(property, "ok"));
    fprintf(out, "<li class=\"%s\">%s ", ok ? "ok" : "fail", ok ? "ok:" : "FAIL:");
    print_escaped(out, json_text(property, "text"));
    if (!ok && *json_text(property, "evidence"))
        print_element(out, "pre", json_text(property, "evidence"));
    if (!ok && *json_text(property, "mistake")) {
        fputs("<p>Likely mistake: ", out);
        print_escaped(out, json_text(property, "mistake"));
        fputs("</p>", out);
    }
    fputs("</li>\n", out);
}

static void print_html_result(FILE *out, const cJSON *result)
{
    const cJSON *property;
    char *heading = heading_of(result), *advice = advice_of(result), *rest = strchr(heading, '\n');
    *rest++ = '\0';
    print_element(out, "h2", heading);
    if (*rest)
        print_element(out, "p class=\"file\"", rest);
    fputs("<ul>\n", out);
    cJSON_ArrayForEach (property, items(result, "properties"))
        print_html_property(out, property);
    fputs("</ul>\n", out);
    if (*json_text(result, "note"))
        print_element(out, "p", json_text(result, "note"));
    if (advice)
        print_element(out, "pre class=\"advice\"", advice);
    free(heading);
    free(advice);
}

void print_html(FILE *out, const cJSON *grades, const cJSON *student)
{
    const cJSON *result;
    char *title = title_of(student);
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'\">\n",
          out);
    print_element(out, "title", title);
    fputs("<style>body { font-family: sans-serif; max-width: 50em; margin: 1em auto; padding: 0 "
          "1em; line-height: 1.4 }\n"
          "pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: "
          "0.5em }\n"
          "li.fail { font-weight: bold } li.fail pre, li.fail p { font-weight: normal } .file { "
          "white-space: pre-line }</style>\n"
          "</head>\n<body>\n",
          out);
    print_element(out, "h1", title);
    cJSON_ArrayForEach (result, items(student, "results"))
        print_html_result(out, result);
    fputs("<p>Kit: ", out);
    print_escaped(out, json_text(grades, "kit"));
    fputs("</p>\n</body>\n</html>\n", out);
    free(title);
}

// ---- The instructor's table.

typedef struct {
    char *name;
    int count;
} Tally;

typedef struct {
    Tally *items;
    int count;
} Tallies;

static void count_one(Tallies *all, char *name)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0) {
            all->items[i].count++;
            free(name);
            return;
        }
    all->items = enlarge(all->items, (size_t)all->count + 1, sizeof *all->items);
    all->items[all->count++] = (Tally){name, 1};
}

static int by_count(const void *a, const void *b)
{
    const Tally *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : strcmp(x->name, y->name);
}

// "7  ring: not-summed".
static void print_mistakes(FILE *out, const cJSON *grades)
{
    Tallies all = {0};
    const cJSON *student, *result;
    cJSON_ArrayForEach (student, items(grades, "students"))
        cJSON_ArrayForEach (result, items(student, "results"))
            if (!cJSON_IsTrue(items(result, "passed")))
                count_one(&all, format_text("%s: %s", json_text(result, "exercise"),
                                            json_text(result, "verdict")));
    if (all.count > 0) {
        qsort(all.items, (size_t)all.count, sizeof *all.items, by_count);
        fprintf(out, "\nWhat did not pass, the most frequent first:\n");
    }
    for (int i = 0; i < all.count; i++) {
        fprintf(out, "  %3d  %s\n", all.items[i].count, all.items[i].name);
        free(all.items[i].name);
    }
    free(all.items);
}

// Of those who have a mark.
static void print_statistics(FILE *out, const cJSON *grades)
{
    const cJSON *first = cJSON_GetArrayItem(items(grades, "students"), 0), *each, *student;
    fprintf(out, "\n%-12s  %8s  %8s  %8s  %8s  %s\n", "exercise", "students", "handed in", "passed",
            "no mark", "mean points");
    cJSON_ArrayForEach (each, items(first, "results")) {
        const char *name = json_text(each, "exercise");
        int all = 0, handed_in = 0, passed = 0, marked = 0;
        double points = 0;
        cJSON_ArrayForEach (student, items(grades, "students")) {
            const cJSON *result;
            cJSON_ArrayForEach (result, items(student, "results")) {
                if (strcmp(json_text(result, "exercise"), name) != 0)
                    continue;
                all++;
                handed_in += *json_text(result, "from") != '\0';
                passed += cJSON_IsTrue(items(result, "passed"));
                marked += has_mark(result);
                points += result_number(result, "points");
            }
        }
        fprintf(out, "%-12s  %8d  %9d  %8d  %8d  %.2f of %g\n", name, all, handed_in, passed,
                all - marked, marked ? points / marked : 0, result_number(each, "max_points"));
    }
}

// One line: what to look at, then remarks. The caller frees it.
static char *looks_of(const cJSON *result)
{
    const char *look = json_text(result, "look_at"), *remark = json_text(result, "remark");
    char *text = format_text("%s", "");
    for (const char *at = look; *at; at++)
        text_add(&text, *at == '\n' ? "; " : "%c", *at);
    text_add(&text, "%s%s", *look && *remark ? "; " : "", remark);
    return text;
}

static void print_cell(FILE *out, const char *text, int width)
{
    fprintf(out, "%s%*s  ", text, width > width_of(text) ? width - width_of(text) : 0, "");
}

static int widest(const cJSON *grades, const char *field, int least)
{
    const cJSON *student;
    int width = least;
    cJSON_ArrayForEach (student, items(grades, "students")) {
        int own = width_of(json_text(student, field));
        width = own > width ? own : width;
    }
    return width < 40 ? width : 40;
}

void print_table(FILE *out, const cJSON *grades)
{
    const cJSON *student, *result, *entry;
    int ids = widest(grades, "id", 7);
    print_cell(out, "student", ids);
    fprintf(out, "%-10s  %-30s  %7s  %4s  %7s  %s\n", "exercise", "verdict", "points", "late",
            "seconds", "look at");
    cJSON_ArrayForEach (student, items(grades, "students"))
        cJSON_ArrayForEach (result, items(student, "results")) {
            char *looks = looks_of(result),
                 *points = has_mark(result) ? format_text("%g", result_number(result, "points"))
                                            : format_text("-");
            print_cell(out, json_text(student, "id"), ids);
            fprintf(out, "%-10s  %-30s  %7s  %4g  %7.1f  %s\n", json_text(result, "exercise"),
                    json_text(result, "verdict"), points, result_number(result, "days_late"),
                    result_number(result, "seconds"), looks);
            free(looks);
            free(points);
        }
    print_statistics(out, grades);
    print_mistakes(out, grades);
    if (cJSON_GetArraySize(items(grades, "not_understood")) > 0)
        fprintf(out, "\nNot understood, and given to nobody:\n");
    cJSON_ArrayForEach (entry, items(grades, "not_understood"))
        fprintf(out, "  %s: %s\n", json_text(entry, "entry"), json_text(entry, "why"));
}
