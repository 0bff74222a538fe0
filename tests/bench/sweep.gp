# Draws sweep-N.dat, where N is a number of workers, as build/sweep.svg and .png: a row for each number,
# times on the left and bus bandwidth on the right; points are what was measured, lines what the latency
# and the bandwidth of the fitted line say.
# Usage: gnuplot -e "folder='build'; workers='2 3 4'; processors=2" tests/bench/sweep.gp

rows = words(workers)
set key left top opaque noenhanced
set grid
set logscale xy
set format xy "10^{%T}"
set xrange [1:*] noextend
set xlabel "bytes"

do for [terminal in "svg png"] {
    set terminal terminal size 960, 360 * rows
    set output folder . "/sweep." . terminal
    set multiplot layout rows, 2
    do for [row = 1:rows] {
        n = word(workers, row)
        data = folder . "/sweep-" . n . ".dat"
        stats data using 1 nooutput
        last = STATS_blocks - 1
        set title n . " workers" . (n > processors ? ", more than processors" : "")
        set ylabel "microseconds"
        plot for [i = 0:last] data index i using 1:2 linetype i + 1 pointtype 7 title columnheader(1), \
             for [i = 0:last] data index i using 1:3 with lines linetype i + 1 notitle
        set ylabel "bus bandwidth, GB/s"
        plot for [i = 0:last] data index i using 1:4 linetype i + 1 pointtype 7 notitle, \
             for [i = 0:last] data index i using 1:5 with lines linetype i + 1 notitle
    }
    unset multiplot
}
