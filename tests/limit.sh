#!/usr/bin/env bash
# Usage: tests/limit.sh SECONDS COMMAND...   runs it, and ends it after so long, with status 124
#        tests/limit.sh busy                 prints how many times as long as alone something may take here and now
#
# As timeout does, but a second counts for less on a busy machine: as often as a test meets one, not only where it begins.
# Busy, from 1 to 4: the processes that want to run (or those of the file TEST_LOADAVG), over twice the cores, rounded up;
# as the checks have it (crowding() in tests/steps/run.c).

look()
{
    : "${cores:=$("${0%/*}/../common/scripts/cores.sh")}"
    alone=$((2 * ${cores:-1}))
    read -r load _ <"${TEST_LOADAVG:-/proc/loadavg}"
    busy=$(((${load%.*} + alone) / alone))
    busy=$((busy < 4 ? busy : 4))
}
[[ $1 != busy ]] || { look && echo $busy; exit; }

exec {never}<> <(:) {err}>&2 2>/dev/null # something to wait for; and the shell's own words about signals
timeout --kill-after=5 0 "${@:2}" <&0 2>&$err {err}>&- & # in a group of its own, which gets the signals
running=$!
trap 'kill $running $clock; wait $running; exit 143' INT TERM HUP
(
    trap - INT TERM HUP
    for ((left = 12 * $1; left > 0; left -= 12 / busy)); do # twelfths of a second: a second is 12, 6, 4 or 3
        read -rt 1 -u $never
        kill -0 $running || exit
        look
    done
    trap '' TERM
    kill $running
) >/dev/null </dev/null &
clock=$!
wait $running
status=$?
kill $clock
wait $clock && status=124
exit $status
