// Whose an upload is: by Moodle's or Canvas's name for it; else by the name of the folder or
// archive.

#include "class/owners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/format.h"
#include "class/platforms.h"
#include "class/uploads.h"

// The part number `index` of a path; its length behind it. NULL: there are fewer.
static const char *part_of(const char *path, int index, int *length)
{
    for (; index > 0 && path; index--)
        path = strchr(path, '/') ? strchr(path, '/') + 1 : NULL;
    *length = path ? (int)strcspn(path, "/") : 0;
    return path;
}

// A folder's or an archive's name, without the archive's ending. The caller frees it.
static char *stem_of(const char *name)
{
    char *stem = format_text("%s", name);
    if (is_archive(name)) {
        *strrchr(stem, '.') = '\0';
        char *dot = strrchr(stem, '.');
        if (dot && strcasecmp(dot, ".tar") == 0)
            *dot = '\0';
    }
    return stem;
}

static int student_by_platform(Class *class, const PlatformName *parts)
{
    // What a team hands in has the group's number, which may be some participant's as well.
    int student = class_find_team(class, parts->name);
    if (student < 0)
        student = class_find(class, parts->number);
    if (student < 0 && class->open)
        return class_add(class, parts->number, parts->name, "");
    if (student < 0 && (student = class_find_name(class, parts->name, NULL)) >= 0)
        class->students[student].matched = "by name";
    return student;
}

Owner owner_of(Class *class, const char *path)
{
    Owner owner = {.student = -1};
    int length, parts = 1;
    for (const char *at = path; *at; at++)
        parts += *at == '/';
    for (int i = 0; i < parts && i < 3; i++) {
        const char *part = part_of(path, i, &length);
        char *name = format_text("%.*s", length, part);
        bool last = i == parts - 1 || is_archive(name);
        PlatformName found;
        bool moodle = moodle_name_parts(name, &found);
        if (moodle || (i < 2 && last && file_name_parts(name, &found))) {
            owner.student = student_by_platform(class, &found);
            owner.late = found.late;
            owner.group = (int)(part - path) + length;
            if (i == parts - 1)
                owner.file = part + (found.rest - name);
            else if (moodle &&
                     !is_archive(name)) { // each file in a student's folder was uploaded by itself
                const char *upload = part_of(path, i + 1, &length);
                owner.group = (int)(upload - path) + length;
            }
        }
        free(name);
        if (owner.group)
            return owner;
    }
    for (int i = 0; i < parts && i < 3 && owner.student < 0; i++) {
        const char *part = part_of(path, i, &length);
        char *name = format_text("%.*s", length, part), *stem = stem_of(name);
        bool file = i == parts - 1 && !is_archive(name);
        owner.group = (int)(part - path) + length;
        if (class->open && !file) {
            owner.student = class_find(class, stem);
            if (owner.student < 0)
                owner.student = class_add(class, stem, "", "");
        } else if (!class->open) {
            owner.student = file ? -1 : class_find(class, stem);
            if (owner.student < 0 && !file)
                owner.student = class_find_name(class, stem, NULL);
            if (owner.student < 0 && (owner.student = class_find_within(class, stem)) >= 0)
                class->students[owner.student].matched = "by a part of the name";
        }
        free(name);
        free(stem);
        if (class->open)
            break; // without a roster the first part names the student
    }
    return owner;
}
