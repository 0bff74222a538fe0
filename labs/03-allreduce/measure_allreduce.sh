#!/usr/bin/env bash
# Usage: measure_allreduce.sh sweep|trainer|by_hand|fast|sparse
#
# The tables of labs/03-allreduce/handout.md, measured again, on standard output. The programs are the
# solutions, and untouched files that are cut for it, whatever a student has made of steps/.

. common/scripts/measuring.sh

# Microseconds for each all-reduce and number of ranks, by bytes: medians of three sweeps.
sweep_table()
{
    local n
    mkdir -p "$work"
    for n in 1 2 3; do
        make -s sweep SOLUTIONS=1 >&2
        cp "$build/sweep.json" "$work/sweep-$n.json"
    done
    awk '
        function median(a, b, c) { return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b) }
        BEGIN { count = split("4 65536 1048576 16777216", sizes, " ")
                split("gather ring MPI_Allreduce", names, " ")
                print "| | 4 bytes | 64 KiB | 1 MiB | 16 MiB |\n| --- | --- | --- | --- | --- |" }
        FNR == 1 { sweep++ }
        { gsub(/["\t, ]/, ""); split($0, part, ":") }
        part[1] == "collective" { name = part[2] }
        part[1] == "ranks" { ranks = part[2] }
        part[1] == "bytes" { bytes = part[2] }
        part[1] == "microseconds" { time[sweep, name, ranks, bytes] = part[2] + 0 }
        END { for (r = 2; r <= 4; r++)
                  for (n = 1; n <= 3; n++) {
                      printf "| %s, %d ranks |", names[n], r
                      for (s = 1; s <= count; s++) {
                          at = median(time[1, names[n], r, sizes[s]], time[2, names[n], r, sizes[s]], time[3, names[n], r, sizes[s]])
                          printf(at < 10 ? " %.1f |" : " %.0f |", at)
                      }
                      print ""
                  } }' "$work"/sweep-?.json
}

# Test accuracies of three runs of a program: accuracies OPTIMIZER FILE
accuracies()
{
    sed -n "s/^$1: test accuracy: //p" "$2" | awk '{ printf "%s%.2f", (NR > 1 ? ", " : ""), $1 }'
}

by_hand_table()
{
    local optimizer program
    compile by_hand
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

# Images/s of a training on two workers, in five rounds: median (min to max).
trainer_table()
{
    local each
    compile ring
    sed 's/hvd_use_allreduce(allreduce)/hvd_use_allreduce(NULL)/' "$work/solutions/ring.c" >"$work/library.c"
    "$build/compile-step" "$work/library.c" "$work/library" >&2
    "$build/compile-step" "$work/solutions/gather.c" "$work/gather" >&2
    for _ in 1 2 3 4 5; do
        for each in yours gather library; do
            run 2 "$work/$each" --max-count 16 --images 6000 --epochs 1 | sed -n "s/^Images.sec: /$each /p"
        done
    done | sort -k 1,1 -k 2,2g | awk '
        { value[$1, ++count[$1]] = $2 }
        function cell(name) { return sprintf("%.0f (%.0f to %.0f)", value[name, 3], value[name, 1], value[name, 5]) }
        END { print "| | `ring` | `gather` | the library |\n| --- | --- | --- | --- |"
              printf "| images/s | %s | %s | %s |\n", cell("yours"), cell("gather"), cell("library") }'
}

# fast_row NAME PROGRAM: the medians of three runs on two workers.
fast_row()
{
    for _ in 1 2 3; do
        run 2 "$2" --max-count 17100000 --data synthetic --images 64 --epochs 1
    done | name=$1 awk '
        $1 == 17100000 { time[++times] = $3 / 1000 }
        / times the bandwidth / { ratio[++ratios] = $2 }
        function median(of, first, second) {
            first = of[1] < of[2] ? of[1] : of[2]
            second = of[1] < of[2] ? of[2] : of[1]
            return of[3] < first ? first : of[3] > second ? second : of[3]
        }
        END { printf "| %s | %.1f | %.2f |\n", ENVIRON["name"], median(time), median(ratio) }'
}

fast_table()
{
    local kib floats
    compile fast_ring
    echo '| | ms | times the bandwidth of MPI_Allreduce |'
    echo '| --- | --- | --- |'
    fast_row "a chunk at a time" "$work/untouched"
    for kib in 32 64 128 256 512 1024 4096; do
        floats=$((kib * 256))
        sed "s/PIECE = 1 << 16/PIECE = $floats/" "$work/solutions/fast_ring.c" >"$work/fast_ring.c"
        "$build/compile-step" "$work/fast_ring.c" "$work/yours"
        fast_row "pieces of $kib KiB" "$work/yours"
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
sweep | trainer | by_hand | fast | sparse) "$1_table" ;;
*)
    echo "usage: measure_allreduce.sh sweep|trainer|by_hand|fast|sparse" >&2
    exit 2
    ;;
esac
