#!/usr/bin/env bash
# Usage: tests/mpi/test_checkpoints.sh [--some]
#
# What checkpoint.h promises across ranks: a training that goes on from a checkpoint, of an epoch's end or
# inside one, makes the same steps, bit for bit, and sees the same figures as the one that saved it; and
# what ends a program at any moment leaves the last whole one. With --some, fewer numbers of workers and
# fewer moments.

. tests/lib.sh
eval "$(common/scripts/mpi.sh env)"
some=${1:-}
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVDLAB_FLAGS HVDLAB_TRACE
small=(--data synthetic --images 120 --batch-size 8 --val-batch-size 24 --loader-threads 2 --epochs 3
    --target-accuracy 1)

"$build/compile-step" tests/mpi/train.c "$folder/train" || exit 1

# train RANKS NAME FLAG...: its trace is in NAME/, what it printed in NAME.out and NAME.err.
train()
{
    local ranks=$1 name=$2
    rm -rf "${folder:?}/$name"
    local launch=(mpirun -np "$ranks")
    [[ $ranks -gt 1 ]] || launch=()
    # (The shell has words of its own for a program that a signal ends.)
    {
        HVDLAB_TRACE=$folder/$name timeout $((60 * patience)) "${launch[@]}" env "${preload[@]}" "$folder/train" "${small[@]}" \
            "${@:3}" >"$folder/$name.out" 2>"$folder/$name.err" </dev/null
        status=$?
    } 2>/dev/null
}
preload=()
trained()
{
    train "$@"
    [[ $status -eq 0 ]] || fail "status $status: $*: $(cat "$folder/$2.err")"
}

# What a rank did: steps, and what each epoch came to, without times.
deeds()
{
    grep -hE '"event":"(step|history|callback|evaluate_end|images|gradient|apply)"' "$folder/$1/rank-$2.jsonl" |
        sed 's/"t":[0-9.]*,//'
}

# goes_on RANKS WHOLE RESUMED: what the resumed run did on each rank is the end of what the whole one did.
goes_on()
{
    local rank lines
    for ((rank = 0; rank < $1; rank++)); do
        deeds "$3" "$rank" >"$folder/after"
        lines=$(wc -l <"$folder/after")
        [[ $(grep -c '"step"' "$folder/after") -gt 0 || ${steps_left:-} = none ]] || fail "$3: rank $rank trains nothing"
        deeds "$2" "$rank" | tail -n "$lines" | cmp -s - "$folder/after" ||
            fail "$3: rank $rank of $1 goes on otherwise: $(deeds "$2" "$rank" | tail -n "$lines" | diff - "$folder/after" | head -n 4)"
    done
    grep -h "^history\|^score" "$folder/$2.out" | cmp -s - <(grep "^history\|^score" "$folder/$3.out") ||
        fail "$3: other figures than $2: $(diff "$folder/$2.out" "$folder/$3.out")"
}

# only FOLDER NAME: a folder that has this checkpoint alone.
only()
{
    rm -rf "$folder/only"
    mkdir "$folder/only"
    cp "$folder/$1/$2".* "$folder/only"
}

# check RANKS WHICH... with the settings that are exported: from each of these checkpoints.
check()
{
    local ranks=$1 name
    rm -rf "$folder/saved"
    trained "$ranks" whole "${seed[@]}" --checkpoint-dir "$folder/saved"
    for name in "${@:2}"; do
        only saved "$name"
        trained "$ranks" "resumed" "${seed[@]}" --checkpoint-dir "$folder/only" --resume
        grep -q "^Restoring from $folder/only/$name$" "$folder/resumed.out" || fail "$name: $(head -n 2 "$folder/resumed.out")"
        goes_on "$ranks" whole resumed
    done
}

seed=(--seed 3)
EVERY=4 check 1 ckpt-1-8
seed=()
EVERY=2 check 2 ckpt-0-4 ckpt-2
EVERY=3 PIPELINE=2 ADAM=1 check 3 ckpt-1-3
EVERY=7 PIPELINE=1 check 1 ckpt-1-7
SHARDS=1 EVERY=3 ADAM=1 check 3 ckpt-1-3 ckpt-2
if [[ $some = '' ]]; then
    EVERY=3 PIPELINE=1 check 2 ckpt-0-3 ckpt-1 ckpt-1-6
    EVERY=1 check 3 ckpt-0-1 ckpt-0-5 ckpt-1 ckpt-2-4 ckpt-3
fi

