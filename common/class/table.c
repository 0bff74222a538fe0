// Cells keep their blanks: a book is given back as it came.

#include "class/table.h"

#include <csv.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/memory.h"
#include "class/names.h"

#define IN_CELL 2 // of libcsv's states: FIELD_BEGUN

static void end_cell(void *bytes, size_t size, void *table)
{
    Table *all = table;
    Row *row = &all->rows[all->count];
    row->cells = enlarge(row->cells, (size_t)row->count + 1, sizeof *row->cells);
    char *cell = format_text("%.*s", (int)size, bytes ? (char *)bytes : "");
    clean_text(cell);
    row->cells[row->count++] = cell;
}

static void begin_row(Table *table)
{
    table->rows = enlarge(table->rows, (size_t)table->count + 1, sizeof *table->rows);
    table->rows[table->count] = (Row){0};
}

static void end_row(int character, void *table)
{
    (void)character;
    ((Table *)table)->count++;
    begin_row(table);
}

static int is_no_blank(unsigned char character)
{
    (void)character;
    return 0;
}

// Excel's first line "sep=;" is none of the table's.
static char delimiter_of(char **text)
{
    if (strncmp(*text, "sep=", 4) == 0 && (*text)[4]) {
        char delimiter = (*text)[4];
        *text += strcspn(*text, "\r\n");
        *text += strspn(*text, "\r\n");
        return delimiter;
    }
    static const char candidates[] = ",;\t";
    int counts[3] = {0}, best = 0;
    bool quoted = false;
    for (const char *at = *text; *at && (quoted || !strchr("\r\n", *at)); at++) {
        const char *found = strchr(candidates, *at);
        quoted ^= *at == '"';
        if (found && !quoted)
            counts[found - candidates]++;
    }
    for (int i = 1; i < 3; i++)
        best = counts[i] > counts[best] ? i : best;
    return candidates[best];
}

Table table_read(const char *path)
{
    size_t size = 0;
    char *bytes = file_bytes(path, &size), *text, *begin;
    bool wide =
        size >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0);
    if (!wide && memchr(bytes, '\0', size))
        die("%s is no table in text: in the spreadsheet, save it as CSV (UTF-8)", path);
    begin = text = decode_text(bytes, size);
    Table table = {.path = format_text("%s", path)};
    table.mark = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0;
    table.delimiter = delimiter_of(&begin);
    struct csv_parser parser;
    CHECK(csv_init(&parser, 0) == 0);
    csv_set_delim(&parser, (unsigned char)table.delimiter);
    csv_set_space_func(&parser, is_no_blank);
    begin_row(&table);
    size_t length = strlen(begin);
    if (csv_parse(&parser, begin, length, end_cell, end_row, &table) != length)
        die("%s: %s", path, csv_strerror(csv_error(&parser)));
    if (parser.quoted && parser.pstate == IN_CELL)
        die("%s: a quote that begins in a row does not end", path);
    csv_fini(&parser, end_cell, end_row, &table);
    csv_free(&parser);
    free(bytes);
    free(text);
    if (table.count == 0)
        die("%s is empty", path);
    return table;
}

int table_column(const Table *table, const char *const names[])
{
    for (; *names; names++)
        for (int i = 0; i < table->rows[0].count; i++)
            if (same_name(table->rows[0].cells[i], *names))
                return i;
    return -1;
}

const char *table_cell(const Table *table, int row, int column)
{
    const Row *cells = &table->rows[row];
    return column >= 0 && column < cells->count ? cells->cells[column] : "";
}

void table_set(Table *table, int row, int column, char *text)
{
    Row *cells = &table->rows[row];
    while (cells->count <= column)
        end_cell(NULL, 0, &(Table){.rows = cells});
    free(cells->cells[column]);
    cells->cells[column] = text;
}

void cell_print(FILE *out, const char *text, char delimiter, bool own, const char *behind)
{
    bool formula = own && *text && strchr("=+-@\t\r", *text) &&
                   !(*text == '-' && isdigit((unsigned char)text[1]));
    bool quoted = strpbrk(text, "\"\n\r") || strchr(text, delimiter);
    fputs(quoted ? "\"" : "", out);
    fputs(formula ? "'" : "", out);
    for (const char *at = text; *at; at++)
        fputs(*at == '"' ? "\"\"" : (char[]){*at, '\0'}, out);
    fputs(quoted ? "\"" : "", out);
    fputs(behind, out);
}

void table_print(FILE *out, const Table *table)
{
    fputs(table->mark ? "\xef\xbb\xbf" : "", out);
    for (int r = 0; r < table->count; r++)
        for (int i = 0; i < table->rows[r].count; i++)
            cell_print(out, table->rows[r].cells[i], table->delimiter, false,
                       i == table->rows[r].count - 1 ? "\n" : (char[]){table->delimiter, '\0'});
}
