#!/usr/bin/env bash
# The runs of diagnose (lab 2): each broken step shows in the table of the ranks, in the printed lines and in the timeline,
# and nothing else does. Two sheets name each of the seven kinds of runs; what is measured must agree with them.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_TRACE
export HVDLAB_FLAGS="--data synthetic --images 400 --batch-size 25 --epochs 2 --loader-threads 1"

# seen OUTPUT TIMELINE: the displays, the steps of an epoch, the devices; whether weights, their changes and the losses are
# the same on all ranks; and the spans, on how many ranks.
seen()
{
    awk '
        /^Epoch 1\// { displays++ }
        /^[0-9]+\/[0-9]+ - / { steps = $1 + 0 }
        /^rank/ { epoch++ }
        / cpu / {
            devices += !of[$2, $3]++
            weights[epoch, $1] = $4; loss[epoch, $1] = $6
            other_weights += weights[epoch, $1] != weights[epoch, 0]
            other_loss += loss[epoch, $1] != loss[epoch, 0]
            if (epoch == 2) {
                d = weights[2, $1] - weights[1, $1] - (weights[2, 0] - weights[1, 0])
                other_change += d > 1e-4 || d < -1e-4
            }
        }
        END { printf "displays %d, steps %d, devices %d, weights %s, changes %s, losses %s", displays, steps, devices,
                     other_weights ? "differ" : "equal", other_change ? "differ" : "equal", other_loss ? "differ" : "equal" }' "$1"
    local span
    for span in hvd_distributed_optimizer hvd_broadcast_variables hvd_metric_average print_throughput; do
        printf ', %s %d' "$span" "$(grep "\"name\":\"$span\"" "$2" | grep -o '"pid":[0-9]*' | sort -u | wc -l)"
    done
    echo
}

# expected STEP: what seen says where it is broken.
expected()
{
    local displays=1 steps=4 devices=4 weights=equal changes=equal losses=equal optimizer=4 broadcast=4 average=4
    case $1 in
    1) devices=1 ;;
    2) displays=4 ;;
    3) weights=differ changes=differ optimizer=0 ;;
    4) weights=differ broadcast=0 ;;
    5) steps=16 ;;
    6) losses=differ average=0 ;;
    esac
    echo "displays $displays, steps $steps, devices $devices, weights $weights, changes $changes, losses $losses," \
        "hvd_distributed_optimizer $optimizer, hvd_broadcast_variables $broadcast, hvd_metric_average $average, print_throughput $displays"
}

patch -s -o "$folder/other.c" solutions/diagnose.c tests/alternatives/diagnose/another-seed.patch
steps=
for sheet in solutions/diagnose.c "$folder/other.c"; do
    succeeds "$build/compile-step" "$sheet" "$folder/sheet"
    succeeds mpirun -np 4 "$folder/sheet"
    sed -n 's/^Run \([0-9]\): no .*/\1 0/p; s/^Run \([0-9]\): step \([0-9]\) .*/\1 \2/p' "$folder/out" >"$folder/answers"
    [[ $(wc -l <"$folder/answers") -eq 5 ]] || fail "$sheet: not five answers: $(cat "$folder/out")"
    while read -r number step; do
        [[ $steps != *"$step"* ]] || continue
        steps+=$step
        HVD_TIMELINE=$folder/timeline.json succeeds mpirun -np 4 "$folder/sheet" "$number" --show-ranks
        got=$(seen "$folder/out" "$folder/timeline.json")
        [[ $got == "$(expected "$step")" ]] || fail "run $number, step $step broken: $got instead of $(expected "$step")"
    done <"$folder/answers"
done
[[ ${#steps} -eq 7 ]] || fail "only these steps were broken: $steps"

run mpirun -np 4 "$folder/sheet" 6
[[ $status -eq 2 ]] && grep -q "there is no run 6: .* from 1 to 5" "$folder/err" || fail "run 6: status $status: $(cat "$folder/err")"
conclude
