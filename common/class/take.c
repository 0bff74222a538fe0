// From what was handed in to the files that are graded: whose an upload is, and which exercise a
// file is about. candidates.c says which of several counts.

#include "class/take.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/error.h"
#include "base/files.h"
#include "base/format.h"
#include "base/json.h"
#include "base/memory.h"
#include "class/candidates.h"
#include "class/names.h"
#include "class/owners.h"
#include "class/platforms.h"
#include "class/results.h"
#include "class/roster.h"
#include "class/table.h"
#include "class/uploads.h"

#define MAX_EXERCISES 64
#define REPOSITORY    "repository" // in the place of an entry's name

typedef struct {
    char *name, *file; // "1", "step_01"
    char *original,
        *solution; // code_hash() of the file as it was handed out, and done; NULL: it is not known
} HandedOut;

// The files and obstacles before these numbers are of a student's repository, or of one before.
typedef struct {
    int student, files_end, obstacles_end;
} Repository;

typedef struct {
    const Request *request;
    HandedOut exercises[MAX_EXERCISES];
    int exercise_count;
    Class class;
    Uploads uploads; // of repositories, then of what was handed in
    Repository *repositories;
    int repository_count;
    Candidate *candidates;
    int candidate_count;
    int *owners;          // of each upload, a student's number
    int *obstacle_owners; // of each obstacle
    const char *damaged;  // why the archive of all submissions was read in part; NULL: it was not
    cJSON *unknown;       // entries that no rule takes: {entry, why}
} Taking;

static Taking *now; // for is_wanted(), which has no argument of its own

// ---- Files' names.

// The exercise that a file's name is about, -1: none. Upper case, a number that a browser or a
// platform adds ("ring (1).c", "ring-1.c"), a copy's name, and Windows's second ending
// ("ring.c.txt") do not matter.
static int exercise_of(const char *name, int *number)
{
    char *key = folded(name);
    size_t length = strlen(key);
    if (length > 6 && strcmp(key + length - 6, ".c.txt") == 0)
        key[length -= 4] = '\0';
    *number = 0;
    int found = -1;
    if (length > 2 && strcmp(key + length - 2, ".c") == 0) {
        key[length - 2] = '\0';
        for (int i = 0; i < now->exercise_count && found < 0; i++) {
            size_t size = strlen(now->exercises[i].file);
            if (strncmp(key, now->exercises[i].file, size) != 0)
                continue;
            static const char *const copies[] = {"",         " - copy",  " copy",   " - kopie",
                                                 " - copie", " - copia", " - 副本", "_副本"};
            const char *rest = key + size;
            for (size_t c = 0; c < sizeof copies / sizeof *copies && found < 0; c++)
                if (strncmp(rest, copies[c], strlen(copies[c])) == 0) {
                    const char *behind = rest + strlen(copies[c]);
                    int used = 0;
                    bool plain = *behind == '\0';
                    if (plain ||
                        (sscanf(behind, " (%d)%n", number, &used) == 1 && used && !behind[used]) ||
                        (sscanf(behind, "-%2d%n", number, &used) == 1 && used && !behind[used]))
                        found = i;
                }
        }
    }
    free(key);
    return found;
}

static bool is_wanted(const char *name)
{
    int number;
    PlatformName parts;
    if (file_name_parts(name, &parts))
        name = parts.rest;
    return exercise_of(name, &number) >= 0;
}

// ---- Who has handed it in.

// Once for each entry.
static void add_unknown(const char *path, const char *why)
{
    char *entry = format_text("%.*s", (int)strcspn(path, "/"), path);
    const cJSON *item;
    bool known = false;
    cJSON_ArrayForEach (item, now->unknown)
        known = known || strcmp(json_text(item, "entry"), entry) == 0;
    if (!known) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "entry", entry);
        cJSON_AddStringToObject(object, "why", why);
        cJSON_AddItemToArray(now->unknown, object);
    }
    free(entry);
}

