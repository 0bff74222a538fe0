# shellcheck shell=sh
# Usage: compile-step FILE OUT [check | check-gpu]
#
# Makes a program of one file, wherever it is: graders and tests call it. make writes build/compile-step: in front of these
# lines stand the functions compile, link and rename_symbols, with the settings of the build; bounds and errors, options of the compiler;
# and behind the arguments, as $4 and $5, the whole library and the part that checks need.
#
# Calls by MPI's second names (PMPI_Send) become calls by the first ones (MPI_Send), so traces have them. The file's symbols
# become local, so no function of the library calls one of them in place of the C library's; except main, and names that the
# kit defines too, which the linker refuses. In a check:
# - an index outside of an array ends the program, with the file's line;
# - a symbol that is no name of C is an error, and so is a definition of a name of MPI or cJSON;
# - OUT.symbols lists the symbols that the file and the kit define and use, the file's sections, and its system calls;
# - a warning is no error, however the kit was built.

library=$4
case $3 in
check-gpu) errors='' ;;
check) errors='' library=$5 ;;
*) bounds='' ;;
esac
# shellcheck disable=SC2086 # words
compile $errors $bounds -c "$1" -o "$2.o" || exit
nm -P -g "$2.o" >"$2.names" && nm -P -g "$library" >"$2.kit" || exit
if [ -n "$3" ]; then
    awk -v file="$1" '
        !/^[A-Za-z_][A-Za-z0-9_]* [A-Za-z]( |$)/ { print file ": error: a symbol is no name of C" }
        $2 !~ /^[Uvw]$/ && /^(P?MPIX?_|cJSON_)/ { print file ": error: the program defines " $1 }' "$2.names" >"$2.errors"
    [ ! -s "$2.errors" ] || { cat "$2.errors" >&2; exit 1; }
    { echo "=file" && cat "$2.names" && echo "=kit" && cat "$2.kit" && echo "=sections" && objdump -h "$2.o" && echo "=calls" &&
        objdump -d "$2.o" | awk '/\t(syscall|sysenter|svc|int +\$0x80)/' | wc -l; } >"$2.symbols" || exit
fi
sed -n 's/^P\(MPI_[A-Za-z0-9_]*\) [Uvw].*/P\1 \1/p' "$2.names" >"$2.renamed"
{ echo main && awk '$2 !~ /^[Uvw]$/ { print $1 }' "$2.kit"; } >"$2.kept"
rename_symbols --redefine-syms="$2.renamed" --keep-global-symbols="$2.kept" "$2.o" || exit
# shellcheck disable=SC2086
link $bounds -o "$2" "$2.o" "$library"
status=$?
rm -f "$2.o" "$2.names" "$2.kit" "$2.errors" "$2.renamed" "$2.kept"
exit $status