# A training that a callback has ended, or that had two epochs of three above the target, in a row.
export EVERY=0
steps_left=none
small+=(--target-accuracy 0 --patience 3 --epochs 6)
check 1 ckpt-2 ckpt-3
small+=(--target-accuracy 1 --epochs 3)
unset steps_left

# Another number of workers: weights, optimizer and history are kept, and a line says what is not.
EVERY=3 trained 2 whole "${seed[@]}" --checkpoint-dir "$folder/two"
for ranks in 1 3; do
    [[ $ranks -eq 1 || $some = '' ]] || continue
    rm -rf "$folder/other.d"
    mkdir "$folder/other.d"
    cp "$folder"/two/ckpt-1-3.* "$folder/other.d"
    EVERY=3 trained $ranks other --checkpoint-dir "$folder/other.d" --resume
    [[ $(grep -c "was saved by 2 workers, and now there .* $ranks: .*; step 3 of 7 has become " "$folder/other.err") -eq 1 ]] ||
        fail "on $ranks: $(cat "$folder/other.err")"
    [[ $(grep "^history 0" "$folder/other.out") = $(grep "^history 0" "$folder/whole.out") ]] ||
        fail "on $ranks the first epoch's figures are others"
    [[ $(grep -c "^history" "$folder/other.out") -eq 3 ]] || fail "on $ranks the history is not whole"
done

# What is kept: the last two, and the best.
EVERY=5 KEEP=2 BEST=1 trained 1 kept --seed 5 --checkpoint-dir "$folder/kept.d"
[[ $(cd "$folder/kept.d" && echo *) = "best.rank-0.safetensors best.safetensors ckpt-2-15.rank-0.safetensors \
ckpt-2-15.safetensors ckpt-3.rank-0.safetensors ckpt-3.safetensors" ]] || fail "kept: $(ls "$folder/kept.d")"
grep -qE "^Best epoch: [123] \(val_accuracy: 0\.[0-9]{4}\)$" "$folder/kept.out" ||
    fail "the best epoch is not told: $(cat "$folder/kept.out")"

# refuses WORDS FLAG...: on one rank, in one line, and the folder stays as it is.
refuses()
{
    local before
    before=$(cd "$folder/only" && sha256sum -- *)
    train 1 refused "${@:2}"
    [[ $status -eq 2 && $(grep -c "^train: " "$folder/refused.err") -eq $((1 + $(grep -c "^train: note" "$folder/refused.err"))) ]] ||
        fail "$1: status $status: $(cat "$folder/refused.err")"
    grep -qF -e "$1" "$folder/refused.err" || fail "\"$1\" is not in: $(cat "$folder/refused.err")"
    [[ $(cd "$folder/only" && sha256sum -- *) = "$before" ]] || fail "$1: the folder has changed"
}
here=(--checkpoint-dir "$folder/only")
only kept.d ckpt-3
refuses "holds checkpoints of another training (ckpt-3): --resume" "${here[@]}"
ADAM=1 refuses "another optimizer: it was saved with SGD, this program has Adam" "${here[@]}" --resume
printf x | dd of="$folder/only/ckpt-3.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
refuses "ckpt-3.safetensors: the file is damaged" "${here[@]}" --resume
only kept.d ckpt-3
rm "$folder/only/ckpt-3.rank-0.safetensors"
refuses "ckpt-3.rank-0.safetensors is missing; its checkpoint is not whole without it, and $folder/only holds no other" "${here[@]}" --resume
refuses "holds checkpoints of another training (one without $folder/only/ckpt-3.rank-0.safetensors): --resume" "${here[@]}"
cp "$folder/kept.d/best.rank-0.safetensors" "$folder/only/ckpt-3.rank-0.safetensors"
refuses "ckpt-3.rank-0.safetensors is missing; its checkpoint" "${here[@]}" --resume # it is another one's
refuses "cannot create the folder" --checkpoint-dir "$folder/only/ckpt-3.safetensors"
refuses "--resume needs --checkpoint-dir" --resume

# A disk that has room for two, not for a third: those stay, and the training goes on.
cat >"$folder/on-small-disk" <<'END'
mount -t tmpfs -o size=64k none "$1" || exit 77
disk=$1
shift
"$@"
status=$?
ls "$disk/saved"
exit $status
END
mkdir "$folder/disk"
limit=30 run unshare -rm bash "$folder/on-small-disk" "$folder/disk" "$folder/train" "${small[@]}" --checkpoint-dir "$folder/disk/saved"
if [[ $status -eq 77 ]] || grep -q '^unshare: ' "$folder/err"; then
    echo "no disk of its own: $(cat "$folder/err")"
