#!/usr/bin/env bash
# Usage: cluster.sh up|down|traffic       make cluster, make cluster-down, make cluster-traffic
#        cluster.sh need                  status 2 and a line where this user may not make networks
#        cluster.sh env                   a line for a shell, where a cluster is up: its mpirun comes first
#        cluster.sh mpirun WORD...        mpirun in the cluster; as ever, where none is up or no host is named
#        cluster.sh agent HOST WORD...    runs the words on a host, as ssh would
#
# Several hosts on this machine. A host is a process that sleeps, and what belongs to it: a network of
# its own with one link, eth0; a name; numbers of processes; a /dev/shm, where TMPDIR points. The links
# end at a bridge's ports, which bear the hosts' names. That bridge is in a network of its own, too, so
# that nothing of this machine's is changed, and mpirun enters it. The kernel limits the rate of each link
# both ways (tc's tbf), and delays what it carries where it can do that (netem). All else is shared: files
# as over NFS, users, the clock.
#
# Namespaces (namespaces(7)) last as long as a process is in them. unshare is the parent of the first
# process of the bridge's, that one of the hosts': whichever is killed, those below it die, and what they
# had goes with them. A watch ends the cluster when the terminal's shell ends (the first process of
# the kernel's session, setsid(2)).
#
# Who is not root, or may not do this, is root in a user namespace, if the system has them. From the
# environment: HOSTS, RATE, DELAY of up, RESET=1 of traffic, BUILD. $BUILD/cluster holds hosts (for
# mpirun's --hostfile), nodes (each host's first process, and its cores), state, traffic.json.

set -u
export LC_ALL=C
export PATH=$PATH:/usr/sbin:/sbin # tc, for those who are not root
self=$(realpath "$0")
beside=${self%.sh} # the folder of a command mpirun, which calls this script
network=10.77.0
command="make cluster"

fail()
{
    printf '%s: %s\n' "$command" "$1" >&2
    exit 2
}

# Is this the process that makes, or is, a part of this folder's cluster?
is_part() # PROCESS ROLE
{
    [[ -r /proc/$1/cmdline ]] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF "cluster.sh $2 $folder "
}

# Sets $head, the bridge's first process, $user, yes in a user namespace, and $rate. Fails where no
# cluster is up.
find_cluster()
{
    head='' user='' rate=''
    [[ -r $folder/state ]] && read -r head user rate <"$folder/state" && is_part "$head" head
}

# ---- The parts: each is the first process of its namespaces.

# must WORD...: runs it. Where it fails, all ends, and `up` says why.
must()
{
    local said
    said=$("$@" 2>&1) || {
        echo "$* failed: ${said%%$'\n'*}" >"$folder/failed"
        exit 1
    }
}

# This process's number outside: /proc is still the one that was there.
write_number() # FILE
{
    local number
    read -r number _ </proc/self/stat
    echo "$number" >"$1.new"
    mv "$1.new" "$1"
}

# The links carry only what programs send.
without_ipv6()
{
    echo 1 2>/dev/null >/proc/sys/net/ipv6/conf/default/disable_ipv6
}

# A host: makes what is its own, then looks after processes that have lost their parent.
run_host() # NUMBER
{
    must hostname "node$1"
    must mount -t tmpfs tmpfs /dev/shm
    without_ipv6
    write_number "$folder/node$1"
    must mount -t proc proc /proc
    while :; do
        sleep 1000 &
        wait
    done
}

# Limits what one side of a link sends.
shape() # WORD... (before "tc")
{
    local parent=(root)
    if [[ $delay != 0 ]]; then
        must "$@" tc qdisc add dev "$device" root handle 1: netem delay "$delay"
        parent=(parent 1:1)
    fi
    must "$@" tc qdisc add dev "$device" "${parent[@]}" handle 2: tbf rate "$rate" burst "$burst" latency 50ms
}

