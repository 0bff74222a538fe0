#!/usr/bin/env bash
# Usage: tests/slurm.sh
#
# Runs the batch files of labs/09-many-machines/slurm in a Slurm of this machine's own (common/scripts/slurm.sh),
# of two hosts: trainings on one node and on both end with the weights that mpirun's has, whether srun
# starts the ranks or mpirun does; an array grades right and wrong answers. And nothing is left of that
# Slurm, whatever ends it. As root.

. tests/lib.sh
unset HOSTS RATE DELAY CPUS HVDLAB_CLUSTER HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_TRACE HVDLAB_FLAGS
batch=labs/09-many-machines/slurm
training=("$build/solution_06" --data synthetic --width 1 --images 128 --batch-size 16 --epochs 1 --seed 5
    --show-ranks --log-dir "$folder/logs")
# shellcheck disable=SC2034 # of lib.sh
limit=300
# As for the tests that Check runs: the machine may be slow.
export HVDLAB_PATIENCE=${CK_TIMEOUT_MULTIPLIER:-1}

# Before words that are to run in a Slurm: its state is below our folder.
slurm=(env "BUILD=$folder/build" "TMPDIR=$folder/tmp" common/scripts/slurm.sh)

# Processes of that Slurm, or of what it runs, by what they were started with.
processes()
{
    grep -alsF -f "$folder/parts" /proc/[0-9]*/cmdline
}
printf '%s\n' "$folder/tmp" "$folder/build" "$folder/napping" >"$folder/parts"

# nothing_left WHEN: within 5 s no process of it, and no mount.
nothing_left()
{
    local i
    for ((i = 0; i < 50; i++)); do
        [[ -n $(processes) ]] || break
        sleep 0.1
    done
    [[ -z $(processes) ]] || fail "$1: left: $(processes | xargs cat | tr '\0' ' ')"
    ! grep -F "$folder" /proc/self/mounts || fail "$1: something is mounted still"
}

mkdir "$folder/tmp" "$folder/build"
eval "$(common/scripts/mpi.sh env)"

# ---- Settings.

refused "usage: slurm.sh WORD..." common/scripts/slurm.sh
refused "HOSTS=0 is not a number from 1 to 32" env HOSTS=0 common/scripts/slurm.sh true
refused "CPUS=none is not a number" env CPUS=none common/scripts/slurm.sh true
refused "this is not a job of Slurm's" $batch/start.sh true
refused "no such exercise" $batch/grade.sh nonsense "$0"
refused "no file" $batch/grade.sh 1 "$folder/none.c"

# ---- Trainings: the ranks' weights, and where they were.

ranks_of() # FILE
{
    awk '$2 == "cpu" { print $4, $8 }' "$1"
}

# same_training NAME MACHINES: as the one in the file alone. (Other shares of the cores may sum in another order.)
same_training()
{
    ranks_of "$folder/$1" | paste "$folder/alone" - |
        awk '{ if (NF < 2 || ($1 - $2) ^ 2 > ($1 * 1e-4) ^ 2) bad = 1 } END { exit bad || NR != 4 }' ||
        fail "$1: not the weights of mpirun's: $(cat "$folder/$1")"
    [[ $(ranks_of "$folder/$1" | awk '{ print $2 }' | xargs) = "$2" ]] || fail "$1: not on $2: $(cat "$folder/$1")"
}

succeeds mpirun -np 4 "${training[@]}"
ranks_of "$folder/out" | awk '{ print $1 }' >"$folder/alone"

# An srun that speaks no PMIx, in front of the true one, so that start.sh turns to mpirun.
mkdir "$folder/old"
printf '#!/bin/sh\n[ "$*" = --mpi=list ] || exec %s "$@"\necho none pmi2\n' "$(command -v srun)" >"$folder/old/srun"
chmod +x "$folder/old/srun"

# Answers to step 1: right, untouched, and what is no program.
common/scripts/steps.sh cut "$folder/cut" || exit 1
echo "int main(" >"$folder/broken.c"

cat >"$folder/jobs" <<'END'
run() { sbatch --quiet --wait --output="$folder/$1" "${@:2}" || echo "$1: status $?"; }
run one $batch/one_node.sbatch "$@"
run many $batch/many_nodes.sbatch "$@"
PATH=$folder/old:$PATH run many-by-mpirun $batch/many_nodes.sbatch "$@"
run fails $batch/one_node.sbatch "$1" --no-such-flag
$batch/grade.sh 1 "$folder/cut/solutions/step_01.c" "$folder/cut/steps/step_01.c" "$folder/broken.c" >"$folder/table" || echo "grade.sh: status $?"
$batch/grade.sh 1 "$folder/cut/solutions/step_06.c" >"$folder/all-passed" || echo "grade.sh of a right one: status $?"
END
export folder batch
succeeds "${slurm[@]}" env BUILD="$build" bash "$folder/jobs" "${training[@]}"
[[ $(<"$folder/out") = "fails: status 2"$'\n'"grade.sh: status 1" ]] || fail "other statuses: $(cat "$folder/out" "$folder/err")"
same_training one ""
same_training many "node0 node0 node1 node1"
same_training many-by-mpirun "node0 node0 node1 node1"
grep -q "no-such-flag" "$folder/fails" || fail "no line says what is wrong: $(cat "$folder/fails")"
awk 'NR == 1 && $2 != "passed" || NR == 2 && $2 !~ /^[a-z-]+$/ || NR == 3 && $2 !~ /compile/ { bad = 1 }
    END { exit bad || NR != 4 || $0 !~ /^1 of 3 passed/ }' "$folder/table" || fail "the table of grades: $(cat "$folder/table")"
grep -q "^1 of 1 passed" "$folder/all-passed" || fail "a right answer: $(cat "$folder/all-passed")"
nothing_left "after the jobs"

# ---- Killed and interrupted, in the middle of a job.

for signal in KILL TERM INT; do
    rm -f "$folder/begun"
    # A group of processes of its own, to which a terminal would send an interrupt.
    set -m
    # shellcheck disable=SC2016 # for the other shell
    "${slurm[@]}" srun -N 2 bash -c 'touch "$0/begun"; exec -a "$0/napping" sleep 1000' "$folder" >"$folder/out" 2>&1 &
    set +m
    for ((i = 0; i < 300; i++)); do
        [[ ! -e $folder/begun ]] || break
        sleep 0.1
    done
    [[ -e $folder/begun ]] || fail "$signal: the job has not begun: $(cat "$folder/out")"
    case $signal in
    INT) kill -INT -- -$! ;;
    *) kill -$signal $! ;;
    esac
    nothing_left "after SIG$signal"
    wait $!
    ended=$?
    [[ $signal:$ended =~ ^(KILL:137|TERM:143|INT:130)$ ]] || fail "after SIG$signal: status $ended"
    [[ $signal = KILL || -z $(ls "$folder/tmp") ]] || fail "after SIG$signal there are files: $(ls "$folder/tmp")"
    rm -rf "$folder/tmp" && mkdir "$folder/tmp"
done

conclude
