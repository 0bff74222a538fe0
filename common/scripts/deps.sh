#!/bin/sh
# Usage: deps.sh check|install|provide SET... [MPI_HOME=FOLDER] [ONEDNN=FOLDER]
#
# Looks for what the kit needs on this machine: the things themselves (headers, programs, files), so
# that libraries installed by hand count. `check` says what is missing. `install` installs it through
# apt, once it has said what: as root without asking, on a terminal with sudo after asking. Otherwise it
# prints the line to type. `provide`, which is make deps, then unpacks the packages into a folder of the user's
# own instead (unpack.sh); once there is such a folder `install` does so, too. Status 0 if nothing is missing in the end, else 2.
#
# Sets: build (for every program but the unit tests), check (Check, for those, and what else the tests
# call; what test_cluster.sh calls is only recommended), sandbox (recommended: nothing is asked for on its
# account), steps (to cut the steps from master.c), plot (gnuplot), cluster (tc, mount), slurm, arm (to build
# for 64-bit ARM, and to run that), clang-format, lint (shellcheck, cppcheck), fuzz (clang with libFuzzer),
# valgrind, curl, print (pandoc, chromium), translate (po4a, gettext), browser (to test the page), class (to grade a class: programs, and libraries for archives, tables, names and hashes), fresh (mmdebstrap), dataset (Fashion-MNIST, if the distribution has it), dataset-or-fetch
# (the same, else it is fetched from its home). MPI_HOME and ONEDNN are kept for commands without them.
#
# From the environment: CC, ONEDNN, MPI_HOME, CLANG_FORMAT, DATA_DIR as in the Makefile.

set -u
# shellcheck source=common/scripts/own.sh
. "${0%deps.sh}own.sh"
CC=${CC:-gcc}
missing=
wanted=
recommended=
aside=
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

