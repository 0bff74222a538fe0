#!/bin/sh
# Usage: deps.sh check|install SET...
#
# Looks for what the kit needs on this machine: the things themselves (headers, programs, files), so
# that libraries installed by hand count. `check` says what is missing. `install` installs it through
# apt, once it has said what: as root without asking, on a terminal with sudo after asking. Otherwise it
# prints the line to type. Status 0 if nothing is missing in the end, else 2.
#
# Sets: build (for every program but the unit tests), check (Check, for those, and what else the tests
# call; what test_cluster.sh calls is only recommended), sandbox (recommended: nothing is asked for on its
# account), steps (to cut the steps from master.c), plot (gnuplot), cluster (tc, mount), slurm, arm (to build
# for 64-bit ARM, and to run that), clang-format, lint (shellcheck, cppcheck), fuzz (clang with libFuzzer),
# valgrind, curl, print (pandoc, chromium), translate (po4a, gettext), browser (to test the page), class (to grade a class: programs, and libraries for archives, tables, names and hashes), fresh (mmdebstrap), dataset (Fashion-MNIST, if the distribution has it), dataset-or-fetch
# (the same, else it is fetched from its home).
#
# From the environment: CC, ONEDNN, CLANG_FORMAT, DATA_DIR as in the Makefile.

set -u
CC=${CC:-gcc}
missing=
wanted=
recommended=
log=
problem=

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

# tc is where not everybody's PATH leads.
tc_and_mount()
{
    PATH=$PATH:/usr/sbin:/sbin command -v tc >/dev/null && program mount
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
    # (Another MPI's mpicc does not know the option.)
    pkg-config --exists ompi-c 2>/dev/null || mpicc --showme:compile >/dev/null 2>&1 || need libopenmpi-dev
    program mpirun || need openmpi-bin
    header hwloc.h || need libhwloc-dev
    header cjson/cJSON.h || need libcjson-dev
    header zlib.h || need zlib1g-dev
    # nvcc needs it.
    ! command -v nvcc >/dev/null || program g++ || need build-essential
}

# Can the compiler make a program that libFuzzer feeds?
fuzzer()
{
    made=$(mktemp) || exit 2
    echo 'int LLVMFuzzerTestOneInput(void *bytes, unsigned long size) { return bytes && size > 4 ? -1 : 0; }' |
        $CC -fsanitize=fuzzer,address,undefined -x c -o "$made" - 2>/dev/null
    set -- $?
    rm -f "$made"
    return "$1"
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

# What apt says of a server that it doesn't reach.
unreachable='Temporary failure|Could not (resolve|connect)|Cannot initiate|Unable to connect|Connection (failed|refused|timed out)|Network is unreachable'

# Into $log. Waits a minute for another apt: a machine that has just started often updates itself. But
# not for a network that isn't there: apt would try each package for itself, so it is ended when the
# first one fails before anything has come.
apt()
{
    # shellcheck disable=SC2016,SC2094 # for the other shell, which becomes apt-get
    $sudo env DEBIAN_FRONTEND=noninteractive RES_OPTIONS="timeout:3 attempts:2" sh -c '
        log=$1 unreachable=$2
        shift 2
        while sleep 0.5 && kill -0 $$; do
            ! grep -A 1 "^Err:" "$log" | grep -qE "$unreachable" || grep -qE "^(Get|Hit):" "$log" || kill $$
        done &
        exec apt-get -q -o DPkg::Lock::Timeout=60 -o Acquire::Retries=0 \
            -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15 "$@"' \
        sh "$log" "$unreachable" "$@" >"$log" 2>&1
}

# apt_install PACKAGE...: quiet; what apt said is in $log, and in $problem if the network was to blame.
# Package lists that are not there or out of date make the first try fail, so that they are fetched
# only when they are needed; some other server's that can't be fetched do no harm.
apt_install()
{
    problem=
    [ -n "$log" ] || log=$(mktemp) || exit 2
    trap 'rm -f "$log"' EXIT
    trap 'exit 2' INT TERM HUP
    ! apt install -y --no-install-recommends "$@" || return 0
    # Not if the network is to blame.
    if ! grep -qE "$unreachable" "$log"; then
        apt update
        problem=$(grep -E -m 1 "$unreachable" "$log" | sed 's/^ *//')
        ! apt install -y --no-install-recommends "$@" || return 0
    fi
    problem=${problem:-$(grep -E -m 1 "$unreachable" "$log" | sed 's/^ *//')}
    return 1
}

# may_install PACKAGE...: sets $sudo and returns 0 if we may install, having asked where there is
# somebody to ask, and else said what comes.
may_install()
{
    sudo=
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" -eq 0 ]; then
        echo "hvdlab needs: $*. Installing with apt-get"
        return 0
    fi
    [ -t 0 ] && [ -t 1 ] && command -v sudo >/dev/null || return 1
    printf 'hvdlab needs: %s\nInstall with sudo apt-get? [Y/n] ' "$*"
    read -r answer || return 1
    case $answer in
    '' | [yY]*) sudo=sudo ;;
    *) return 1 ;;
    esac
}

