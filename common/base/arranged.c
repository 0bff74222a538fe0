// What a check arranges, from the environment (arranged.h).

#include "base/arranged.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/launcher.h"
#include "base/numbers.h"
#include "base/role.h"

static Arranged all;

const Arranged *arranged(void)
{
    return &all;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}

void arranged_read(void)
{
    static const char *const names[] = {"HVDLAB_KILL", "HVDLAB_FULL", "HVDLAB_LATE_NAMES",
                                        "HVDLAB_SYNCHRONOUS_SENDS"};
    const char *kill = getenv("HVDLAB_KILL");
    int rank;
    if (!kill || sscanf(kill, "%d:%31[a-z_]:%d", &rank, all.event, &all.number) != 3 ||
        rank != launcher_rank())
        all.number = 0;
    all.full = (int)environment_number("HVDLAB_FULL", INT_MAX);
    all.late = is_set("HVDLAB_LATE_NAMES");
    all.synchronous = is_set("HVDLAB_SYNCHRONOUS_SENDS");
    bool is_rank = launched() || role_from_environment().kind != ROLE_NONE;
    for (size_t i = 0; is_rank && i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}
