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
#include "base/memory.h"

bool is_step(const char *name)
{
    return *name && strspn(name, "0123456789") == strlen(name);
}

char *exercise_title(const char *name)
{
    return format_text("%s%s", is_step(name) ? "step " : "", name);
}

// The next word of the line.
static const char *take_word(char **rest)
{
    const char *word = strtok_r(NULL, " ", rest);
    if (!word)
        die("a line of labs.sh is too short");
    return word;
}

// The same, or NULL where the word is "-".
static const char *take_text(char **rest)
{
    const char *word = take_word(rest);
    return strcmp(word, "-") == 0 ? NULL : word;
}

static int take_number(char **rest)
{
    return atoi(take_word(rest));
}

static void add_words(Words *words, char **rest)
{
    for (const char *word; (word = strtok_r(NULL, " ", rest));)
        ADD_WORDS(words, word);
}

static void add_run(Exercise *exercise, const char *line)
{
    exercise->runs =
        enlarge(exercise->runs, (size_t)exercise->run_count + 1, sizeof *exercise->runs);
    RunPlan *run = &exercise->runs[exercise->run_count++];
    *run = (RunPlan){.line = format_text("%s", line), .words = format_text("%s", line)};
    char *rest = run->words;
    run->name = take_word(&rest);
    run->ranks = take_number(&rest);
    run->layout = take_text(&rest);
    run->devices = take_number(&rest);
    run->servers = take_number(&rest);
    run->paces = take_text(&rest);
    run->kill = take_text(&rest);
    run->full = take_text(&rest);
    run->after = take_text(&rest);
    run->lose = take_text(&rest);
    run->flags = rest;
    if (run->ranks < 1 || run->devices > MAX_RANKS || run->ranks + run->servers > MAX_RANKS)
        die("lab.conf: the run %s of %s has more than %d processes or devices", run->name,
            exercise->name, MAX_RANKS);
}

static void read_line(Exercises *exercises, char *line)
{
    char *rest;
    const char *kind = strtok_r(line, " ", &rest);
    if (kind && strcmp(kind, "exercise") == 0) {
        exercises->items =
            enlarge(exercises->items, (size_t)exercises->count + 1, sizeof *exercises->items);
        Exercise *exercise = &exercises->items[exercises->count++];
        *exercise = (Exercise){.name = format_text("%s", take_word(&rest))};
        exercise->file = format_text("%s", take_word(&rest));
        return;
    }
    Exercise *last = exercises->count > 0 ? &exercises->items[exercises->count - 1] : NULL;
    if (last && kind && strcmp(kind, "holds") == 0)
        add_words(&last->holds, &rest);
    else if (last && kind && strcmp(kind, "replaces") == 0)
        add_words(&last->replaces, &rest);
    else if (last && kind && strcmp(kind, "run") == 0)
        add_run(last, rest);
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
            free(exercise->runs[r].line);
            free(exercise->runs[r].words);
        }
        free(exercise->runs);
        word_list_free(&exercise->holds);
        word_list_free(&exercise->replaces);
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

// A length that no number of ranks but 1 divides, a little above this one; the same where it is about its chunks, one
// below a multiple of 2^16.
static long varied_length(long length, uint64_t seed, int ranks)
{
    if ((length + 1) % (1 << 16) == 0)
        return length;
    length += (long)(seed % 97);
    while (ranks > 1 && length % ranks == 0)
        length++;
    return length;
}

void vary_plan(RunPlan *plan, uint64_t seed)
{
    static const char flag[] = "--max-count ";
    char *layout = NULL, *node, *end;
    const char *at = strstr(plan->flags, flag), *nodes = plan->layout;
    plan->seed = seed;
    if (at) {
        at += sizeof flag - 1;
        long length = varied_length(strtol(at, &end, 10), seed, plan->ranks);
        plan->flags = format_text("%.*s%ld%s", (int)(at - plan->flags), plan->flags, length, end);
    }
    for (; nodes && (node = next_part(&nodes, ",")); free(node))
        text_add(&layout, "%s%lu", layout ? "," : "", strtoul(node, NULL, 10) + seed % 900);
    plan->layout = layout;
}

bool same_plan(const RunPlan *a, const RunPlan *b)
{
    return strcmp(a->line, b->line) == 0;
}