static const char *why_unknown(const char *path)
{
    char *entry = format_text("%.*s", (int)strcspn(path, "/"), path);
    PlatformName parts;
    int count = 0;
    if (file_name_parts(entry, &parts))
        class_find_name(&now->class, parts.name, &count);
    free(entry);
    if (count > 1)
        return "several in the roster have this name";
    return now->class.open ? "it names no student: neither a folder, nor an archive, nor a file as "
                             "Moodle or Canvas names it"
                           : "it belongs to nobody in the roster";
}

// ---- What was handed in.

static void add_candidate(const Upload *upload, Owner owner)
{
    Candidate candidate = {.upload = upload, .student = owner.student, .group = owner.group};
    long long own = now->class.students[owner.student].deadline;
    candidate.days_late = days_late(upload->time, own, now->request->deadline, owner.late);
    candidate.exercise =
        exercise_of(owner.file ? owner.file : last_part(upload->path), &candidate.number);
    if (candidate.exercise < 0 || !upload->bytes)
        return;
    const char *original = now->exercises[candidate.exercise].original;
    char *hash = code_hash(upload->bytes, upload->size);
    candidate.untouched = original && strcmp(original, hash) == 0;
    free(hash);
    now->candidates =
        enlarge(now->candidates, (size_t)now->candidate_count + 1, sizeof *now->candidates);
    now->candidates[now->candidate_count++] = candidate;
}

// Of the file or the obstacle with this number; -1: it is in no repository.
static int owner_of_repository(int number, bool is_file)
{
    for (int i = 0; i < now->repository_count; i++)
        if (number <
            (is_file ? now->repositories[i].files_end : now->repositories[i].obstacles_end))
            return now->repositories[i].student;
    return -1;
}

static void find_owners(void)
{
    const Uploads *uploads = &now->uploads;
    now->owners = allocate((size_t)uploads->count + 1, sizeof *now->owners);
    now->obstacle_owners =
        allocate((size_t)uploads->obstacle_count + 1, sizeof *now->obstacle_owners);
    for (int i = 0; i < uploads->count; i++) {
        int cloned = owner_of_repository(i, true);
        Owner owner = cloned >= 0 ? (Owner){.student = cloned, .group = (int)strlen(REPOSITORY)}
                                  : owner_of(&now->class, uploads->files[i].path);
        now->owners[i] = owner.student;
        if (owner.student < 0)
            add_unknown(uploads->files[i].path, why_unknown(uploads->files[i].path));
        else
            add_candidate(&uploads->files[i], owner);
    }
    for (int i = 0; i < uploads->obstacle_count; i++) {
        const Obstacle *obstacle = &uploads->obstacles[i];
        now->obstacle_owners[i] = -1;
        if (!*obstacle->path) {
            now->damaged = obstacle->why;
            continue;
        }
        int cloned = owner_of_repository(i, false);
        Owner owner = {.student = cloned};
        if (cloned < 0)
            owner = owner_of(&now->class, obstacle->path);
        // An archive of an unknown kind at the top: its name may be a student's all the same.
        if (owner.student < 0 && obstacle->unread && !strchr(obstacle->path, '/')) {
            char *stem = format_text("%s", obstacle->path), *dot = strrchr(stem, '.');
            if (dot)
                *dot = '\0';
            char *folder = format_text("%s/x", stem);
            owner = owner_of(&now->class, folder);
            free(folder);
            free(stem);
        }
        now->obstacle_owners[i] = owner.student;
        if (owner.student < 0)
            add_unknown(obstacle->path,
                        obstacle->unread ? obstacle->why : why_unknown(obstacle->path));
    }
}

// The one line of a file of the repositories' folder, NULL: there is no such file. The caller frees
// it.
static char *line_of(const char *folder, const char *ending)
{
    char *path = format_text("%s/%s.%s", now->request->repositories, folder, ending), *line = NULL;
    FILE *file = fopen(path, "re");
    size_t room = 0;
    if (file && getline(&line, &room, file) > 0)
        line[strcspn(line, "\n")] = '\0';
    else {
        free(line);
        line = NULL;
    }
    if (file)
        fclose(file);
    free(path);
    return line;
}

