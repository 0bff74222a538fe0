#!/bin/sh
# Where Open MPI, oneDNN and packages are that are not the system's: a script sources this file, or
#
# Usage: own.sh      prints for the Makefile own=, MPI_HOME=, ONEDNN= and own_path=, or why a setting is wrong (status 2)
#
# Sets:
#   own_place  the folder for this user's packages on this system
#   own        the same, if unpack.sh has filled it; else empty
#   MPI_HOME   the folder above bin/mpirun of an Open MPI: as set; as `make deps` was told; as a module, conda or a virtual
#              environment puts it on PATH. Empty: the system's, or that of $own
#   ONEDNN     the folder above include/oneapi/dnnl, likewise; as modules of oneDNN name it
#   own_fault  why a setting is wrong; else empty
#   PATH       has MPI_HOME's programs first, and those of $own; own_path is what was added in front

# shellcheck source=/dev/null
own_system=$([ ! -r /etc/os-release ] || . /etc/os-release; echo "${ID:-linux}-${VERSION_ID:-unknown}-$(uname -m)")
own_place=${XDG_DATA_HOME:-${HOME:-}/.local/share}/hvdlab/$own_system
own=
[ ! -x "$own_place/bin/run" ] || own=$own_place
own_fault=

# The compiler's options for headers that were unpacked.
own_headers()
{
    [ -z "$own" ] || printf -- '-isystem %s ' "$own/root/usr/include" "$own"/root/usr/include/*-linux-gnu
}

own_kept() # SETTING
{
    [ ! -r "$own_place/settings" ] || sed -n "s/^$1=//p" "$own_place/settings"
}

# (Another MPI's mpicc does not know the option.)
own_is_mpi() # FOLDER
{
    [ -x "$1/bin/mpirun" ] && "$1/bin/mpicc" --showme:compile >/dev/null 2>&1
}

own_has_onednn() # FOLDER
{
    [ -e "$1/include/oneapi/dnnl/dnnl.h" ] || return
    for own_library in "$1"/lib/libdnnl.so "$1"/lib64/libdnnl.so "$1"/lib/*-linux-gnu/libdnnl.so; do
        [ ! -e "$own_library" ] || return 0
    done
    return 1
}

own_find_mpi()
{
    own_program=$(command -v mpirun) && own_folder=$(realpath -- "${own_program%/mpirun}") || return
    case $own_folder in
    /usr/bin | /bin | "${own:-/usr}"/*) ;;
    */bin) ! own_is_mpi "${own_folder%/bin}" || MPI_HOME=${own_folder%/bin} ;;
    esac
}

own_find_onednn()
{
    for own_folder in "${DNNLROOT:-}" "${ONEDNN_ROOT:-}" "${EBROOTONEDNN:-}" "${CONDA_PREFIX:-}" "${VIRTUAL_ENV:-}"; do
        ! own_has_onednn "$own_folder" || { ONEDNN=$own_folder && return; }
    done
}

# What is no longer there is forgotten.
[ -n "${MPI_HOME:-}" ] || { MPI_HOME=$(own_kept MPI_HOME) && own_is_mpi "$MPI_HOME"; } || MPI_HOME=
[ -n "${ONEDNN:-}" ] || { ONEDNN=$(own_kept ONEDNN) && own_has_onednn "$ONEDNN"; } || ONEDNN=
case $MPI_HOME in
"" | /*) ;;
*) MPI_HOME=$PWD/$MPI_HOME ;;
esac
if [ -z "$MPI_HOME" ]; then
    own_find_mpi
elif ! own_is_mpi "$MPI_HOME"; then
    own_fault="MPI_HOME=$MPI_HOME: no Open MPI's bin/mpirun and bin/mpicc are there; name the folder above them"
fi
if [ -z "$ONEDNN" ]; then
    own_find_onednn
elif ! own_has_onednn "$ONEDNN"; then
    own_fault="ONEDNN=$ONEDNN: include/oneapi/dnnl/dnnl.h or lib/libdnnl.so is not there; name the folder above include and lib"
fi
case $own$MPI_HOME$ONEDNN in
*[!A-Za-z0-9/._+@%=-]*) own_fault="make takes no blanks and signs in the name of a folder: '$own' '$MPI_HOME' '$ONEDNN'" ;;
esac
own_path=
own_first() # FOLDER
{
    own_path=$1/bin:$own_path PATH=$1/bin:$PATH
}
case :$PATH: in
*:"$own/bin":*) ;;
*) [ -z "$own" ] || own_first "$own" ;;
esac
# (Its folder may stand behind another's in PATH.)
[ -z "$MPI_HOME" ] || [ "$(command -v mpirun) $(command -v mpicc)" = "$MPI_HOME/bin/mpirun $MPI_HOME/bin/mpicc" ] || own_first "$MPI_HOME"
if [ "${0##*/}" = own.sh ]; then
    [ -z "$own_fault" ] || { echo "$own_fault" && exit 2; }
    echo "own=$own MPI_HOME=$MPI_HOME ONEDNN=$ONEDNN own_path=$own_path"
fi
