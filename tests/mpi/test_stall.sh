#!/usr/bin/env bash
# Who waits for whom is named, and a job whose ranks wait for one that cannot come ends (common/comm/stall.h): each line
# and each status, on two to four ranks, with real stops, kills and signals. HVD_STALL_SECONDS is one
# second here, and all else in proportion; three, where programs are instrumented, and slow to begin.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_TRACE HVDLAB_FLAGS HVD_STALL_SHUTDOWN_SECONDS
unit=1 shutdown=2.6
[[ $patience -le 3 ]] || unit=3 shutdown=7.8
export HVD_STALL_SECONDS=$unit UNIT=$unit

# What each case of the program does: the ranks first agree twice, so that call 2 comes next.
cat >"$folder/cases.c" <<'END'
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hvdlab.h"

static int rank, size;
static float values[4];

static void wait_here(double units) { usleep((useconds_t)(1e6 * units * atof(getenv("UNIT")))); }
static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void receive(int from) { MPI_Recv(values, 2, MPI_FLOAT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void own_handler(int number)
{
    (void)number;
    if (rank == 0)
        (void)!write(STDERR_FILENO, "the handler of the program\n", 27);
    _exit(5);
}

static void late_batch(Callback *self, Training *training)
{
    (void)self;
    if (training->epoch == 1 && training->step == 2 && rank == 1)
        wait_here(3);
}

static Dataset data;

static void late_epoch(Callback *self, Training *training)
{
    (void)self;
    if (training->epoch == 0 && rank == 1) {
        evaluate(training->model, plain_batches(&data, image_statistics(&data), 8), 0);
        wait_here(3);
    }
}

static void train(Callback *late)
{
    data = load_data(&(Args){.data = DATA_SYNTHETIC, .images = 64}, TRAIN);
    Tensor x = input(28, 28, 1);
    Model *net = compile(model(x, softmax(dense(flatten(x), 10))), CATEGORICAL_CROSSENTROPY,
                         hvd_distributed_optimizer(sgd(0.1f)));
    Callbacks callbacks = {.items = {late}, .count = 1};
    fit(net, &(Fit){.train = plain_batches(&data, image_statistics(&data), 8), .epochs = 2,
                      .steps_per_epoch = 4, .callbacks = &callbacks});
}

int main(int argc, char **argv)
{
    const char *name = argv[1];
    double units = argc > 2 ? atof(argv[2]) : 0;
    if (strcmp(name, "own handler") == 0)
        signal(SIGTERM, own_handler);
    int number = atoi(getenv("OMPI_COMM_WORLD_RANK"));
    if (strcmp(name, "late to begin") == 0 && number == atoi(argv[3]))
        wait_here(units);
    if (strcmp(name, "stops before it begins") == 0 && number == 0)
        kill(getpid(), SIGSTOP);
    hvd_init();
    rank = hvd_rank(), size = hvd_size();
    meet();
#define CASE(words) else if (strcmp(name, words) == 0)
    if (0) {}
    CASE("nothing") {}
    CASE("late to begin") {}
    CASE("late to join") { if (rank == 1) wait_here(units); hvd_join(); }
    CASE("slow") { if (rank == 1) wait_here(units); meet(); wait_here(1.5); meet(); }
    CASE("late in training") train(&(Callback){.name = "late", .batch_begin = late_batch});
    CASE("late in a callback") train(&(Callback){.name = "late", .epoch_end = late_epoch});
    CASE("returns") { if (rank == 1) return 0; meet(); }
    CASE("root returns") { if (rank == 0) return 0; meet(); }
    CASE("two return") { if (rank == 0 || rank == 2) return 0; meet(); }
    CASE("exits 3") { if (rank == 1) exit(3); meet(); }
    CASE("_exits") { if (rank == 1) { wait_here(0.7); _exit(0); } meet(); }
    CASE("root _exits") { if (rank == 0) { wait_here(0.7); _exit(0); } meet(); }
    CASE("child of one that _exits") {
        if (rank == 1) { wait_here(0.7); if (fork()) _exit(0); sleep(8); _exit(0); }
        meet();
    }
    CASE("killed") { if (rank == 1) { wait_here(0.7); kill(getpid(), SIGKILL); } meet(); }
    CASE("root killed") { if (rank == 0) { wait_here(0.7); kill(getpid(), SIGKILL); } meet(); }
    CASE("shuts down") { if (rank == 1) { hvd_shutdown(); return 0; } meet(); }
    CASE("finalizes") { if (rank == 1) { MPI_Finalize(); return 0; } meet(); }
    CASE("sender returns") { if (rank == 1) return 0; if (rank == 0) receive(1); }
    CASE("last to send") { // and to leave, before what it sent is wanted
        if (rank == 1) MPI_Send(values, 2, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
        if (rank == 0) { wait_here(2.5); receive(1); }
    }
    CASE("different") {
        if (rank == 1) meet(); else MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    CASE("messages") receive((rank + 1) % size);
    CASE("stops") { if (rank == 1) { wait_here(0.5); kill(getpid(), SIGSTOP); } meet(); }
    CASE("root stops") { if (rank == 0) { wait_here(0.5); kill(getpid(), SIGSTOP); } meet(); }
    CASE("late at the end") { if (rank == atoi(argv[3])) wait_here(units); }
    CASE("group") {
        HvdGroup group = hvd_group_split(rank == 1 ? -1 : 0);
        if (rank == 1) return 0;
        if (rank == 0) wait_here(units);
        hvd_group_allreduce(group, values, 4, HVD_SUM);
    }
    CASE("dies") { if (rank == 1) hvd_allreduce(NULL, 4, HVD_SUM); meet(); }
    CASE("own handler") { if (rank == 0) puts("ready"), fflush(stdout); wait_here(units); }
    CASE("sleeps") { if (rank == 0) puts("ready"), fflush(stdout); wait_here(units); }
    CASE("waits") { if (rank == 0) { puts("ready"); fflush(stdout); wait_here(units); } meet(); }
    printf("rank %d ends\n", rank);
    return 0;
}
END
"$build/compile-step" "$folder/cases.c" "$folder/cases" || exit 1

# ---- Cases: several at a time, since most of their time they wait.

number=0
# start STATUS RANKS NAME [WORD...] -- [PATTERN...]: a case that must end with that status. The lines of
# the program on standard error are each like the pattern in its place; ... stands for any others.
start()
{
    number=$((number + 1))
    local words=("${@:2}") patterns=() i
    for i in "${!words[@]}"; do
        [[ ${words[i]} != -- ]] || break
    done
    patterns=("${words[@]:i+1}")
    words=("${words[@]:0:i}")
    printf '%s\n' "$1" "${words[0]} ranks, ${words[*]:1}" "${patterns[@]}" >"$folder/case-$number"
    (
        # Open MPI fails now and then where two jobs make, or clear away, one folder at a time.
        export TMPDIR=$folder/tmp-$number
        mkdir "$TMPDIR"
        timeout "${limit:-$((40 * patience))}" mpirun -np "${words[0]}" "$folder/cases" "${words[@]:1}" \
            >"$folder/out-$number" 2>"$folder/err-$number" </dev/null
        echo $? >"$folder/status-$number"
    ) &
    [[ $((number % 4)) -ne 0 ]] || wait
}

# lines_of NUMBER: those of the program. On a busy machine ranks come to hvd_init a second apart: what is said
# of that is left out where the case is not about it.
lines_of()
{
    local about_it
    about_it=$(grep -c hvd_init "$folder/case-$1")
    grep -a '^cases: ' "$folder/err-$1" | # mpirun 5 prints zero bytes, too
        awk -v about_it="$about_it" '
            !about_it && / waits in hvd_init for / { late = 1; next }
            late && / that waiting is over/ { next }
            { late = 0; print }'
}

# judge NUMBER
judge()
{
    local wanted name line pattern status err=$folder/err-$1
    exec 3<"$folder/case-$1"
    read -r wanted <&3
    read -r name <&3
    status=$(cat "$folder/status-$1")
    [[ $status -eq $wanted ]] || fail "$name: status $status, not $wanted: $(cat "$err")"
    while read -r line; do
        IFS= read -r pattern <&3 || pattern=
        [[ $pattern != ... ]] || return
        # shellcheck disable=SC2053 # a pattern
        if [[ $line != "cases: "$pattern ]]; then
            fail "$name: not \"$pattern\" but: $line"
            return
        fi
    done < <(lines_of "$1")
    while IFS= read -r pattern <&3; do
        [[ -z $pattern || $pattern == ... || $pattern == \** ]] || fail "$name: a line is missing: $pattern"
    done
}

waiting="have been waiting in" waits="has been waiting in"

# Whoever leaves while others wait for it, however it does: named, and the job ends.
start 2 2 returns -- \
    "rank 1 has left main (exit status 0) while rank 0 waits in MPI_Barrier (call 2): it would wait forever"
start 2 4 "two return" -- \
    "ranks 0 and 2 have left main (exit status 0) while ranks 1 and 3 wait in MPI_Barrier (call 2): they would wait forever"
start 2 3 "shuts down" -- \
    "rank 1 has called hvd_shutdown while ranks 0 and 2 wait in MPI_Barrier (call 2): they would wait forever"
start 2 3 finalizes -- \
    "rank 1 has called MPI_Finalize while ranks 0 and 2 wait in MPI_Barrier (call 2): they would wait forever"
HVD_STALL_SECONDS=10 start 2 4 "sender returns" -- \
    "rank 1 has left main (exit status 0) while rank 0 waits in MPI_Recv for rank 1 (2 values): it would wait forever"
HVD_RANKS_PER_NODE=1 start 2 4 "root returns" -- \
    "rank 0 has left main (exit status 0) while ranks 1-3 wait in MPI_Barrier (call 2): they would wait forever"
# Where mpirun ends the job, there is a line, too; if it leaves the time (mpirun 5 does not).
start 3 2 "exits 3" -- "*rank 1 has left main (exit status 3) while rank 0 waits in MPI_Barrier (call 2): it would wait forever"
start 1 3 "_exits" -- "rank 1 is gone, without a word (_exit, or a signal) while ranks 0 and 2 wait in MPI_Barrier (call 2)"
start 1 2 "root _exits" -- "rank 0 is gone, without a word (_exit, or a signal) while rank 1 waits in MPI_Barrier (call 2)"
start 1 3 "child of one that _exits" -- \
    "rank 1 is gone, without a word (_exit, or a signal) while ranks 0 and 2 wait in MPI_Barrier (call 2)"
start 137 4 killed -- "rank 1 is gone, without a word (_exit, or a signal) while ranks 0, 2 and 3 wait in MPI_Barrier (call 2)"
start 137 3 "root killed" -- "rank 0 is gone, without a word (_exit, or a signal) while rank 1 waits in MPI_Barrier (call 2)"
HVD_STALL_SECONDS=10 start 2 3 dies -- "rank 1: hvd_allreduce: the values are NULL*"

# A slow rank is no error; and no rank waits for one that is not needed any more.
start 0 3 "late at the end" 2.5 0 --
start 0 3 "late at the end" 2.5 1 --
start 0 2 "last to send" -- ...
start 0 3 group 2.7 -- "stall: rank 2 $waits hvd_group_allreduce (4 values) for * s" "stall: rank 0 has been in no such call for * s" \
    "stall: rank 1 has left main (exit status 0)" ...
start 0 3 slow 3.5 -- "stall: ranks 0 and 2 $waiting MPI_Barrier (call 2) for $unit s" "stall: rank 1 has been in no such call for * s" \
    "stall: ranks 0 and 2 $waiting MPI_Barrier (call 2) for $((2 * unit)) s" "stall: rank 1 has been in no such call for $((2 * unit)) s" \
    "note: after * s that waiting is over"
start 0 3 "late to join" 1.7 -- "stall: ranks 0 and 2 $waiting hvd_join (call 1) for $unit s" "stall: rank 1 has been in no such call for * s" ...
start 0 2 "late in training" -- "stall: rank 0 $waits hvd_distributed_optimizer (call *) for $unit s" \
    "stall: rank 1 has been in no such call for $unit s, training, epoch 2, step 3" ...
start 0 2 "late in a callback" -- "stall: rank 0 $waits hvd_distributed_optimizer (call *) for $unit s" \
    "stall: rank 1 has been in no such call for $unit s, in callbacks, epoch 1" ...

start 0 3 "late to begin" 3.5 1 -- "stall: rank 0 waits in hvd_init for * s: not all 3 ranks have come to it; rank 1 has not" ...
start 0 3 "late to begin" 3.5 0 -- "stall: rank 1 waits in hvd_init for * s: not all 3 ranks have come to it; rank 0 has not" ...

# They wait for each other, or for one that is stopped.
export HVD_STALL_SHUTDOWN_SECONDS=$shutdown
end="HVD_STALL_SHUTDOWN_SECONDS=$shutdown: the job ends, since"
apart=("stall: rank 0 $waits MPI_Allreduce (call 2, 4 values) for * s" "stall: rank 1 $waits MPI_Barrier (call 2) for * s"
    "stall: all ranks wait, and none is left that could end it")
ended="$end rank 0 waits in MPI_Allreduce (call 2, 4 values), and rank 1 in MPI_Barrier (call 2)"
start 2 2 different -- "${apart[@]}" "${apart[@]}" "$ended"
HVD_STALL_SECONDS=20 start 2 2 different -- "$ended"
circle=("stall: rank 0 $waits MPI_Recv for rank 1 (2 values) for * s" "stall: rank 1 $waits MPI_Recv for rank 2 (2 values) for * s"
    "stall: rank 2 $waits MPI_Recv for rank 0 (2 values) for * s" "stall: all ranks wait, and none is left that could end it")
start 2 3 messages -- "${circle[@]}" "${circle[@]}" "$end rank 0 waits in MPI_Recv for rank 1 (2 values), and rank 1 in *"
stopped=("stall: ranks 0 and 2 $waiting MPI_Barrier (call 2) for * s" "stall: rank 1 has been stopped (by SIGSTOP, or a debugger)")
start 2 3 stops -- "${stopped[@]}" "${stopped[@]}" "$end ranks 0 and 2 wait in MPI_Barrier (call 2)"
# (Which of the two has come first, chance decides.)
late="rank [12] waits in hvd_init for * s: not all 3 ranks have come to it; rank 0 is stopped (by SIGSTOP, or a debugger)"
start 2 3 "stops before it begins" -- "stall: $late" "stall: $late" "$end $late" ...
# Where rank 0 can't say anything, each of the others does, for its own call.
root="MPI_Barrier (call 2); rank 0 has been stopped (by SIGSTOP, or a debugger): kill -CONT * continues it"
HVD_STALL_SECONDS=60 start 2 3 "root stops" -- "$end rank 1 waits in $root"
unset HVD_STALL_SHUTDOWN_SECONDS
limit=$((7 * patience)) start 124 3 "root stops" -- "stall: rank [12] waits in $root" "stall: rank [12] waits in $root" ...

# Settings. (timeout's second SIGTERM may end mpirun, and with it the ranks, before they have spoken.)
maybe="*(ended by SIGTERM, which mpirun sent|mpirun is gone, so the job ends)"
HVD_STALL_SECONDS=0 HVD_STALL_SHUTDOWN_SECONDS=1 limit=4 start 124 2 returns -- "$maybe"
HVD_STALL_SECONDS=-1 start 2 2 nothing -- "HVD_STALL_SECONDS=-1 is not a number of seconds from 0 to 1000000"
HVD_STALL_SECONDS=0.01 start 2 2 nothing -- "HVD_STALL_SECONDS=0.01 is too short: at least 0.1, or 0, which turns it off"
HVD_STALL_SHUTDOWN_SECONDS=1h start 2 2 nothing -- "HVD_STALL_SHUTDOWN_SECONDS=1h is not a number of seconds from 0 to 1000000"
wait
for ((i = 1; i <= number; i++)); do
    judge $i
done

# Of the ranks that wait in hvd_init one speaks at a time, also where a shell stands between each and mpirun. (On a very
# busy machine another may have come later: then once more.)
one_speaks()
{
    # shellcheck disable=SC2016 # of the inner shell
    succeeds mpirun -np 3 sh -c '"$@"; exit $?' sh "$folder/cases" "late to begin" $((2 * unit)) 1
    grep -q " waits in hvd_init for .*; rank 1 has not$" "$folder/err" &&
        [[ -z $(grep -o " in hvd_init for [0-9]* s" "$folder/err" | sort | uniq -d) ]]
}
one_speaks || one_speaks || fail "behind shells: not one line: $(cat "$folder/err")"

# ---- Signals to mpirun: a line of ours, the status that mpirun gives, and nothing stays.

# children_of PROCESS: those that are no zombies.
children_of()
{
    cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^\([0-9]*\) (.*) [^Z] $1 .*/\1/p" | xargs
}

# any_lives PROCESS...
any_lives()
{
    local process
    for process in "$@"; do
        ! grep -qs '.*) [^Z]' "/proc/$process/stat" || return 0
    done
    return 1
}

# end_by SIGNAL PATTERN NAME: sends it once the ranks are there; the root's line is like the pattern. (On
# a very busy machine mpirun kills ranks before they have spoken: then once more.)
end_by()
{
    signal_job "$@" || signal_job "$@" || fail "$1, ${*:3}: not \"$2\" but: $line"
}

signal_job()
{
    : >"$folder/out"
    : >"$folder/err"
    mpirun -np 3 "$folder/cases" "${@:3}" 30 >"$folder/out" 2>"$folder/err" </dev/null &
    local launcher=$! ranks segments rank i
    for ((i = 0; i < 200 * patience; i++)); do
        ! grep -q ready "$folder/out" || break
        sleep 0.1
    done
    read -r -a ranks < <(children_of $launcher)
    segments=$(grep -ho '/dev/shm/[^ ]*' /proc/"${ranks[0]}"/maps | sort -u)
    [[ -n $segments ]] || fail "$1: there is no shared memory to look for"
    kill -s "$1" $launcher
    wait $launcher 2>/dev/null
    for ((i = 0; i < 100; i++)); do
        any_lives "${ranks[@]}" || break
        sleep 0.1
    done
    [[ $i -lt 100 ]] || fail "$1: ranks are left after 10 s"
    for rank in $segments /tmp/ompi.*/pid."$launcher"; do
        [[ ! -e $rank ]] || fail "$1: $rank is left"
    done
    line=$(grep -a -e '^cases: ' -e '^the handler' "$folder/err")
    # shellcheck disable=SC2053 # a pattern
    [[ $line == $2 ]]
}
export HVD_STALL_SECONDS=10 # no word of a stall, however slowly they begin
# (mpirun 5 does not pass on what a rank says once it ends the job.)
sent="cases: ended by SIGTERM, which mpirun sent"
[[ $(mpirun --version) != *" 5."* ]] || sent="*($sent)"
for signal in TERM INT HUP; do
    end_by $signal "$sent" sleeps
done
end_by TERM "*(cases: ended by SIGTERM, which mpirun sent)" waits
end_by TERM "*(the handler of the program)" "own handler"
end_by KILL "cases: mpirun is gone, so the job ends" waits

conclude