# Starts a host, and makes its link.
add_host() # NUMBER CORES
{
    local first net device there
    unshare --net --uts --ipc --mount --propagation unchanged --pid --fork --kill-child "$self" host "$folder" "$1" </dev/null &
    until [[ -e $folder/node$1 ]]; do
        [[ -d $folder ]] && sleep 0.02 || exit 1
    done
    first=$(<"$folder/node$1")
    net=/proc/$first/ns/net
    there=(nsenter --net="$net")
    must ip link add name "node$1" type veth peer name eth0 netns "$net"
    must ip link set dev "node$1" master bridge up
    must "${there[@]}" ip address add "$network.$(($1 + 1))/24" dev eth0
    must "${there[@]}" ip link set dev lo up
    must "${there[@]}" ip link set dev eth0 up
    device=node$1 shape
    device=eth0 shape "${there[@]}"
    rm "$folder/node$1"
    echo "node$1 $first $2" >>"$folder/nodes"
}

# Where unshare could not, in a chroot: mounts must not be seen outside.
keep_mounts()
{
    local place
    for place in /proc /dev /dev/shm; do
        mount --make-rprivate "$place" 2>/dev/null
    done
}

# The bridge: makes all, and stays while the watch does.
run_head() # USER RATE BURST DELAY CORES...
{
    local rate=$2 burst=$3 delay=$4 shares=("${@:5}") watched i
    read -r watched # its first line
    echo "$watched" >"$folder/watch" || exit
    keep_mounts
    must mount --bind "$folder/etc-hosts" /etc/hosts
    if [[ /etc/hosts -ef /proc/$watched/root/etc/hosts ]]; then
        umount /etc/hosts
        echo "in this chroot mounts are seen outside of it, so that the hosts could have none of their own" >"$folder/failed"
        exit 1
    fi
    must mount -t tmpfs tmpfs /dev/shm
    without_ipv6
    must ip link set dev lo up
    # An address of its own: else it has the lowest of its ports, and another when that port's host goes.
    must ip link add name bridge address 02:00:00:00:00:fe type bridge
    must ip address add "$network.254/24" dev bridge
    must ip link set dev bridge up
    for i in "${!shares[@]}"; do
        add_host "$i" "${shares[i]}"
    done
    write_number "$folder/number"
    echo "$(<"$folder/number") $1 $rate" >"$folder/state.new"
    mv "$folder/state.new" "$folder/state"
    while read -r _; do
        :
    done
    clear_folder "$watched"
}

# Leaves nothing of a cluster that has ended, unless the folder is another's already.
clear_folder() # WATCH
{
    [[ $(cat "$folder/watch" 2>/dev/null) != "$1" ]] || rm -rf "$folder"
}

# Says each second that the session's first process lives, as long as the bridge's listens.
watch() # SESSION
{
    trap '' PIPE
    exec 2>/dev/null 3<> <(:) # nobody writes to the latter
    echo "$BASHPID"
    while [[ -e /proc/$1 ]] && echo; do
        read -rt 1 -u 3
    done
    clear_folder "$BASHPID"
}

# Becomes unshare, with the watch beside it.
keep() # SESSION USER WORD...
{
    local options=()
    [[ $2 = no ]] || options=(--user --map-root-user)
    unshare "${options[@]}" --mount true 2>/dev/null || options+=(--propagation unchanged) # a chroot
    exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
    cd / || exit
    echo $$ >"$folder/keeper" || exit
    exec unshare "${options[@]}" --net --mount --pid --fork --kill-child "$self" head "$folder" "${@:2}" < <(watch "$1")
}

# ---- Up and down.

# The cores of each of N hosts, a line a host: lists of processors, those of a core together. Where there
# are fewer cores than hosts, several have the same one.
share_cores() # N
{
    { grep Cpus_allowed_list: /proc/self/status && lscpu -p=CPU,CORE | sort -t , -k 2,2n -k 1,1n; } | awk -v hosts="$1" '
        /^Cpus/ {
            n = split($2, parts, ",")
            for (i = 1; i <= n; i++) {
                ends = split(parts[i], range, "-")
                for (cpu = range[1] + 0; cpu <= range[ends]; cpu++)
                    allowed[cpu] = 1
            }
        }
        /^[0-9]/ {
            split($1, place, ",")
            if (!(place[1] in allowed))
                next
            if (!(place[2] in number)) {
                number[place[2]] = cores + 0
                cpus[cores++] = place[1]
            } else
                cpus[number[place[2]]] = cpus[number[place[2]]] "," place[1]
        }
        END {
            for (host = 0; host < hosts; host++) {
                first = int(host * cores / hosts)
                last = int((host + 1) * cores / hosts) - 1
                line = cpus[first]
                for (core = first + 1; core <= last; core++)
                    line = line "," cpus[core]
                print line
            }
        }'
}

