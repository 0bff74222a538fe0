// Prints which workers are on the same host, as the workers report it.

#include "lessons/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/memory.h"
#include "base/format.h"
#include "comm/agreement.h"
#include "observe/trace.h"
#include "comm/world.h"

// A worker's report. `members` ends before the first -1, or with the array: one for each worker.
typedef struct {
    char host[MPI_MAX_PROCESSOR_NAME];
    int local_rank, local_size;
    int members[];
} HostLine;

static size_t line_size(void)
{
    return sizeof(HostLine) + (size_t)world_size() * sizeof(int);
}

// The members of a communicator, as ranks of the job.
static void find_members(MPI_Comm comm, int members[])
{
    for (int i = 0; i < world_size(); i++)
        members[i] = -1;
    if (comm != MPI_COMM_NULL)
        world_ranks(comm, members);
}

// "0,2,3"; the caller frees it.
static char *members_text(const HostLine *line)
{
    int count = 0;
    while (count < world_size() && line->members[count] >= 0)
        count++;
    return numbers_text(line->members, count);
}

static void print_line(int rank, const HostLine *line)
{
    char *members = members_text(line);
    printf("%4d  %-16s  %10d  %10d  %s\n", rank, line->host, line->local_rank, line->local_size,
           *members ? members : "none");
    free(members);
}

static void print_lines(const char *lines)
{
    printf("rank  %-16s  local rank  local size  the workers of its group\n", "host");
    for (int rank = 0; rank < world_size(); rank++)
        print_line(rank, (const HostLine *)(const void *)(lines + (size_t)rank * line_size()));
    fflush(stdout);
}

static HostLine *own_line(int local_rank, int local_size, MPI_Comm local)
{
    HostLine *line = allocate(1, line_size());
    int length;
    MPI_Get_processor_name(line->host, &length);
    line->local_rank = local_rank;
    line->local_size = local_size;
    find_members(local, line->members);
    return line;
}

void show_placement(int local_rank, int local_size, MPI_Comm local)
{
    world_need(__func__);
    HostLine *line = own_line(local_rank, local_size, local);
    char *members = members_text(line);
    trace("placement", TEXT("host", line->host), NUMBER("local_rank", local_rank),
          NUMBER("local_size", local_size), TEXT("group", members));
    agree(&(Collective){.name = __func__, .channel = "values"}, world_comm(WORLD_VALUES));
    bool root = world_rank() == 0;
    char *lines = root ? allocate((size_t)world_size(), line_size()) : NULL;
    int bytes = (int)line_size();
    PMPI_Gather(line, bytes, MPI_BYTE, lines, bytes, MPI_BYTE, 0, world_comm(WORLD_VALUES));
    agreed_call_ends();
    if (root)
        print_lines(lines);
    free(lines);
    free(members);
    free(line);
}
