// What people read: the instructor's table, students' pages.

#ifndef HVDLAB_CLASS_PAGES_H
#define HVDLAB_CLASS_PAGES_H

#include <stdio.h>
#include "base/json.h"

// Who, what, which points and why; then statistics, the most frequent mistakes, and what was not
// understood.
void print_table(FILE *out, const cJSON *grades);

// What a check says of a submission, in lines of at most 100 characters.
void print_result(FILE *out, const cJSON *result);

// A page for a student, without what an instructor alone may see.
void print_page(FILE *out, const cJSON *grades, const cJSON *student);
void print_html(FILE *out, const cJSON *grades, const cJSON *student);

// As text or an attribute of XML and HTML.
void print_escaped(FILE *out, const char *text);

// The text that `print` writes; the caller frees it.
char *text_of_result(const cJSON *result);

#endif
