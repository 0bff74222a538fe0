#!/usr/bin/env bash
# Usage: measure_servers.sh images|traffic|slow|staleness|accuracy
#
# The tables of labs/08-parameter-server/handout.md, measured again, on standard output; `images` and
# `accuracy` draw a figure, too, beside the handout. All of it runs on a cluster of its own (cluster.sh):
# four hosts for workers, and one more for each server. A batch takes 50 milliseconds at least, ten times as
# long as computing it, so that the links of the cluster and not the cores of this machine decide.
#
# The all-reduce is MPI's, which is told to go around a ring. The programs are the lab's own, and for `accuracy` the
# solution of `bounded`, or the student's where there are no solutions. SEEDS="1 2 3" are the trainings that `accuracy` makes
# of each kind. With QUICK=1 all is short, and only shows that it works.

set -euo pipefail
export LC_ALL=C
figures=${FIGURES:-labs/08-parameter-server/figures}
hosts=4 # for workers; the servers' have the next numbers
batch=8
pace=50
seeds=${SEEDS:-1 2 3 4 5 6 7 8 9}
data=(--loader-threads 1)
bounded_server=solution_bounded
[[ -e solutions/bounded.c ]] || bounded_server=bounded
counts=(1 2 3 4) rates=(1gbit 200mbit) quick=${QUICK:+1}
[[ -z $quick ]] || counts=(1 2) rates=(1gbit) seeds="1 2" data+=(--data synthetic)

fail()
{
    echo "measure_servers.sh: $1" >&2
    exit 1
}

# ---- Jobs on the cluster. Whatever ends this script ends it.

cluster()
{
    BUILD=$work HVDLAB_CLUSTER=$work/cluster common/scripts/cluster.sh "$@"
}

# prepare PROGRAM...: what a table needs.
prepare()
{
    local needed=(cluster)
    [[ -n $quick ]] || needed+=(dataset)
    common/scripts/deps.sh install "${needed[@]}" >&2
    make -s "${@/#/${BUILD:-build}/}" >&2
    build=$(realpath "${BUILD:-build}") work=$build/measure
    mkdir -p "$work" "$figures"
    trap 'cluster down' EXIT
    trap 'exit 130' INT TERM HUP
    eval "$(common/scripts/mpi.sh env)"
}

up() # RATE
{
    HOSTS=$((hosts + 2)) RATE=$1 cluster up >/dev/null &
    wait $!
}

# start HOST ROLE WORD...: a process of a job by servers, as if by hand; its number is added to `started`.
# What it prints is in the file $work/ROLE.
start()
{
    local host=$1 role=$2
    shift 2
    cluster agent "node$host" "cd $(printf %q "$PWD") && HVD_SERVERS=$addresses HVD_WORKERS=${#paces[@]} HVD_JOB=$$ \
${TRACE:+HVDLAB_TRACE=$TRACE-${role%:*} }HVD_ROLE=$role exec timeout 150 $(printf '%q ' "$@")" >"$work/$role" &
    started+=($!)
}

# by_servers SERVERS SERVER WORKER STEPS OTHER FLAG...: a job with a worker for each of `paces`, each of
# STEPS batches, or of OTHER where its pace is not that of most. Each has its shard of the images.
by_servers()
{
    local servers=$1 server=$2 worker=$3 steps=$4 other=$5 addresses='' started=() images w s process
    shift 5
    for ((s = 0; s < servers; s++)); do addresses+=${addresses:+,}node$((hosts + s)):7001; done
    for ((s = 0; s < servers; s++)); do start $((hosts + s)) "server:$s" "$build/$server" "$@"; done
    for w in "${!paces[@]}"; do
        images=$((${#paces[@]} * batch * (paces[w] == pace ? steps : other)))
        start "$w" "worker:$w" "$build/$worker" --images $images --batch-size "$batch" --epochs 1 \
            --pace "${paces[w]}" "${data[@]}" "$@"
    done
    for process in "${started[@]}"; do
        wait "$process" || fail "a job with $servers servers and ${#paces[@]} workers has failed"
    done
}

# by_ring STEPS FLAG...: a job under mpirun, a worker for each of `paces`, each of STEPS batches; what it
# prints is in the file $work/worker:0.
by_ring()
{
    local words=() steps=$1 w
    shift
    for w in "${!paces[@]}"; do
        [[ $w -eq 0 ]] || words+=(:)
        words+=(--host "node$w" -np 1 "$build/course" --images $((${#paces[@]} * batch * steps)) --batch-size "$batch"
            --epochs 1 --pace "${paces[w]}" "${data[@]}" "$@")
    done
    cluster mpirun "${words[@]}" >"$work/worker:0" 2>"$work/mpirun" &
    wait $! || fail "a job under mpirun with ${#paces[@]} workers has failed: $(<"$work/mpirun")"
}

# run KIND STEPS: one, two (servers) or ring; prints the images in a second of all workers together.
run()
{
    case $1 in
    one) by_servers 1 lenet_ps lenet_ps "$2" $(($2 / 2)) ;;
    two) by_servers 2 lenet_ps lenet_ps "$2" $(($2 / 2)) ;;
    ring) by_ring "$2" ;;
    esac
    if [[ $1 = ring ]]; then
        sed -n 's/.* \([0-9.]*\) batches a second$/\1/p' "$work/worker:0"
    else
        sed -n 's/.* \([0-9.]*\) pushes a second .*/\1/p' "$work/server:0"
    fi | awk -v batch=$batch '{ printf "%.0f\n", batch * $1 } END { exit NR != 1 }' || fail "$1: no figure"
}

# set_paces WORKERS; with `slow` the last one takes four times as long.
set_paces()
{
    local w
    paces=()
    for ((w = 0; w < $1; w++)); do paces[w]=$pace; done
    [[ ${2:-} != slow ]] || paces[$1 - 1]=$((4 * pace))
}

# steps_at RATE: of each worker, so that a job takes some seconds.
steps_at()
{
    case ${quick:-$1} in
    1gbit) echo 32 ;;
    200mbit) echo 10 ;;
    *) echo 6 ;;
    esac
}

