#!/usr/bin/env bash
# Usage: measure_workers.sh accumulate|clip|rates
#
# The tables of labs/05-learning-rate/handout.md, measured again, on standard output; `rates` draws its
# figure, too, beside the handout. The programs are the solutions and the lab's own, whatever a student
# has made of steps/. SEEDS="1 2 3 4 5" are the trainings that `rates` makes of each kind, FLAGS what
# its program is told.

. common/scripts/measuring.sh
seeds=${SEEDS:-1 2 3 4 5}
flags=${FLAGS:---images 20000 --val-batch-size 250 --base-lr 0.01 --target-accuracy 0.87 --epochs 12}
figure=labs/05-learning-rate/figures/rates.svg

accumulate_table()
{
    local workers
    make -s "$build/solution_accumulate" >&2
    printf '| | 1 worker | 2 workers | 4 workers |\n| --- | --- | --- | --- |\n| test accuracy |'
    for workers in 1 2 4; do
        for _ in 1 2 3; do
            run $workers "$build/solution_accumulate" --base-lr 0.1 --epochs 2 --images 12000
        done | awk -F ': ' '/^Test/ { printf "%s%.2f", count++ ? ", " : " ", $2 } END { printf " |" }'
    done
    echo
}

clip_table()
{
    local limit workers
    make -s "$build/solution_clip" >&2
    printf '| | 1 worker, batches of 128 | 4 workers, batches of 32 |\n| --- | --- | --- |\n'
    for limit in 1000000 1; do
        printf '| %s |' "$([[ $limit = 1 ]] && echo "a limit of 1" || echo "no limit")"
        for workers in 1 4; do
            for _ in 1 2 3; do
                run $workers "$build/solution_clip" --base-lr 0.4 --epochs 2 --images 6000 --clip-norm $limit \
                    --batch-size $((128 / workers))
            done | awk -F ': ' '/^Test/ { printf "%s%.2f", count++ ? ", " : " ", $2 } END { printf " |" }'
        done
        echo
    done
}

# "WORKERS RATE EPOCHS" for each training, RATE being 1, 2 or 3; no EPOCHS where the accuracy was not
# reached. A worker alone has one rate.
train_all()
{
    local workers seed
    for workers in 1 4 8; do
        for seed in $seeds; do
            # shellcheck disable=SC2086 # words
            run $workers "$build/rates" $flags --seed "$seed" | awk -v workers=$workers '{
                epochs = /: not in/ ? "" : $(NF - 1)
                for (rate = NR; rate <= (workers > 1 ? NR : 3); rate++)
                    print workers, rate, epochs }'
        done
    done
}

# "WORKERS RATE MEDIAN LEAST MOST REACHED ALL": of all trainings, those that did not reach the accuracy
# being the longest; a median that is none of the reached is "-".
summarize()
{
    sort -k 1,1n -k 2,2n -k 3,3n | awk '
        function tell() {
            if (all) {
                middle = int((all + 1) / 2)
                print workers, rate, middle <= reached ? of[middle] : "-", \
                      reached ? of[1] : "-", reached ? of[reached] : "-", reached, all
            }
            all = reached = 0
        }
        $1 != workers || $2 != rate { tell(); workers = $1; rate = $2 }
        { all++ }
        NF > 2 { of[++reached] = $3 }
        END { tell() }'
}

rates_table()
{
    mkdir -p "$work" "${figure%/*}"
    make -s "$build/rates" >&2
    train_all >"$work/rates.all"
    summarize <"$work/rates.all" >"$work/rates.dat"
    draw_rates <"$work/rates.dat" >"$figure"
    awk '
        BEGIN { print "| learning rate | 1 worker | 4 workers | 8 workers |\n| --- | --- | --- | --- |"
                split("rate of one worker;rate x workers;rate x workers, warmed up", names, ";") }
        $6 == 0 { cell[$1, $2] = "never"; next }
        $3 == "-" { cell[$1, $2] = $6 " of " $7 " did"; next }
        { cell[$1, $2] = sprintf("%.2f (%.2f to %s)", $3, $4, $6 < $7 ? "never" : sprintf("%.2f", $5)) }
        END { for (rate = 1; rate <= 3; rate++)
                  printf "| %s | %s | %s | %s |\n", names[rate], cell[1, rate], cell[4, rate], cell[8, rate] }' \
        "$work/rates.dat"
}

