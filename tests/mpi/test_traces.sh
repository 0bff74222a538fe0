#!/usr/bin/env bash
# Usage: tests/mpi/test_traces.sh
#
# What traces say of messages between two ranks, of who moves, of the images that ranks drew, and of files;
# that sends can be made to end only when they are received, a rank be killed at an event, and names of
# files be seen late; and that whoever asks where a rank is gets the answer that HVD_LAYOUT gives. Programs of a few lines are
# compiled for it.

. tests/lib.sh
unset HVDLAB_DEVICES HVD_RANKS_PER_NODE HVD_LAYOUT HVD_FUSION_THRESHOLD HVDLAB_TRACE HVDLAB_SYNCHRONOUS_SENDS
eval "$(common/scripts/mpi.sh env)"

# compile NAME: the program on standard input, after what all of them begin with.
compile()
{
    {
        printf '#include "hvdlab.h"\n#include <mpi.h>\n#include <stdlib.h>\n#include <unistd.h>\n'
        cat
    } >"$folder/$1.c"
    "$build/compile-step" "$folder/$1.c" "$folder/$1" || fail "$1 does not compile"
}

# ranks N PROGRAM WORD...: runs it, traced; its output is in out.
ranks()
{
    rm -rf "$folder/trace"
    HVDLAB_TRACE=$folder/trace timeout $((40 * patience)) mpirun -np "$1" "$folder/$2" "${@:3}" >"$folder/out" 2>"$folder/err" </dev/null
}

# says RANK TIMES WORDS: so many lines of the rank's trace match the words.
says()
{
    local found
    found=$(grep -c -e "$3" "$folder/trace/rank-$1.jsonl")
    [[ $found -eq $2 ]] || fail "rank $1 says $found times instead of $2: $3"
}

# ---- Messages.

