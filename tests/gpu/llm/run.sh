#!/bin/sh
# run.sh [BUILD [OUT]] - everything about the engine that wants a GPU, and its figures.
#
# BUILD (default build/release) is a Meson build folder, or one with the same programs built
# elsewhere; where it has a build.ninja the programs are brought up to date first.  Reports go to
# standard output, and as JSON to OUT (default BUILD/llm-figures).  Models are made once under OUT:
# 16 GB in all; HAWSER_MODELS names those to run, of "llama-F16 llama-Q8_0 llama-Q4_K gptj-F16".
# Exit: 0, 1 when something failed, 77 where there is no Vulkan device.
set -u
here=$(dirname "$(readlink -f "$0")")
root=$(dirname "$(dirname "$(dirname "$here")")")
build=${1:-$root/build/release}
out=${2:-$build/llm-figures}
models=${HAWSER_MODELS:-llama-F16 llama-Q8_0 llama-Q4_K gptj-F16}
hawser=$build/src/cli/hawser
ops=$build/tests/unit/llm/test-llm-ops
engine=$build/tests/unit/llm/test-llm-vulkan
status=0

title() { printf '\n### %s\n\n' "$*"; }

size_of() { # ARCH
    case $1 in gptj) echo 6b ;; *) echo 1.1b ;; esac
}

if [ -f "$build/build.ninja" ]; then
    ninja -C "$build" src/cli/hawser tests/unit/llm/test-llm-ops tests/unit/llm/test-llm-vulkan ||
        exit 1
fi
mkdir -p "$out" || exit 1

title "every op against the reference"
"$ops" vulkan
code=$?
[ $code -ne 77 ] || exit 77
[ $code -eq 0 ] || status=1

title "the engine: logits of the cpu, the same bits in every batch, trouble"
"$engine" || status=1

for model in $models; do
    arch=${model%-*} type=${model#*-}
    file=$out/$model.gguf
    if [ ! -f "$file" ]; then
        "$hawser" model synth --arch "$arch" --like "$(size_of "$arch")" --type "$type" \
            --output "$file.new" && mv "$file.new" "$file"
    fi
    [ -f "$file" ] || {
        status=1
        continue
    }
    title "$model: prefill of 72, 50 tokens after it"
    "$hawser" bench-llm --backend vulkan --model "$file" --prefill 72 --decode 50 --json \
        >"$out/$model.json" || status=1
    cat "$out/$model.json"
    title "$model: prefill of 512"
    "$hawser" bench-llm --backend vulkan --model "$file" --prefill 512 --decode 8 --json \
        >"$out/$model-512.json" || status=1
    cat "$out/$model-512.json"
done
exit $status