# How many bytes may go at once after a pause, at the rate $1: a millisecond's, but no less than the kernel
# hands on in one piece, 64 KiB and the headers of its packets. (Else it would cut the pieces up here, and
# count each packet's header.)
burst_of()
{
    local factor=1000
    case $1 in
    *mbit) factor=1000000 ;;
    *gbit) factor=1000000000 ;;
    esac
    local bytes=$((${1%[kmg]bit} * factor / 8000))
    echo $((bytes > 72000 ? bytes : 72000))
}

# Writes what the hosts and mpirun read. A slot each: ranks are dealt to all hosts, however many cores
# this machine has, and evenly where there are more.
write_hosts()
{
    local i
    printf '127.0.0.1 localhost\n' >"$folder/etc-hosts"
    for ((i = 0; i < hosts; i++)); do
        printf '%s.%d node%d\n' "$network" $((i + 1)) "$i" >>"$folder/etc-hosts"
        printf 'node%d slots=1\n' "$i"
    done >"$folder/hosts"
    printf '%s.254 %s\n' "$network" "$(hostname)" >>"$folder/etc-hosts"
}

check_settings()
{
    hosts=${HOSTS:-4} rate=${RATE:-1gbit} delay=${DELAY:-0}
    [[ $hosts =~ ^[1-9][0-9]?$ && $hosts -le 32 ]] || fail "HOSTS=$hosts is not a number from 1 to 32"
    [[ $rate =~ ^[1-9][0-9]{0,3}[kmg]bit$ ]] || fail "RATE=$rate is not a rate, such as 1gbit, 200mbit or 64kbit"
    [[ $delay =~ ^(0|[1-9][0-9]{0,3}[um]s)$ ]] || fail "DELAY=$delay is not a time, such as 2ms or 500us"
}

# Does the kernel have netem? Asked in a network that is gone at once.
has_netem()
{
    unshare "${options[@]}" --net tc qdisc add dev lo root netem delay 1ms 2>/dev/null
}

# Before anything is installed for it: may this user make networks?
need_networks()
{
    local why
    unshare --net true 2>/dev/null || why=$(unshare --user --map-root-user --net true 2>&1) ||
        fail "this system does not let you make networks: $why (root may, as a rule; others where it allows user namespaces)"
}

# Why nothing came of it.
explain()
{
    local why
    why=$(cat "$folder/failed" 2>/dev/null || tail -n 1 "$folder/log")
    down
    case $why in
    unshare:* | *"not permitted"* | *denied*)
        why="this system does not let you make networks: $why (root may, as a rule; others where it allows user namespaces)"
        ;;
    esac
    fail "${why:-it did not come up within 20 s}"
}

