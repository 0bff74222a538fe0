#!/usr/bin/env bash
# Usage: tests/mpi/test_two_levels.sh [--measure]
#
# What the all-reduce in two levels promises, on simulated hosts of any layout: hvd's promises hold; the sums
# are those of MPI's, within rounding, with the same bits on every rank and in every run; a host sends to
# others what the formula says, however the ranks were dealt out; what HVD_HIERARCHICAL chooses; and that
# gradients still travel while the backward pass goes on. With --measure: that the tables of lab 9 are made.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVDLAB_TRACE HVDLAB_FLAGS "${!HVD_@}"
limit=120

if [[ ${1:-} = --measure ]]; then
    export QUICK=1 FIGURES=$folder
    PATH=$PATH:/usr/sbin:/sbin command -v tc >/dev/null || skip "there is no tc (Debian package iproute2)"
    limit=600 run labs/09-many-machines/measure_hosts.sh time
    ! grep -q "does not let you make networks\|in this chroot\|Unknown device type\|qdisc kind is unknown" "$folder/err" || skip "$(cat "$folder/err")"
    [[ $status -eq 0 && $(grep -cE '^\|( [0-9.]+ \|){5}$' "$folder/out") -eq 8 && $(tail -n 1 "$folder/out") = "| they cross "* ]] ||
        fail "time: status $status: $(cat "$folder/out" "$folder/err")"
    grep -q "two levels" "$folder/crossover.svg" || fail "no figure"
    limit=600 succeeds labs/09-many-machines/measure_hosts.sh bytes
    awk -F '|' 'NR > 2 { if ($4 < 0.99 || $4 > 3.05 || (/two levels/ && $4 > 1.02)) exit 1 } END { exit NR != 8 }' "$folder/out" ||
        fail "bytes: $(cat "$folder/out")"
    conclude
fi

# ---- The promises of hvd. (One rank a host, hosts with different numbers of ranks.)

for layout in 0,1,2 1,0,0; do
    HVD_HIERARCHICAL=1 HVD_LAYOUT=$layout succeeds mpirun -np "$(tr , '\n' <<<"$layout" | wc -l)" "$build/tests/mpi/test_hvd"
done
HVD_COMPRESSION=bf16 HVD_HIERARCHICAL=1 HVD_FUSION_THRESHOLD=0 HVD_LAYOUT=0,1,0 \
    succeeds mpirun -np 3 "$build/tests/mpi/test_hvd"

# ---- Sums, of every operation and of counts that do not divide; of all ranks, of a group, and while one has
# joined. sums: prints a line for each: a name, and numbers that tell all bits.

cat >"$folder/sums.c" <<'END'
#include "hvdlab.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MANY (((size_t)2 << 20) + 17)

static void print(const char *name, size_t count, const float *values)
{
    uint32_t hash = 1;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *bytes = (const unsigned char *)&values[i];
        for (int b = 0; b < 4; b++)
            hash = (hash ^ bytes[b]) * 16777619u;
        sum += (double)values[i] * (double)(1 + i % 7);
    }
    printf("%s of %zu by rank %d: %08x %.9g\n", name, count, hvd_rank(), hash, sum);
}

static float *fill(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = 1.0f / (float)(1 + (i * 2654435761u + (unsigned)hvd_rank() * 40503u) % 10007);
    return values;
}

int main(void)
{
    static const char *const names[] = {"average", "sum", "min", "max"};
    static const size_t counts[] = {0, 1, 2, 3, 5, 1001, 30011};
    float *values = malloc(sizeof(float) * MANY);
    hvd_init();
    for (int c = 0; c < 7; c++)
        for (int op = HVD_AVERAGE; op <= HVD_MAX; op++) {
            hvd_allreduce(fill(values, counts[c]), counts[c], (HvdOp)op);
            print(names[op], counts[c], values);
        }
    hvd_allreduce(fill(values, MANY), MANY, HVD_AVERAGE);
    print("many", MANY, values);
    HvdGroup group = hvd_group_split(hvd_rank() == 1 ? -1 : 0);
    if (group.size > 0) {
        hvd_group_allreduce(group, fill(values, 50021), 50021, HVD_AVERAGE);
        print("group", 50021, values);
    }
    hvd_group_free(&group);
    if (hvd_rank() != 0) {
        hvd_allreduce(fill(values, 50021), 50021, HVD_AVERAGE);
        print("joined", 50021, values);
    }
    hvd_join();
    free(values);
    return 0;
}
END
"$build/compile-step" "$folder/sums.c" "$folder/sums" || fail "sums.c does not compile"

# sums LAYOUT CHOICE: traced, on standard output in an order of its own.
sums()
{
    rm -rf "$folder/trace"
    HVD_LAYOUT=$1 HVD_HIERARCHICAL=$2 succeeds mpirun -np "$(tr , '\n' <<<"$1" | wc -l)" -x HVDLAB_TRACE="$folder/trace" "$folder/sums"
    sort "$folder/out"
}

# counted RANK FUNCTION: how many all-reduces of the job or of a group went this way.
counted()
{
    grep -cE "\"collective_begin\".*\"function\":\"$2\",\"name\":\"(values|group)\",.*\"bytes\":[1-9]" "$folder/trace/rank-$1.jsonl"
}

