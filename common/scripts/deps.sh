#!/bin/sh
# Usage: deps.sh check|install SET...
#
# Looks for what the kit needs on this machine: the things themselves (headers, programs, files), so
# that libraries installed by hand count. `check` says what is missing. `install` installs it through
# apt: as root at once, on a terminal with sudo after asking. Otherwise it prints the line to type.
# Status 0 if nothing is missing in the end, else 2.
#
# Sets: build, check (the unit test library, and patch), steps (to cut the steps from master.c), plot
# (gnuplot), clang-format, curl, dataset (Fashion-MNIST, if the distribution has it),
# dataset-or-fetch (the same, else it is fetched from its home).
#
# From the environment: CC, ONEDNN, CLANG_FORMAT, DATA_DIR as in the Makefile.

set -u
CC=${CC:-gcc}
missing=

# $CC may be several words, such as "ccache gcc"; the last one is the compiler.
compiler=${CC##* }

# Adds a package to the list.
need()
{
    missing="$missing $1"
}

program()
{
    command -v "$1" >/dev/null
}

header()
{
    # shellcheck disable=SC2086 # words, as in a Makefile
    echo "#include <$1>" |
        $CC ${ONEDNN:+-isystem "$ONEDNN/include"} ${CPPFLAGS:-} -E -x c -o /dev/null - 2>/dev/null
}

need_build()
{
    program make || need build-essential
    # Without a compiler no header is found either; apt leaves alone what is installed already.
    program "$compiler" || case $compiler in
    gcc | cc) need build-essential ;;
    gcc-* | clang*) need "$compiler" ;;
    *)
        echo "hvdlab: CC=$CC: no such program: $compiler" >&2
        exit 2
        ;;
    esac
    header omp.h || case $compiler in
    *clang*) need libomp-dev ;;
    esac
    program pkg-config || need pkg-config
    header oneapi/dnnl/dnnl.h || need libdnnl-dev
    pkg-config --exists ompi-c 2>/dev/null || program mpicc || need libopenmpi-dev
    program mpirun || need openmpi-bin
    header hwloc.h || need libhwloc-dev
    header cjson/cJSON.h || need libcjson-dev
    header zlib.h || need zlib1g-dev
    # nvcc needs it.
    ! command -v nvcc >/dev/null || program g++ || need build-essential
}

# Is the data set here?
dataset()
{
    for folder in /usr/share/datasets/fashion-mnist "${DATA_DIR:-data}"; do
        [ -e "$folder/train-images-idx3-ubyte.gz" ] && return 0
        [ -e "$folder/train-images-idx3-ubyte" ] && return 0
    done
    return 1
}

apt()
{
    # Waits a minute for another apt: a machine that has just started often updates itself.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=60 "$@"
}

# apt_install PACKAGE...: quiet unless it fails. Package lists that are not there or out of date make
# the first try fail, so that they are fetched only when they are needed.
apt_install()
{
    log=$(mktemp) || exit 2
    apt install -y --no-install-recommends "$@" >"$log" 2>&1 ||
        { apt update && apt install -y --no-install-recommends "$@"; } >"$log" 2>&1
    status=$?
    [ $status -eq 0 ] || [ "$loud" = no ] || cat "$log" >&2
    rm -f "$log"
    return $status
}

# may_install WHAT: sets $sudo and returns 0 if we may install, asking where there is somebody to ask.
may_install()
{
    sudo=
    [ "$(id -u)" -eq 0 ] && return 0
    [ -t 0 ] && [ -t 1 ] && command -v sudo >/dev/null || return 1
    printf 'hvdlab needs: %s\nInstall with sudo apt-get? [Y/n] ' "$*"
    read -r answer || return 1
    case $answer in
    '' | [yY]*) sudo=sudo ;;
    *) return 1 ;;
    esac
}

# The end where something is missing and we don't install it.
give_up()
{
    if ! command -v apt-get >/dev/null; then
        echo "hvdlab: missing, as Debian calls it:$missing. Install with your package manager." >&2
    elif [ "$(id -u)" -eq 0 ]; then
        echo "hvdlab: missing:$missing. Type: apt-get install -y$missing" >&2
    elif command -v sudo >/dev/null; then
        echo "hvdlab: missing:$missing. Type: sudo apt-get install -y$missing" >&2
    else
        echo "hvdlab: missing:$missing. Type: su -c 'apt-get install -y$missing'" >&2
    fi
    exit 2
}

# What is asked for.
action=$1
shift
fetch=no
want_dataset=no
for set in "$@"; do
    case $set in
    build) need_build ;;
    check)
        pkg-config --exists check 2>/dev/null || header check.h || need check
        program patch || need patch
        program g++ || need build-essential
        ;;
    clang-format) program "${CLANG_FORMAT:-clang-format}" || need clang-format ;;
    lint)
        program shellcheck || need shellcheck
        program cppcheck || need cppcheck
        ;;
    curl) program curl || need curl ;;
    steps) program unifdef || need unifdef ;;
    plot) program gnuplot || need gnuplot-nox ;;
    dataset) want_dataset=yes ;;
    dataset-or-fetch) want_dataset=yes fetch=yes ;;
    *)
        echo "deps.sh: unknown set: $set" >&2
        exit 2
        ;;
    esac
done
# A package may have been asked for twice.
missing=$(for package in $missing; do printf ' %s\n' "$package"; done | awk '!seen[$0]++' | tr -d '\n')

if [ "$action" = check ]; then
    [ -z "$missing" ] || give_up
    exit 0
fi

loud=yes
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # a list of packages
    if command -v apt-get >/dev/null && may_install $missing; then
        echo "Installing:$missing"
        apt_install $missing || give_up
    else
        give_up
    fi
fi

# The data set's package is not in every distribution, and the kit lives without it.
if [ $want_dataset = yes ] && ! dataset; then
    loud=no
    if command -v apt-get >/dev/null && may_install dataset-fashion-mnist; then
        echo "Installing: dataset-fashion-mnist"
        apt_install dataset-fashion-mnist
    fi
    if ! dataset; then
        if [ $fetch = yes ]; then
            "$0" install curl && exec "${0%deps.sh}data.sh"
            exit 2
        fi
        echo "hvdlab: no package dataset-fashion-mnist: type 'make data' to fetch the data set." >&2
    fi
fi
exit 0
