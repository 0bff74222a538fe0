#!/bin/sh
# Usage: data.sh
#
# Fetches the four files of Fashion-MNIST from $FASHION_MNIST_URL into $DATA_DIR. A file appears under
# its name only when it is complete and its SHA-256 is right; a file that is there and right is kept.
# Status 0, or 2 with one line that says what is wrong.
#
# The sums are those of the files at the official home. The files of Debian's package have other
# sums: they hold the same compressed data, but lack the name and time in the gzip header.

set -u
url=${FASHION_MNIST_URL:?}
folder=${DATA_DIR:?}

fail()
{
    echo "make data: $1" >&2
    exit 2
}

# sum_is FILE SUM
sum_is()
{
    [ "$(sha256sum <"$1")" = "$2  -" ]
}

# fetch SUM NAME
fetch()
{
    file=$folder/$2
    if [ -f "$file" ] && sum_is "$file" "$1"; then
        echo "$file: already there"
        return
    fi
    echo "$file: fetching from $url"
    problem=$(curl --fail --silent --show-error --location --connect-timeout 20 \
        --speed-limit 1000 --speed-time 30 --output "$part" "$url/$2" 2>&1) ||
        fail "can't fetch $url/$2: ${problem#curl: }"
    sum_is "$part" "$1" || fail "$url/$2 is damaged: its SHA-256 is not $1"
    mv "$part" "$file" || exit 2
}

mkdir -p "$folder" || exit 2
part=$folder/.part.$$
trap 'rm -f "$part"' EXIT
trap 'exit 2' INT TERM HUP

fetch 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 train-images-idx3-ubyte.gz
fetch a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 train-labels-idx1-ubyte.gz
fetch 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 t10k-images-idx3-ubyte.gz
fetch 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 t10k-labels-idx1-ubyte.gz
