#!/usr/bin/env bash
# Usage: tests/mpi/test_hvd_run.sh
#
# What hvd_run promises: a function of a plain program runs in a job of so many workers, which never come to
# main; its result is the root's; a worker that dies ends the program with the job's status and a line; and
# nothing is left.

. tests/lib.sh
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_FLAGS HVDLAB_TRACE HVDLAB_RUN
export HVD_RUN_TEST=$folder

cat >"$folder/plain.c" <<'END'
#include "hvdlab.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *argument, const char *word)
{
    return argument && strcmp(argument, word) == 0;
}

static char *work(const char *argument)
{
    float sum = (float)(hvd_rank() + 1);
    hvd_allreduce(&sum, 1, HVD_SUM);
    if (hvd_rank() == hvd_size() - 1 && is(argument, "late"))
        sleep(1);
    if (hvd_rank() == hvd_size() - 1 && (is(argument, "late") || is(argument, "kill")))
        raise(SIGKILL);
    if (is(argument, "misuse"))
        hvd_broadcast(&sum, 1, 99);
    if (is(argument, "again"))
        hvd_run(1, work, NULL);
    while (is(argument, "sleep"))
        sleep(1);
    if (is(argument, "cores")) {
        device_use(hvd_rank() % 2);
        printf("cores %s\n", device_cores());
        return NULL;
    }
    printf("worker %d of %d: sum %g, argument %.20s\n", hvd_rank(), hvd_size(), sum,
           argument ? argument : "none");
    if (is(argument, "exit"))
        exit(0);
    bool root = hvd_rank() == 0;
    if (is(argument, "shutdown"))
        hvd_shutdown();
    return root && argument ? strdup(argument) : NULL;
}

static void show(const char *result)
{
    printf("result %zu %.20s\n", result ? strlen(result) : 0, result ? result : "none");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *argument = argc > 2 ? argv[2] : NULL;
    printf("main\n");
    if (is(what, "init"))
        hvd_init();
    if (is(what, "device"))
        free(device_cores());
    if (is(what, "many"))
        hvd_run(1000000, work, NULL);
    if (is(what, "none"))
        hvd_run(0, work, NULL);
    if (is(what, "null"))
        hvd_run(1, NULL, NULL);
    if (is(what, "foreign"))
        hvd_run(1, (char *(*)(const char *))strdup, NULL);
    if (is(what, "deleted"))
        unlink(argv[0]);
    static char text[1000001];
    if (is(what, "long"))
        argument = memset(text, 'x', sizeof text - 1);
    char *first = hvd_run(3, work, argument), *second = is(what, "twice") ? hvd_run(2, work, first) : NULL;
    show(first);
    if (second)
        show(second);
    free(first);
    free(second);
    char line[64];
    if (is(what, "read"))
        printf("main read %s\n", fgets(line, sizeof line, stdin) ? strtok(line, "\n") : "nothing");
    return 0;
}
END
"$build/compile-step" "$folder/plain.c" "$folder/plain" || exit 1

# printed LINE...: these lines, in any order, and no others.
printed()
{
    [[ $status -eq 0 && $(sort "$folder/out") = "$(printf '%s\n' "$@" | sort)" ]] ||
        fail "status $status: $(cat "$folder/out" "$folder/err")"
}
run "$folder/plain" twice "two words"
printed main "worker "{0,1,2}" of 3: sum 6, argument two words" "result 9 two words" \
    "worker "{0,1}" of 2: sum 3, argument two words" "result 9 two words"
run "$folder/plain"
printed main "worker "{0,1,2}" of 3: sum 6, argument none" "result 0 none"
run "$folder/plain" "" ""
printed main "worker "{0,1,2}" of 3: sum 6, argument " "result 0 "
run "$folder/plain" long
printed main "worker "{0,1,2}" of 3: sum 6, argument xxxxxxxxxxxxxxxxxxxx" "result 1000000 xxxxxxxxxxxxxxxxxxxx"
run "$folder/plain" "" "exit"
printed main "worker "{0,1,2}" of 3: sum 6, argument exit" "result 0 none"
run "$folder/plain" "" shutdown
printed main "worker "{0,1,2}" of 3: sum 6, argument shutdown" "result 8 shutdown"
# The program's standard input is not the workers'.
printf 'a line\n' | timeout $((60 * patience)) "$folder/plain" read >"$folder/out" 2>"$folder/err"
status=$?
printed main "worker "{0,1,2}" of 3: sum 6, argument none" "result 0 none" "main read a line"
# A batch system's job of other machines: the workers are on this one.
SLURM_JOBID=7 SLURM_JOB_ID=7 SLURM_NODELIST=elsewhere SLURM_TASKS_PER_NODE=4 run "$folder/plain"
printed main "worker "{0,1,2}" of 3: sum 6, argument none" "result 0 none"

