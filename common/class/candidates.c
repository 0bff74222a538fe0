// Which of several files that a student handed in for one exercise counts.

#include "class/candidates.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/format.h"

#define DAY 86400

static bool is_in(const Candidate *candidate, const char *folder)
{
    char *part = format_text("/%s/", folder);
    bool found = strcasestr(candidate->upload->path, part) != NULL;
    free(part);
    return found;
}

// Where a student hands in the whole kit, their file is in steps/.
static int rank_of_folder(const Candidate *candidate)
{
    const char *file = last_part(candidate->upload->path);
    size_t above = (size_t)(file - candidate->upload->path);
    bool steps =
        above >= 6 && strncasecmp(file - 6, "steps/", 6) == 0 && (above == 6 || file[-7] == '/');
    return steps ? 0
           : is_in(candidate, "solutions") || is_in(candidate, "build") || is_in(candidate, "labs")
               ? 2
               : 1;
}

static int depth_of(const char *path)
{
    int depth = 0;
    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

static bool same_group(const Candidate *a, const Candidate *b)
{
    return a->group == b->group && strncmp(a->upload->path, b->upload->path, (size_t)a->group) == 0;
}

int days_late(long long time, long long own, long long common, bool late)
{
    long long deadline = own ? own : common;
    if (deadline == 0 || time == 0)
        return late;
    long long over = time - deadline;
    if (over > 0)
        return (int)((over + DAY - 1) / DAY);
    return late && own == 0;
}

int candidate_compare(const Candidate *a, const Candidate *b, const char **why)
{
    int by;
    *why = "it is as it was handed out";
    if ((by = a->untouched - b->untouched) != 0)
        return by;
    *why = "it came after the deadline";
    if ((by = (a->days_late > 0) - (b->days_late > 0)) != 0)
        return by;
    if (same_group(a, b)) {
        *why = "a file in steps/ comes first";
        if ((by = rank_of_folder(a) - rank_of_folder(b)) != 0)
            return by;
        *why = "it lies deeper";
        if ((by = depth_of(a->upload->path) - depth_of(b->upload->path)) != 0)
            return by;
    }
    *why = "older";
    if (a->upload->time != b->upload->time)
        return a->upload->time > b->upload->time ? -1 : 1;
    *why = "of the same time, and a smaller number in its name";
    if (a->number != b->number)
        return b->number - a->number;
    *why = "of the same time, and an earlier name";
    return strcmp(b->upload->path, a->upload->path);
}
