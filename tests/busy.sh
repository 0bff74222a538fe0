#!/usr/bin/env bash
# Usage: tests/busy.sh      prints how many times as long as alone something may take here and now
#
# 1 to 4: the processes that want to run (or those of the file TEST_LOADAVG), over twice the cores, as the checks have it
# (crowding() in tests/steps/run.c).

read -r load _ <"${TEST_LOADAVG:-/proc/loadavg}"
times=$((${load%.*} / (2 * $(common/scripts/cores.sh))))
echo $((times < 1 ? 1 : times > 4 ? 4 : times))
