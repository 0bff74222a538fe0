#!/bin/sh
# Usage: data.sh [cifar10]
#
# Fetches the four files of Fashion-MNIST from $FASHION_MNIST_URL into $DATA_DIR; or the archive of
# CIFAR-10's binary version from $CIFAR10_URL, and unpacks it there. A file appears under its name, and
# so does CIFAR-10's folder, only when it is complete and its SHA-256 (or the archive's) is right; a file
# that is there and right is kept, and so is that folder; another file of that name gets a new name. Status 0, or 2 with one line that says what is
# wrong.
#
# The sums are those of the files at the official homes. The files of Debian's package have other
# sums: they hold the same compressed data, but lack the name and time in the gzip header.

set -u
what=${1:-}
folder=${DATA_DIR:?}

goal="make data${what:+-$what}"
. common/scripts/folders.sh
fail() { refuse "$1"; }

# sum_is FILE SUM
sum_is()
{
    [ "$(sha256sum <"$1")" = "$2  -" ]
}

# fetch_part URL SUM NAME: into $part.
fetch_part()
{
    echo "$folder/$3: fetching from $1"
    problem=$(curl --fail --silent --show-error --location --connect-timeout 20 \
        --speed-limit 1000 --speed-time 30 --output "$part" "$1/$3" 2>&1) ||
        fail "can't fetch $1/$3: ${problem#curl: }"
    sum_is "$part" "$2" || fail "$1/$3 is damaged: its SHA-256 is not $2"
}

# fetch SUM NAME
fetch()
{
    file=$folder/$2
    if [ -f "$file" ] && sum_is "$file" "$1"; then
        echo "$file: already there"
        return
    fi
    fetch_part "${FASHION_MNIST_URL:?}" "$1" "$2"
    if [ -e "$file" ] || [ -L "$file" ]; then
        other=$file.other-$(date +%Y%m%d-%H%M%S)
        mv -n -- "$file" "$other" && echo "$file: was another file, which is now $other"
    fi
    mv -n -T "$part" "$file" || exit 2
}

# unpack SUM ARCHIVE NAME: the folder NAME in the archive.
unpack()
{
    if [ -e "$folder/$3" ]; then
        echo "$folder/$3: already there"
        return
    fi
    fetch_part "${CIFAR10_URL:?}" "$1" "$2"
    mkdir "$work/unpacked" || exit 2
    problem=$(tar -xzf "$part" -C "$work/unpacked" 2>&1) ||
        fail "can't unpack $2: $(echo "$problem" | head -n 1)"
    mv -n -T "$work/unpacked/$3" "$folder/$3" || exit 2
}

mkdir -p "$folder" || exit 2
work=$(mktemp -d "$folder/.part-XXXXXX") || exit 2
part=$work/part
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM HUP

if [ "$what" = cifar10 ]; then
    unpack c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd cifar-10-binary.tar.gz cifar-10-batches-bin
    exit
fi
fetch 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 train-images-idx3-ubyte.gz
fetch a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 train-labels-idx1-ubyte.gz
fetch 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 t10k-images-idx3-ubyte.gz
fetch 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 t10k-labels-idx1-ubyte.gz
