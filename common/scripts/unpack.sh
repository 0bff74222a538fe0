#!/bin/sh
# Usage: unpack.sh FOLDER FILE.deb...
#
# Unpacks Debian packages into FOLDER/root, where nothing is installed and no root's rights are needed, so that their
# programs and libraries work from there. FOLDER then has
#   root/      the packages' files, without documentation; links lead to the system's libraries that they need
#   bin/       for each program a link to bin/run, which starts it with its libraries and settings
#   mpi        Open MPI's settings, as words NAME=VALUE: it is not where it was built for
#   packages   what apt is to take for installed

set -eu
folder=$1
shift
root=$folder/root
mkdir -p "$folder/bin" "$root/usr"
# As Debian has it: packages name both.
for part in bin sbin lib lib64; do
    mkdir -p "$root/usr/$part"
    [ -e "$root/$part" ] || ln -s "usr/$part" "$root/$part"
done
for package in "$@"; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink --no-same-owner \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' ||
        { echo "hvdlab: cannot unpack ${package##*/} into $root" >&2 && exit 2; }
    { dpkg-deb -f "$package" && printf 'Status: install ok installed\n\n'; } >>"$folder/packages"
done

# What would be an alternative: the library of an Open MPI's plugin.
for file in "$root"/usr/lib/libpsm1/libpsm_infinipath.so.*; do
    [ ! -e "$file" ] || ln -sf "$file" "$(echo "$root"/usr/lib/*-linux-gnu)/libpsm_infinipath.so.1"
done

# The triplet's folder, and the system's libraries that packages take for granted.
libraries=$(echo "$root"/usr/lib/*-linux-gnu)
triplet=${libraries##*/}
for file in "/usr/lib/$triplet"/*.so.* /usr/lib64/*.so.* /lib64/*.so.*; do
    [ ! -e "$file" ] || [ -e "$root$file" ] || ln -sf "$file" "$root$file"
done
find "$libraries/pkgconfig" "$root/usr/share/pkgconfig" -name '*.pc' -exec sed -i "s|=/usr|=$root/usr|" {} + 2>/dev/null || :

# Open MPI 4's libraries and plugins look for others where it was built for. As long a path, from where they are:
mpi=$libraries/openmpi/lib old=/usr/lib/$triplet/openmpi/lib new='$ORIGIN:$ORIGIN/../../..'
while [ ${#new} -lt ${#old} ]; do
    new=$new/
done
find "$libraries" -name '*.so*' -type f -exec grep -laFZ "$old" {} + | LC_ALL=C xargs -0r sed -i "s|\x00$old\x00|\x00$new\x00|g"

pmix=$libraries/pmix2
[ ! -e "$mpi" ] || cat >"$folder/mpi" <<END
OPAL_PREFIX=$root/usr OPAL_BINDIR=$folder/bin OPAL_LIBDIR=$mpi OPAL_INCLUDEDIR=$libraries/openmpi/include OPAL_SYSCONFDIR=$root/etc/openmpi
PRTE_PREFIX=$root/usr PMIX_LIBDIR=$pmix/lib PMIX_DATADIR=$pmix/share
END

fonts=$root/etc/fonts/fonts.conf
[ ! -e "$fonts" ] || sed -i "s|<dir>/usr/share/fonts|<dir>$root/usr/share/fonts|" "$fonts"

cat >"$folder/bin/new" <<END
#!/bin/sh
# Starts the program of this name, as hvdlab's make deps has unpacked it; or the system's (pkg-config).
root=$root libraries=$libraries
name=\${0##*/}
export PATH="$folder/bin:\$PATH" LD_LIBRARY_PATH="\$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export PKG_CONFIG_PATH="\$libraries/pkgconfig:\$root/usr/share/pkgconfig\${PKG_CONFIG_PATH:+:\$PKG_CONFIG_PATH}"
export PERL5LIB="\$root/usr/share/perl5$(printf ':%s' "$libraries"/perl5/*)\${PERL5LIB:+:\$PERL5LIB}"
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_FILE=$fonts
case \$name in
mpi* | orte* | prte* | ompi*) export \$(cat "$folder/mpi") ;;
*gcc* | *g++* | *cpp*) [ ! -e "\$root/usr/include/stdio.h" ] || set -- --sysroot="\$root" "\$@" ;;
esac
for program in "\$root/usr/bin/\$name" "\$root/usr/sbin/\$name" "/usr/bin/\$name"; do
    [ ! -x "\$program" ] || exec "\$program" "\$@"
done
echo "$folder/bin/\$name: the program is gone; make deps unpacks it again" >&2
exit 127
END
chmod +x "$folder/bin/new"
# What would be alternatives; then all.
for program in "$root"/usr/bin/*.openmpi "$root"/usr/bin/*-nox; do
    name=${program%.openmpi}
    [ ! -x "$program" ] || ln -sf "${program##*/}" "${name%-nox}"
done
for program in "$root"/usr/bin/* "$root"/usr/sbin/* /usr/bin/pkg-config; do
    [ ! -x "$program" ] || ln -sf run "$folder/bin/${program##*/}"
done
mv "$folder/bin/new" "$folder/bin/run"
