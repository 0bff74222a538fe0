// Reads labs/*/lab.conf.

#include "lab.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "words.h"
#include "base/format.h"

bool is_step(const char *name)
{
    return *name && strspn(name, "0123456789") == strlen(name);
}

char *exercise_title(const char *name)
{
    return format_text("%s%s", is_step(name) ? "step " : "", name);
}

static char *file_of(const char *name)
{
    return is_step(name) ? format_text("step_%02d", atoi(name)) : format_text("%s", name);
}

// The text without the spaces around it, in place.
static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

// realloc for `count` objects of `size` bytes.
static void *longer(void *items, int count, size_t size)
{
    void *moved = realloc(items, (size_t)count * size);
    if (!moved)
        die("out of memory: there is none for what lab.conf says");
    return moved;
}

static void add_word(Words *words, const char *word)
{
    words->items = longer(words->items, words->count + 1, sizeof *words->items);
    words->items[words->count++] = format_text("%s", word);
}

static void add_words(Words *words, char *text)
{
    char *rest;
    for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        add_word(words, word);
}

static void words_free(Words *words)
{
    for (int i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
}

// Where a line stands, for what is wrong with it.
typedef struct {
    const char *path;
    int line;
} FileLine;

// The number behind "devices=" or "servers=", -1: it is none from 1 on; 0: the word is something
// else.
static int count_behind(const char *begin, const char *word)
{
    if (strncmp(word, begin, strlen(begin)) != 0)
        return 0;
    int count = atoi(word + strlen(begin));
    return count > 0 ? count : -1;
}

// What stands in the place of a run's layout.
static void read_layout(RunPlan *run, const char *word)
{
    run->devices = count_behind("devices=", word);
    run->servers = count_behind("servers=", word);
    const char *colon = run->servers > 0 ? strchr(word, ':') : NULL;
    if (colon)
        run->paces = format_text("%s", colon + 1);
    if (!run->devices && !run->servers && strcmp(word, "-") != 0)
        run->layout = format_text("%s", word);
}

static void add_run(Exercise *exercise, char *text, FileLine place)
{
    char *rest, *name = strtok_r(text, " \t", &rest), *ranks = strtok_r(NULL, " \t", &rest),
                *layout = strtok_r(NULL, " \t", &rest);
    RunPlan run = {.ranks = ranks ? atoi(ranks) : 0};
    if (layout)
        read_layout(&run, layout);
    bool too_many = run.ranks > MAX_RANKS || run.devices > MAX_RANKS || run.servers > MAX_RANKS ||
                    run.ranks + run.servers > MAX_RANKS;
    if (!layout || run.ranks < 1 || too_many || run.devices < 0 || run.servers < 0)
        die("%s:%d: a run is NAME RANKS LAYOUT FLAGS..., with 1 to %d ranks; or devices=N in the "
            "layout's place, with as many devices, or servers=N, with as many processes in all",
            place.path, place.line, MAX_RANKS);
    run.name = format_text("%s", name);
    run.flags = format_text("%s", trimmed(rest));
    exercise->runs = longer(exercise->runs, exercise->run_count + 1, sizeof *exercise->runs);
    exercise->runs[exercise->run_count++] = run;
}

// The first word of a line that says something of a run names it; returns that run, and the second
// word.
static RunPlan *named_run(const Exercise *exercise, char *text, char **value, FileLine place)
{
    char *rest, *name = strtok_r(text, " \t", &rest);
    *value = strtok_r(NULL, " \t", &rest);
    for (int i = 0; name && *value && i < exercise->run_count; i++)
        if (strcmp(exercise->runs[i].name, name) == 0)
            return &exercise->runs[i];
    die("%s:%d: a run that stands above, and one word more, are missing", place.path, place.line);
}

static void add_kill(const Exercise *exercise, char *text, FileLine place)
{
    char *value;
    RunPlan *run = named_run(exercise, text, &value, place);
    free(run->kill);
    run->kill = format_text("%s", value);
}

static void add_full(const Exercise *exercise, char *text, FileLine place)
{
    char *value;
    RunPlan *run = named_run(exercise, text, &value, place);
    free(run->full);
    run->full = format_text("%s", value);
}

static void add_after(const Exercise *exercise, char *text, FileLine place)
{
    char *value;
    RunPlan *run = named_run(exercise, text, &value, place);
    free(run->after);
    run->after = format_text("%s", value);
}

static Exercise *add_exercise(Exercises *exercises, const char *name, FileLine place)
{
    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name))
        die("%s:%d: \"%s\" is no name of an exercise", place.path, place.line, name);
    if (exercise_named(exercises, name))
        die("%s:%d: there are two exercises %s", place.path, place.line, name);
    exercises->items = longer(exercises->items, exercises->count + 1, sizeof *exercises->items);
    exercises->items[exercises->count] =
        (Exercise){.name = format_text("%s", name), .file = file_of(name)};
    return &exercises->items[exercises->count++];
}

