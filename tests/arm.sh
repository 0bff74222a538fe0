#!/usr/bin/env bash
# Usage: tests/arm.sh root FOLDER               64-bit ARM's libraries and headers, unpacked there if they are not yet
#        tests/arm.sh run PROGRAM WORD...       a program of ARM's on this machine
#        tests/arm.sh ranks N PROGRAM WORD...   as N ranks
#        tests/arm.sh training HERE THERE       the same training by this machine's program and by ARM's
#
# What make test-arm is made of. The packages of this machine's own Debian, for the other processor, are
# unpacked into a folder, as the cross compiler's --sysroot and as what qemu-user shows the programs that it
# runs; nothing is installed. qemu is to be a Cortex-A72, as small boards have (without the vectors of
# variable length, which qemu computes slowly). mpirun is this machine's own. ARM_ROOT names the folder.

. tests/lib.sh
# shellcheck disable=SC2154 # lib.sh's
log=$folder/log

# The processor's packages; apt is told of the proxies that it knows here.
unpack() # FOLDER
{
    local suite line options=() link
    suite=$(. /etc/os-release && echo "${ID:-}:${VERSION_CODENAME:-}")
    [[ $suite == debian:?* ]] || { echo "make test-arm: this takes a Debian, whose packages there are for ARM, too" >&2; exit 2; }
    while read -r line; do
        options+=(--aptopt="$line")
    done < <(apt-config dump | grep -E '^Acquire::https?::Proxy')
    goal="make test-arm"
    . common/scripts/folders.sh
    begin_build
    rm -rf "$1.new" && mkdir -p "$1.new" || exit 2
    mmdebstrap --quiet --variant=extract --architectures=arm64 "${options[@]}" \
        --include=libdnnl-dev,libopenmpi-dev,libhwloc-dev,libcjson-dev,zlib1g-dev,check "${suite#*:}" - 2>"$log" |
        tar -x -C "$1.new" ./usr ./lib --no-same-owner 2>>"$log" ||
        { echo "make test-arm: mmdebstrap: $(grep -m 1 '^E:' "$log" || tail -n 1 "$log")" >&2; exit 2; }
    # Links that begin at the root lead out of the folder.
    find "$1.new" -type l -lname '/*' | while read -r link; do
        ln -sfn "$1$(readlink "$link")" "$link"
    done
    mv "$1.new" "$1"
}

on_arm=(env "QEMU_LD_PREFIX=${ARM_ROOT:-}" QEMU_CPU=cortex-a72)

training()
{
    local flags=(--data synthetic --width 1 --images 32 --batch-size 8 --epochs 1 --seed 5 --show-ranks --log-dir "$folder/logs")
    # shellcheck disable=SC2034 # of lib.sh
    limit=600
    eval "$(common/scripts/mpi.sh env)"
    # With vectors as short as ARM's, that is, with its layouts, in whose order a dropout draws its mask.
    succeeds env DNNL_MAX_CPU_ISA=SSE41 mpirun -np 2 "$1" "${flags[@]}"
    awk '$2 == "cpu" { print $4, $5, $6 }' "$folder/out" >"$folder/here"
    succeeds "${on_arm[@]}" mpirun -np 2 qemu-aarch64 "$2" "${flags[@]}"
    awk '$2 == "cpu" { print $4, $5, $6 }' "$folder/out" | paste "$folder/here" - | tee "$folder/both"
    # Weights, moving statistics, loss.
    awk '{ for (i = 1; i <= 3; i++) if (NF != 6 || ($i - $(i + 3)) ^ 2 > ($i * 1e-4) ^ 2) bad = 1 } END { exit bad || NR != 2 }' \
        "$folder/both" || fail "this machine's weights, statistics and losses are others than ARM's: $(cat "$folder/both")"
    conclude
}

case $1 in
root) [[ -d $2 ]] || unpack "$2" ;;
run) exec "${on_arm[@]}" qemu-aarch64 "${@:2}" ;;
ranks) exec "${on_arm[@]}" common/scripts/mpi.sh run "$2" qemu-aarch64 "${@:3}" ;;
training) training "$2" "$3" ;;
esac