# Medians as points with lines between them, least and most as bars; no point where there is no median.
draw_rates()
{
    awk '
        function across(workers, rate) { return 120 + 180 * log(workers) / log(2) + 12 * (rate - 2) }
        function down(epochs) { return 300 - 250 * epochs / top }
        function text(x, y, anchor, words) {
            printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words
        }
        { key = $1 SUBSEP $2; median[key] = $3; least[key] = $4; most[key] = $5
          if ($5 + 0 > top) top = $5 + 0 }
        END {
            top = int(top) + 1
            split("rate of one worker;rate x workers;rate x workers, warmed up", names, ";")
            split("1 4 8", workers, " ")
            print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 360\" width=\"720\" height=\"360\" role=\"img\" aria-labelledby=\"t d\">"
            print "<title id=\"t\">Epochs to the accuracy, against the number of workers</title>"
            print "<desc id=\"d\">For each learning rate the median of the trainings, and the range of them, on 1, 4 and 8 workers; the table beside the figure has the numbers.</desc>"
            print "<style>.page { fill: #ffffff; stroke: #d0d7de } .grid { stroke: #d0d7de } text { font: 14px system-ui, sans-serif; fill: #1f2328 }"
            print "g { fill: none; stroke-width: 2 } .r1 { stroke: #57606a } .r2 { stroke: #2563a8 } .r3 { stroke: #9a6700 }"
            print "@media (prefers-color-scheme: dark) { .page { fill: #0d1117; stroke: #30363d } .grid { stroke: #30363d } text { fill: #e6edf3 } .r1 { stroke: #9da7b1 } .r2 { stroke: #6cb0f5 } .r3 { stroke: #d6a545 } }</style>"
            print "<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"719\" height=\"359\" rx=\"8\"/>"
            step = top > 8 ? 2 : 1
            for (e = 0; e <= top; e += step) {
                printf "<path class=\"grid\" d=\"M70 %d H700\"/>\n", down(e)
                text(60, down(e) + 5, "end", e)
            }
            for (w = 1; w <= 3; w++)
                text(across(workers[w], 2), 324, "middle", workers[w])
            text(340, 346, "middle", "workers")
            text(20, 28, "start", "epochs")
            for (rate = 1; rate <= 3; rate++) {
                printf "<g class=\"r%d\">\n<path d=\"", rate
                pen = "M"
                for (w = 1; w <= 3; w++) {
                    key = workers[w] SUBSEP rate
                    if (median[key] + 0 > 0) {
                        printf "%s%.0f %.0f ", pen, across(workers[w], rate), down(median[key])
                        pen = "L"
                    }
                }
                print "\"/>"
                for (w = 1; w <= 3; w++) {
                    key = workers[w] SUBSEP rate
                    if (median[key] + 0 > 0) {
                        printf "<circle cx=\"%.0f\" cy=\"%.0f\" r=\"4\"/>", across(workers[w], rate), down(median[key])
                        printf "<path d=\"M%.0f %.0f V%.0f\"/>\n", across(workers[w], rate), down(least[key]), down(most[key])
                    }
                }
                printf "<path d=\"M180 %d h24\"/>\n</g>\n", 42 + 20 * rate
                text(212, 47 + 20 * rate, "start", names[rate])
            }
            print "</svg>"
        }'
}

case ${1:-} in
accumulate | clip | rates) "$1_table" ;;
*)
    echo "usage: measure_workers.sh accumulate|clip|rates" >&2
    exit 2
    ;;
esac
