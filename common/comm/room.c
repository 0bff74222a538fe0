// Room for MPI's start. Where a limit on address space (ulimit -v) leaves too little, Open MPI ends
// with lines about its own parts, or by a signal; so what it needs is said before. How much that is
// was measured with Open MPI 4.1 on 2 and 4 ranks: the least with which it starts, and the most
// that it takes for a moment.

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