# sent_between LAYOUT: of the last run, a line for each host: its name, and the bytes that it has sent to others.
sent_between()
{
    local rank=0 host
    for host in ${1//,/ }; do
        sed -n "s/.*\"between_hosts\".*\"bytes\":\([0-9]*\).*/$host \1/p" "$folder/trace/rank-$((rank++)).jsonl"
    done | awk '{ sent[$1] += $2 } END { for (host in sent) print host, sent[host] }' | sort
}

for layout in 0,1,0,1 2,0,1,0,0; do
    sums $layout 0 >"$folder/flat"
    [[ $(counted 0 two_levels) -eq 0 && $(counted 0 MPI_Allreduce) -gt 0 ]] || fail "$layout, 0: some go by two levels"
    sums $layout 1 >"$folder/first"
    [[ $(counted 0 two_levels) -gt 0 && $(counted 0 MPI_Allreduce) -eq 0 ]] || fail "$layout, 1: not all go by two levels"

    # Of all that were added up: sums of whole ranks with 0 of that which has joined, and a group's.
    hosts=$(tr , '\n' <<<"$layout" | sort -u | wc -l)
    sent_between $layout | awk -v hosts="$hosts" '
        BEGIN { all = 4 * (1 + 2 + 3 + 5 + 1001 + 30011) + 2097169 + 50021
                least = 4 * 2 * (hosts - 1) / hosts * all }
        $2 < least * 0.999 || $2 > (least + 4 * 2 * 50021) * 1.001 { print; bad = 1 }
        END { exit bad || NR != hosts }' || fail "$layout: not what a ring of hosts carries: $(sent_between $layout)"

    sums $layout 1 >"$folder/second"
    cmp -s "$folder/first" "$folder/second" || fail "$layout: other bits in another run: $(diff "$folder/first" "$folder/second")"
    awk '{ name = $1 $3; bits = $7 } name in seen && seen[name] != bits { exit 1 } { seen[name] = bits }' "$folder/first" ||
        fail "$layout: not the same bits on all ranks: $(<"$folder/first")"
    paste "$folder/flat" "$folder/first" |
        awk 'NF != 16 || $1 != $9 || $3 != $11 || ($8 - $16) ^ 2 > ($8 * 1e-6) ^ 2 { print; bad = 1 } END { exit bad }' ||
        fail "$layout: not MPI's sums"
done

# ---- The choice.

sums 0,1,0,1 auto >/dev/null
ways=$(grep -hE '"collective_begin".*"function":"(two_levels|MPI_Allreduce)","name":"(values|group)"' "$folder/trace/rank-0.jsonl" |
    sed 's/.*"function":"\([A-Za-z_]*\)".*"bytes":\([0-9]*\).*/\2 \1/' | sort -nu | xargs)
[[ $ways = "4 MPI_Allreduce 8 MPI_Allreduce 12 MPI_Allreduce 20 MPI_Allreduce 4004 MPI_Allreduce 120044 two_levels "*" two_levels" ]] ||
    fail "auto: $ways"
grep -q '"two_levels","name":"group","ranks":"0,2,3"' "$folder/trace/rank-0.jsonl" || fail "a group's all-reduce does not name its ranks"
sums 0,0,0 1 >/dev/null
[[ $(counted 0 two_levels) -eq 0 ]] || fail "one host: some go by two levels"

HVD_HIERARCHICAL=yes run mpirun -np 2 "$folder/sums"
[[ $status -eq 2 && $(grep -c "HVD_HIERARCHICAL=yes is not auto, 0 or 1" "$folder/err") -eq 1 ]] || fail "yes: $status: $(cat "$folder/err")"
small=(--data synthetic --images 48 --batch-size 12 --width 1 --epochs 1 --log-dir "$folder/logs" --loader-threads 1)
for program in "$folder/sums" "$build/solution_06"; do
    # shellcheck disable=SC2016 # for the other shell
    run mpirun -np 3 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || export HVD_HIERARCHICAL=1; exec "$0" "$@"' "$program" "${small[@]}"
    [[ $status -eq 2 && $(grep -cE "ranks? 0 and 2 find HVD_HIERARCHICAL=1, rank 1 finds HVD_HIERARCHICAL=auto .*-x HVD_HIERARCHICAL" "$folder/err") -eq 1 ]] ||
        fail "ranks that disagree: $status: $(cat "$folder/err")"
done

# ---- A training: its pieces begin to travel before the backward pass is done, and all of it is in the timeline.

HVD_LAYOUT=0,1,0 HVD_TIMELINE=$folder/timeline.json HVDLAB_TRACE=$folder/training HVD_FUSION_THRESHOLD=150000 \
    succeeds mpirun -np 3 "$build/solution_06" "${small[@]}"
awk '/"event":"gradient"/ { after += pieces > 0 }
    /"collective_begin".*"two_levels","name":"gradients"/ { pieces++ }
    /"event":"apply"/ { if (pieces && after < 1) exit 1; updates += pieces > 0; pieces = after = 0 }
    END { exit updates < 1 }' "$folder/training/rank-0.jsonl" || fail "no piece travels before the last gradient is there"
for phase in "reduce-scatter within the host" "all-reduce between hosts" "all-gather within the host"; do
    grep -q "\"name\":\"$phase\",\"cat\":\"wait\"" "$folder/timeline.json" || fail "\"$phase\" is not in the timeline"
done
for choice in 0 1; do
    HVD_HIERARCHICAL=$choice HVD_LAYOUT=0,1,0,0 succeeds mpirun -np 4 "$build/replay" \
        tests/golden/cases/mlp_sgd.safetensors --tolerance 1e-5
done

conclude
