#!/usr/bin/env bash
# `make plan`: its numbers against what the labs' programs hold (--show-memory) and send (traces, on 1 to 4 ranks), and against
# a published table. Tolerances:
# - parameters and values of a model, as its compile() traces it: 0.02 %, for the digits that plan prints;
# - weights, gradients, state, bytes sent: 0.2 % less to 0.6 % more. Of small numbers plan prints three digits, --show-memory counts
#   batch norm's moving statistics as weights, and parts of a layer differ by one number where N does not divide it;
# - activations: to twice as many bytes, since gradients of values and working memory of layers are there as well.
# What no program of the kit holds or sends is compared with sums made by hand.

. tests/lib.sh
limit=120
plan=$build/plan
usual=(0.998 1.006)

# predicted WAY LINE FIELD PLAN-WORD...: number FIELD of a line of `WAY`, behind the formula, in bytes.
predicted()
{
    "$plan" "${@:4}" >"$folder/plan" || fail "plan ${*:4}: status $?"
    awk -v way="$1" -v line="$2" -v field="$3" '
        index($0, way ":") == 1 { inside = 1 }
        /^$/ { inside = 0 }
        inside && $1 == line { sub(/^[^=]* = /, ""); unit = / GB/ ? 1e9 : 1e6; gsub(/in .* = /, ""); gsub(/[^0-9.]+/, " ")
            split($0, numbers, " "); printf "%.0f\n", numbers[field] * unit }' "$folder/plan"
}

# near WHAT MEASURED LEAST MOST PREDICTED: measured / predicted is from LEAST to MOST.
near()
{
    awk -v a="$2" -v least="$3" -v most="$4" -v b="$5" 'BEGIN { exit !(a ~ /[0-9]/ && b ~ /[0-9]/ && a >= least * b && a <= most * b) }' ||
        fail "$1: measured $2, predicted $5 (from $3 to $4 times as much is right)"
}

# ---- ZeRO's table: Rajbhandari et al., 2020, figure 1, GB of a device of 64 for 7.5 billion parameters.

paper=$(for way in "step 6" "zero, the state only" zero gathered; do
    predicted "$way" holds 4 7.5e9 64 --bytes 2,2,12 | awk '{ printf "%.1f ", $1 / 1e9 }'
done)
[[ $paper == "120.0 31.4 16.6 1.9 " ]] || fail "ZeRO's table is 120.0 31.4 16.6 1.9, not $paper"

# ---- What programs hold, and send in a step.

# job N PROGRAM FLAG...: runs it on N ranks, two steps of 32 images a rank; its trace is rank 0's.
job()
{
    rm -rf "$folder/trace"
    HVDLAB_TRACE=$folder/trace succeeds common/scripts/mpi.sh run "$1" "$build/$2" --data synthetic --epochs 1 --batch-size 32 \
        --val-batch-size 32 "${@:3}"
    trace=$folder/trace/rank-0.jsonl
}

# memory FIELD: rank 0's, by --show-memory; 2 weights, 3 gradients, 4 optimizer's state, 5 activations.
memory()
{
    awk -v field="$1" '/^rank +weights/ { getline; printf "%.0f\n", 1e6 * $field; exit }' "$folder/out"
}

# holds WHAT WAY PLAN-WORD...: all that --show-memory printed.
holds()
{
    local what=("" "" weights gradients state activations)
    for field in 2 3 4; do
        near "$1: ${what[field]}" "$(memory $field)" "${usual[@]}" "$(predicted "$2" holds $((field - 1)) "${@:3}")"
    done
    near "$1: activations" "$(memory 5)" 1 2 "$(predicted "$2" holds 4 "${@:3}")"
}

# bytes FUNCTION NAME: those of the calls, for each step of the training. calls: their number.
calls_with()
{
    awk -v call="\"function\":\"$2\",\"name\":\"$3\"" -v what="$1" '
        /"event":"step"/ { steps++ }
        /_begin"/ && index($0, call) { match($0, /"bytes":[0-9]+/); bytes += substr($0, RSTART + 8, RLENGTH - 8); calls++ }
        END { printf "%.0f\n", (what == "bytes" ? bytes : calls) / steps }' "$trace"
}
bytes() { calls_with bytes "$@"; }
calls() { calls_with calls "$@"; }

