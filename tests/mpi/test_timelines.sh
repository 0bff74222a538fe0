#!/usr/bin/env bash
# What HVD_TIMELINE promises of whole jobs, beside what test_timeline.c looks at: the same between
# simulated machines, and where clocks differ and one goes faster; programs that never join a job; and
# one clear line where ranks disagree, or the file can't be written.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVDLAB_TRACE HVDLAB_FLAGS "${!HVD_@}"
small=(--data synthetic --images 48 --batch-size 12 --width 1 --epochs 1 --log-dir "$folder/logs" --loader-threads 1)
file=$folder/timeline.json

# Pieces that are under way at the same time.
HVD_LAYOUT=0,1 succeeds mpirun -np 2 "$build/tests/mpi/test_timeline"

# Rank 1 is on a machine of its own: its clock is ahead by 1000 s, and ten times too fast.
cat >"$folder/clock.c" <<'END_OF_C'
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int moved(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank && strcmp(rank, "1") == 0;
}
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static long begin;
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock != CLOCK_MONOTONIC || !moved())
        return status;
    long time = now->tv_sec * 1000000000 + now->tv_nsec;
    if (!begin)
        begin = time;
    time += 1000000000000 + 9 * (time - begin);
    now->tv_sec = time / 1000000000;
    now->tv_nsec = time % 1000000000;
    return status;
}
int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (moved() && strstr(path, "boot_id"))
        path = "/proc/version";
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
END_OF_C
"${CC:-gcc}" -D_GNU_SOURCE -shared -fPIC -o "$folder/clock.so" "$folder/clock.c" || fail "clock.c does not compile"
ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 TIMELINE_SECONDS=4 \
    succeeds mpirun -np 3 -x LD_PRELOAD="$folder/clock.so" "$build/tests/mpi/test_timeline"

# Without MPI; in a job that nobody joins, the first process writes.
HVD_TIMELINE=$file succeeds "$build/cut/baseline" "${small[@]}"
grep -q '"name":"rank 0 (.*, cpu 0)"' "$file" || fail "no rank 0 in the baseline's timeline"
[[ $(grep -c '"name":"step"' "$file") -eq 4 ]] || fail "the baseline's timeline has not its 4 steps"
rm "$file"
HVD_TIMELINE=$file succeeds mpirun -np 2 "$build/cut/baseline" "${small[@]}"
[[ $(grep -c '"name":"step"' "$file") -eq 4 ]] || fail "ranks that have not joined don't leave the first one's timeline"

# A root that fails leaves its own part.
cat >"$folder/fails.c" <<'END_OF_C'
#include "hvdlab.h"
#include <stdlib.h>
int main(void)
{
    hvd_init();
    hvd_barrier();
    exit(hvd_rank() == 0 ? 3 : 0);
}
END_OF_C
"$build/compile-step" "$folder/fails.c" "$folder/fails" || fail "fails.c does not compile"
rm "$file"
HVD_TIMELINE=$file run mpirun -np 2 "$folder/fails"
[[ $status -eq 3 ]] || fail "a root that fails: status $status instead of 3"
grep -q '"name":"MPI_Barrier","cat":"wait","pid":0' "$file" || fail "a root that fails leaves nothing: $(cat "$folder/err")"

# A relative path is the root's.
mkdir "$folder/elsewhere"
HVD_TIMELINE=here.json succeeds mpirun -np 2 -wdir "$folder/elsewhere" "$(realpath "$build")/solution_06" "${small[@]}"
[[ $(ls "$folder/elsewhere") == here.json ]] || fail "other files than here.json: $(ls "$folder/elsewhere")"

# Lines. (mpirun adds its own.)
HVD_TIMELINE=$folder/no/file run mpirun -np 2 "$build/solution_06" "${small[@]}"
[[ $status -eq 2 && $(grep -c "HVD_TIMELINE=$folder/no/file cannot be written: No such file" "$folder/err") -eq 1 ]] ||
    fail "a file that can't be written: status $status: $(cat "$folder/err")"
# shellcheck disable=SC2016 # for the other shell
HVD_TIMELINE=$file run mpirun -np 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || unset HVD_TIMELINE; exec "$0" "$@"' \
    "$build/solution_06" "${small[@]}"
[[ $status -eq 2 && $(grep -c "HVD_TIMELINE is not the same on all ranks" "$folder/err") -eq 1 ]] ||
    fail "ranks that disagree: status $status: $(cat "$folder/err")"
# The folder is gone when the job ends.
mkdir "$folder/short"
rm -f "$folder/out"
(
    for ((i = 0; i < 300 * patience; i++)); do
        ! grep -qs "^Epoch 2/" "$folder/out" || break
        sleep 0.1
    done
    rmdir "$folder/short"
) &
HVD_TIMELINE=$folder/short/file run mpirun -np 2 "$build/solution_06" "${small[@]}" --epochs 60
wait
[[ $status -eq 1 && $(grep -c "solution_06: HVD_TIMELINE=$folder/short/file cannot be written: No such file" "$folder/err") -eq 1 ]] ||
    fail "a folder that is gone: status $status: $(cat "$folder/err")"

conclude
