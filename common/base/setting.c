// Reads and checks the variables of settings.def.

#include "base/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"
#include "base/numbers.h"

typedef enum { COUNT, SECONDS, BYTES, CHOICE, TEXT } SettingKind;

static const struct {
    const char *name;
    SettingKind kind;
    const char *value; // as --help shows it; of a choice all words, with | between
    uint64_t most, otherwise;
    const char *help;
} settings[SETTINGS] = {
#define SETTING(name, ...) {#name, __VA_ARGS__},
#include "base/settings.def"
#undef SETTING
};

enum { MAX_WORD = 15 };

// The length of a choice's first word.
static int word_length(const char *words)
{
    return (int)strcspn(words, "|");
}

const char *setting_name(Setting setting)
{
    return settings[setting].name;
}

const char *setting_text(Setting setting)
{
    const char *text = secure_getenv(settings[setting].name);
    return text && *text ? text : NULL;
}

_Noreturn static void refuse(Setting setting, const char *allowed)
{
    die("%s=%.40s is not %s", settings[setting].name, setting_text(setting), allowed);
}

int setting_count(Setting setting)
{
    const char *text = setting_text(setting);
    uint64_t number, most = settings[setting].most;
    if (!text)
        return 0;
    if (!read_whole_number(text, most, &number) || number < 1)
        refuse(setting, format_text("a whole number from 1 to %d", (int)most));
    return (int)number;
}

double setting_seconds(Setting setting)
{
    const char *text = setting_text(setting);
    if (!text)
        return (double)settings[setting].otherwise;
    char *end;
    double seconds = read_double(text, &end), most = (double)settings[setting].most;
    bool decimal = text[strspn(text, "0123456789.eE+-")] == '\0' && *text != '-' && *text != '+';
    if (*end || !decimal || seconds > most)
        refuse(setting, format_text("a number of seconds from 0 to %.0f", most));
    return seconds;
}

uint64_t setting_bytes(Setting setting)
{
    const char *text = setting_text(setting);
    uint64_t bytes = settings[setting].otherwise;
    if (text && !read_whole_number(text, settings[setting].most, &bytes))
        refuse(setting, "a number of bytes, 0 or more");
    return bytes;
}

// "auto, nccl or mpi".
static char *list_of_words(const char *words)
{
    char *list = NULL;
    for (const char *word = words; *word;) {
        int length = word_length(word);
        const char *next = word + length + (word[length] == '|');
        bool last = *next && !strchr(next, '|');
        text_add(&list, "%.*s%s", length, word, !*next ? "" : last ? " or " : ", ");
        word = next;
    }
    return list;
}

int setting_choice(Setting setting)
{
    const char *text = setting_text(setting), *word = settings[setting].value;
    for (int number = 0; text && *word; number++) {
        int length = word_length(word);
        if (strncmp(text, word, (size_t)length) == 0 && !text[length])
            return number;
        word += length + (word[length] == '|');
    }
    if (text)
        refuse(setting, list_of_words(settings[setting].value));
    return 0;
}

const char *setting_choice_text(Setting setting)
{
    static char words[SETTINGS][MAX_WORD + 1];
    const char *word = settings[setting].value;
    for (int number = setting_choice(setting); number > 0; number--)
        word += word_length(word) + 1;
    snprintf(words[setting], sizeof words[setting], "%.*s", word_length(word), word);
    return words[setting];
}

void settings_print(void)
{
    for (int s = 0; s < SETTINGS; s++) {
        char *left = format_text("%s=%s", settings[s].name, settings[s].value);
        printf("  %-35s %s", left, settings[s].help);
        if (settings[s].kind == CHOICE)
            printf(" (default: %.*s)", word_length(settings[s].value), settings[s].value);
        else if (settings[s].kind == SECONDS || settings[s].kind == BYTES)
            printf(" (default: %llu)", (unsigned long long)settings[s].otherwise);
        putchar('\n');
        free(left);
    }
}