# needs PROGRAM[:PACKAGE]...: the packages of those that are not there. Some are where not everybody's PATH leads.
needs()
{
    for each in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${each%%:*}" >/dev/null || need "${each#*:}"
    done
}

header()
{
    # shellcheck disable=SC2046,SC2086 # words, as in a Makefile
    echo "#include <$1>" |
        $CC ${ONEDNN:+-isystem "$ONEDNN/include"} $(own_headers) ${CPPFLAGS:-} -E -x c -o /dev/null - 2>/dev/null
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
    [ -n "$MPI_HOME" ] || pkg-config --exists ompi-c 2>/dev/null || mpicc --showme:compile >/dev/null 2>&1 || need libopenmpi-dev
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
    # Programs find what was unpacked by links in data/.
    folder=$own/root/usr/share/datasets/fashion-mnist
    [ -n "$own" ] && [ -e "$folder/train-images-idx3-ubyte.gz" ] && mkdir -p "${DATA_DIR:-data}" &&
        ln -sf "$folder"/*-ubyte.gz "${DATA_DIR:-data}/"
}

# What apt says of a server that it doesn't reach.
unreachable='Temporary failure|Could not (resolve|connect)|Cannot initiate|Unable to connect|Connection (failed|refused|timed out)|Network is unreachable'

# Into $log. Waits a minute for another apt: a machine that has just started often updates itself. But
# not for a network that isn't there: apt would try each package for itself, so it is ended when the
# first one fails before anything has come.
apt()
{
    # shellcheck disable=SC2016,SC2086,SC2094 # for the other shell, which becomes apt-get; words
    $sudo env LC_ALL=C DEBIAN_FRONTEND=noninteractive RES_OPTIONS="timeout:3 attempts:2" sh -c '
        log=$1 unreachable=$2
        shift 2
        while sleep 0.5 && kill -0 $$; do
            ! grep -A 1 "^Err:" "$log" | grep -qE "$unreachable" || grep -qE "^(Get|Hit):" "$log" || kill $$
        done &
        exec apt-get -q -o DPkg::Lock::Timeout=60 -o Acquire::Retries=0 \
            -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15 "$@"' \
        sh "$log" "$unreachable" $aside "$@" >"$log" 2>&1
}

# apt_install PACKAGE...: quiet; what apt said is in $log, and in $problem if the network was to blame.
# Package lists that are not there or out of date make the first try fail, so that they are fetched
# only when they are needed; some other server's that can't be fetched do no harm.
apt_install()
{
    problem=
    [ -n "$log" ] || log=$(mktemp) || exit 2
    trap 'rm -rf "$log" ${aside:+"$own_place/apt"}' EXIT
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

# Without root's rights, where the user asked for it, now or before.
may_unpack()
{
    [ "$(id -u)" -ne 0 ] && { [ "$action" = provide ] || [ -n "$own" ]; } &&
        command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null
}

# unpack PACKAGE...: into the user's own folder, with all that they need and the system lacks. apt works in that folder,
# too, and takes for installed what is installed or was unpacked before.
unpack()
{
    case $own_place in
    *[!A-Za-z0-9/._+@%=-]*)
        echo "hvdlab: cannot unpack packages into $own_place: make takes no blanks and signs in its name; XDG_DATA_HOME=/folder names another" >&2
        exit 2
        ;;
    esac
    sudo=
    echo "hvdlab needs: $*. Without root's rights: apt fetches them and what they need, to be unpacked in $own_place"
    mkdir -p "$own_place/apt/lists/partial" "$own_place/apt/archives/partial" || exit 2
    cat /var/lib/dpkg/status "$own_place/packages" 2>/dev/null >"$own_place/apt/status"
    aside="-o Dir::State=$own_place/apt -o Dir::State::status=$own_place/apt/status -o Dir::Cache=$own_place/apt
        -o Debug::NoLocking=1 -o APT::Sandbox::User= -o APT::Get::Download-Only=1"
    apt_install "$@" || return 1
    "${0%deps.sh}unpack.sh" "$own_place" "$own_place"/apt/archives/*.deb || exit 2
    rm -rf "$own_place/apt"
    echo "hvdlab: $(grep -c ^Package: "$own_place/packages") packages are unpacked: $(du -sm "$own_place" | cut -f 1) MiB. The kit's commands use them; rm -r $own_place removes them"
    own=$own_place
}

# What is taken that is not the system's; and keeps the settings.
report()
{
    if [ -n "$kept" ]; then
        mkdir -p "$own_place" || exit 2
        # shellcheck disable=SC2086 # words
        { printf '%s\n' $kept && grep -vE "^(${kept:+$(printf '%s|' $kept | sed 's/=[^|]*//g')}-)=" "$own_place/settings"; } \
            2>/dev/null >"$own_place/settings.new"
        mv "$own_place/settings.new" "$own_place/settings" || exit 2
        echo "hvdlab: commands without these settings take$kept, too; rm $own_place/settings ends that"
    fi
    [ -z "$own" ] || echo "hvdlab: packages are taken from $own"
    [ -z "$MPI_HOME" ] || echo "hvdlab: Open MPI is taken from $MPI_HOME ($("$MPI_HOME/bin/mpirun" --version 2>&1 | head -n 1))"
    [ -z "$ONEDNN" ] || echo "hvdlab: oneDNN is taken from $ONEDNN"
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
        echo "hvdlab: missing, as Debian calls it:$missing. Install with your package manager. Without root's rights: module load what your cluster" \
            "has, or name folders (make deps MPI_HOME=... ONEDNN=...), or use the container: labs/clusters.md" >&2
    elif [ "$(id -u)" -eq 0 ]; then
        echo "hvdlab: missing:$missing. Type: $line" >&2
    elif command -v sudo >/dev/null; then
        echo "hvdlab: missing:$missing. Type: sudo sh -c '$line', or without root's rights: make deps" >&2
    else
        echo "hvdlab: missing:$missing. Type: su -c '$line', or without root's rights: make deps" >&2
    fi
    exit 2
}

# What is asked for.
action=$1
shift
fetch=no
kept=
for set in "$@"; do
    case $set in
    build) need_build ;;
    check)
        pkg-config --exists check 2>/dev/null || header check.h || need check
        needs patch g++:build-essential pgrep:procps
        tc_and_mount || recommended="$recommended iproute2 mount"
        ;;
    sandbox) program bwrap || recommended="$recommended bubblewrap" ;;
    fresh) needs mmdebstrap ;;
    clang-format) needs "${CLANG_FORMAT:-clang-format}:clang-format" ;;
    lint) needs shellcheck cppcheck ;;
    fuzz) fuzzer || need "clang libclang-rt-dev" ;; # with CC=clang
    valgrind | curl) needs "$set" ;;
    print) needs pandoc chromium ;;
    translate) needs po4a-translate:po4a msgfmt:gettext ;;
    browser)
        needs chromium chromedriver:chromium-driver pandoc pdffonts:poppler-utils
        /usr/bin/python3 -c 'import selenium' 2>/dev/null || need python3-selenium
        ;;
    class)
        needs openssl zip unzip git
        for each in archive.h:libarchive-dev csv.h:libcsv-dev unicase.h:libunistring-dev openssl/evp.h:libssl-dev; do
            header "${each%:*}" || need "${each#*:}"
        done
        ;;
    steps) needs unifdef ;;
    cluster) tc_and_mount || need "iproute2 mount" ;;
    slurm) needs munged:munge slurmctld slurmd srun:slurm-client ;;
    arm) needs "aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu libc6-dev-arm64-cross" qemu-aarch64:qemu-user mmdebstrap ;;
    plot) needs gnuplot:gnuplot-nox ;;
    dataset | dataset-or-fetch)
        dataset || wanted=" dataset-fashion-mnist"
        [ "$set" = dataset ] || fetch=yes
        ;;
    MPI_HOME=* | ONEDNN=*) kept="$kept $set" ;;
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
    if may_install $all; then
        how=apt_install
    elif may_unpack; then
        how=unpack all=$missing$wanted
    else
        how=false
        [ -z "$missing" ] || give_up
    fi
    # The data set's package is not in every distribution, and the kit lives without it. sudo may refuse.
    # shellcheck disable=SC2086
    $how $all || [ -z "$missing" ] || { [ -z "$problem" ] && $how $missing; } ||
        { [ -z "$problem" ] && [ "$sudo" ] && may_unpack && unpack $missing; } || give_up
fi
if [ -n "$wanted" ] && ! dataset; then
    missing=$wanted
    [ -z "$problem" ] || [ $fetch = no ] || give_up
    if [ $fetch = yes ]; then
        "$0" install curl && PATH=$own_place/bin:$PATH exec "${0%deps.sh}data.sh"
        exit 2
    fi
    echo "hvdlab: no package$wanted: type 'make data' to fetch the data set." >&2
fi
[ "$action" != provide ] || report
exit 0
