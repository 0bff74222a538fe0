#!/usr/bin/env bash
# `make data` and `make data-cifar10` against a server on this machine: good files arrive, and whatever is
# wrong ends with one clear line, status 2, and no file that is not whole. Needs python3, curl and
# Fashion-MNIST; an archive that is made here stands for CIFAR-10's.

. tests/lib.sh
command -v python3 >/dev/null || skip "no python3 to serve files"
command -v curl >/dev/null || skip "no curl"

server=
trap 'rm -rf "$folder"; [[ -z $server ]] || kill "$server"' EXIT
site=$folder/site data=$folder/data
mkdir "$site"

# The files as their home has them: from data/, or from Debian's package with the header that gzip
# wrote at the time, which holds the name and the time of the file.
package=/usr/share/datasets/fashion-mnist
as_at_home() # NAME TIME, the time as four bytes
{
    if [[ -f data/$1.gz ]]; then
        cp "data/$1.gz" "$site/"
    elif [[ -f $package/$1.gz ]]; then
        { printf '\x1f\x8b\x08\x08%b\x00\x03%s\x00' "$2" "$1" && tail -c +11 "$package/$1.gz"; } >"$site/$1.gz"
    else
        skip "no Fashion-MNIST on this machine"
    fi
}
as_at_home train-images-idx3-ubyte '\xde\xe9\xa7\x59'
as_at_home train-labels-idx1-ubyte '\xde\xe9\xa7\x59'
as_at_home t10k-images-idx3-ubyte '\xf3\xe9\xa7\x59'
as_at_home t10k-labels-idx1-ubyte '\xf3\xe9\xa7\x59'

python3 -u -m http.server --bind 127.0.0.1 --directory "$site" 0 >"$folder/server" 2>/dev/null &
server=$!
for _ in {1..100}; do
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$folder/server")
    [[ -z $port ]] || break
    sleep 0.1
done
[[ -n $port ]] || skip "python3's server did not start"
home=http://127.0.0.1:$port

# This make is not part of the one that runs the tests, and needs no proxy.
unset MAKEFLAGS MFLAGS MAKELEVEL
export no_proxy=127.0.0.1
make_data() # URL
{
    make --no-print-directory data DATA_DIR="$data" FASHION_MNIST_URL="$1" >"$folder/out" 2>"$folder/err"
}

# Nothing but the files that are expected, whole, and no temporary one.
holds() # WHAT FILE...
{
    local what=$1
    shift
    [[ $(ls -A "$data") == "$(printf '%s\n' "$@" | sort)" ]] || fail "$what: the folder holds $(ls -A "$data")"
    for file in "$@"; do
        cmp "$data/$file" "$site/$file" || fail "$what: $file is not what was served"
    done
}

# Status 2 and one line, beside make's own, in which TEXT stands.
refused() # WHAT URL TEXT
{
    make_data "$2"
    local status=$?
    [[ $status -eq 2 ]] || fail "$1: status $status"
    [[ $(grep -vc '^make: ' "$folder/err") -eq 1 ]] || fail "$1: $(cat "$folder/err")"
    grep -qF "$3" "$folder/err" || fail "$1: $(cat "$folder/err")"
}

images=(train-images-idx3-ubyte.gz t10k-images-idx3-ubyte.gz)
labels=(train-labels-idx1-ubyte.gz t10k-labels-idx1-ubyte.gz)

make_data "$home" || fail "good files: $(cat "$folder/err")"
holds "good files" "${images[@]}" "${labels[@]}"

# A file that is there and right is not fetched again; one that is damaged is.
echo damaged >"$data/${labels[0]}"
make_data "$home" || fail "one damaged file in data: $(cat "$folder/err")"
grep -qx damaged "$data/${labels[0]}".other-* && rm "$data/${labels[0]}".other-* || fail "the other file is not kept: $(ls "$data")"
holds "one damaged file in data" "${images[@]}" "${labels[@]}"
[[ $(grep -c fetching "$folder/out") -eq 1 ]] || fail "fetched too much: $(cat "$folder/out")"

# Served files that are wrong. The three before it in the list stay.
mv "$site/${labels[1]}" "$folder/good"
kept=("${images[@]}" "${labels[0]}")

{ head -c 4999 "$folder/good" && printf 'x' && tail -c +5001 "$folder/good"; } >"$site/${labels[1]}"
cmp -s "$folder/good" "$site/${labels[1]}" && fail "the damaged file is not damaged"
rm "$data/${labels[1]}"
refused "one wrong byte" "$home" "${labels[1]} is damaged"
holds "one wrong byte" "${kept[@]}"

head -c 4000 "$folder/good" >"$site/${labels[1]}"
refused "cut short" "$home" "${labels[1]} is damaged"
holds "cut short" "${kept[@]}"

rm "$site/${labels[1]}"
refused "not there" "$home" "can't fetch $home/${labels[1]}"
holds "not there" "${kept[@]}"

# ---- CIFAR-10: the target refuses what is not the archive; the script, told the sum of another one,
# unpacks that.

archive=cifar-10-binary.tar.gz binary=cifar-10-batches-bin
mkdir "$folder/$binary"
for i in 1 2 3 4 5; do echo "batch $i" >"$folder/$binary/data_batch_$i.bin"; done
echo test >"$folder/$binary/test_batch.bin"
tar -czf "$site/$archive" -C "$folder" "$binary"
sum=$(sha256sum <"$site/$archive")
sed "s/ [0-9a-f]\{64\} $archive/ ${sum%% *} $archive/" common/scripts/data.sh >"$folder/data.sh"
chmod +x "$folder/data.sh"
rm -rf "$data"

make_data() { make --no-print-directory data-cifar10 DATA_DIR="$data" CIFAR10_URL="$1" >"$folder/out" 2>"$folder/err"; }
fetch_cifar10() { DATA_DIR=$data CIFAR10_URL=$home "$folder/data.sh" cifar10 >"$folder/out" 2>"$folder/err"; }

refused "another archive" "$home" "make data-cifar10: $home/$archive is damaged"
holds "another archive"

fetch_cifar10 || fail "CIFAR-10: $(cat "$folder/err")"
[[ $(ls -A "$data") == "$binary" ]] || fail "CIFAR-10: the folder holds $(ls -A "$data")"
diff -r "$folder/$binary" "$data/$binary" || fail "CIFAR-10 is not what was served"
fetch_cifar10 || fail "CIFAR-10 again: $(cat "$folder/err")"
grep -q "already there" "$folder/out" || fail "CIFAR-10 was fetched again: $(cat "$folder/out")"
rm -rf "$data"

head -c 100 "$site/$archive" >"$folder/cut" && mv "$folder/cut" "$site/$archive"
sum=$(sha256sum <"$site/$archive")
sed -i "s/ [0-9a-f]\{64\} $archive/ ${sum%% *} $archive/" "$folder/data.sh"
fetch_cifar10
[[ $? -eq 2 && $(wc -l <"$folder/err") -eq 1 ]] || fail "an archive that is cut short: $(cat "$folder/err")"
[[ -z $(ls -A "$data") ]] || fail "an archive that is cut short: the folder holds $(ls -A "$data")"

kill "$server"
wait "$server" 2>/dev/null
server=
refused "no server" "$home" "can't fetch $home/$archive"
holds "no server"

conclude