# Open MPI's list of variables, beside which it takes no -x.
OMPI_MCA_mca_base_env_list=HOME run "$folder/plain"
printed main "worker "{0,1,2}" of 3: sum 6, argument none" "result 0 none"
# Workers have all cores, whatever device the program works on; and they are traced.
export HVDLAB_DEVICES=2
run "$folder/plain" "" cores
of_all=$(sort "$folder/out")
run "$folder/plain" device cores
[[ $status -eq 0 && $(grep -c ^cores <<<"$of_all") -eq 3 && $(sort "$folder/out") == "$of_all" ]] || fail "cores: $of_all; beside a device: $(cat "$folder/out" "$folder/err")"
unset HVDLAB_DEVICES
HVDLAB_TRACE=$folder/trace run "$folder/plain"
[[ $(grep -l hvd_allreduce "$folder"/trace/rank-[012].jsonl | wc -l) -eq 3 ]] || fail "no traces of the workers: $(ls "$folder/trace")"

# ends STATUS LINE WORD...: with that status, and one line of its own that is this one.
ends()
{
    run "$folder/plain" "${@:3}"
    [[ $status -eq $1 ]] || fail "${*:3}: status $status instead of $1: $(cat "$folder/err")"
    [[ $(grep -cE "^plain: $2" "$folder/err") -eq 1 ]] || fail "${*:3}: not once \"$2\": $(cat "$folder/err")"
    ! grep -q "^result" "$folder/out" || fail "${*:3}: main went on"
}
# (A worker that dies at once may not have told the others that it is there.)
ends 137 "hvd_run: (rank 2|a rank) was ended by signal 9 \(Killed\)$" "" kill
ends 137 "hvd_run: rank 2 was ended by signal 9 \(Killed\)$" "" late
ends 2 "hvd_broadcast: there is no rank 99" "" misuse
ends 2 "hvd_run: mpirun has started this program already; start it without$" "" again
ends 2 "hvd_run: 0 workers; there must be at least 1" none
ends 2 "hvd_run: 1000000 workers; there must be at least 1, and at most 1024$" many
ends 2 "hvd_run: there is no function" null
ends 2 "hvd_run: the function has to be one of the program itself" foreign
ends 2 "hvd_run: hvd_init\(\) makes this program the only worker" init
export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1
HVDLAB_RUN=nonsense ends 2 "HVDLAB_RUN=nonsense makes no sense"
HVDLAB_RUN=1:2:3:0 ends 2 "HVDLAB_RUN=1:2:3:0 is of another program"
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
cp "$folder/plain" "$folder/kept"
ends 2 "hvd_run: the program's file has been removed" deleted
mv "$folder/kept" "$folder/plain"

# The program is ended, or killed: its workers end, too.
members()
{
    local file
    for file in $(grep -lzxF "HVD_RUN_TEST=$folder" /proc/[0-9]*/environ 2>/dev/null); do
        [[ $(readlink "${file%/environ}/exe") != "$folder/plain" ]] || basename "${file%/environ}"
    done
}
for signal in TERM KILL; do
    "$folder/plain" "" sleep >"$folder/out" 2>"$folder/err" &
    program=$!
    for ((i = 0; i < 200 * patience; i++)); do
        [[ $(members | wc -l) -lt 4 ]] || break
        sleep 0.05
    done
    sleep 0.5
    kill -$signal $program
    wait $program 2>/dev/null
    status=$?
    [[ $status -eq $((128 + $(kill -l $signal))) ]] || fail "SIG$signal: status $status"
    for _ in {1..100}; do
        [[ -n $(members) ]] || break
        sleep 0.1
    done
    [[ -z $(members) ]] || fail "SIG$signal: workers are left: $(members)"
done

conclude
