#!/usr/bin/env bash
# Usage: test_sweep.sh [gpu]
#
# What `make sweep` promises (common/scripts/sweep.sh): results of every all-reduce on every number of
# workers, with right sums; the line through times that lie on one; a picture; a program whose sums are
# wrong, or that fails, spoils nothing. With `gpu`, where the build in BUILD has two GPUs, be they
# simulated ones: NCCL's, where each rank has one.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
limit=100
unset HVDLAB_FLAGS HVD_SWEEP "${!HVD_STALL@}"
out=$folder/build # so that nobody's results are overwritten
mkdir "$out"
ln -s "$(realpath "$build/sweep")" "$out/sweep"

# The machine may have no gnuplot: then what it is told to draw is looked at, and not the picture.
draws=yes
if ! command -v gnuplot >/dev/null; then
    draws=
    printf '#!/bin/sh\n' >"$folder/gnuplot" && chmod +x "$folder/gnuplot"
    PATH=$folder:$PATH
fi

# has COUNT PATTERN FILE: so many lines of the file match.
has()
{
    [[ $(grep -cE -e "$2" "$3") -eq $1 ]] || fail "not $1 lines \"$2\" in $(basename "$3"): $(head -c 3000 "$3")"
}

# ---- The lines through times that were made up.

# results NAME RANKS LATENCY SLOPE WRONG
results()
{
    for bytes in 4 64 1024 65536 1048576; do
        awk -v name="$1" -v ranks="$2" -v latency="$3" -v slope="$4" -v wrong="$5" -v bytes=$bytes 'BEGIN {
            time = latency + slope * bytes
            bus = bytes / time / 1e3 * 2 * (ranks - 1) / ranks
            printf "{\"collective\":\"%s\",\"ranks\":%d,\"oversubscribed\":%s,\"bytes\":%d,", name, ranks, (ranks > 2 ? "true" : "false"), bytes
            printf "\"microseconds\":%.6f,\"algorithm_gb_per_second\":1,\"bus_gb_per_second\":%.6f,\"wrong\":%d}\n", time, bus, wrong
        }'
    done
}
{
    results MPI_Allreduce 2 5 0.001 0
    results ring 2 20 0.0005 0
    results gather 2 20 0.0005 3
    # A small array without a time.
    results gather 4 20 0.0005 1 | head -n 1 | sed -E 's/("[a-z_]*(seconds|second)"):[0-9.]*/\1:null/g'
    results gather 4 20 0.0005 0
    results ring 4 30 0.002 0
    # Large arrays, whose times are far from a line, leave the latency alone.
    results bent 4 10 0.001 0 | sed 's/"microseconds":75\.[0-9]*/"microseconds":200/'
    results few 4 30 0.002 0 | head -n 1
} >"$folder/lines"
succeeds "$out/sweep" --report "$folder/lines" "$folder"
has 1 '^MPI_Allreduce +2  +5\.00 +1\.000 +1\.000$' "$folder/out"
has 1 '^ring +2  +20\.00 +2\.000 +2\.000$' "$folder/out"
has 1 '^ring +4\* +30\.00 +0\.500 +0\.750$' "$folder/out"
has 1 '^bent +4\* +(9\.[5-9]|10\.)' "$folder/out"
has 2 '^gather .*its sums are wrong$' "$folder/out"
has 1 '^few .*too few sizes$' "$folder/out"
has 1 '"latency_microseconds":.20,?$' "$folder/sweep.json"
has 4 '"latency_microseconds"' "$folder/sweep.json"
has 1 '"algorithm_gb_per_second":.0\.5,$' "$folder/sweep.json"
has 32 '"wrong"' "$folder/sweep.json"
has 1 '"microseconds":.null' "$folder/sweep.json"
has 2 '^"' "$folder/sweep-2.dat"
has 2 '^"' "$folder/sweep-4.dat"
has 1 '^1024 6\.024 6\.024 0\.16999 0\.16999$' "$folder/sweep-2.dat"
echo '{"collective":' >>"$folder/lines"
refused "this is no line of a sweep" "$out/sweep" --report "$folder/lines" "$folder"
refused "nowhere cannot be read" "$out/sweep" --report "$folder/nowhere" "$folder"

# ---- Programs that begin with a sweep: one that is right, and one that does not come to its end.

program() # NAME STATEMENTS
{
    cat >"$folder/$1.c" <<END
#include "hvdlab.h"
#include <stdlib.h>
static void allreduce(float *values, size_t count, MPI_Comm comm) { $2 }
int main(int argc, char **argv)
{
    hvd_init();
    Args args = parse_args(argc, argv);
    sweep_allreduce("$1", allreduce, (size_t)args.max_count);
    puts("now it trains");
}
END
    "$build/compile-step" "$folder/$1.c" "$folder/$1" 2>"$folder/err" || fail "$1: $(cat "$folder/err")"
}
program own 'MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, comm);'
program broken '(void)values, (void)comm; if (count == 1001) exit(3);'

HVD_SWEEP=$folder/no/file run mpirun -np 1 "$folder/own"
[[ $status -eq 2 && ! -s $folder/out ]] || fail "status $status: $(cat "$folder/out")"
has 1 "^own: HVD_SWEEP=$folder/no/file: the file cannot be written\$" "$folder/err"

# swept NAME RANKS COUNT: so many results, with right sums.
swept()
{
    local found
    found=$(tr -d '\n\t ' <"$out/sweep.json" | grep -oE "\"collective\":\"$1\",\"ranks\":$2,\"oversubscribed\":(true|false),\"bytes\":[0-9]+,\
\"microseconds\":[0-9.]+,\"algorithm_gb_per_second\":[0-9.e-]+,\"bus_gb_per_second\":[0-9.e-]+,\"wrong\":0" | wc -l)
    [[ $found -eq $3 ]] || fail "$found results of $1 on $2 workers instead of $3: $(tr -d '\n\t ' <"$out/sweep.json")"
}

sweeps()
{
    succeeds env BUILD="$out" BENCH=quick common/scripts/sweep.sh "$@"
    has 0 'now it trains' "$folder/out"
    [[ -z $draws || ( -s $out/sweep.svg && -s $out/sweep.png ) ]] || fail "nothing is drawn"
}

if [[ ${1:-} == gpu ]]; then
    sweeps
    swept nccl 2 8
    swept nccl 3 0
else
    sweeps "$folder/own" "$folder/broken"
    swept own 2 8 # 1, 4, 16, ... 4096, and 10000
    swept own 3 8
    has 1 '^make sweep: .*broken did not come to its end on 2 workers; it is left out from here on$' "$folder/err"
    has 0 'broken did not come to its end on 3 workers' "$folder/err"
    has 0 '"broken"' "$out/sweep.json"
    has 2 '^"' "$out/sweep-2.dat"
fi
swept MPI_Allreduce 2 8
swept MPI_Allreduce 3 8
conclude
