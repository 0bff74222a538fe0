#!/usr/bin/env bash
# Usage: measure_hosts.sh bytes|time|overlap|algorithms
#
# Tables measured again, on standard output. Of labs/09-many-machines/handout.md: an all-reduce in two levels beside
# flat ones, by four ranks on two hosts. Of lab 3's: a training whose gradients travel during the backward pass. And the
# table and the figure of labs/scaling.md: four algorithms of an all-reduce, by a rank on each of four hosts. The hosts
# are a cluster of this script's own (cluster.sh), linked at RATE (200mbit). `time` draws crossover.svg, too, in FIGURES
# (lab 9's figures).
#
# For time, ranks are dealt out in turn, and there is a pause before each call, as a training has. It is predicted
# from two lines time = latency + bytes / bandwidth (lab 3), each of an all-reduce of two ranks: on one host, and on
# two. A link lets `bucket` bytes pass at once after a pause (burst_of in cluster.sh); the line between hosts counts
# the bytes after these. The hierarchical all-reduce is one after the other. A flat one takes the fewest messages
# that there can be, log2(4) = 2, one of them between hosts, where both ranks of a host send all of their data over
# its link at a time; the larger ones, by halves and quarters, move as much there. With DELAY=2ms, say, links are
# late, where the kernel can do that; with QUICK=1 only small arrays are timed.

set -euo pipefail
export LC_ALL=C
build=$(realpath "${BUILD:-build}")
work=$build/measure/two_level # a cluster of its own
figures=${FIGURES:-labs/09-many-machines/figures}
most=4194304 # floats
bucket=72000
ring=solution_ring # or the student's, where there are no solutions
[[ -e solutions/ring.c ]] || ring=ring
[[ -z ${QUICK:-} ]] || most=16384

cluster()
{
    BUILD=$work HVDLAB_CLUSTER=$work/cluster common/scripts/cluster.sh "$@"
}

# up PROGRAM...: builds the programs and starts the cluster. Whatever ends this script ends it.
up()
{
    common/scripts/deps.sh install cluster >&2
    make -s "${@/#/${BUILD:-build}/}" >&2
    mkdir -p "$work" "$figures"
    trap 'cluster down' EXIT
    trap 'exit 130' INT TERM HUP
    eval "$(common/scripts/mpi.sh env)"
    HOSTS=${HOSTS:-2} RATE=${RATE:-200mbit} cluster up >/dev/null &
    wait $!
}

# on_hosts WORD...: mpirun on the cluster's two hosts.
on_hosts()
{
    cluster mpirun --hostfile "$work/cluster/hosts" "$@" >"$work/out" 2>"$work/err" &
    wait $! || { cat "$work/out" "$work/err" >&2; exit 1; }
}

# Of a figure: 200mbit is 200 Mbit/s.
panel() { sed -E 's,([0-9])([kmg])bit,\1 \U\2\Ebit/s,' <<<"panel links of ${RATE:-200mbit}; bytes; ms; log"; }

# ---- Bytes on the links.

# carried WORD...: runs it; what the busier of the links has sent meanwhile.
carried()
{
    RESET=1 cluster traffic >/dev/null
    on_hosts "$@"
    cluster traffic | awk 'NR > 1 && $2 > most { most = $2 } END { print most }'
}

write_program() # four all-reduces of 16 MiB
{
    cat >"$work/sums.c" <<'END'
#include "hvdlab.h"
static float values[4 << 20];
int main(void)
{
    hvd_init();
    for (int i = 0; i < 4; i++)
        hvd_allreduce(values, 4 << 20, HVD_AVERAGE);
    return 0;
}
END
    "$build/compile-step" "$work/sums.c" "$work/sums" >&2
}

# of_ring DEAL: the bytes for each byte of the data around lab 3's ring of all ranks: those of a training of 20
# updates but for one of 10, which begins alike.
of_ring()
{
    local words=(--map-by "$1" -np 4 "$build/$ring" --data synthetic --max-count 1 --batch-size 8 --epochs 1)
    local short long
    short=$(carried "${words[@]}" --images 320)
    long=$(carried "${words[@]}" --images 640)
    echo "$short $long" | awk '{ printf "%.2f", ($2 - $1) / (10 * 1630090 * 4) }'
}

