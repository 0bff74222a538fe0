// The environment variables that choose a transport.

#include "comm/transport.h"

#include "base/setting.h"

TransportChoice transport_choice(void)
{
    return (TransportChoice)setting_choice(HVD_TRANSPORT);
}

HierarchyChoice hierarchy_choice(void)
{
    return (HierarchyChoice)setting_choice(HVD_HIERARCHICAL);
}

bool hvd_compresses(void)
{
    return setting_choice(HVD_COMPRESSION) == 1;
}

void hvd_check_settings(void)
{
    transport_choice();
    hierarchy_choice();
    hvd_compresses();
}
