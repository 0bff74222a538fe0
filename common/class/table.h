// Tables of comma-separated values (RFC 4180) as spreadsheets and learning platforms write them,
// read by libcsv.

#ifndef HVDLAB_CLASS_TABLE_H
#define HVDLAB_CLASS_TABLE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct {
    char **cells; // UTF-8
    int count;
} Row;

typedef struct {
    char *path;
    Row *rows; // the first one names the columns
    int count;
    char delimiter; // , or ; or a tab: the one that the first row has most of; or what Excel's
                    // "sep=" says
    bool mark; // it began with UTF-8's byte order mark, which some programs of spreadsheets need
} Table;

// Exits with an error message where the file cannot be read, is empty, or has no rows.
Table table_read(const char *path);

// The column that one of these names, which NULL ends, stands for; letters' case and blanks around
// do not matter. -1: there is none.
int table_column(const Table *table, const char *const names[]);

// "" where the row is shorter, or `column` is -1.
const char *table_cell(const Table *table, int row, int column);

// Takes `text` over. A row that is shorter grows.
void table_set(Table *table, int row, int column, char *text);

// As it came, except for the cells that were set.
void table_print(FILE *out, const Table *table);

// A cell, and what stands behind it. Where `own` is true a text that a spreadsheet takes for a
// formula gets a ' in front.
void cell_print(FILE *out, const char *text, char delimiter, bool own, const char *behind);

#endif
