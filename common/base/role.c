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
    return (Role){.kind = kind, .number = (int)whole_number(text + length + 1, MAX_ROLES)};
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
    role.workers = (int)whole_number(getenv("HVD_WORKERS"), MAX_ROLES);
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
