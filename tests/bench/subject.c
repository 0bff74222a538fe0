// Subjects: their words.

#include "subject.h"

#include <stdio.h>
#include <string.h>
#include "base/util.h"

enum { MOST_WIDTH = 64, MOST_BATCH = 1 << 20 };

const char *const device_names[] = {"auto", "cpu", "gpu"};
const char *const precision_names[] = {"default", "fp32", "tf32", "bf16"};

int find_name(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    die("bench: %s is not known here", word);
}

Subject parse_subject(const char *text)
{
    static const char *const models[] = {"wrn", "lenet"};
    Subject s = {0};
    int end = 0;
    for (int i = 0; i < 2; i++)
        if (strncmp(text, models[i], strlen(models[i])) == 0)
            s.model = models[i];
    if (!s.model || sscanf(text + strlen(s.model), ":%d:%d%n", &s.width, &s.batch, &end) != 2 ||
        text[strlen(s.model) + (size_t)end] || s.width < 1 || s.width > MOST_WIDTH || s.batch < 1 ||
        s.batch > MOST_BATCH)
        die("%s is not MODEL:WIDTH:BATCH, such as wrn:10:512 or lenet:1:128", text);
    return s;
}

void print_model(const Subject *s)
{
    if (strcmp(s->model, "wrn") == 0)
        printf("Wide ResNet 16-%d", s->width);
    else
        printf("LeNet");
}

void print_subject(const Subject *s)
{
    print_model(s);
    printf(", batch %d", s->batch);
}
