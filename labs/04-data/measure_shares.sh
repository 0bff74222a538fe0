#!/usr/bin/env bash
# Usage: measure_shares.sh coverage|uneven
#
# Two tables of labs/04-data/handout.md, measured again, on standard output: what part of the training
# images the workers draw in an epoch, each from all images, and each from a shard; and what is trained
# on, and learned, where workers have different numbers of images. The programs are the untouched files
# and the solutions, cut for it, whatever a student has made of steps/.

. common/scripts/measuring.sh
images=6000

# covered PROGRAM WORKERS: of two epochs, "68.5 %, 68.1 %". Synthetic images: no two are equal.
covered()
{
    rm -rf "$work/trace"
    HVDLAB_TRACE=$work/trace run "$2" "$work/$1" --data synthetic --images $images --epochs 2 >/dev/null
    common/scripts/coverage.sh "$work/trace" $images | awk '{ printf "%s%s %%", (NR > 1 ? ", " : ""), $(NF - 1) }'
}

coverage_table()
{
    compile shard
    printf '| workers | 1 - (1 - 1/N)^N | each draws from all | each draws from its shard |\n| --- | --- | --- | --- |\n'
    for workers in 1 2 3 4 8; do
        printf '| %d | %s | %s | %s |\n' $workers \
            "$(awk "BEGIN { printf \"%.1f %%\", 100 * (1 - (1 - 1 / $workers) ^ $workers) }")" \
            "$(covered untouched $workers)" "$(covered yours $workers)"
    done
}

uneven_table()
{
    compile uneven
    for program in untouched yours; do
        for _ in 1 2 3; do
            run 4 "$work/$program" --images $images --epochs 2
        done >"$work/$program.out"
    done
    awk '
        FNR == 1 { file++ }
        /^epoch 1/ { images[file] = $5 }
        /^test/ { tests[file] = tests[file] (tests[file] ? ", " : "") sprintf("%.2f", $3) }
        END { print "| | untouched | yours |\n| --- | --- | --- |"
              print "| images in an epoch | " images[1] " | " images[2] " |"
              print "| test accuracy after two epochs, three runs | " tests[1] " | " tests[2] " |" }' \
        "$work/untouched.out" "$work/yours.out"
}

case ${1:-} in
coverage | uneven) "$1_table" ;;
*)
    echo "usage: measure_shares.sh coverage|uneven" >&2
    exit 2
    ;;
esac
