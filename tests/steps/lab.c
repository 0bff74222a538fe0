// Reads what common/scripts/labs.sh prints.

#include "lab.h"

#include <errno.h>
#include <signal.h>
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

// realloc for one object more than `count` of `size` bytes.
static void *longer(void *items, int count, size_t size)
{
    void *moved = realloc(items, (size_t)(count + 1) * size);
    if (!moved)
        die("out of memory: there is none for what lab.conf says");
    return moved;
}

// The next word of the line; the caller frees it.
static char *take_word(char **rest)
{
    const char *word = strtok_r(NULL, " ", rest);
    if (!word)
        die("a line of labs.sh is too short");
    return format_text("%s", word);
}

// The same, or NULL where the word is "-".
static char *take_text(char **rest)
{
    char *word = take_word(rest);
    if (strcmp(word, "-") != 0)
        return word;
    free(word);
    return NULL;
}

static int take_number(char **rest)
{
    char *word = take_word(rest);
    int number = atoi(word);
    free(word);
    return number;
}

static void add_words(Words *words, char **rest)
{
    for (const char *word = strtok_r(NULL, " ", rest); word; word = strtok_r(NULL, " ", rest)) {
        words->items = longer(words->items, words->count, sizeof *words->items);
        words->items[words->count++] = format_text("%s", word);
    }
}

static void words_free(Words *words)
{
    for (int i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
}

static void add_run(Exercise *exercise, char **rest)
{
    exercise->runs = longer(exercise->runs, exercise->run_count, sizeof *exercise->runs);
    RunPlan *run = &exercise->runs[exercise->run_count++];
    *run = (RunPlan){.name = take_word(rest)};
    run->ranks = take_number(rest);
    run->layout = take_text(rest);
    run->devices = take_number(rest);
    run->servers = take_number(rest);
    run->paces = take_text(rest);
    run->kill = take_text(rest);
    run->full = take_text(rest);
    run->after = take_text(rest);
    run->lose = take_text(rest);
    run->flags = format_text("%s", *rest);
    if (run->ranks < 1 || run->devices > MAX_RANKS || run->ranks + run->servers > MAX_RANKS)
        die("lab.conf: the run %s of %s has more than %d processes or devices", run->name,
            exercise->name, MAX_RANKS);
}

static void read_line(Exercises *exercises, char *line)
{
    char *rest;
    const char *kind = strtok_r(line, " ", &rest);
    if (kind && strcmp(kind, "exercise") == 0) {
        exercises->items = longer(exercises->items, exercises->count, sizeof *exercises->items);
        Exercise *exercise = &exercises->items[exercises->count++];
        *exercise = (Exercise){.name = take_word(&rest)};
        exercise->file = take_word(&rest);
        return;
    }
    Exercise *last = exercises->count > 0 ? &exercises->items[exercises->count - 1] : NULL;
    if (last && kind && strcmp(kind, "holds") == 0)
        add_words(&last->holds, &rest);
    else if (last && kind && strcmp(kind, "replaces") == 0)
        add_words(&last->replaces, &rest);
    else if (last && kind && strcmp(kind, "run") == 0)
        add_run(last, &rest);
    else
        die("labs.sh says what nobody understands: %s", kind ? kind : "an empty line");
}

Exercises exercises_from(FILE *table)
{
    Exercises exercises = {0};
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, table) > 0) {
        line[strcspn(line, "\n")] = '\0';
        read_line(&exercises, line);
    }
    if (!feof(table))
        die("cannot read what labs.sh says: %s", strerror(errno));
    free(line);
    return exercises;
}

Exercises exercises_read(void)
{
    const char *script = "common/scripts/labs.sh";
    signal(SIGCHLD, SIG_DFL); // a daemon may ignore its children, and then none has a status
    FILE *table = access(script, X_OK) == 0 ? popen("common/scripts/labs.sh runs", "re") : NULL;
    if (!table)
        die("cannot start %s, in the kit's folder: %s", script, strerror(errno));
    Exercises exercises = exercises_from(table);
    int status = pclose(table);
    if (status < 0)
        die("%s: nobody can say how it ended: %s", script, strerror(errno));
    if (status != 0)
        exit(2); // it has said which line is wrong
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
            free(exercise->runs[r].lose);
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
           same_text(a->full, b->full) && same_text(a->after, b->after) &&
           same_text(a->lose, b->lose);
}