# ---- Tables.

declare -A name=([one]='one server' [two]='two servers' [ring]='the ring' [1gbit]='1 Gbit/s' [200mbit]='200 Mbit/s')

head_of() # CELL...: the first two lines of a table
{
    printf '| %s ' "$@"
    printf '|\n'
    printf '| --- %.0s' "$@"
    printf '|\n'
}

images_table()
{
    local rate kind workers images
    {
        echo "figure Images in a second against the number of workers"
        echo "about One server, two servers and the ring, at two rates of the links; the table beside the figure has the numbers."
    } >"$work/images.lines"
    head_of 'images/s' '1 worker' "${counts[@]:1}"
    for rate in "${rates[@]}"; do
        up "$rate"
        echo "panel ${name[$rate]}; workers; images/s" >>"$work/images.lines"
        for kind in one two ring; do
            echo "line ${name[$kind]}" >>"$work/images.lines"
            printf '| %s, %s |' "${name[$rate]}" "${name[$kind]}"
            for workers in "${counts[@]}"; do
                set_paces "$workers"
                images=$(run $kind "$(steps_at "$rate")")
                printf ' %s |' "$images"
                echo "$workers $images" >>"$work/images.lines"
            done
            echo
        done
    done
    awk -f common/scripts/lines.awk "$work/images.lines" >"$figures/images.svg"
}

# link KIND OF HOST FORMULA: what the link of one host has carried, in MB for each batch of a worker.
link()
{
    printf '| %s: %s | %s |' "${name[$1]}" "$2" "$4"
    cluster traffic | awk -v host="node$3" -v steps="$(steps_at 1gbit)" '
        $1 == host { printf " %.1f | %.1f |\n", $4 / 1e6 / steps, $2 / 1e6 / steps }'
}

traffic_table()
{
    local kind
    up 1gbit
    set_paces "${counts[-1]}"
    head_of 'MB for each batch of a worker' 'each way' in out
    for kind in one two ring; do
        RESET=1 cluster traffic >/dev/null
        run $kind "$(steps_at 1gbit)" >/dev/null
        case $kind in
        one) link one 'the server' $hosts "${#paces[@]} x 6.5" ;;
        two) link two 'each of them' $hosts "${#paces[@]} x 6.5 / 2" ;;
        esac
        if [[ $kind = ring ]]; then
            link ring 'a worker' 1 "2 x $((${#paces[@]} - 1))/${#paces[@]} x 6.5"
        else
            link $kind 'a worker' 1 6.5
        fi
    done
}

slow_table()
{
    local kind
    up 1gbit
    head_of 'images/s' 'all have the same pace' 'one is four times as slow'
    for kind in one two ring; do
        set_paces "${counts[-1]}"
        printf '| %s | %s |' "${name[$kind]}" "$(run $kind "$(steps_at 1gbit)")"
        set_paces "${counts[-1]}" slow
        printf ' %s |\n' "$(run $kind "$(steps_at 1gbit)")"
    done
}