compile messages <<'END'
int main(void)
{
    MPI_Init(NULL, NULL);
    int rank, value[3] = {0}, done = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int other = 1 - rank;
    MPI_Request requests[2];
    if (rank == 0)
        MPI_Send(value, 3, MPI_INT, 1, 7, MPI_COMM_WORLD);
    else
        MPI_Recv(value, 3, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(value, 1, MPI_INT, other, 1, value + 1, 2, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Irecv(value, 1, MPI_INT, other, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(value + 1, 1, MPI_INT, other, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Irecv(value, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(value + 1, 1, MPI_INT, other, 3, MPI_COMM_WORLD);
    while (!done)
        MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
    // Over at once: MPI gives both the same handle.
    MPI_Irecv(value, 1, MPI_INT, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(value + 1, 1, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    // Less comes than there is room for; waiting for one or for some of two.
    int index, count, indices[2];
    for (int some = 0; some < 2; some++) {
        MPI_Isend(value, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(value + 1, 2, MPI_INT, other, 6, MPI_COMM_WORLD, &requests[1]);
        for (int left = 2; left > 0; left -= some ? count : 1)
            if (some)
                MPI_Waitsome(2, requests, &count, indices, MPI_STATUSES_IGNORE);
            else
                MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    }
    // In a communicator with the ranks the other way round.
    MPI_Comm turned;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    int turned_rank;
    MPI_Comm_rank(turned, &turned_rank);
    if (turned_rank == 0)
        MPI_Ssend(value, 1, MPI_INT, 1, 9, turned);
    else
        MPI_Recv(value, 1, MPI_INT, 0, 9, turned, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
END
ranks 2 messages || fail "messages: status $?: $(cat "$folder/err")"
says 0 1 '"message_begin".*"MPI_Send","name":"MPI_COMM_WORLD","to":1,"to_tag":7,"bytes":12,"from":null,"from_tag":null,"room":null'
says 1 1 '"message_begin".*"MPI_Recv".*"to":null.*"from":-1,"from_tag":-1,"room":12'
says 0 1 '"message_begin".*"MPI_Sendrecv".*"to":1,"to_tag":1,"bytes":4,"from":1,"from_tag":1,"room":8'
says 0 1 '"message_end".*"MPI_Irecv","request":1}'
says 0 1 '"message_end".*"MPI_Isend","request":2}'
says 0 1 '"wait_begin".*"MPI_Waitall","requests":"1,2","handles":2'
says 0 1 '"wait_end".*"MPI_Waitall","requests":"1,2"'
says 0 1 '"wait_end".*"MPI_Test","requests":"3"'
says 0 1 '"wait_begin".*"MPI_Waitall","requests":"4,5"'
says 0 1 '"wait_end".*"MPI_Waitall","requests":"4,5"'
says 0 0 '"wait_begin".*"MPI_Test"'
says 1 1 '"message_begin".*"MPI_Ssend".*"to":0,"to_tag":9'
says 0 1 '"message_begin".*"MPI_Recv".*"from":1,"from_tag":9'
says 1 1 '"message_end".*"MPI_Recv","request":0,"received":12,"source":0,"tag":7}'
says 0 1 '"message_end".*"MPI_Recv","request":0,"received":4,"source":1,"tag":9}'
says 0 1 '"message_end".*"MPI_Sendrecv","request":0,"received":4,"source":1,"tag":1}'
says 0 1 '"wait_end".*"MPI_Waitall","requests":"1,2","received":4}'
says 0 1 '"wait_end".*"MPI_Test","requests":"3","received":4}'
says 0 1 '"wait_end".*"MPI_Waitall","requests":"4,5","received":0}'
says 0 1 '"wait_end".*"MPI_Waitany".*"received":4}'
says 0 1 '"wait_end".*"MPI_Waitsome".*"received":4}'
for rank in 0 1; do
    [[ $(grep -c '"message_begin"' "$folder/trace/rank-$rank.jsonl") -eq \
        $(grep -c '"message_end"' "$folder/trace/rank-$rank.jsonl") ]] || fail "rank $rank: a message has no end"
done

# All ranks of a run name one job, and each run another; the file has a lock as long as its process lives.
job() { sed -n 's/.*"event":"start".*"job":"\([^"]*\)".*/\1/p' "$folder/trace/rank-$1.jsonl"; }
before=$(job 0)
[[ $before && $before == "$(job 1)" ]] || fail "two ranks of a run name two jobs: $before and $(job 1)"
ranks 2 messages
[[ $(job 0) && $(job 0) != "$before" ]] || fail "two runs name one job: $before"
says 1 1 '"event":"start".*"time":[0-9.]*,"locked_on":"'"$(cat /proc/sys/kernel/hostname)"'"'
# Processes that no launcher starts: two that are alone, and two of a job by their roles.
compile alone <<'END'
int main(void)
{
    return getenv("HVD_LAYOUT") != NULL; // which is traced
}
END
alone() { env "${@:2}" HVDLAB_TRACE="$folder/trace" "$folder/alone" && job "$1"; }
first=$(alone 0) second=$(alone 0)
[[ $first && $second && $first != "$second" ]] || fail "two processes name one job: $first"
roles=(HVD_SERVERS=127.0.0.1:7001 HVD_WORKERS=2)
first=$(alone 1 HVD_ROLE=worker:1 "${roles[@]}") second=$(alone 2 HVD_ROLE=server:0 "${roles[@]}")
[[ $first && $first == "$second" ]] || fail "two processes of a job by roles name two: $first and $second"

# Small messages wait in a buffer, unless they may not: then both ranks wait until they are ended.
compile send_first <<'END'
int main(int argc, char **argv)
{
    MPI_Init(NULL, NULL);
    int rank, value = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 0);
    MPI_Send(&value, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
END
ranks 2 send_first || fail "send_first: small messages find no buffer: $(cat "$folder/err")"
HVDLAB_SYNCHRONOUS_SENDS=1 ranks 2 send_first $((2 * patience)) && fail "HVDLAB_SYNCHRONOUS_SENDS=1: a send ends before it is received"
says 0 0 '"message_end"'

# The check names the waiting ranks, and those that they wait for.
sed -e 's/^#include "hvdlab.h"/&\n#include <mpi.h>/' \
    -e 's/^    hvd_init();/&\n    int to = (hvd_rank() + 1) % hvd_size(), from = (hvd_rank() + hvd_size() - 1) % hvd_size(), value = 0;\n    MPI_Send(\&value, 1, MPI_INT, to, 4, MPI_COMM_WORLD);\n    MPI_Recv(\&value, 1, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);/' \
    solutions/step_01.c >"$folder/circle.c"
mkdir -p "$folder/build" && cp "$build/compile-step" "$folder/build"
BUILD=$folder/build "$build/check-step" 1 "$folder/circle.c" >"$folder/out" 2>&1
[[ $(tail -n 1 "$folder/out") == "step 1: failed: hung" ]] || fail "ranks that all send first: $(tail -n 1 "$folder/out")"
for words in 'rank 0 waits in MPI_Send for rank 1 to receive (tag 4)' 'in a circle: rank 0 waits for rank 1, which waits for rank 2'; do
    grep -qF "$words" "$folder/out" || fail "\"$words\" is not said: $(cat "$folder/out")"
done

# Ranks in different collective calls, and in calls of different groups.
# hung_in CALLS WORDS...: these calls after hvd_init; the check says the words.
hung_in()
{
    { sed '/^    hvd_init();/q' solutions/step_01.c && echo "$1" && sed '1,/^    hvd_init();/d' solutions/step_01.c; } >"$folder/unlike.c"
    BUILD=$folder/build "$build/check-step" 1 "$folder/unlike.c" >"$folder/out" 2>&1
    [[ $(tail -n 1 "$folder/out") == "step 1: failed: hung" ]] || fail "$1: $(tail -n 1 "$folder/out")"
    tr -s '\n ' '  ' <"$folder/out" >"$folder/words"
    for words in "${@:2}"; do
        grep -qF -e "$words" "$folder/words" || fail "\"$words\" is not said: $(cat "$folder/out")"
    done
}
hung_in 'int sum = 1; if (hvd_rank() == 0) MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); else MPI_Barrier(MPI_COMM_WORLD);' \
    'collective call 1 on MPI_COMM_WORLD: rank 0 calls MPI_Allreduce, rank 1 calls MPI_Barrier' 'the ranks make different collective calls, as named above'
hung_in 'HvdGroup pair = hvd_group_split(hvd_rank() / 2); if (pair.rank == 0) hvd_group_barrier(pair); hvd_barrier();' \
    'rank 0 waits in hvd_group_barrier of the group of ranks 0 and 1' 'All ranks of a group must make its calls'

# Ranks that plan different steps for a later fit().
sed '/Score score = evaluate/i fit(model, \&(Fit){.train = train_batches, .epochs = 1, .steps_per_epoch = 2 - (hvd_rank() == 1), .verbose = verbose});' \
    solutions/step_05.c >"$folder/later.c"
BUILD=$folder/build "$build/check-step" 5 "$folder/later.c" >"$folder/out" 2>&1
[[ $(tail -n 1 "$folder/out") == "step 5: failed: ranks-disagree" ]] || fail "a later fit(): $(tail -n 1 "$folder/out")"
grep -qF 'steps asked of fit() in its call 2: rank 0: 2, rank 1: 1, rank 2: 2' "$folder/out" || fail "a later fit(): $(cat "$folder/out")"

# ---- Images, and who moves.

cat >"$folder/images.c" <<'END'
#include "hvdlab.h"
#include <sched.h>
int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    Dataset train = load_data(&args, TRAIN);
    Batches *batches = plain_batches(&train, image_statistics(&train), 4);
    for (int times = 0; times < 2; times++) {
        batches_begin(batches, batches_len(batches));
        for (int i = 0; i < batches_len(batches); i++)
            batches_next(batches);
    }
    batches_free(batches);
    cpu_set_t cores;
    sched_getaffinity(0, sizeof cores, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    return 0;
}
END
"$build/compile-step" "$folder/images.c" "$folder/images" || fail "images does not compile"
rm -rf "$folder/trace"
HVDLAB_TRACE=$folder/trace "$folder/images" --data synthetic --images 10 >"$folder/out" 2>&1 || fail "images: $(cat "$folder/out")"
says 0 6 '"event":"images"'
says 0 2 '"step":2,"split":"[a-z]*","drawn":"[0-9]*,[0-9]*","mislabeled":0}'
says 0 1 '"event":"affinity"'
for permutation in 1 2; do
    drawn=$(sed -n "s/.*\"permutation\":$permutation,.*\"drawn\":\"\([0-9,]*\)\".*/\1/p" "$folder/trace/rank-0.jsonl" | tr , '\n' | sort -n | xargs)
    [[ $drawn == "0 1 2 3 4 5 6 7 8 9" ]] || fail "permutation $permutation drew $drawn"
done

# Of two runs in one folder the newer one counts, and a line says what else is there.
ranks 2 images --data synthetic --images 10
mv "$folder/trace/rank-1.jsonl" "$folder/left"
ranks 2 images --data synthetic --images 10
mv "$folder/left" "$folder/trace/rank-1.jsonl"
common/scripts/coverage.sh "$folder/trace" 10 >"$folder/out" 2>"$folder/err" || fail "coverage.sh: status $?"
[[ $(head -n 1 "$folder/out") == "epoch 1: 10 images drawn, 10 of the 10: 100.0 %" ]] || fail "coverage.sh mixes two runs: $(cat "$folder/out")"
[[ $(cat "$folder/err") == "coverage.sh: warning: $folder/trace also has files of another run, which are left out: rank-1.jsonl" ]] ||
    fail "coverage.sh does not say that there is another run: $(cat "$folder/err")"
sed -i -E '1s/"job":"[^"]*","time":[^,]*,//' "$folder"/trace/*.jsonl # as older kits wrote
common/scripts/coverage.sh "$folder/trace" 10 | grep -q '^epoch 1: 20 images drawn' || fail "coverage.sh does not read traces without jobs"

# ---- Files.

compile files <<'END'
static void save(Callback *self, Training *training)
{
    (void)self;
    char path[32];
    snprintf(path, sizeof path, "saved/ckpt-%d.tmp", training->epochs_done);
    if (hvd_rank() != 0 || !write_checkpoint(training, path))
        return;
    rename(path, training->epochs_done == 1 ? "saved/ckpt-1.safetensors" : "saved/ckpt-2.safetensors");
    sync_folder("saved");
}

int main(int argc, char **argv)
{
    hvd_init();
    Args args = parse_args(argc, argv);
    if (!args.resume) {
        Dataset train = load_data(&args, TRAIN);
        Tensor image = input(28, 28, 1);
        Model *net = compile(model(image, softmax(dense(flatten(image), 10))), CATEGORICAL_CROSSENTROPY, hvd_distributed_optimizer(sgd(0.01f)));
        Callbacks callbacks = {0};
        Callback saves = {.epoch_end = save};
        callbacks_add(&callbacks, &saves);
        fit(net, &(Fit){.train = plain_batches(&train, image_statistics(&train), 4),
                        .epochs = args.epochs, .steps_per_epoch = 2, .callbacks = &callbacks});
        unlink("saved/nothing");
        remove("saved/gone");
    }
    char *latest = latest_checkpoint("saved");
    printf("%d: %s\n", hvd_rank(), latest ? latest : "none");
    free(latest);
    return 0;
}
END
# in_folder FLAG...: on two ranks, where saved/ is.
in_folder()
{
    rm -rf "$folder/trace"
    (cd "$folder" && HVDLAB_TRACE=trace timeout $((40 * patience)) mpirun -np 2 ./files --data synthetic --images 8 --epochs 2 "$@" \
        >out 2>err </dev/null)
}
mkdir -p "$folder/saved"
touch "$folder/saved/gone"
in_folder || fail "files: $(cat "$folder/err")"
# Ranks compare each of the four updates once, by constants that stay the same.
says 0 4 '"event":"collective_begin",.*"function":"hvd_distributed_optimizer"'
says 0 1 '"event":"rule",.*"learning_rate":0.00999'
says 0 2 '"event":"half_written",.*"path":"saved/ckpt-[12].tmp"'
says 0 2 '"event":"written",.*"path":"saved/ckpt-[12].tmp"'
says 0 2 '"event":"renamed",.*"from":"saved/ckpt-\([12]\).tmp","to":"saved/ckpt-\1.safetensors"'
says 0 2 "\"event\":\"synced\",.*\"path\":\"$(realpath "$folder")/saved\""
removals=$(cat "$folder"/trace/rank-?.jsonl | grep -c '"event":"removed",.*"path":"saved/')
[[ $removals -eq 1 ]] || fail "$removals files are said to be removed instead of 1"
inode=$(stat -c %i "$folder/saved/ckpt-2.safetensors") whole=$(stat -c %s "$folder/saved/ckpt-2.safetensors")
weights=$(sed -n 's/.*"event":"step",.*"epoch":1,"step":1,"weights":\([^,]*\),.*/\1/p' "$folder/trace/rank-0.jsonl")
says 0 1 "\"event\":\"saved\",.*\"epoch\":2,\"step\":0,\"weights\":$weights,\"inode\":$inode,\"bits\":"
says 1 0 '"event":"\(half_written\|written\|renamed\|synced\|saved\)"'

# The second machine does not see the last name yet.
HVD_LAYOUT=0,1 HVDLAB_LATE_NAMES=1 in_folder --resume --checkpoint-dir saved
diff <(sort "$folder/out") <(printf '%s\n' '0: ckpt-2' '1: ckpt-1') || fail "names are not seen late"
HVD_LAYOUT=0,1 in_folder --resume --checkpoint-dir saved
diff <(sort "$folder/out") <(printf '%s\n' '0: ckpt-2' '1: ckpt-2') || fail "names are seen late"

# Killed when half of the second file is there.
rm -rf "$folder/saved"
mkdir "$folder/saved"
! HVDLAB_KILL=0:half_written:2 in_folder || fail "nobody was killed"
[[ $(tail -n 1 "$folder/trace/rank-0.jsonl") == *'"half_written"'* ]] ||
    fail "killed at another event: $(tail -n 1 "$folder/trace/rank-0.jsonl")"
[[ $(cd "$folder/saved" && echo *) = "ckpt-1.safetensors ckpt-2.tmp" ]] || fail "killed: $(ls "$folder/saved")"
[[ $(stat -c %s "$folder/saved/ckpt-2.tmp") -lt $whole ]] || fail "the half of a file is as large as all of it"

# ---- Where ranks are, by every way of asking.

compile places <<'END'
int main(void)
{
    hvd_init();
    char host[64], name[MPI_MAX_PROCESSOR_NAME];
    int length, rank, size;
    MPI_Comm shared, turned;
    gethostname(host, sizeof host);
    MPI_Get_processor_name(name, &length);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    MPI_Comm_rank(shared, &rank);
    MPI_Comm_size(shared, &size);
    printf("%d: hvd %d %d mpi %d %d launcher %s %s host %s %s\n", hvd_rank(), hvd_local_rank(), hvd_local_size(), rank,
           size, getenv("OMPI_COMM_WORLD_LOCAL_RANK"), getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), host, name);
    fflush(stdout);
    MPI_Comm_split(shared, 0, -rank, &turned);
    MPI_Barrier(turned);
    show_placement(rank + 10, size + 20, hvd_rank() == 0 ? MPI_COMM_NULL : turned);
    return 0;
}
END
HVD_LAYOUT=0,1,1 ranks 3 places || fail "places: $(cat "$folder/err")"
diff <(grep : "$folder/out" | sort) - <<'END' || fail "not every way of asking gives the same answer"
0: hvd 0 1 mpi 0 1 launcher 0 1 host node-0 node-0
1: hvd 0 2 mpi 0 2 launcher 0 2 host node-1 node-1
2: hvd 1 2 mpi 1 2 launcher 1 2 host node-1 node-1
END
for rank in 0 1 2; do
    says $rank 1 '"call".*"function":"MPI_Comm_split_type"'
    says $rank 1 '"call".*"function":"getenv(OMPI_COMM_WORLD_LOCAL_RANK)"'
    says $rank 1 '"call".*"function":"getenv(OMPI_COMM_WORLD_LOCAL_SIZE)"'
done
says 0 1 '"MPI_Barrier".*"ranks":"0"'
says 1 1 '"MPI_Barrier".*"ranks":"2,1"'
says 1 1 '"placement".*"host":"node-1","local_rank":10,"local_size":22,"group":"2,1"}'
diff <(grep -v : "$folder/out") - <<'END' || fail "show_placement has printed another table"
rank  host              local rank  local size  the workers of its group
   0  node-0                    10          21  none
   1  node-1                    10          22  2,1
   2  node-1                    11          22  2,1
END
ranks 2 places
diff <(grep : "$folder/out" | sort) - <<END || fail "without a layout, something is simulated"
0: hvd 0 2 mpi 0 2 launcher 0 2 host $(uname -n) $(uname -n)
1: hvd 1 2 mpi 1 2 launcher 1 2 host $(uname -n) $(uname -n)
END

# Of each variable: the fingerprints add up to that of all gradients, and what is applied has the norm of the limit.
"$build/compile-step" solutions/clip.c "$folder/norms" || fail "solutions/clip.c does not compile"
ranks 2 norms --data synthetic --images 16 --batch-size 4 --val-batch-size 8 --epochs 1 --clip-norm 0.01 --log-dir "$folder/logs" ||
    fail "norms: $(cat "$folder/err")"
says 0 2 '"event":"gradient"'
says 0 16 '"event":"variable_gradient"'
says 1 16 '"event":"variable_apply"'
awk '
    function field(name) { match($0, "\"" name "\":[-+.0-9e]+"); return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 }
    function differ(a, b) { return a - b > 1e-5 || b - a > 1e-5 }
    /"event":"variable_/ { sum += field("value"); squares += field("norm") ^ 2; if (field("largest") > field("norm")) wrong++ }
    /"event":"(gradient|apply)"/ { if (differ(sum, field("value"))) wrong++; if (/"apply"/ && differ(sqrt(squares), 0.01)) wrong++; sum = squares = 0 }
    END { exit wrong > 0 }' "$folder/trace/rank-0.jsonl" || fail "norms and fingerprints of variables are not those of all gradients"

conclude
