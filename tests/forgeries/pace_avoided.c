// bounded solutions/bounded not-as-arranged|passed look:setenv
// Is as fast as it can be where the check has a worker be slow.
#include <stdlib.h>
#include <string.h>

static void forge(void)
{
    char *flags = strdup(getenv("HVDLAB_FLAGS")), *pace = strstr(flags, "--pace");
    if (pace)
        memset(pace, ' ', strlen(pace));
    setenv("HVDLAB_FLAGS", flags, 1);
}
