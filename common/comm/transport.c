// The environment variables that choose a transport.

#include "comm/transport.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/format.h"

// The index of an environment variable's value in `names`; 0 if it is not set or empty.
static int setting(const char *variable, const char *const *names, int count)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return 0;
    for (int i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    char *list = format_text("%s", names[0]);
    for (int i = 1; i < count; i++) {
        char *longer = format_text("%s%s%s", list, i + 1 < count ? ", " : " or ", names[i]);
        free(list);
        list = longer;
    }
    die("%s=%s is not %s", variable, text, list);
}

static const char *const transport_names[] = {"auto", "nccl", "mpi"};

TransportChoice transport_choice(void)
{
    return (TransportChoice)setting("HVD_TRANSPORT", transport_names, 3);
}

const char *transport_choice_name(void)
{
    return transport_names[transport_choice()];
}

static const char *const hierarchy_names[] = {"auto", "0", "1"};

HierarchyChoice hierarchy_choice(void)
{
    return (HierarchyChoice)setting("HVD_HIERARCHICAL", hierarchy_names, 3);
}

Term hierarchy_term(void)
{
    return text_term("find", "HVD_HIERARCHICAL=", hierarchy_names[hierarchy_choice()],
                     HAND_ON("HVD_HIERARCHICAL"));
}

bool hvd_compresses(void)
{
    static const char *const names[] = {"none", "bf16"};
    return setting("HVD_COMPRESSION", names, 2) == 1;
}

void hvd_check_settings(void)
{
    transport_choice();
    hierarchy_choice();
    hvd_compresses();
}
