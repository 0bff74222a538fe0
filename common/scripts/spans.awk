# A timeline as a table: for each rank, how often a span occurs in a step and how many milliseconds it takes in all.
#
#     awk -v within="training 1" -f common/scripts/spans.awk TIMELINE.json
#
# within: the name of a span; only what lies in it counts. The first two steps are left out, and so are spans that most
# steps do not have.

# The value of a field of this line's event.
function number(field) {
    return match($0, "\"" field "\":[-0-9.]+") ? substr($0, RSTART + length(field) + 3, RLENGTH - length(field) - 3) + 0 : -1
}

!/"ph":"X"/ { next }

# The events of a rank come thread by thread: all are kept until the end.
{
    split($0, part, "\"")
    n++
    name[n] = part[8]; rank[n] = number("pid"); begin[n] = number("ts"); length_of[n] = number("dur")
    if (name[n] == within) { from[rank[n]] = begin[n]; to[rank[n]] = begin[n] + length_of[n] }
    if (rank[n] > last) last = rank[n]
}

END {
    for (i = 1; i <= n; i++)
        if (within == "") { from[rank[i]] = 0; to[rank[i]] = 1e30 }
    for (i = 1; i <= n; i++) # after the second step
        if (name[i] == "step" && begin[i] >= from[rank[i]] && begin[i] < to[rank[i]] && ++steps[rank[i]] == 3)
            first[rank[i]] = begin[i]
    for (i = 1; i <= n; i++) {
        r = rank[i]
        if (!(r in first) || begin[i] < first[r] || begin[i] >= to[r])
            continue
        if (!(name[i] in row)) { row[name[i]] = ++rows; title[rows] = name[i] }
        count[name[i], r]++
        sum[name[i], r] += length_of[i]
    }
    printf "%-28s", "in a step"
    for (r = 0; r <= last; r++) printf "  %14s", "rank " r
    print ""
    for (k = 1; k <= rows; k++) {
        often = 0
        for (r = 0; r <= last; r++)
            if (2 * count[title[k], r] >= steps[r] - 2) often = 1
        if (!often)
            continue
        printf "%-28s", title[k]
        for (r = 0; r <= last; r++) {
            of = steps[r] - 2
            if (count[title[k], r])
                printf "  %4.0f%7.1f ms", count[title[k], r] / of, sum[title[k], r] / of / 1000
            else
                printf "  %14s", ""
        }
        print ""
    }
}