# of_sums DEAL CHOICE: the same of hvd's, as HVD_HIERARCHICAL chooses it.
of_sums()
{
    carried --map-by "$1" -np 4 -x HVD_HIERARCHICAL="$2" "$work/sums" | awk '{ printf "%.2f", $1 / (4 * 4 * 4194304) }'
}

bytes_table()
{
    local deal crossing
    up compile-step $ring
    write_program
    printf '| dealt out | all-reduce | bytes on a link for each byte | formula |\n| --- | --- | --- | --- |\n'
    for deal in slot node; do
        [[ $deal = slot ]] && crossing=1 || crossing=2
        printf '| by %s | MPI_Allreduce | %s | as it chooses |\n' $deal "$(of_sums $deal 0)"
        printf '| by %s | a ring of all ranks | %s | 2 (4 - 1) / 4 * %d = %s |\n' $deal "$(of_ring $deal)" $crossing \
            "$(awk "BEGIN { print 1.5 * $crossing }")"
        printf '| by %s | two levels | %s | 2 (2 - 1) / 2 = 1 |\n' $deal "$(of_sums $deal 1)"
    done
}

# ---- Time.

# sweep NAME WORD...: the file NAME gets lines "COLLECTIVE BYTES MICROSECONDS".
sweep()
{
    rm -f "$work/sweep"
    on_hosts -x HVD_SWEEP="$work/sweep" "${@:2}" "$build/sweep" --max-count $most --pace 5
    sed 's/.*"collective":"\([^"]*\)".*"bytes":\([0-9]*\),"microseconds":\([0-9.]*\),.*/\1 \2 \3/' "$work/sweep" >"$work/$1"
}

# line_of NAME COLLECTIVE FREE: of the line through its smallest size and its largest one the latency in microseconds,
# and the microseconds for each byte after the first FREE.
line_of()
{
    awk -v name="$2" -v free="$3" '$1 != name { next }
        !latency { latency = $3 }
        $2 > free { slope = ($3 - latency) / ($2 - free) }
        END { print latency, slope + 0 }' "$work/$1"
}

# Of lines "COLLECTIVE BYTES MICROSECONDS" and the two lines: each size, the measured and the predicted times, and last
# of all the crossover, "at PREDICTED FROM TO", measured between two sizes.
compare() # WITHIN BETWEEN
{
    awk -v within="$1" -v between="$2" -v bucket=$bucket '
        function on_link(bytes) { return bytes > bucket ? (bytes - bucket) * b[2] : 0 }
        function flat_time(size) { return w[1] + size * w[2] + b[1] / 2 + on_link(2 * size) }
        function two_level_time(size) { return w[1] + size * w[2] + b[1] + on_link(size) }
        BEGIN { split(within, w, " "); split(between, b, " ") }
        $1 == "MPI_Allreduce" { sizes[++count] = $2; flat[count] = $3 }
        $1 == "two_levels" { two[++rows] = $3 }
        END {
            for (i = 1; i <= count; i++) {
                print sizes[i], flat[i], flat_time(sizes[i]), two[i], two_level_time(sizes[i])
                if (two[i] >= flat[i])
                    last = i
            }
            predicted = "none"
            for (size = 4; size < sizes[count] && predicted == "none"; size *= 1.01)
                if (two_level_time(size) < flat_time(size))
                    predicted = size
            print "at", predicted, last && last < count ? sizes[last] " " sizes[last + 1] : "none"
        }'
}

draw()
{
    local kind column=1 name
    {
        echo "figure An all-reduce of two ranks on each of two hosts"
        echo "about Milliseconds against bytes, on logarithmic axes; the table beside the figure has the numbers."
        panel
        for name in MPI_Allreduce "two levels"; do
            for kind in points line; do
                echo "$kind $name, $([[ $kind = line ]] && echo predicted || echo measured)"
                awk -v column=$((++column)) '{ print $1, $column / 1000 }' "$work/compared"
            done
        done
    } | LC_ALL=C awk -f common/scripts/lines.awk >"$figures/crossover.svg"
}

