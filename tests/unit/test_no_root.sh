#!/usr/bin/env bash
# make deps without root's rights: packages that are unpacked into a folder of the user's own, folders that settings name, and
# what is said where neither is possible. apt-get is a stand-in that has one package; tests/fresh.sh has the real one.

. tests/lib.sh
for each in dpkg-deb pkg-config mpicc mpirun; do
    command -v $each >/dev/null || skip "$each is not there"
done
unset MAKEFLAGS MFLAGS MAKELEVEL MPI_HOME ONEDNN DNNLROOT ONEDNN_ROOT EBROOTONEDNN CONDA_PREFIX VIRTUAL_ENV
export HOME=$folder/home XDG_DATA_HOME=$folder/data BUILD=$folder/build
triplet=$(gcc -dumpmachine)
says() { grep -qF -e "$1" "$folder/out" "$folder/err" || fail "\"$1\" is not said: $(cat "$folder/out" "$folder/err")"; }
# stub NAME: a program that comes first in PATH.
stub() { cat >"$folder/stubs/$1" && chmod +x "$folder/stubs/$1"; }

# ---- A machine without gnuplot, a user who is not root, and an apt that has it.

mkdir -p "$HOME" "$folder/stubs" "$folder/package/DEBIAN" "$folder/package/usr/bin" "$folder/package/usr/lib/$triplet/pkgconfig"
find /usr/bin /bin -maxdepth 1 ! -name 'gnuplot*' ! -name 'apt*' -exec ln -sf -t "$folder/stubs" {} + 2>/dev/null
rm -f "$folder/stubs/id" "$folder/stubs/sudo"
export PATH=$folder/stubs
stub id <<<'#!/bin/sh
echo 1000'
printf 'Package: gnuplot-nox\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n' >"$folder/package/DEBIAN/control"
printf '#!/bin/sh\necho "with $LD_LIBRARY_PATH"\n' >"$folder/package/usr/bin/gnuplot-nox"
chmod +x "$folder/package/usr/bin/gnuplot-nox"
ln -s libz.so.1 "$folder/package/usr/lib/$triplet/libfake.so" # the system has it
printf 'prefix=/usr\nName: fake\nDescription: x\nVersion: 1\nCflags: -I${prefix}/include/fake\n' >"$folder/package/usr/lib/$triplet/pkgconfig/fake.pc"
dpkg-deb --root-owner-group --build "$folder/package" "$folder/fake.deb" >/dev/null || fail "no package"

refused "or use the container: labs/clusters.md" common/scripts/deps.sh provide plot
stub apt-get <<END
#!/bin/sh
[ "\$LC_ALL" = C ] || exit 1 # its words are read
for word; do
    case \$word in
    Dir::Cache=*) cache=\${word#*=} ;;
    Dir::State::status=*) grep -q '^Package: gnuplot-nox' "\${word#*=}" && echo again >>"$folder/again" ;;
    install) cp "$folder/fake.deb" "\$cache/archives/" ;;
    esac
done
END
refused "or without root's rights: make deps" common/scripts/deps.sh install plot
[[ ! -e $XDG_DATA_HOME ]] || fail "something was unpacked, and nobody asked for it"
XDG_DATA_HOME="$folder/a b" run common/scripts/deps.sh provide plot
[[ $status -eq 2 ]] && says "XDG_DATA_HOME=/folder names another"
LC_ALL=C.UTF-8 succeeds common/scripts/deps.sh provide plot
says "1 packages are unpacked: 1 MiB"
own=$(echo "$XDG_DATA_HOME"/hvdlab/*)
says "rm -r $own removes them"
[[ ! -e $own/apt ]] || fail "what apt fetched stays"
[[ $("$own/bin/gnuplot") = "with $own/root/usr/lib/$triplet" ]] || fail "gnuplot: $("$own/bin/gnuplot" 2>&1)"
[[ -e $own/root/usr/lib/$triplet/libfake.so ]] || fail "a link to the system's library leads nowhere"
[[ $("$own/bin/pkg-config" --cflags fake) = "-I$own/root/usr/include/fake "* ]] || fail "pkg-config: $("$own/bin/pkg-config" --cflags fake)"
succeeds common/scripts/deps.sh install plot
[[ ! -s $folder/out && ! -s $folder/err ]] || fail "it is there, and asked for again: $(cat "$folder/out" "$folder/err")"
succeeds make -s env
says "export PATH='$own/bin:'"
run make -n "$BUILD/settings.link"
says "-Wl,--disable-new-dtags -L$own/root/usr/lib/$triplet -Wl,-rpath,$own/root/usr/lib/$triplet"
rm "$own/root/usr/bin/gnuplot"* "$own/bin/gnuplot"
succeeds common/scripts/deps.sh install plot # once there is such a folder
[[ -e $folder/again && -x $own/bin/gnuplot ]] || fail "what was unpacked is not taken for installed, or not completed"
rm -r "$XDG_DATA_HOME"

# ---- Folders that settings name.

opt=$folder/opt
mkdir -p "$opt/bin" "$opt/include/oneapi/dnnl" "$opt/lib64"
touch "$opt/include/oneapi/dnnl/dnnl.h" "$opt/lib64/libdnnl.so"
for each in mpirun mpicc; do
    printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v $each)" | tee "$opt/bin/$each" >/dev/null
    chmod +x "$opt/bin/$each"
done
# wrong WORDS SETTING...: one line, of make, before anything is built.
wrong()
{
    run make -s step-1 "${@:2}"
    [[ $status -eq 2 && $(wc -l <"$folder/err") -eq 1 ]] || fail "${*:2}: status $status, $(cat "$folder/out" "$folder/err")"
    says "$1"
}
wrong "MPI_HOME=/nowhere: no Open MPI's bin/mpirun and bin/mpicc are there" MPI_HOME=/nowhere
wrong "ONEDNN=$folder: include/oneapi/dnnl/dnnl.h or lib/libdnnl.so is not there" ONEDNN="$folder"
mkdir "$folder/a b"
cp -r "$opt/." "$folder/a b"
wrong "make takes no blanks" MPI_HOME="$folder/a b"
# taken COMMAND...: both are used.
taken()
{
    run "$@" make -n "$BUILD/settings.link"
    says "-isystem $opt/include"
    says "-L$opt/lib64 -Wl,-rpath,$opt/lib64"
    succeeds "$@" common/scripts/mpi.sh line 2 program
    grep -qE "^$opt/bin/mpirun .* -np 2 program$" "$folder/out" || fail "$*: $(cat "$folder/out")"
}
taken env MPI_HOME="$opt" ONEDNN="$opt"
(cd "$folder" && [[ $(MPI_HOME=opt sh -c '. "$1"; echo "$MPI_HOME"' sh "$OLDPWD/common/scripts/own.sh") == "$opt" ]]) || fail "MPI_HOME=opt"
taken env PATH="$PATH:$opt/bin" MPI_HOME="$opt" ONEDNN="$opt"
taken env PATH="$opt/bin:$PATH" DNNLROOT="$opt"      # as modules do
taken env PATH="$opt/bin:$PATH" CONDA_PREFIX="$opt"  # conda
taken env PATH="$opt/bin:$PATH" VIRTUAL_ENV="$opt"   # wheels
succeeds common/scripts/deps.sh provide MPI_HOME="$opt" ONEDNN="$opt"
says "rm $own/settings ends that"
taken env
rm -r "$opt"
succeeds common/scripts/mpi.sh line 2 program
grep -q '^mpirun' "$folder/out" || fail "a folder that is gone: $(cat "$folder/out")"

conclude
