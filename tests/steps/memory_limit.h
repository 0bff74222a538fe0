// A limit on the memory of a process and of all that it starts, by a cgroup (the kernel's
// Documentation/admin-guide/cgroup-v2.rst, section "Memory", and cgroup-v1/memory.rst).

#ifndef HVDLAB_STEPS_MEMORY_LIMIT_H
#define HVDLAB_STEPS_MEMORY_LIMIT_H

#include <stdbool.h>

// Makes a cgroup and returns its folder, which the caller gives to memory_limit_end. NULL where the
// system does not let this process make one.
char *memory_limit_begin(long long bytes);

// Moves the calling process into the cgroup. For a child between fork and exec.
void memory_limit_join(const char *folder);

// Removes the cgroup, which no living process may be in, and frees `folder`. True if the kernel has
// killed a process because the limit was reached. NULL: does nothing.
bool memory_limit_end(char *folder);

#endif
