# Usage: awk -f mpi_others.awk mpi_calls.c mpi_messages.c - <DECLARATIONS
#
# Prints a C file that defines all functions of MPI that move data, or have to do with requests, but those that the two
# files watch: each leaves an event "call", once, and calls its second name. DECLARATIONS is mpi.h, preprocessed.

FILENAME != "-" {
    if (match($0, /^(WATCH[A-Z_]*|PERSISTENT)\([A-Za-z_]+(, [A-Za-z_]+)?/)) {
        split(substr($0, 1, RLENGTH), words, /[(, ]+/)
        known["MPI_" words[2]] = known["MPI_" words[3]] = 1
    } else if (match($0, /^int MPI_[A-Za-z_]+/))
        known[substr($0, 5, RLENGTH - 4)] = 1
    next
}

{ text = text " " $0 }

function define(name, parameters,    count, list, i, arguments)
{
    count = split(parameters, list, ",")
    for (i = 1; i <= count; i++) {
        gsub(/\[[^]]*\]| +$/, "", list[i])
        match(list[i], /[A-Za-z_0-9]+$/)
        arguments = arguments (i > 1 ? ", " : "") substr(list[i], RSTART)
    }
    printf "\nint %s(%s)\n{\n    trace_call_once();\n    return P%s(%s);\n}\n", name, parameters, name, arguments
}

END {
    print "#include <mpi.h>\n#if __has_include(<mpi-ext.h>)\n#include <mpi-ext.h>\n#endif\n#include \"observe/trace.h\""
    count = split(text, declarations, ";")
    for (i = 1; i <= count; i++) {
        line = declarations[i]
        gsub(/[ \t]+/, " ", line)
        if (!match(line, /(^| )int MPIX?_[A-Za-z_0-9]+ ?\([^()]*\)/))
            continue
        line = substr(line, RSTART, RLENGTH)
        name = line
        sub(/^ ?int /, "", name)
        sub(/ ?\(.*/, "", name)
        parameters = substr(line, index(line, "(") + 1)
        sub(/\)$/, "", parameters)
        data = parameters ~ /MPI_(Request|Message)/ || (parameters ~ /void *\*/ && parameters ~ /MPI_(Comm|Win|File) /)
        if (data && !(name in known) && name !~ /2c$|2f$|2f08$|[Pp]ack$|attr|Attr|Grequest|_T_/) {
            known[name] = 1
            define(name, parameters)
        }
    }
}
