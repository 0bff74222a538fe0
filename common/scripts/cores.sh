#!/bin/sh
# Usage: cores.sh
#
# Prints how many cores this process may use. nproc alone would print OMP_NUM_THREADS, a setting for programs.

exec env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc
