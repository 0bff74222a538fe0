# Draws scaling.dat, "ranks images/s efficiency" lines, as build/scaling.svg and .png.
# Usage: gnuplot -e "folder='build'" tests/bench/scaling.gp

set style data linespoints
set key right bottom opaque
set xlabel "ranks, one core each"
set ylabel "images/s"
set y2label "efficiency, %"
set ytics nomirror
set y2tics
set xtics 1
set yrange [0:*]
set y2range [0:110]
set grid ytics
data = folder . "/scaling.dat"
stats data using 2 every ::0::0 nooutput
one = STATS_max

do for [terminal in "svg png"] {
    set terminal terminal size 640,400
    set output folder . "/scaling." . terminal
    plot data using 1:2 title "images/s" linewidth 2 pointtype 7, \
         data using 1:(one * $1) title "images/s, if nothing were lost" dashtype 2 pointtype 0, \
         data using 1:(100 * $3) axes x1y2 title "efficiency" linewidth 2 pointtype 5
}