// A repository's files belong to its student, whatever their names.
static void read_repository(int student)
{
    char *tar =
        format_text("%s/%s.tar", now->request->repositories, now->class.students[student].folder);
    if (access(tar, R_OK) == 0) {
        uploads_add(&now->uploads, tar, REPOSITORY, is_wanted);
        now->repositories = enlarge(now->repositories, (size_t)now->repository_count + 1,
                                    sizeof *now->repositories);
        now->repositories[now->repository_count++] =
            (Repository){student, now->uploads.count, now->uploads.obstacle_count};
    }
    free(tar);
}

// ---- Units: who is graded together.

// The first student of the same team, or the student.
static int unit_of(int student)
{
    const Student *students = now->class.students;
    for (int i = 0; i < student; i++)
        if (*students[student].team && same_name(students[i].team, students[student].team))
            return i;
    return student;
}

// The same of a team: of the first member who has it.
static char *line_of_unit(int unit, const char *ending)
{
    char *line = NULL;
    for (int i = 0; i < now->class.count && !line; i++)
        if (unit_of(i) == unit)
            line = line_of(now->class.students[i].folder, ending);
    return line;
}

// The caller frees it.
static char *unit_name(int unit)
{
    const Student *student = &now->class.students[unit];
    return format_text("%s%s", *student->team ? "team " : "",
                       *student->team ? student->team : student->id);
}

static uint64_t seed_of(const char *unit, const char *exercise)
{
    char *text = format_text("%s\n%s", unit, exercise);
    Digest digest = hmac_of(now->request->secret, text);
    uint64_t number = 0;
    for (int i = 0; i < 6; i++)
        number = number << 8 | digest.bytes[i];
    free(text);
    return number % 999999999 + 1;
}

