#!/usr/bin/env bash
# Usage: slurm.sh WORD...       runs the words in a Slurm of this machine's own, which ends with them
#
# For those who want to try a batch file and have no cluster: `common/scripts/slurm.sh bash` is a shell on the
# first of HOSTS (2) hosts of CPUS (4) processors each, where sbatch, srun, squeue and scancel find a
# partition with all of them. The hosts are those of `make cluster` (cluster.sh), with links of RATE; on
# each runs a slurmd, on the first slurmctld and munged, too. Nothing of a Slurm that this machine may have
# is used but its programs. Only root can do this: slurmd becomes the user whose job it is.
#
# All processes are in a namespace of their own (pid_namespaces(7)), whose first one dies when this script
# does: whatever ends it, nothing goes on. Configuration and logs are in $BUILD/slurm; what daemons keep, and
# their sockets, whose paths must be short, in a folder of TMPDIR. It is removed, unless this script is killed.

set -u
environment=$(export -p)
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
self=$(realpath "$0")
scripts=${self%/*}
folder=$(realpath -m "${BUILD:-build}")/slurm
hosts=${HOSTS:-2} cpus=${CPUS:-4}

fail()
{
    printf 'slurm.sh: %s\n' "$1" >&2
    exit 2
}

# ---- Inside, where all is that ends with this script. inside KEPT

on() # HOST COMMAND
{
    BUILD=$folder "$scripts/cluster.sh" agent "$1" "SLURM_CONF=$folder/slurm.conf $2"
}

write_configuration()
{
    cat >"$folder/slurm.conf" <<END
ClusterName=hvdlab
SlurmctldHost=node0
SlurmUser=root
AuthInfo=socket=$kept/munge.socket
StateSaveLocation=$kept/state
SlurmdSpoolDir=$kept/%n
SlurmctldPidFile=$kept/slurmctld.pid
SlurmdPidFile=$kept/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
# No control groups, which not every container has.
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# Hosts share all files but these.
TmpFS=/dev/shm
# A node has so many processors, whatever this machine has.
SlurmdParameters=config_overrides
NodeName=node[0-$((hosts - 1))] CPUs=$cpus
PartitionName=all Nodes=ALL Default=YES
END
    # Slurm 23 and later look for control groups unless they are told not to; before, the word is not known.
    [[ $(slurmd -V) =~ \ ([0-9]+) && ${BASH_REMATCH[1]} -lt 23 ]] || echo "CgroupPlugin=disabled" >"$folder/cgroup.conf"
}

# A daemon goes into the background when it is ready, or says why it does not start.
daemon() # HOST COMMAND
{
    local said
    said=$(on "$1" "$2" 2>&1 </dev/null) || fail "${2%% *} does not start on $1: ${said##*$'\n'}"
}

start_daemons()
{
    local i
    mkdir "$kept/state" && head -c 128 /dev/urandom >"$kept/munge.key" && chmod 600 "$kept/munge.key" || exit 2
    daemon node0 "munged --force --key-file=$kept/munge.key --socket=$kept/munge.socket --pid-file=$kept/munge.pid \
        --log-file=$folder/munge.log --seed-file=$kept/munge.seed"
    daemon node0 slurmctld
    for ((i = 0; i < hosts; i++)); do
        mkdir "$kept/node$i" || exit 2
        daemon "node$i" "slurmd -N node$i"
    done
}

# Nodes are idle once their slurmd has been heard.
wait_for_nodes()
{
    local i states=
    for ((i = 0; i < 150; i++)); do
        states=$(on node0 "sinfo --noheader --format %T:%D" 2>&1)
        [[ $states != "idle:$hosts" ]] || return 0
        sleep 0.2
    done
    fail "not all nodes are there after 30 s: ${states//$'\n'/, }; the logs are in $folder"
}

inside()
{
    local said
    mount --make-rprivate /proc 2>/dev/null # where unshare could not
    mount -t proc proc /proc || fail "root may not mount here"
    said=$(BUILD=$folder HOSTS=$hosts "$scripts/cluster.sh" up 2>&1) || fail "no hosts: ${said#make cluster: }"
    write_configuration
    start_daemons
    wait_for_nodes
    on node0 "bash $kept/words"
}

if [[ ${1:-} = inside ]]; then
    kept=$2
    inside
    exit
fi

# ---- Outside.

[[ $# -gt 0 ]] || fail "usage: slurm.sh WORD..., such as slurm.sh bash"
[[ $hosts =~ ^[1-9][0-9]?$ && $hosts -le 32 ]] || fail "HOSTS=$hosts is not a number from 1 to 32"
[[ $cpus =~ ^[1-9][0-9]{0,2}$ ]] || fail "CPUS=$cpus is not a number from 1 to 999"
[[ $(id -u) -eq 0 ]] || fail "only root can do this"
"$scripts/deps.sh" check slurm cluster || exit 2
mkdir -p "$folder" && exec 9>"$folder.lock" || exit 2
flock --nonblock 9 || fail "in $folder one is running already"
[[ ! -e $folder || -e $folder/slurm.conf ]] || rmdir "$folder" 2>/dev/null || fail "$folder is no folder of this script: move it away"
rm -rf "$folder" && mkdir "$folder" && kept=$(mktemp -d) || exit 2
running=

# The words find this script's environment as it was, except what belongs to the host.
{
    printf '%s\nunset HVDLAB_CLUSTER\nexport SLURM_CONF=%q TMPDIR=/dev/shm\ncd %q && exec' "$environment" "$folder/slurm.conf" "$PWD"
    printf ' %q' "$@"
} >"$kept/words"

# shellcheck disable=SC2317 # called by traps
tidy()
{
    [[ -z $running ]] || kill -KILL "$running" 2>/dev/null
    wait
    # (Those that it takes along may still write.)
    for _ in {1..20}; do
        ! rm -rf "$kept" "$folder/cluster" 2>/dev/null || return
        sleep 0.1
    done
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
namespaces=(--mount --pid --fork --kill-child)
unshare --mount true 2>/dev/null || namespaces+=(--propagation unchanged) # a chroot
setpriv --pdeathsig KILL unshare "${namespaces[@]}" "$self" inside "$kept" <&0 &
running=$!
wait $running
status=$?
running=
exit $status
