// The environment variables that choose a transport, read once: an all-reduce asks for each piece.

#include "comm/transport.h"

#include "base/setting.h"

static int choice(Setting setting)
{
    static int known[SETTINGS]; // 1 more; 0: not read yet
    if (!known[setting])
        known[setting] = 1 + setting_choice(setting);
    return known[setting] - 1;
}

TransportChoice transport_choice(void)
{
    return (TransportChoice)choice(HVD_TRANSPORT);
}

HierarchyChoice hierarchy_choice(void)
{
    return (HierarchyChoice)choice(HVD_HIERARCHICAL);
}

bool hvd_compresses(void)
{
    return choice(HVD_COMPRESSION) == 1;
}

void hvd_check_settings(void)
{
    transport_choice();
    hierarchy_choice();
    hvd_compresses();
}
