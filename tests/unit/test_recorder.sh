#!/usr/bin/env bash
# Usage: tests/unit/test_recorder.sh
#
# Every function of MPI that moves data, or that starts, tests, completes, cancels or frees a request, is known to
# the recorder: mpi.h's list is walked through. hvdlab.h's functions that move data leave events, too. And events have
# the right counts, whatever the form of the call.

. tests/lib.sh

# Functions whose parameters look so, and which move nothing: conversions of handles, attributes, status fields, data
# that are packed or added up where they are, requests whose operation is the program's own, and tools.
harmless='_(c2f|f2c|c2f08|f082c)$|attr|_Status_|Attr_|_(Un)?[Pp]ack(_external)?$|_Grequest_|^MPI_T_|_Type_|_errhandler$|_[gs]et_(info|name|group)|_Reduce_local$'

flags=$(pkg-config --cflags ompi-c 2>/dev/null || mpicc --showme:compile)
# shellcheck disable=SC2086 # words
printf '%s\n' '#include <mpi.h>' '#if __has_include(<mpi-ext.h>)' '#include <mpi-ext.h>' '#endif' |
    ${CC:-cc} -E -P $flags -x c - | tr '\n' ' ' | tr ';' '\n' >"$folder/mpi.h"
grep -oE '\bMPIX?_[A-Za-z_0-9]+ *\([^()]*\)' "$folder/mpi.h" |
    grep -E 'MPI_(Request|Message)|void *\*.*MPI_(Comm|Win|File|Datatype)' | sed 's/ *(.*//' | grep -vE "$harmless" |
    sort -u >"$folder/moving"
nm -g --defined-only "$build/hvdlab.o" | awk '{ print $3 }' | sort -u >"$folder/known"
[[ $(wc -l <"$folder/moving") -gt 100 ]] || fail "mpi.h has $(wc -l <"$folder/moving") functions that move data"
missing=$(comm -23 "$folder/moving" "$folder/known" | tr '\n' ' ')
[[ -z $missing ]] || fail "the recorder does not know $missing"

# ---- hvdlab.h: each function of hvd's that takes or returns values leaves an event of its name, or one of MPI's.
${CC:-cc} -E -P -Icommon $flags -x c common/hvdlab.h | tr '\n' ' ' | tr ';' '\n' |
    grep -oE '\bhvd_[a-z_]+\([^()]*(float|int|void) \*[a-z_]+[^()]*\)' | sed 's/(.*//' | sort -u >"$folder/hvd"
cat >"$folder/hvd.c" <<'END'
#include "hvdlab.h"
int main(void)
{
    hvd_init();
    HvdGroup world = hvd_world();
    float values[4] = {0}, part[4];
    int numbers[4] = {0};
    size_t total, counts[4];
    seconds_now();
    hvd_allreduce(values, 3, HVD_SUM);
    hvd_allreduce_ints(numbers, 3, HVD_SUM);
    free(hvd_allgather(values, 3, &total));
    free(hvd_allgather_ints(numbers, 3, &total, counts));
    hvd_reduce_scatter(values, 3, part, HVD_SUM);
    hvd_broadcast(values, 3, 0);
    hvd_broadcast_bytes(values, 3, 0);
    hvd_group_of_ranks((int[]){0, 1}, 2);
    hvd_group_allreduce(world, values, 3, HVD_SUM);
    free(hvd_group_allgather(world, values, 3, &total));
    free(hvd_group_allgather_ints(world, numbers, 3, &total, counts));
    hvd_group_broadcast(world, values, 3, 0);
    return 0;
}
END
sed -i 's/#include "hvdlab.h"/&\n#include <stdlib.h>/' "$folder/hvd.c"
succeeds "$build/compile-step" "$folder/hvd.c" "$folder/hvd-program"
HVDLAB_TRACE=$folder/hvd-trace succeeds common/scripts/mpi.sh run 2 "$folder/hvd-program"
while read -r name; do
    grep -q "$name(" "$folder/hvd.c" || fail "$name is not tried here"
    grep -q "\"event\":\"call\".*\"function\":\"$name\"" "$folder/hvd-trace/rank-0.jsonl" || fail "$name leaves no event"