# The end where something is missing and we don't install it, or couldn't.
give_up()
{
    if [ -n "$problem" ]; then
        echo "hvdlab: cannot fetch$missing: $problem. Is this machine on a network? Try again when it is" >&2
        exit 2
    fi
    [ -z "$log" ] || cat "$log" >&2
    line="apt-get update && apt-get install -y$missing"
    if ! command -v apt-get >/dev/null; then
        echo "hvdlab: missing, as Debian calls it:$missing. Install with your package manager." >&2
    elif [ "$(id -u)" -eq 0 ]; then
        echo "hvdlab: missing:$missing. Type: $line" >&2
    elif command -v sudo >/dev/null; then
        echo "hvdlab: missing:$missing. Type: sudo sh -c '$line'" >&2
    else
        echo "hvdlab: missing:$missing. Type: su -c '$line'" >&2
    fi
    exit 2
}

# What is asked for.
action=$1
shift
fetch=no
for set in "$@"; do
    case $set in
    build) need_build ;;
    check)
        pkg-config --exists check 2>/dev/null || header check.h || need check
        program patch || need patch
        program g++ || need build-essential
        program pgrep || need procps
        tc_and_mount || recommended="$recommended iproute2 mount"
        ;;
    sandbox) program bwrap || recommended="$recommended bubblewrap" ;;
    fresh) program mmdebstrap || need mmdebstrap ;;
    clang-format) program "${CLANG_FORMAT:-clang-format}" || need clang-format ;;
    lint)
        program shellcheck || need shellcheck
        program cppcheck || need cppcheck
        ;;
    fuzz) fuzzer || need "clang libclang-rt-dev" ;; # with CC=clang
    valgrind) program valgrind || need valgrind ;;
    curl) program curl || need curl ;;
    print)
        program pandoc || need pandoc
        program chromium || need chromium
        ;;
    translate)
        program po4a-translate || need po4a
        program msgfmt || need gettext
        ;;
    browser)
        program chromium || need chromium
        program chromedriver || need chromium-driver
        program pandoc || need pandoc
        program pdffonts || need poppler-utils
        /usr/bin/python3 -c 'import selenium' 2>/dev/null || need python3-selenium
        ;;
    class)
        for each in openssl zip unzip git; do
            program "$each" || need "$each"
        done
        for each in archive.h:libarchive-dev csv.h:libcsv-dev unicase.h:libunistring-dev openssl/evp.h:libssl-dev; do
            header "${each%:*}" || need "${each#*:}"
        done
        ;;
    steps) program unifdef || need unifdef ;;
    cluster) tc_and_mount || need "iproute2 mount" ;;
    slurm)
        for each in munged:munge slurmctld:slurmctld slurmd:slurmd srun:slurm-client; do
            PATH=$PATH:/usr/sbin:/sbin program "${each%:*}" || need "${each#*:}"
        done
        ;;
    arm)
        program aarch64-linux-gnu-gcc || need "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        program qemu-aarch64 || need qemu-user
        program mmdebstrap || need mmdebstrap
        ;;
    plot) program gnuplot || need gnuplot-nox ;;
    dataset | dataset-or-fetch)
        dataset || wanted=" dataset-fashion-mnist"
        [ "$set" = dataset ] || fetch=yes
        ;;
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

# What is only recommended comes along with something else, or where nobody has to be asked.
[ -n "$missing$wanted" ] || [ "$(id -u)" -eq 0 ] || recommended=
all=$missing$wanted$recommended
if [ -n "$all" ]; then
    # shellcheck disable=SC2086 # lists of packages
    if ! may_install $all; then
        [ -z "$missing" ] || give_up
    elif ! apt_install $all; then
        # The data set's package is not in every distribution, and the kit lives without it.
        # shellcheck disable=SC2086
        [ -z "$missing" ] || { [ -z "$problem" ] && apt_install $missing; } || give_up
    fi
fi
if [ -n "$wanted" ] && ! dataset; then
    missing=$wanted
    [ -z "$problem" ] || [ $fetch = no ] || give_up
    if [ $fetch = yes ]; then
        "$0" install curl && exec "${0%deps.sh}data.sh"
        exit 2
    fi
    echo "hvdlab: no package$wanted: type 'make data' to fetch the data set." >&2
fi
exit 0
