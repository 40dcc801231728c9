#!/bin/sh
# run.sh [BUILD [OUT]] - everything about pages that wants a GPU, and its figures.
#
# BUILD (default build/release) is a Meson build folder, or one with the same programs built
# elsewhere; where it has a build.ninja the programs are brought up to date first.  Reports go to
# standard output, and as JSON to OUT (default BUILD/page-figures).  What a machine lacks is skipped
# and said.  Exit: 0, or 1 when a test failed.
set -u
here=$(dirname "$(readlink -f "$0")")
root=$(dirname "$(dirname "$(dirname "$here")")")
build=${1:-$root/build/release}
out=${2:-$build/page-figures}
hawser=$build/src/cli/hawser
suite=$build/tests/unit/page/test-page-backends
model=$build/tests/unit/page/test-page-model
figures=$build/tests/gpu/page/page-figures
status=0

title() { printf '\n### %s\n\n' "$*"; }

if [ -f "$build/build.ninja" ]; then
    ninja -C "$build" src/cli/hawser tests/unit/page/test-page-backends \
        tests/unit/page/test-page-model tests/gpu/page/page-figures || exit 1
fi
mkdir -p "$out"
HAWSER_RUNTIME_DIR=$(mktemp -d /tmp/hawser-gpu-XXXXXX)
export HAWSER_RUNTIME_DIR
trap 'rm -rf "$HAWSER_RUNTIME_DIR"' EXIT

title "host: 1,000,000 random operations a layout against the model"
"$model" 1000000 || status=1

for backend in host cuda vulkan; do
    title "$backend: conformance"
    "$suite" "$backend"
    code=$?
    if [ $code -eq 77 ]; then
        echo "$backend: skipped"
        continue
    fi
    [ $code -eq 0 ] || status=1
    [ "$backend" != host ] || continue

    title "$backend: one page id, 32 layers, one process"
    "$figures" "$backend" || status=1
    "$figures" "$backend" --json >"$out/$backend.json" || status=1

    for layout in contiguous not-contiguous; do
        flag=
        [ $layout = contiguous ] || flag=--not-contiguous
        title "$backend, $layout: four workers on this GPU, all strategies"
        # A quarter each, so that four workers fit one device.
        set -- --tp-size 4 --backend "$backend" --memory 24GiB $flag
        "$hawser" bench-ipc "$@" --iters 50 --compare --html "$out/$backend-$layout.html" || status=1
        "$hawser" bench-ipc "$@" --iters 50 --compare --json >"$out/$backend-$layout.json" || status=1
        for impl in seq thread async shm; do
            "$hawser" bench-ipc "$@" --pages-per-iter 1 --iters 20 --map-impl $impl || status=1
        done
    done
done

title "null: transit alone, four workers"
"$hawser" bench-ipc --tp-size 4 --backend null --iters 1000 --compare || status=1
"$hawser" bench-ipc --tp-size 4 --backend null --iters 1000 --compare --json >"$out/null.json" ||
    status=1
exit $status
