#!/usr/bin/env bash
# Usage: measure_allreduce.sh sweep|by_hand|sparse
#
# The tables of labs/03-allreduce/handout.md, measured again, on standard output. The programs are the
# solutions, and untouched files that are cut for it, whatever a student has made of steps/.

set -euo pipefail
build=${BUILD:-build}

# run N PROGRAM WORD...
run()
{
    common/scripts/mpi.sh run "$@" 2>/dev/null
}

# Microseconds for each all-reduce and number of ranks, by bytes.
sweep_table()
{
    make -s sweep SOLUTIONS=1 >&2
    awk '
        BEGIN { count = split("4 65536 1048576 16777216", sizes, " ")
                split("gather ring MPI_Allreduce", names, " ")
                print "| | 4 bytes | 64 KiB | 1 MiB | 16 MiB |\n| --- | --- | --- | --- | --- |" }
        { gsub(/["\t, ]/, ""); split($0, part, ":") }
        part[1] == "collective" { name = part[2] }
        part[1] == "ranks" { ranks = part[2] }
        part[1] == "bytes" { bytes = part[2] }
        part[1] == "microseconds" { time[name, ranks, bytes] = part[2] }
        END { for (r = 2; r <= 4; r++)
                  for (n = 1; n <= 3; n++) {
                      printf "| %s, %d ranks |", names[n], r
                      for (s = 1; s <= count; s++) {
                          at = time[names[n], r, sizes[s]]
                          printf(at < 10 ? " %.1f |" : " %.0f |", at)
                      }
                      print ""
                  } }' "$build/sweep.json"
}

# Test accuracies of three runs of a program: accuracies OPTIMIZER FILE
accuracies()
{
    sed -n "s/^$1: test accuracy: //p" "$2" | awk '{ printf "%s%.2f", (NR > 1 ? ", " : ""), $1 }'
}

by_hand_table()
{
    local work=$build/measure optimizer program
    mkdir -p "$work"
    common/scripts/steps.sh cut "$work" >&2
    make -s "$build/compile-step" >&2
    "$build/compile-step" "$work/steps/by_hand.c" "$work/untouched" 2>/dev/null
    "$build/compile-step" "$work/solutions/by_hand.c" "$work/yours"
    for program in untouched yours; do
        for _ in 1 2 3; do
            run 4 "$work/$program" --epochs 1 --images 6000 --log-dir "$work/logs"
        done >"$work/$program.out"
    done
    printf '| | untouched | yours |\n| --- | --- | --- |\n'
    for optimizer in RMSprop Adagrad; do
        printf '| %s | %s | %s |\n' $optimizer "$(accuracies ${optimizer,,} "$work/untouched.out")" \
            "$(accuracies ${optimizer,,} "$work/yours.out")"
    done
}

sparse_table()
{
    local sentences
    make -s "$build/solution_sparse" >&2
    printf '| sentences | words, about | rows named | KB as rows | ms as rows | ms as a table |\n'
    printf '| --- | --- | --- | --- | --- | --- |\n'
    for sentences in 32 128 512 3000; do
        run 4 "$build/solution_sparse" --batch-size $sentences | awk -v sentences=$sentences '
            $1 == "table" { table = $(NF - 1) }
            $1 == "rows" { printf "| %d | %d | %d | %s | %.1f | %.1f |\n", sentences, 8 * sentences, $2, $4, $(NF - 1), table }'
    done
}

case ${1:-} in
sweep | by_hand | sparse) "$1_table" ;;
*)
    echo "usage: measure_allreduce.sh sweep|by_hand|sparse" >&2
    exit 2
    ;;
esac
