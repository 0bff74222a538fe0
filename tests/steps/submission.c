// The file that is graded.

#include "submission.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "process.h"
#include "base/error.h"
#include "base/format.h"

void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "re"), *out = in ? fopen(to, "we") : NULL;
    if (!in || !out)
        die("cannot copy %s to %s: %s", from, to, strerror(errno));
    char buffer[4096];
    for (size_t bytes; (bytes = fread(buffer, 1, sizeof buffer, in)) > 0;)
        fwrite(buffer, 1, bytes, out);
    bool failed = ferror(in) || ferror(out);
    fclose(in);
    if (fclose(out) != 0 || failed)
        die("cannot copy %s to %s: %s", from, to, strerror(errno));
}

bool same_bytes(const char *a, const char *b)
{
    FILE *files[2] = {fopen(a, "re"), fopen(b, "re")};
    char bytes[2][4096];
    bool same = files[0] && files[1];
    for (bool more = same; more && same;) {
        size_t count = fread(bytes[0], 1, sizeof bytes[0], files[0]);
        same = fread(bytes[1], 1, sizeof bytes[1], files[1]) == count &&
               memcmp(bytes[0], bytes[1], count) == 0;
        more = count > 0;
    }
    for (int i = 0; i < 2; i++)
        if (files[i])
            fclose(files[i]);
    return same;
}

static bool is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") >= SHA256_DIGITS;
}

// Both by coreutils: one line for each.
static void hash(const char *path, Submission *submission)
{
    Process process = process_start((const char *const[]){
        "sh", "-c", "sha256sum <\"$0\" && tr -d '\\r' <\"$0\" | sha256sum", path, NULL});
    while (!process.ended)
        process_wait(&process, 1000);
    process_stop(&process);
    const char *first = process.text ? process.text : "", *second = strchr(first, '\n');
    if (process.status != 0 || !is_hash(first) || !second || !is_hash(second + 1))
        die("sha256sum cannot read %s: %s", path, first);
    memcpy(submission->sha256, first, SHA256_DIGITS);
    memcpy(submission->sha256_lf, second + 1, SHA256_DIGITS);
    process_free(&process);
}

Submission submission_take(const char *path, const char *copy)
{
    Submission submission = {.path = path};
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