static void read_line(Exercises *exercises, Exercise **current, char *text, FileLine place)
{
    char *line = trimmed(text), *end = strchr(line, ']'), *equals = strchr(line, '=');
    if (!*line || *line == '#')
        return;
    if (*line == '[' && end) {
        *end = '\0';
        *current = add_exercise(exercises, line + 1, place);
        return;
    }
    if (!equals)
        die("%s:%d: neither [EXERCISE] nor KEY = VALUE", place.path, place.line);
    *equals = '\0';
    char *key = trimmed(line), *value = trimmed(equals + 1);
    if (!*current)
        return;
    if (strcmp(key, "run") == 0)
        add_run(*current, value, place);
    else if (strcmp(key, "kill") == 0)
        add_kill(*current, value, place);
    else if (strcmp(key, "full") == 0)
        add_full(*current, value, place);
    else if (strcmp(key, "after") == 0)
        add_after(*current, value, place);
    else if (strcmp(key, "holds") == 0)
        add_words(&(*current)->holds, value);
    else if (strcmp(key, "replaces") == 0)
        add_words(&(*current)->replaces, value);
}

static void read_file(Exercises *exercises, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        die("cannot read %s: %s", path, strerror(errno));
    Exercise *current = NULL;
    FileLine place = {.path = path};
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        place.line++;
        read_line(exercises, &current, line, place);
    }
    if (!feof(file))
        die("cannot read %s: %s", path, strerror(errno));
    free(line);
    fclose(file);
}

// What is held must be there.
static void check_holds(const Exercises *exercises)
{
    for (int i = 0; i < exercises->count; i++)
        for (int h = 0; h < exercises->items[i].holds.count; h++)
            if (!exercise_named(exercises, exercises->items[i].holds.items[h]))
                die("lab.conf: %s is to hold in %s, and there is no such exercise",
                    exercises->items[i].holds.items[h], exercises->items[i].name);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

Exercises exercises_read(void)
{
    Exercises exercises = {0};
    struct dirent **folders = NULL; // (glob of glibc 2.36 may crash where memory runs out)
    int count = scandir("labs", &folders, is_visible, alphasort);
    if (count < 0 && errno != ENOENT)
        die("labs/ cannot be searched: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        char *path = format_text("labs/%s/lab.conf", folders[i]->d_name);
        if (access(path, F_OK) == 0)
            read_file(&exercises, path);
        free(path);
        free(folders[i]);
    }
    free(folders);
    check_holds(&exercises);
    return exercises;
}

void exercises_free(Exercises *exercises)
{
    for (int i = 0; i < exercises->count; i++) {
        Exercise *exercise = &exercises->items[i];
        for (int r = 0; r < exercise->run_count; r++) {
            free(exercise->runs[r].name);
            free(exercise->runs[r].layout);
            free(exercise->runs[r].flags);
            free(exercise->runs[r].paces);
            free(exercise->runs[r].kill);
            free(exercise->runs[r].full);
            free(exercise->runs[r].after);
        }
        free(exercise->runs);
        words_free(&exercise->holds);
        words_free(&exercise->replaces);
        free(exercise->name);
        free(exercise->file);
    }
    free(exercises->items);
    *exercises = (Exercises){0};
}

const Exercise *exercise_named(const Exercises *exercises, const char *name)
{
    for (int i = 0; i < exercises->count; i++)
        if (strcmp(exercises->items[i].name, name) == 0)
            return &exercises->items[i];
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

// A length that no number of ranks but 1 divides, a little above this one.
static long varied_length(long length, uint64_t seed, int ranks)
{
    length += (long)(seed % 97);
    while (ranks > 1 && length % ranks == 0)
        length++;
    return length;
}

void vary_plan(RunPlan *plan, uint64_t seed)
{
    static const char flag[] = "--max-count ";
    char *flags = NULL, *end = plan->flags;
    plan->seed = seed;
    const char *at = strstr(plan->flags, flag);
    if (at) {
        at += sizeof flag - 1;
        long length = varied_length(strtol(at, &end, 10), seed, plan->ranks);
        text_add(&flags, "%.*s%ld", (int)(at - plan->flags), plan->flags, length);
    }
    text_add(&flags, "%s", end);
    plan->flags = flags;
    char *layout = NULL;
    for (const char *node = plan->layout; node;
         node = strchr(node, ',') ? strchr(node, ',') + 1 : NULL)
        text_add(&layout, "%s%lu", layout ? "," : "", strtoul(node, NULL, 10) + seed % 900);
    plan->layout = layout;
}

bool same_plan(const RunPlan *a, const RunPlan *b)
{
    return same_text(a->name, b->name) && a->ranks == b->ranks && same_text(a->layout, b->layout) &&
           a->devices == b->devices && a->servers == b->servers && same_text(a->paces, b->paces) &&
           same_text(a->flags, b->flags) && same_text(a->kill, b->kill) &&
           same_text(a->full, b->full) && same_text(a->after, b->after);
}
