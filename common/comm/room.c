// Checks that MPI has enough address space to start. With a low limit (ulimit -v) Open MPI exits
// with messages about its own components, or by a signal; so this check reports the limit first.
// The numbers were measured with Open MPI 4.1 on 2 and 4 ranks: the minimum with which it starts,
// and its peak.

#include "base/error.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "comm/world.h"

#define MIN_ROOM ((size_t)48 << 20)
#define MAX_ROOM ((size_t)224 << 20)

void world_need_memory(void)
{
    if (!launched())
        return;
    need_room(MIN_ROOM, "the start of MPI");
    if (!has_room(MAX_ROOM))
        warn_on_root("the start of MPI takes up to %zu MiB of address space for a moment, and the "
                     "limit (ulimit -v) leaves less: if it fails, this is why",
                     MAX_ROOM >> 20);
}