Stamp stamp_of(const char *secret, const char *folder)
{
    char *text = format_text("stamp\n%s", folder);
    Digest digest = hmac_of(secret, text);
    const unsigned char *at = digest.bytes + 8;
    Stamp stamp = {
        .seed = ((uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | at[3]) %
                    999999 +
                1};
    for (int i = 0; i < 8; i++)
        sprintf(stamp.code + 2 * i, "%02x", digest.bytes[i]);
    free(text);
    return stamp;
}

// ---- What comes of it.

// The names of what was handed in beside, at most six. The caller frees it.
static char *what_was_there(int unit)
{
    char *text = NULL;
    int count = 0;
    for (int i = 0; i < now->uploads.count; i++)
        if (now->owners[i] >= 0 && unit_of(now->owners[i]) == unit && ++count <= 6)
            text_add(&text, "%s%s", count > 1 ? ", " : "", last_part(now->uploads.files[i].path));
    if (count > 6)
        text_add(&text, " and %d more", count - 6);
    return text;
}

// What could not be read, or was not there; *unread: a file may be in it. The caller frees it;
// NULL: nothing.
static char *obstacles_of(int unit, bool *unread)
{
    char *text = NULL;
    for (int i = 0; i < now->uploads.obstacle_count; i++)
        if (now->obstacle_owners[i] >= 0 && unit_of(now->obstacle_owners[i]) == unit) {
            const Obstacle *obstacle = &now->uploads.obstacles[i];
            text_add(&text, "%s%s: %s", text ? "; " : "", obstacle->path, obstacle->why);
            *unread = *unread || obstacle->unread;
        }
    return text;
}

// The file that counts; NULL: there is none. *others says which ones do not, and why.
static const Candidate *best_of(int unit, int exercise, char **others)
{
    const Candidate *best = NULL;
    const char *why;
    for (int i = 0; i < now->candidate_count; i++) {
        const Candidate *each = &now->candidates[i];
        if (each->exercise == exercise && unit_of(each->student) == unit &&
            (!best || candidate_compare(each, best, &why) < 0))
            best = each;
    }
    for (int i = 0; best && i < now->candidate_count; i++) {
        const Candidate *each = &now->candidates[i];
        bool same = each->upload->size == best->upload->size &&
                    memcmp(each->upload->bytes, best->upload->bytes, best->upload->size) == 0;
        if (each == best || each->exercise != exercise || unit_of(each->student) != unit || same)
            continue;
        candidate_compare(best, each, &why);
        text_add(others, "%snot taken: %s (%s)", *others ? "; " : "", each->upload->path, why);
    }
    return best;
}

static void describe_missing(cJSON *file, const HandedOut *exercise, int unit)
{
    bool unread = now->damaged;
    char *obstacles = obstacles_of(unit, &unread), *there = what_was_there(unit),
         *error = line_of_unit(unit, "error"), *said = line_of_unit(unit, "note"), *note = NULL;
    if (error)
        text_add(&note, "%s", error);
    else if (!there && !obstacles)
        text_add(&note, "%s", said ? said : "nothing was handed in");
    else {
        text_add(&note, "there is no %s.c", exercise->file);
        if (there)
            text_add(&note, "; there is %s", there);
        if (obstacles)
            text_add(&note, "; %s", obstacles);
    }
    if (now->damaged && !error)
        text_add(&note, "; %s: %s", now->request->submissions, now->damaged);
    cJSON_AddStringToObject(file, "state",
                            error    ? "not-fetched"
                            : unread ? "not-understood"
                                     : "missing");
    cJSON_AddStringToObject(file, "note", note);
    free(obstacles);
    free(there);
    free(error);
    free(said);
    free(note);
}

static void describe_taken(cJSON *file, const Candidate *best, char *others)
{
    bool large = best->upload->size > MAX_SOURCE;
    char *note = NULL, *hash = code_hash(best->upload->bytes, best->upload->size),
         *time = time_text(best->upload->time);
    if (large)
        text_add(&note, "a file of more than %d bytes is not graded", MAX_SOURCE);
    if (others)
        text_add(&note, "%s%s", note ? "; " : "", others);
    char *commit = line_of(now->class.students[best->student].folder, "note");
    if (commit && strncmp(best->upload->path, REPOSITORY "/", sizeof REPOSITORY) == 0)
        text_add(&note, "%s%s", note ? "; " : "", commit);
    const char *matched = now->class.students[best->student].matched;
    if (matched)
        text_add(&note, "%sfound %s", note ? "; " : "", matched);
    cJSON_AddStringToObject(file, "state", large ? "too-large" : "taken");
    cJSON_AddStringToObject(file, "from", best->upload->path);
    if (best->upload->time)
        cJSON_AddStringToObject(file, "time", time);
    cJSON_AddNumberToObject(file, "days_late", best->days_late);
    cJSON_AddBoolToObject(file, "untouched", best->untouched);
    const char *solution = now->exercises[best->exercise].solution;
    cJSON_AddBoolToObject(file, "solution", solution && strcmp(solution, hash) == 0);
    cJSON_AddStringToObject(file, "code", hash);
    if (note)
        cJSON_AddStringToObject(file, "note", note);
    free(hash);
    free(note);
    free(time);
    free(commit);
}

static bool is_asked_for(int unit)
{
    if (!now->request->only)
        return true;
    char *list = format_text("%s", now->request->only), *rest = list, *id;
    bool found = false;
    while ((id = strsep(&rest, ","))) {
        int student = class_find(&now->class, id), member = class_find_team(&now->class, id);
        found = found || (student >= 0 && unit_of(student) == unit) ||
                (member >= 0 && unit_of(member) == unit);
    }
    free(list);
    return found;
}

static cJSON *take_file(int unit, int number, FILE *tasks)
{
    const HandedOut *exercise = &now->exercises[number];
    cJSON *file = cJSON_CreateObject();
    char *others = NULL, *name = unit_name(unit), *folder = safe_name(name);
    const Candidate *best = best_of(unit, number, &others);
    uint64_t seed = seed_of(name, exercise->name);
    cJSON_AddStringToObject(file, "exercise", exercise->name);
    cJSON_AddStringToObject(file, "file", exercise->file);
    cJSON_AddNumberToObject(file, "seed", (double)seed);
    if (!best)
        describe_missing(file, exercise, unit);
    else
        describe_taken(file, best, others);
    if (best && best->upload->size <= MAX_SOURCE) {
        char *hash = sha256_of(best->upload->bytes, best->upload->size),
             *path = format_text("%s/%s/%s.c", now->request->to, folder, exercise->file),
             *above = format_text("%s/%s", now->request->to, folder);
        make_folders(above);
        file_replace(path, best->upload->bytes, best->upload->size);
        cJSON_AddStringToObject(file, "sha256", hash);
        uint64_t stamp =
            now->request->stamps
                ? stamp_of(now->request->secret, now->class.students[best->student].folder).seed
                : 0;
        cJSON_AddNumberToObject(file, "stamp", (double)stamp);
        char *key = result_key(hash, seed, now->request->kit, stamp);
        if (is_asked_for(unit))
            fprintf(tasks, "%s\t%s\t%s\t%" PRIu64 "\t%s\t%" PRIu64 "\t%s\n", folder, exercise->name,
                    exercise->file, seed, hash, stamp, key);
        free(key);
        free(hash);
        free(path);
        free(above);
    }
    free(others);
    free(name);
    free(folder);
    return file;
}

static int by_id(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return strcmp(now->class.students[*x].id, now->class.students[*y].id);
}

// A row for each student; what a team's members share is worked out once.
static cJSON *take_all(FILE *tasks)
{
    int count = now->class.count, *order = allocate((size_t)count, sizeof *order);
    cJSON *students = cJSON_CreateArray(), **files = allocate((size_t)count, sizeof(cJSON *));
    for (int i = 0; i < count; i++)
        order[i] = i;
    qsort(order, (size_t)count, sizeof *order, by_id);
    for (int n = 0; n < count; n++) {
        const Student *student = &now->class.students[order[n]];
        int unit = unit_of(order[n]);
        if (!files[unit]) {
            files[unit] = cJSON_CreateArray();
            for (int i = 0; i < now->exercise_count; i++)
                cJSON_AddItemToArray(files[unit], take_file(unit, i, tasks));
        }
        cJSON *object = cJSON_CreateObject();
        char *name = unit_name(unit), *folder = safe_name(name);
        cJSON_AddStringToObject(object, "id", student->id);
        cJSON_AddStringToObject(object, "name", student->name);
        cJSON_AddStringToObject(object, "email", student->email);
        if (*student->team)
            cJSON_AddStringToObject(object, "team", student->team);
        cJSON_AddStringToObject(object, "unit", folder);
        cJSON_AddItemToObject(object, "files", cJSON_Duplicate(files[unit], true));
        cJSON_AddItemToArray(students, object);
        free(name);
        free(folder);
    }
    for (int i = 0; i < count; i++)
        cJSON_Delete(files[i]);
    free(files);
    free(order);
    return students;
}

// ---- What is asked for.

static char *hash_of_code(const char *folder, const char *name)
{
    char *path = format_text("%s/%s.c", folder ? folder : "", name), *hash = NULL;
    size_t size;
    if (folder && access(path, R_OK) == 0) {
        char *bytes = file_bytes(path, &size);
        hash = code_hash(bytes, size);
        free(bytes);
    }
    free(path);
    return hash;
}

static void read_exercises(Taking *taking)
{
    FILE *file = fopen(taking->request->exercises, "re");
    char *line = NULL;
    size_t room = 0;
    if (!file)
        die("cannot read %s: %s", taking->request->exercises, strerror(errno));
    while (getline(&line, &room, file) > 0) {
        char *rest = line, *name = strsep(&rest, "\t\n"), *base = strsep(&rest, "\t\n");
        CHECK(taking->exercise_count < MAX_EXERCISES && base);
        taking->exercises[taking->exercise_count++] =
            (HandedOut){format_text("%s", name), format_text("%s", base),
                        hash_of_code(taking->request->originals, base),
                        hash_of_code(taking->request->solutions, base)};
    }
    free(line);
    fclose(file);
}

// A roster that matches nobody is another class's, or its ids are none of the platform's.
static void need_somebody(void)
{
    bool any = false, repositories = false;
    for (int i = 0; i < now->uploads.count + now->uploads.obstacle_count; i++)
        any = any || (i < now->uploads.count ? now->owners[i]
                                             : now->obstacle_owners[i - now->uploads.count]) >= 0;
    for (int i = 0; i < now->class.count; i++)
        repositories = repositories || *now->class.students[i].repository;
    if (now->damaged && !any)
        die("%s: %s", now->request->submissions, now->damaged);
    if (now->damaged && now->class.open)
        die("%s: %s: without ROSTER= nobody knows which students are missing; download it again, "
            "unpack it into a folder, or name a roster",
            now->request->submissions, now->damaged);
    if (now->class.count == 0)
        die("no student: %s has no folder and no archive that names one",
            now->request->submissions);
    if (any || repositories || !now->request->submissions)
        return;
    const cJSON *entry = cJSON_GetArrayItem(now->unknown, 0);
    if (!entry)
        die("%s is empty", now->request->submissions);
    die("nobody in %s has handed in anything: its ids are such as \"%s\", and the entries such as "
        "\"%s\". The id is the "
        "entry's name, or the number that Moodle or Canvas puts in it; WORKSHEET= or BOOK= says "
        "which number is whose",
        now->request->roster, now->class.students[0].id, json_text(entry, "entry"));
}

void take_submissions(const Request *request)
{
    Taking taking = {.request = request, .unknown = cJSON_CreateArray()};
    now = &taking;
    read_exercises(&taking);
    taking.class = class_read(request->roster);
    class_link(&taking.class, request->worksheet, request->book, request->column);
    for (int i = 0; i < taking.class.count && request->repositories; i++)
        read_repository(i);
    if (request->submissions)
        uploads_add(&taking.uploads, request->submissions, "", is_wanted);
    find_owners();
    need_somebody();
    char *tasks_path = format_text("%s/tasks.tsv", request->to),
         *json_path = format_text("%s/taken.json", request->to);
    FILE *tasks = fopen(tasks_path, "we");
    if (!tasks)
        die("cannot write %s: %s", tasks_path, strerror(errno));
    cJSON *all = cJSON_CreateObject();
    cJSON_AddItemToObject(all, "students", take_all(tasks));
    cJSON_AddItemToObject(all, "not_understood", taking.unknown);
    if (request->only) {
        char *list = format_text("%s", request->only), *rest = list, *id;
        while ((id = strsep(&rest, ",")))
            if (class_find(&taking.class, id) < 0 && class_find_team(&taking.class, id) < 0)
                die("ONLY=%s: there is no student \"%s\"", request->only, id);
        free(list);
    }
    if (fclose(tasks) != 0)
        die("cannot write %s: %s", tasks_path, strerror(errno));
    json_write(all, json_path);
    free(tasks_path);
    free(json_path);
    cJSON_Delete(all);
}

static void print_lines(const cJSON *unknown)
{
    const cJSON *entry;
    if (cJSON_GetArraySize(unknown) > 0)
        printf("\nNot understood:\n");
    cJSON_ArrayForEach (entry, unknown)
        printf("  %s: %s\n", json_text(entry, "entry"), json_text(entry, "why"));
}

void print_taken(const char *path)
{
    cJSON *taken = json_read(path);
    const cJSON *student, *file;
    printf("%-16s  %-20s  %-10s  %-14s  %-20s  %4s  %s\n", "student", "name", "exercise", "state",
           "time", "late", "file");
    cJSON_ArrayForEach (student, cJSON_GetObjectItemCaseSensitive(taken, "students"))
        cJSON_ArrayForEach (file, cJSON_GetObjectItemCaseSensitive(student, "files")) {
            const char *note = json_text(file, "note"), *from = json_text(file, "from");
            printf("%-16s  %-20s  %-10s  %-14s  %-20s  %4.0f  %s%s%s\n", json_text(student, "id"),
                   json_text(student, "name"), json_text(file, "exercise"),
                   json_text(file, "state"), json_text(file, "time"),
                   *from ? json_number(file, "days_late") : 0, from, *from && *note ? "; " : "",
                   note);
        }
    print_lines(cJSON_GetObjectItemCaseSensitive(taken, "not_understood"));
    cJSON_Delete(taken);
}