# staleness_row NAME WORKERS: how many pushes of these workers, "0|1", the server has got, by how many updates it had made
# since they got their weights.
staleness_row()
{
    sed -n 's/.*"event":"ps_request".*"kind":"push","worker":\([0-9]*\),"version":\([0-9]*\).*/\1 \2/p' "$work"/trace-server/*.jsonl |
        awk -v name="$1" -v workers="^($2)$" '
            $1 ~ workers { count[NR - 1 - $2]++ }
            END {
                printf "| %s |", name
                for (n = 0; n <= 7; n++) printf " %d |", count[n]
                print ""
            }'
}

staleness_table()
{
    local steps paced slow=$((${counts[-1]} - 1))
    steps=$(steps_at 1gbit)
    up 1gbit
    head_of 'stale by' {0..7}
    for paced in same slow; do
        rm -rf "$work"/trace-{server,worker}
        set_paces "${counts[-1]}" $paced
        TRACE=$work/trace run one "$steps" >/dev/null
        if [[ $paced = same ]]; then
            staleness_row 'all have the same pace' '.*'
        else
            staleness_row 'one is four times as slow: the others' "[^$slow]"
            staleness_row 'one is four times as slow: the slow one' "$slow"
        fi
    done
}

# How a training went, "UPDATES SECONDS ACCURACY" lines.
keep_course() # KIND SEED
{
    sed -n 's/^after \([0-9]*\) updates, \([0-9.]*\) s: test accuracy \(.*\)/\1 \2 \3/p' "$work/worker:0" >"$work/$1-$2.course"
}

# Trainings in each of which one worker is slow, and all take about as long. The others make larger batches
# here, so that there is something to be learned, and take twice as long for them.
train_all()
{
    local seed free=(125 60) bounded=(56 52) rounds=52 learning_rate=0.04
    [[ -z $quick ]] || free=(8 4) bounded=(8 4) rounds=8
    batch=32 pace=100
    set_paces "${counts[-1]}" slow
    up 1gbit
    for seed in $seeds; do
        by_servers 1 lenet_ps course "${free[@]}" --base-lr $learning_rate --seed "$seed"
        keep_course free "$seed"
        by_servers 1 "$bounded_server" course "${bounded[@]}" --base-lr $learning_rate --seed "$seed" --staleness 4
        keep_course bounded "$seed"
        by_ring $rounds --base-lr "$(awk "BEGIN { print ${#paces[@]} * $learning_rate }")" --seed "$seed"
        keep_course ring "$seed"
    done
}

# The value of column 3 where column $1 comes to $2, along the lines of a course; nothing beyond it.
value_at() # COLUMN PLACE FILE
{
    awk -v column="$1" -v place="$2" '
        NR > 1 && $column >= place && before < place {
            print value + ($3 - value) * (place - before) / ($column - before)
            exit
        }
        { before = $column; value = $3 }' "$3"
}

# The median of some numbers, with their minimum and maximum.
spread()
{
    sort -n | awk '{ value[NR] = $1 }
        END { if (NR) printf "%.2f (%.2f to %.2f)", value[int((NR + 1) / 2)], value[1], value[NR]; else printf "-" }'
}

accuracy_table()
{
    local kind seed place at_updates=(45 200) at_seconds=(10 20)
    declare -A kinds=([ring]='the ring, 4 x the rate' [free]='a server' [bounded]='a server, --staleness 4')
    [[ -z $quick ]] || at_updates=(4) at_seconds=(1)
    train_all
    head_of 'test accuracy' "${at_updates[@]/%/ updates}" "${at_seconds[@]/%/ seconds}"
    for kind in ring free bounded; do
        printf '| %s |' "${kinds[$kind]}"
        for place in "${at_updates[@]}"; do
            printf ' %s |' "$(for seed in $seeds; do value_at 1 "$place" "$work/$kind-$seed.course"; done | spread)"
        done
        for place in "${at_seconds[@]}"; do
            printf ' %s |' "$(for seed in $seeds; do value_at 2 "$place" "$work/$kind-$seed.course"; done | spread)"
        done
        echo
    done
    draw_courses >"$figures/course.svg"
}

# Of three trainings each.
draw_courses()
{
    local column kind seed drawn axes=('' updates seconds)
    read -ra drawn <<<"$seeds"
    {
        echo "figure Test accuracy against updates, and against seconds"
        echo "about Test accuracy of the ring, of a server without a bound, and of a server with one: a line for each of three trainings; the table has the numbers."
        for column in 1 2; do
            echo "panel test accuracy; ${axes[column]};"
            for kind in ring free bounded; do
                for seed in "${drawn[@]:0:3}"; do
                    echo "line ${kinds[$kind]}"
                    awk -v column=$column '{ print $column, $3 }' "$work/$kind-$seed.course"
                done
            done
        done
    } | awk -f common/scripts/lines.awk
}

case ${1:-} in
images | traffic | slow | staleness)
    prepare course lenet_ps
    "$1_table"
    ;;
accuracy)
    prepare course lenet_ps $bounded_server
    accuracy_table
    ;;
*)
    echo "usage: measure_servers.sh images|traffic|slow|staleness|accuracy" >&2
    exit 2
    ;;
esac