done <"$folder/hvd"

# ---- Counts, on two ranks: 3 floats of each, in every form.
cat >"$folder/counts.c" <<'END'
#include <stdlib.h>
#include "hvdlab.h"
#define COMM MPI_FLOAT, MPI_COMM_WORLD
int main(void)
{
    hvd_init();
    int rank = hvd_rank(), other = 1 - rank, counts[2] = {3, 3}, begin[2] = {0, 3}, index, done;
    float a[8] = {0}, b[8] = {0};
    MPI_Request request, two[2];
    MPI_Message message;
    MPI_Reduce_scatter(a, b, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Alltoallv(a, counts, begin, MPI_FLOAT, b, counts, begin, COMM);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, counts, begin, COMM);
    MPI_Iallgather(a, 3, MPI_FLOAT, b, 3, COMM, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iallgatherv(a, 3, MPI_FLOAT, b, counts, begin, COMM, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Isend(a, 3, MPI_FLOAT, other, 6, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Recv(b, 3, MPI_FLOAT, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    // A call that MPI refuses starts nothing.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Isend(a, 3, MPI_FLOAT, 77, 6, MPI_COMM_WORLD, &request);
    // A handle that MPI gives again; persistent ones; a message that was probed.
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv_init(b, 3, MPI_FLOAT, other, 7, MPI_COMM_WORLD, &two[0]);
    MPI_Send_init(a, 3, MPI_FLOAT, other, 7, MPI_COMM_WORLD, &two[1]);
    for (int i = 0; i < 2; i++) {
        MPI_Startall(2, two);
        MPI_Waitany(2, two, &index, MPI_STATUS_IGNORE);
        MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&two[0]);
    MPI_Request_free(&two[1]);
    MPI_Isend(a, 3, MPI_FLOAT, other, 8, MPI_COMM_WORLD, &request);
    MPI_Mprobe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(b, 3, MPI_FLOAT, &message, MPI_STATUS_IGNORE);
    do
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    while (!done);
    return 0;
}
END
sed -i '/MPI_Put/d' "$folder/counts.c"
succeeds "$build/compile-step" "$folder/counts.c" "$folder/counts"
HVDLAB_TRACE=$folder/trace succeeds common/scripts/mpi.sh run 2 "$folder/counts"
trace=$folder/trace/rank-0.jsonl

# begun FUNCTION PATTERN TIMES: so many such calls have begun.
begun()
{
    local count
    count=$(grep -c "_begin\".*\"function\":\"$1\",\"name\":\"MPI_COMM_WORLD\".*$2" "$trace")
    [[ $count -eq $3 ]] || fail "$1: $count calls instead of $3 with $2: $(grep "_begin.*$1\"" "$trace")"
}
begun MPI_Reduce_scatter '"bytes":24' 1
begun MPI_Alltoallv '"bytes":12' 1 # what goes to the other rank
begun MPI_Allgatherv '"bytes":12' 1
begun MPI_Iallgather '"bytes":12' 1
begun MPI_Iallgatherv '"bytes":12' 1
begun MPI_Start '"to":1,"to_tag":7,"bytes":12' 2
begun MPI_Start '"from":1,"from_tag":7,"room":12' 2
begun MPI_Mrecv '"from":-1,"from_tag":8,"room":12' 1
# Each number that was given is waited for once, but that of the request that was freed.
given=$(grep -oE '"request":[1-9][0-9]*' "$trace" | grep -oE '[0-9]+' | sort -n | tr '\n' ' ')
waited=$(grep '"wait_end"' "$trace" | grep -oE '"requests":"[^"]*"' | grep -oE '[0-9]+' | sort -n | tr '\n' ' ')
[[ $given = "1 2 3 4 5 6 7 8 " ]] || fail "numbers of requests: $given"
[[ $waited = "1 2 4 5 6 7 8 " ]] || fail "requests that were waited for: $waited"
conclude