up()
{
    # Open MPI cuts the name of its agent at blanks, and gives it to a shell.
    [[ ${self//[\/._+-]/} != *[[:space:][:punct:]]* ]] || fail "Open MPI cannot start programs by $self: move the kit to a folder without blanks, quotes or other signs in its path"
    local hosts rate delay shares options=() user=no session i keeper
    check_settings
    down
    unshare --net true 2>/dev/null || user=yes options=(--user --map-root-user)
    if [[ $delay != 0 ]] && ! has_netem; then
        echo "make cluster: DELAY=$delay is left out: it takes a kernel with netem (sch_netem), and the right to use it" >&2
        delay=0
    fi
    mapfile -t shares < <(share_cores "$hosts")
    mkdir -p "$folder" || exit 2
    trap 'down; exit 130' INT TERM HUP
    write_hosts
    # The session of this process; 0, or what is not to be seen, where it began outside of a container.
    read -r _ _ _ _ _ session _ < <(sed 's/.*)/0 0/' /proc/$$/stat)
    [[ -e /proc/$session && $session -ne 0 ]] || session=1
    setsid "$self" keep "$folder" "$session" "$user" "$rate" "$(burst_of "$rate")" "$delay" "${shares[@]}" \
        </dev/null >"$folder/log" 2>&1 &
    keeper=$!
    for ((i = 0; i < 400; i++)); do
        [[ ! -e $folder/state ]] || break
        [[ ! -e $folder/failed && -e /proc/$keeper ]] || break
        sleep 0.05
    done
    find_cluster || explain
    describe
}

describe()
{
    local name cores
    echo "$hosts hosts, linked at $rate both ways$([[ $delay = 0 ]] || echo ", $delay late each way"):"
    while read -r name _ cores; do
        echo "    $name  processors $cores"
    done <"$folder/nodes"
    echo "Then, in this shell:"
    # shellcheck disable=SC2016 # to be typed
    echo '    eval "$(make -s env)"'
    echo "    mpirun --hostfile ${folder#"$PWD"/}/hosts -np 4 ${BUILD:-build}/solution_06 --data synthetic --width 1 --epochs 1"
    echo "make cluster-traffic shows what the links carried. The cluster ends with this terminal, or by make cluster-down."
}

# Processes that have entered the bridge's network: mpirun, and who is about to become it.
visitors()
{
    local process net
    net=$(readlink "/proc/$head/ns/net") || return
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/ns/net" 2>/dev/null) != "$net" ]] || echo "${process#/proc/}"
    done | grep -vxF -e "$head" -e "$keeper"
}

# Is one of the processes left, and no zombie?
any_lives() # PROCESS...
{
    local process
    for process in "$@"; do
        ! grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$process/status" || return 0
    done
    return 1
}

# Ends the processes: asks, and after 5 s asks no more.
end() # PROCESS...
{
    local i
    kill -TERM "$@" 2>/dev/null
    for ((i = 0; i < 50; i++)); do
        any_lives "$@" || return 0
        sleep 0.1
    done
    kill -KILL "$@" 2>/dev/null
}

# Ends the cluster in $folder, if there is one, and what runs in it.
down()
{
    local head user rate keeper watched visiting
    # A cluster's folder has the hosts. (It may be on its way out.)
    [[ -e $folder/etc-hosts ]] || rmdir "$folder" 2>/dev/null || sleep 0.5
    [[ -e $folder ]] || return 0
    [[ -e $folder/etc-hosts ]] || fail "$folder is no cluster's folder: move it away"
    keeper=$(cat "$folder/keeper" 2>/dev/null)
    watched=$(cat "$folder/watch" 2>/dev/null)
    if find_cluster; then
        mapfile -t visiting < <(visitors)
        [[ ${#visiting[@]} -eq 0 ]] || end "${visiting[@]}"
    fi
    # unshare last: it waits for the bridge's, with which all the others go.
    is_part "${watched:-0}" keep && end "$watched"
    is_part "${head:-0}" head && kill -KILL "$head" 2>/dev/null # it may have gone with the watch
    is_part "${keeper:-0}" head && end "$keeper"
    rm -rf "$folder"
}

# ---- While it is up.

# A line for each host, of what has passed its port: NAME SENT PACKETS RECEIVED PACKETS.
count_traffic()
{
    sed -n 's/^ *\(node[0-9]*\): */\1 /p' "/proc/$head/net/dev" | awk '{ print $1, $2, $3, $10, $11 }' | sort -V
}

traffic()
{
    find_cluster || fail "no cluster is up; make cluster starts one"
    count_traffic >"$folder/counted"
    [[ -e $folder/zero ]] || sed 's/ .*/ 0 0 0 0/' "$folder/counted" >"$folder/zero"
    awk -v json="$folder/traffic.json" -v rate="$rate" '
        BEGIN { printf "%-8s %16s %10s %16s %10s\n", "host", "bytes sent", "packets", "bytes received", "packets" }
        NR == FNR { for (i = 2; i <= 5; i++) zero[$1, i] = $i; next }
        {
            for (i = 2; i <= 5; i++)
                $i -= zero[$1, i]
            printf "%-8s %16.0f %10.0f %16.0f %10.0f\n", $1, $2, $3, $4, $5
            lines = lines sprintf("%s\n    {\"host\": \"%s\", \"sent_bytes\": %.0f, \"sent_packets\": %.0f, " \
                                  "\"received_bytes\": %.0f, \"received_packets\": %.0f}",
                                  lines == "" ? "" : ",", $1, $2, $3, $4, $5)
        }
        END { printf "{\"rate\": \"%s\", \"links\": [%s\n]}\n", rate, lines >json }' "$folder/zero" "$folder/counted"
    [[ ${RESET:-} != 1 ]] || mv "$folder/counted" "$folder/zero"
}

print_env()
{
    ! find_cluster || printf 'export HVDLAB_CLUSTER=%q PATH=%q:"$PATH"\n' "$folder" "$beside"
}

# Open MPI 4 and 5 have different names for ssh's stand-in. Ranks choose their cores themselves.
run_mpirun()
{
    local head user rate
    PATH=$(tr : '\n' <<<"$PATH" | grep -vxF "$beside" | paste -sd :)
    local named=' --?(hostfile|machinefile|host|H)[ =]'
    [[ " $* " =~ $named ]] && find_cluster || exec mpirun "$@"
    local options=(--net --mount --root --wd)
    if [[ $user = yes ]]; then
        options+=(--user --preserve-credentials)
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    export OMPI_MCA_plm_rsh_agent="$self agent" PRTE_MCA_plm_ssh_agent="$self agent" HVDLAB_CLUSTER=$folder TMPDIR=/dev/shm
    export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    # shellcheck disable=SC2016 # for the other shell
    exec nsenter --target "$head" "${options[@]}" sh -c 'cd "$0" && exec mpirun "$@"' "$PWD" "$@"
}

# On the host there is what a login finds there, and nothing else of this environment.
run_agent() # HOST WORD...
{
    local name number cores
    [[ -r $folder/nodes ]] || fail "no cluster is up; make cluster starts one"
    while read -r name number cores; do
        [[ $name != "$1" ]] || break
    done <"$folder/nodes"
    [[ $name = "$1" ]] || fail "there is no host $1"
    is_part "$number" host || fail "$1 is down"
    local options=(--net --uts --ipc --mount --pid --root --wd)
    [[ /proc/self/ns/user -ef /proc/$number/ns/user ]] || options+=(--user --preserve-credentials)
    exec nsenter --target "$number" "${options[@]}" taskset -c "$cores" \
        env -i HOME="${HOME:-/}" USER="${USER:-root}" SHELL=/bin/sh PATH="$PATH" TMPDIR=/dev/shm \
        ${LD_LIBRARY_PATH:+LD_LIBRARY_PATH="$LD_LIBRARY_PATH"} ${GOMP_SPINCOUNT:+GOMP_SPINCOUNT="$GOMP_SPINCOUNT"} \
        sh -c "cd; ${*:2}"
}

# (All of it is read before any of it runs: whoever edits this file does no harm to a cluster.)
main()
{
    local action=$1
    shift
    folder=$(realpath -m "${BUILD:-build}")/cluster
    case $action in
    keep | head | host) folder=$1 && shift ;;
    mpirun | agent) folder=${HVDLAB_CLUSTER:-$folder} ;;
    esac
    case $action in
    need) need_networks ;;
    up) up ;;
    down) down ;;
    traffic) command="make cluster-traffic" && traffic ;;
    env) print_env ;;
    mpirun) run_mpirun "$@" ;;
    agent) run_agent "$@" ;;
    keep) keep "$@" ;;
    head) run_head "$@" ;;
    host) run_host "$@" ;;
    *) fail "cluster.sh $action: there is no such word" ;;
    esac
    exit
}
main "$@"
