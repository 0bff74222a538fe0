#!/bin/sh
# Two threads on two devices, those of a model in two halves, replicas of a model on several, a thread that
# reads what the main thread writes down of itself, and those that prepare images, watched by the thread
# sanitizer: no two of them may touch the same memory without waiting for each other. Each device computes
# with one thread here, which is quicker (replicas on one core, since one of their tests has a device that is
# the whole machine); what OpenMP's teams do, `make SANITIZE=thread test` watches.

set -u
cd "$(dirname "$0")/../.." || exit 2
tests=${BUILD:-build}/threads/tests/unit
export OMP_THREAD_LIMIT=1 CK_TIMEOUT_MULTIPLIER=10
export TSAN_OPTIONS="suppressions=common/scripts/races.supp print_suppressions=0 report_thread_leaks=0"

core=$(taskset -cp $$ | sed -e 's/.*: //' -e 's/[-,].*//')

for name in test_devices test_stages test_stage_faults test_stall_words test_pipeline test_prefetch test_mirrored test_misuse_devices; do
    where=
    [ $name != test_mirrored ] || where="taskset -c $core"
    # shellcheck disable=SC2086 # words
    output=$($where "$tests/$name" 2>&1)
    status=$?
    case $output in
    *"FATAL: ThreadSanitizer: unexpected memory mapping"*) # addresses are more random than it can bear
        # shellcheck disable=SC2086 # words
        output=$($where setarch -R "$tests/$name" 2>&1)
        status=$?
        ;;
    esac
    case $output in
    *"FATAL: ThreadSanitizer: unexpected memory mapping"* | *"failed to set personality"*)
        echo "skipped: the thread sanitizer does not run on this machine (sysctl vm.mmap_rnd_bits=28)"
        exit 77
        ;;
    esac
    echo "$output"
    [ $status -eq 0 ] || exit $status
done