else
    [[ $status -eq 1 && $(grep "^ckpt\|^best" "$folder/out" | xargs) = "ckpt-1.rank-0.safetensors ckpt-1.safetensors \
ckpt-2.rank-0.safetensors ckpt-2.safetensors" ]] ||
        fail "a full disk: status $status: $(cat "$folder/out" "$folder/err")"
    grep -q "warning: cannot save the checkpoint .*: No space left on device; the training goes on$" "$folder/err" ||
        fail "a full disk: $(cat "$folder/err")"
fi

# (The sanitizers want to be the first library.)
[[ ${SANITIZE:-} = '' ]] || conclude

# Killed at every call that has to do with a checkpoint's files, from the first to the last: what is left
# goes on as if nothing had happened.
cat >"$folder/kill.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(void)
{
    static int calls;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (atoi(rank ? rank : "0") == atoi(getenv("KILL_RANK")) && ++calls == atoi(getenv("KILL_CALL")))
        raise(SIGKILL);
}

FILE *fopen(const char *path, const char *mode)
{
    if (strstr(path, ".safetensors"))
        count();
    return ((FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen"))(path, mode);
}

// A part of its bytes is written by then.
int fflush(FILE *stream)
{
    if (stream && stream != stdout && stream != stderr)
        count();
    return ((int (*)(FILE *))dlsym(RTLD_NEXT, "fflush"))(stream);
}

int fsync(int file)
{
    count();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int rename(const char *from, const char *to)
{
    count();
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}

int unlink(const char *path)
{
    count();
    return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path);
}
END
cc -shared -fPIC -o "$folder/kill.so" "$folder/kill.c" -ldl || fail "the killer can't be built"

# A file system whose folders have no fsync: the checkpoint is there, and nobody complains.
cat >"$folder/folders.c" <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
int fsync(int file)
{
    struct stat kind;
    if (fstat(file, &kind) == 0 && S_ISDIR(kind.st_mode))
        return errno = EINVAL, -1;
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
END
cc -D_GNU_SOURCE -shared -fPIC -o "$folder/folders.so" "$folder/folders.c" -ldl || fail "folders.c does not compile"
preload=(LD_PRELOAD="$folder/folders.so")
trained 1 unsynced --seed 9 --images 48 --epochs 1 --checkpoint-dir "$folder/unsynced-saved"
preload=()
[[ -s $folder/unsynced-saved/ckpt-1.safetensors ]] || fail "no checkpoint where folders have no fsync"

# killed RANKS RANK CALL: a run that rank RANK is killed in is gone on with.
killed()
{
    rm -rf "$folder/kills"
    preload=(LD_PRELOAD="$folder/kill.so" KILL_RANK="$2" KILL_CALL="$3")
    train "$1" first --seed 9 --checkpoint-dir "$folder/kills"
    preload=()
    [[ $status -ne 0 ]] || return 1
    trained "$1" second --seed 9 --checkpoint-dir "$folder/kills" --resume
    goes_on "$1" unkilled second
    for file in "$folder"/kills/*.safetensors.*; do
        [[ ! -e $file ]] || grep -qF "\"${file##*.}\"" "$(sed -E 's/(\.rank-[0-9]+)?\.safetensors\..*/.safetensors/' <<<"$file")" ||
            fail "killed at call $3 of rank $2: $file is left"
    done
}
small+=(--images 48 --val-batch-size 12 --epochs 2)
export EVERY=4 KEEP=1
# kill_at_calls BEST STEP LEAST: at every STEP-th call, of which there are LEAST at least.
kill_at_calls()
{
    local call=1
    export BEST=$1
    while killed 1 0 $call; do
        call=$((call + $2))
    done
    [[ $call -gt $3 ]] || fail "only $call calls to be killed at"
}
trained 1 unkilled --seed 9
kill_at_calls 1 $((${#some} > 0 ? 11 : 1)) 30
kill_at_calls 2 $((${#some} > 0 ? 3 : 1)) 15 # the best one alone, which is written over
export BEST=1
trained 2 unkilled --seed 9
calls=(7 13)
[[ $some = '' ]] || calls=(9)
for call in "${calls[@]}"; do
    killed 2 0 "$call" || fail "it was not killed at call $call"
    killed 2 1 $((call - 5)) || fail "it was not killed at call $((call - 5))"
done

conclude
