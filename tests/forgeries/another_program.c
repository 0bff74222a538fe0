// 1 steps/step_01 not-all-ranks-train|crashed|UNTOUCHED|hung look:execl
// Becomes another program.
#include <unistd.h>

static void forge(void)
{
    execl("/bin/true", "true", (char *)0);
}
