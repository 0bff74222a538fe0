// The file that is graded.

#include "submission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"

void copy_file(const char *from, const char *to)
{
    size_t size;
    char *bytes = file_bytes(from, &size);
    file_replace(to, bytes, size);
    free(bytes);
}

bool same_bytes(const char *a, const char *b)
{
    size_t sizes[2];
    char *bytes[] = {file_bytes(a, &sizes[0]), file_bytes(b, &sizes[1])};
    bool same = sizes[0] == sizes[1] && memcmp(bytes[0], bytes[1], sizes[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

static bool is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") >= SHA256_DIGITS;
}

// Both by coreutils: one line for each.
static void hash(const char *path, Submission *submission)
{
    Process process = process_run((const char *const[]){
        "sh", "-c", "sha256sum <\"$0\" && tr -d '\\r' <\"$0\" | sha256sum", path, NULL});
    const char *first = process.text ? process.text : "", *second = strchr(first, '\n');
    if (process.status != 0 || !is_hash(first) || !second || !is_hash(second + 1))
        die("sha256sum cannot read %s: %s", path, first);
    memcpy(submission->sha256, first, SHA256_DIGITS);
    memcpy(submission->sha256_lf, second + 1, SHA256_DIGITS);
    process_free(&process);
}

Submission submission_take(const char *path, const char *copy)
{
    Submission submission = {0};
    copy_file(path, copy);
    hash(copy, &submission);
    return submission;
}

// Lines "HASH  steps/FILE.c" (common/scripts/steps.sh); a students' package has a list of its own.
bool submission_is_untouched(const Submission *submission, const char *file)
{
    FILE *sums = fopen("steps/.original/steps.sha256", "re");
    if (!sums)
        sums = fopen("solutions/steps.sha256", "re");
    char line[1024], *wanted = format_text("  steps/%s.c\n", file);
    bool untouched = false;
    while (sums && !untouched && fgets(line, sizeof line, sums))
        untouched = is_hash(line) && strcmp(line + SHA256_DIGITS, wanted) == 0 &&
                    strncmp(line, submission->sha256_lf, SHA256_DIGITS) == 0;
    if (sums)
        fclose(sums);
    free(wanted);
    return untouched;
}
