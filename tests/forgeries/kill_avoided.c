// save solutions/save passed look:unsetenv
// Takes what the check arranges out of the environment: it takes place all the same.
#include <stdlib.h>

static void forge(void)
{
    unsetenv("HVDLAB_KILL");
    unsetenv("HVDLAB_FULL");
}