# messages WHAT MEASURED WAY PLAN-WORD...
messages()
{
    local number
    number=$(predicted "$3" sends 2 "${@:4}")
    [[ $(($2)) -eq $((number / 1000000)) ]] || fail "$1: $2 messages, predicted $((number / 1000000))"
}

# described WHAT IMAGES WAY PLAN-WORD...: parameters, and values for a rank's IMAGES, of the model that its compile() has traced;
# of several models those of the largest. 64 bytes each, since plan prints three digits behind the point.
described()
{
    local parameters values
    read -r parameters values < <(awk '
        /"event":"compile"/ {
            count = split($0, layers, /\\n/)
            p = v = 0
            for (i = 1; match(layers[i], /[0-9]+x[0-9]+x[0-9]+/); i++) {
                split(substr(layers[i], RSTART, RLENGTH), shape, "x")
                units = shape[3]; size[i] = shape[1] * shape[2] * units; depth[i] = units
                from = match(layers[i], /of layers? [0-9]+/) ? substr(layers[i], RSTART, RLENGTH) : 0
                gsub(/[^0-9]/, "", from); from++
                bias = layers[i] !~ /without bias/
                edge = match(layers[i], /, size [0-9]+/) ? substr(layers[i], RSTART + 7, RLENGTH - 7) : 0
                p += layers[i] ~ /: dense/ ? (size[from] + bias) * units : layers[i] ~ /: batch_norm/ ? 2 * units : \
                    layers[i] ~ /: conv2d/ ? (edge * edge * depth[from] + bias) * units : 0
                v += i == 1 || layers[i] ~ /: (dense|batch_norm|conv2d|max_pool|add)/ ? size[i] : 0
            }
            if (p > parameters) { parameters = p; values = v }
        }
        END { print parameters, values }' "$trace")
    near "$1: parameters" $((64 * parameters)) 0.9998 1.0002 "$(predicted "$3" holds 1 "${@:4}" --bytes 64,64,64)"
    near "$1: values" $((64 * values * $2)) 0.9998 1.0002 "$(predicted "$3" holds 4 "${@:4}" --bytes 64,64,64)"
}

# A ring's bytes: 2 (N - 1) / N of an all-reduce's, half of that for a reduce-scatter, and N - 1 of the parts of an all-gather.
for n in 1 2 3 4; do
    images=$((64 * n)) batch=$((32 * n))

    job $n solution_06 --width 1 --images $images --show-memory
    described "step 6 on $n" 32 "step 6" wrn:1 $n --batch $batch
    holds "step 6 on $n" "step 6" wrn:1 $n --bytes 4,4,0 --batch $batch
    near "step 6 on $n: sent" $(($(bytes MPI_Allreduce gradients) * 2 * (n - 1) / n)) "${usual[@]}" \
        "$(predicted "step 6" sends 1 wrn:1 $n --batch $batch)"
    messages "step 6 on $n" $(($(calls MPI_Allreduce gradients) * 2 * (n - 1))) "step 6" wrn:1 $n

    job $n solution_zero --base-lr 0.001 --images $images --show-memory
    described "zero on $n" 32 zero chain:9 $n --batch $batch
    holds "zero on $n" zero chain:9 $n --batch $batch
    near "zero on $n: sent" $(($(bytes MPI_Reduce_scatter values) * (n - 1) / n + $(bytes MPI_Allgatherv values) * (n - 1))) \
        "${usual[@]}" "$(predicted zero sends 1 chain:9 $n --batch $batch)"
    # On one rank P/N + L is more than P, of plan's gradients and of those that the program holds.
    [[ $(grep -c '^whole part .*more than P$' "$folder/plan") -eq $((n == 1)) ]] || fail "more than P on $n: $(grep -A 1 ^zero: "$folder/plan")"
    messages "zero on $n" $((($(calls MPI_Reduce_scatter values) + $(calls MPI_Allgatherv values)) * (n - 1))) zero chain:9 $n

    # Each layer is whole once at a time. Its tests come behind the last step. (On one rank as zero's.)
    job $n solution_gathered --base-lr 0.001 --images $images --show-memory
    sed -i "$(($(sed -n '/"event":"step"/=' "$trace" | tail -n 1) + 1))"',$d' "$trace"
    holds "gathered on $n" gathered chain:9 $n --batch $batch
    near "gathered on $n: sent" $(($(bytes MPI_Reduce_scatter values) * (n - 1) / n + $(bytes MPI_Allgatherv values) * (n - 1))) \
        "${usual[@]}" "$(predicted gathered sends 1 chain:9 $n --batch $batch)"
    messages "gathered on $n" $((($(calls MPI_Reduce_scatter values) + $(calls MPI_Allgatherv values)) * (n - 1))) gathered chain:9 $n

    # All compute the same images. The last all-reduce of a training step is the backward pass's; those of the test come later.
    job $n solution_tensor --base-lr 0.05 --images 64
    sed -i '0,/"event":"compile"/{/"event":"compile"/d}' "$trace" # the undivided model
    described "tensor on $n" 32 tensor tensor $n --batch 32
    read -r sent number < <(awk '
        /"custom_begin"/ { backward = /"pass":"backward"/ }
        /"collective_begin","t":[^,]*,"function":"MPI_Allreduce"/ { match($0, /"bytes":[0-9]+/); calls++
            sum += substr($0, RSTART + 8, RLENGTH - 8); if (backward) { sent = sum; number = calls } }
        END { print sent / 2, number / 2 }' "$trace")
    near "tensor on $n: sent" $((sent * 2 * (n - 1) / n)) "${usual[@]}" "$(predicted tensor sends 1 tensor $n --batch 32)"
    messages "tensor on $n" $((number * 2 * (n - 1))) tensor tensor $n
done

# The messages that a ring of sends and receives really sends.
job 3 solution_ring --max-count 1 --images 192
described "a ring on 3" 32 "step 6" lenet 3 --batch 96
near "a ring on 3: sent" "$(bytes MPI_Sendrecv gradients)" "${usual[@]}" "$(predicted "step 6" sends 1 lenet 3)"

# A message of split is a micro-batch of the 512 numbers that the first half's model gives.
rm -rf "$folder/trace"
HVDLAB_DEVICES=2 HVDLAB_TRACE=$folder/trace succeeds "$build/solution_split" --data synthetic --epochs 1 --images 256 --batch-size 128 \
    --micro-batches 4 --base-lr 0.01
trace=$folder/trace/rank-0.jsonl
width=$(sed -n '/"event":"compile".*"stage":0/s/.* 1x1x\([0-9]*\), read as logits.*/\1/p' "$trace")
for stage in 0 1; do
    sends=$(grep -c "\"event\":\"stage_begin\".*\"stage\":$stage,\"call\":\"send\"" "$trace")
    near "split: sent by stage $stage" $((sends / 2 * 128 / 4 * width * 4)) "${usual[@]}" \
        "$(predicted split sends 1 chain:5 2 --batch 128 --micro-batches 4)"
    messages "split, stage $stage" $((sends / 2)) split chain:5 2 --micro-batches 4
done

described "split" 128 split chain:5 2 --batch 128

# The table of labs/which-way.md: what each of two halves sends for a batch of 256, and each of 8 ranks around a ring.
for row in "cut in two, a batch of 256: each sends:split:2" "the same, 8 devices:step 6:8"; do
    words=${row%:*:*} ranks=${row##*:} way=${row%:*}
    table="| $words |"
    for model in lenet wrn:10 chain:5; do
        table+=$(predicted "${way##*:}" sends 1 $model "$ranks" --batch 256 | awk '{ printf " %.1f |", $1 / 1e6 }')
    done
    grep -qxF "$table" labs/which-way.md || fail "labs/which-way.md has not this row: $table"
done

# recompute holds a block's memory as models of their own have it, so the number of blocks is compared, and the ratio of bytes.
for blocks in 4 16 36; do
    rm -rf "$folder/trace"
    HVDLAB_TRACE=$folder/trace succeeds "$build/solution_recompute" --data synthetic --epochs 1 --images 500 --batch-size 500 \
        --base-lr 0.001 --blocks $blocks
    kept[blocks]=$(awk '/^Epoch 1/ { printf "%.0f\n", 1e6 * $(NF - 1) }' "$folder/out")
    reckoned[blocks]=$(predicted recompute holds 4 chain:$blocks 1 --batch 500)
    held=$(grep -oE '"held":[0-9]+' "$folder/trace/rank-0.jsonl" | sort -t : -k 2 -n | tail -n 1)
    grep -q "^recompute: .* = ${held#*:} of" "$folder/plan" || fail "of $blocks blocks $held: $(grep ^recompute "$folder/plan")"
done
# The printed formula is the one that is calculated, without blocks to recompute as well.
for blocks in 1 2 3 4 5 16 40; do
    "$plan" chain:$blocks 1 >"$folder/plan"
    awk -v n=$blocks '
        function ceil(x) { return int(x) + (x > int(x)) }
        /^recompute: at most K = min\(n, ceil\(n\/k\) \+ max\(k-2, 1\)\) = / { kept = $12 }
        /^in segments of k = ceil\(root of n\) = / { k = $10 + 0 }
        END { exit !(k == ceil(sqrt(n)) && kept == (n < 2 ? 1 : ceil(n / k) + (k > 3 ? k - 2 : 1))) }' "$folder/plan" ||
        fail "recompute of $blocks blocks: $(grep -A 1 ^recompute "$folder/plan")"
done
near "recompute: 36 blocks of 16" $((kept[36] * 1000 / kept[16])) 0.97 1.03 $((reckoned[36] * 1000 / reckoned[16]))

# ---- The link, the device, and what is refused.

"$plan" chain:9 4 --link=0.001 --latency=500 --memory 0.02 >"$folder/plan"
# 2 x 3/4 x 4 x 2,245,642 bytes at 1 MB/s, and 6 messages of half a millisecond.
grep -q '^  sends  2 (N-1)/N g P = 13.474 MB, in 2 (N-1) = 6 messages: 13476.85 ms$' "$folder/plan" || fail "time: $(cat "$folder/plan")"
# 3/4 x 12 bytes; three times each of nine parts to three others.
grep -q '^  sends  (N-1)/N (g + 2 w) P = 20.211 MB, in 3 n (N-1) = 81 messages: ' "$folder/plan" || fail "gathered: $(cat "$folder/plan")"
[[ $(grep -c ': does not fit$' "$folder/plan") -eq 3 && $(grep -c ': fits$' "$folder/plan") -eq 4 ]] || fail "what fits: $(cat "$folder/plan")"

# Ten equal layers on 5 ranks: 2 x 4/5 x 4 bytes of 2 x 10 x 10^6 values of 128 images; two layers in a stage, which sends twice 10^6.
equal=$(for number in tensor:sends:1 tensor:sends:2 split:holds:1 split:sends:1; do
    IFS=: read -r way line field <<<"$number"
    predicted "$way" "$line" "$field" 1e9:10:1e6 5
done | tr '\n' ' ')
[[ $equal == "16384000000 160000000000 800000000 1024000000 " ]] || fail "ten equal layers: $equal"

succeeds "$plan" --help
for flag in $(sed -n '/^static void read_flag/,/^}/s/.*strcmp(flag, "\(--[a-z-]*\)").*/\1/p' common/tools/plan.c); do
    grep -q "^  $flag " "$folder/out" || fail "--help lacks $flag"
done
refused "MODEL is missing" "$plan"
refused "RANKS is missing" "$plan" lenet
for words in "MODEL:RANKS=4" "RANKS:MODEL=lenet"; do
    run make -s plan "${words#*:}" FLAGS=--batch=64
    grep -qF "${words%%:*} is missing" "$folder/err" || fail "make plan ${words#*:}: $(cat "$folder/err")"
done
refused "there is no model 'resnet'" "$plan" resnet 4
refused "the width of wrn must be a whole number from 1 to 64, not '0'" "$plan" wrn:0 4
refused "the layers of chain must be a whole number" "$plan" chain:x 4
refused "the parameters of MODEL must be a number" "$plan" 7.5billion 4
refused "MODEL is PARAMETERS:LAYERS:VALUES" "$plan" 7e9:32 4
refused "the layers of MODEL must be a whole number" "$plan" 7e9:0:8 4
refused "the values of MODEL must be a number" "$plan" 7e9:32: 4
refused "RANKS must be a whole number from 1 to 1000000, not '0'" "$plan" lenet 0
refused "RANKS must be a whole number from 1 to 1000000, not '2.5'" "$plan" lenet 2.5
refused "unknown flag --ranks" "$plan" lenet 2 --ranks 3
refused "--batch must be a whole number" "$plan" lenet 2 --batch
refused "--batch must be a whole number" "$plan" lenet 2 --batch=
refused "--link must be a number" "$plan" lenet 2 --link 0
refused "--link must be a number" "$plan" lenet 2 --link nan
refused "each of the three numbers of --bytes" "$plan" lenet 2 --bytes 2,2
refused "each of the three numbers of --bytes" "$plan" lenet 2 --bytes 2,2,12,1
refused "--memory must be a number" "$plan" lenet 2 --memory -1
conclude