time_table()
{
    up sweep
    sweep within --host node0:2 -np 2
    sweep between --map-by node -np 2
    sweep both --map-by node -np 4
    compare "$(line_of within MPI_Allreduce 0)" "$(line_of between two_levels $bucket)" <"$work/both" >"$work/all"
    grep -v ^at "$work/all" >"$work/compared"
    draw
    awk 'function ms(us) { return sprintf(us < 9950 ? "%.2f" : "%.0f", us / 1000) }
        function size(bytes) { return bytes == "none" ? "no size" : bytes < 1000 ? sprintf("%.0f bytes", bytes) : sprintf("%.3g KB", bytes / 1000) }
        BEGIN { print "| bytes | MPI_Allreduce, ms | predicted | two levels, ms | predicted |\n| --- | --- | --- | --- | --- |" }
        $1 == "at" { printf "| they cross | measured | %s | predicted at | %s |\n", NF < 4 ? "at no size" : "from " size($3) " to " size($4), size($2); next }
        { printf "| %d | %s | %s | %s | %s |\n", $1, ms($2), ms($3), ms($4), ms($5) }' "$work/all"
}

# ---- Gradients that travel during the backward pass.

# patched NAME: the solution of overlap with this known mistake, as a program.
patched()
{
    cp "$work/cut/solutions/overlap.c" "$work/$1.c"
    patch -s "$work/$1.c" "tests/mistakes/overlap/$1.patch"
    "$build/compile-step" "$work/$1.c" "$work/$1" >&2
}

# row NAME WORD...: images/s of the second epoch, the median of three runs. By itself Open MPI's non-blocking all-reduce
# of such a size goes by way of one rank, and takes the link twice as long as recursive doubling (4) does.
row()
{
    local name=$1
    shift
    printf '| %s |' "$name"
    for _ in 1 2 3; do
        on_hosts --mca coll_libnbc_iallreduce_algorithm 4 "$@" --images 4096 --batch-size 128 --val-batch-size 4096 \
            --epochs 2 --log-dir "$work/logs"
        awk '/^Images\/sec: / { last = $2 } END { print last }' "$work/out"
    done | sort -n | awk 'NR == 2 { printf " %.0f |\n", $1 }'
}

overlap_table()
{
    up compile-step
    common/scripts/steps.sh cut "$work/cut" >&2
    patched started-too-late
    patched waits-at-once--allreduce
    "$build/compile-step" "$work/cut/solutions/overlap.c" "$work/overlap" >&2
    printf '| | images/s |\n| --- | --- |\n'
    row "all sums after the backward pass" --map-by node -np 2 "$work/started-too-late"
    row "a wait for each sum directly after its start" --map-by node -np 2 "$work/waits-at-once--allreduce"
    row "yours" --map-by node -np 2 "$work/overlap"
}

# ---- Open MPI's algorithms of MPI_Allreduce, by their numbers in its component "tuned".

algorithms=("2 tree" "3 recursive doubling" "6 halving and doubling" "4 ring")

algorithms_table()
{
    local algorithm name
    HOSTS=4 up sweep
    rm -f "$work/algorithms"
    for algorithm in "${algorithms[@]}"; do
        sweep one -np 4 --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm "${algorithm%% *}"
        awk -v name="${algorithm#* }" '$1 == "MPI_Allreduce" { print name ";" $2 ";" $3 }' "$work/one" >>"$work/algorithms"
    done
    {
        echo "figure Four algorithms of an all-reduce, by four ranks on four hosts"
        echo "about Milliseconds against bytes, on logarithmic axes; the table beside the figure has the numbers."
        panel
        for algorithm in "${algorithms[@]}"; do
            name=${algorithm#* }
            echo "line $name"
            awk -F ';' -v name="$name" '$1 == name { print $2, $3 / 1000 }' "$work/algorithms"
        done
    } | LC_ALL=C awk -f common/scripts/lines.awk >"${FIGURES:-labs/03-allreduce/figures}/algorithms.svg"
    awk -F ';' '
        function ms(us) { return sprintf(us < 9950 ? "%.2f" : "%.0f", us / 1000) }
        !($1 in column) { column[$1] = ++columns; names = names " | " $1 ", ms"; rule = rule " --- |" }
        !($2 in row) { row[$2] = ++rows; bytes[rows] = $2 }
        { time[row[$2], column[$1]] = ms($3) }
        END {
            print "| bytes" names " |\n| --- |" rule
            for (r = 1; r <= rows; r++) {
                line = "| " bytes[r]
                for (c = 1; c <= columns; c++)
                    line = line " | " time[r, c]
                print line " |"
            }
        }' "$work/algorithms"
}

case ${1:-} in
bytes | time | overlap | algorithms) "$1_table" ;;
*)
    echo "usage: measure_hosts.sh bytes|time|overlap|algorithms" >&2
    exit 2
    ;;
esac
