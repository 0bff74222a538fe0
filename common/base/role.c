// Reads a role from the environment. ps_job.c reports errors in a role: reporting needs the role,
// so this file cannot do it, nor read settings by setting.h, which reports errors, too.

#include "base/role.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/numbers.h"

const char *role_name(RoleKind kind)
{
    return kind == ROLE_SERVER ? "server" : "worker";
}

// A whole number that ends the text, from 0 to MAX_ROLES, else -1.
static int number_of(const char *text)
{
    uint64_t number;
    return text && read_whole_number(text, MAX_ROLES, &number) ? (int)number : -1;
}

static int words_in(const char *list)
{
    int count = list && *list;
    for (; count && *list && count <= MAX_ROLES; list++)
        count += *list == ',';
    return count;
}

// "KIND:NUMBER".
static Role role_in(const char *text, RoleKind kind)
{
    size_t length = strlen(role_name(kind));
    if (strncmp(text, role_name(kind), length) != 0 || text[length] != ':')
        return (Role){0};
    return (Role){.kind = kind, .number = number_of(text + length + 1)};
}

Role role_from_environment(void)
{
    const char *text = getenv("HVD_ROLE");
    if (!text)
        return (Role){0};
    Role role = role_in(text, ROLE_SERVER);
    if (!role.kind)
        role = role_in(text, ROLE_WORKER);
    role.servers = words_in(getenv("HVD_SERVERS"));
    role.workers = number_of(getenv("HVD_WORKERS"));
    int count = role.kind == ROLE_SERVER ? role.servers : role.workers;
    bool right = role.kind && role.number >= 0 && role.number < count && role.servers >= 1 &&
                 role.servers <= MAX_ROLES && role.workers >= 1;
    return right ? role : (Role){0};
}

int role_rank(void)
{
    Role role = role_from_environment();
    return role.kind == ROLE_SERVER ? role.workers + role.number : role.number;
}

int role_size(void)
{
    Role role = role_from_environment();
    return role.kind ? role.servers + role.workers : 1;
}
