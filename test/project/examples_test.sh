#!/bin/sh
# The examples: each checks its own result and exits 0 only if it is right; the demo has a test of
# its own, santa_test. Speaks TAP.
#     examples_test.sh BUILD     where BUILD/examples/* are
build=${1:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
number=0 failed=0

try() {
    number=$((number + 1))
    name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$dir/out"
        failed=1
    fi
}

echo 1..10
try hello "$build/examples/hello"
try ordered_keys "$build/examples/ordered_keys"
try counter_counts "$build/examples/counter" "$dir/counter"
try counter_goes_on_counting \
    sh -c '"$1" "$2" | grep "reopening to 12;"' - "$build/examples/counter" "$dir/counter"
try call_deadline "$build/examples/call_deadline"
try poll_loop "$build/examples/poll_loop"
try bulk_push "$build/examples/bulk_push"
try bulk_push_on_disk "$build/examples/bulk_push" "$dir/bulk"
try words_are_counted "$build/examples/words" "$dir/words"
try words_are_counted_once "$build/examples/words" "$dir/words"
exit $failed
