#!/bin/bash
# modes.sh - modes of inference at GPT-J-6B's shape on one GPU: first steps, all modes, round trips,
# tokens a request, Vulkan through our driver; then round trips of small models on the CPU.
#
#   HAWSER=build/src/cli/hawser OUT=folder tests/gpu/llm/modes.sh
#
# HAWSER belongs to a build folder that has our driver too.  CSV, JSON and a summary go to OUT.  The
# model, 12 GB, is made at MODEL (default /tmp/gptj6b.gguf) where it is not there.  BACKEND, PROMPT,
# STEPS and SMALL=0 are for a rehearsal with a small model.  Some 250 s on an H200, besides making
# the model.  Exit: 0; what failed stands in OUT/log.txt.
set -u
HAWSER=$(readlink -f "${HAWSER:?}")
OUT=$(mkdir -p "${OUT:?}" && readlink -f "$OUT")
MODEL=${MODEL:-/tmp/gptj6b.gguf} BACKEND=${BACKEND:-vulkan} PROMPT=${PROMPT:-72} STEPS=${STEPS:-50}
SMALL=${SMALL:-1} KJV=$(readlink -f models/kjv.gguf)
pids=()
note() { printf '%4ds %s\n' $SECONDS "$*" | tee -a "$OUT/log.txt"; }
end() { for p in "${pids[@]}"; do kill "$p" 2>/dev/null && wait "$p" 2>/dev/null; done; }
trap end EXIT
cd "$OUT" || exit 1

start() { # ARGS of serve...: PORT is where it listens, within 90 s
    local line
    PORT=
    exec {said}< <(exec "$HAWSER" serve --listen 127.0.0.1:0 "$@" 2>>log.txt)
    pids+=($!)
    while [ -z "$PORT" ] && read -r -t 90 -u "$said" line; do
        PORT=$(sed -n 's/^listening on 127.0.0.1:\([0-9]*\).*/\1/p' <<<"$line")
    done
    [ -n "$PORT" ]
}

[ -f "$MODEL" ] || "$HAWSER" model synth --arch gptj --like 6b -o "$MODEL" || exit 1
note "the model is there"
cat "$MODEL" >/dev/null # in the page cache for all alike

# 1. The first steps of an engine, warm and not; clocks beside them.
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,pstate,power.draw --format=csv,noheader \
        -lms 50 >clocks.csv 2>/dev/null &
    pids+=($!)
fi
timeout 60 "$HAWSER" bench-llm --backend "$BACKEND" --model "$MODEL" -p "$PROMPT" -n "$STEPS" -r 3 \
    --json >first-warm.json 2>>log.txt
note "first steps, warm: rc $?"
timeout 60 "$HAWSER" bench-llm --backend "$BACKEND" --model "$MODEL" -p "$PROMPT" -n "$STEPS" -r 1 \
    --no-warm --json >first-cold.json 2>>log.txt
note "first steps, not warm: rc $?"

# 2. One worker for all that follows.
start --no-devices --model "$MODEL" --backend "$BACKEND" --max-upload 32GiB || {
    note "no worker"
    exit 1
}
note "the worker is ready"
experiment() { # NAME TIMEOUT ARGS...
    local name=$1 limit=$2
    shift 2
    timeout "$limit" "$HAWSER" experiment --model "$MODEL" --backend "$BACKEND" --external_server \
        --master_port "$PORT" --prompt_tokens "$PROMPT" --phase decode --trials 1 \
        --decode_steps "$STEPS" --output "$name.csv" --report "$name.html" "$@" \
        >"$name.txt" 2>>log.txt
    note "$name: rc $?"
}
experiment modes 90 --modes local,sys_simulated,remote_cache
experiment again 40 --modes sys_simulated --trials 3
experiment rtt 60 --modes sys_simulated --sweep rtt --points 100us,1ms,10ms
experiment rtt-n10 60 --modes sys_simulated --sweep rtt --points 100us,1ms,10ms \
    --tokens-per-request 10
experiment rtt-n50 60 --modes sys_simulated --sweep rtt --points 100us,1ms,10ms \
    --tokens-per-request 50
experiment naive 90 --modes naive --decode_steps 2 # weights travel with both exchanges
end
pids=()

# 3. The same program with our driver: Vulkan calls travel.
if start; then
    VENUS_TRACE_NET=1 timeout 90 "$HAWSER" run --servers "127.0.0.1:$PORT" -- "$HAWSER" llm \
        --mode vulkan --model "$MODEL" --prompt_tokens "$PROMPT" --seed 0 --decode_steps 400 \
        --ignore-end --trace >vulkan.txt 2>vulkan-net.txt
    note "vulkan through our driver: rc $?"
fi
end
pids=()

# 4. What an exchange costs when a token takes less: 134 M and 4 M parameters on the CPU.
small() { # NAME MODEL ARGS...
    local name=$1 model=$2
    shift 2
    timeout 60 "$HAWSER" experiment --model "$model" --threads 4 --phase decode --sweep rtt \
        --modes local,sys_simulated --trials 3 --decode_steps 40 --output "$name.csv" \
        --report "$name.html" "$@" >"$name.txt" 2>>log.txt
    note "$name: rc $?"
}
if [ "$SMALL" = 1 ]; then
    m134=$(mktemp -u)
    "$HAWSER" model synth --arch llama --layers 12 --width 768 --heads 12 --vocab 32000 \
        --type Q8_0 -o "$m134" >/dev/null
    small cpu-134m "$m134"
    small cpu-134m-n10 "$m134" --tokens-per-request 10
    small cpu-4m "$KJV"
    HAWSER_LLM_LEND=0 small cpu-4m-nolend "$KJV"
    rm -f "$m134"
fi

python3 - <<'P' | tee summary.txt
import csv, json, re, statistics as st
csv.field_size_limit(1 << 30)
def rows(name):
    try:
        return list(csv.DictReader(open(name + ".csv")))
    except OSError:
        return []
def steps(row):
    v = [float(x) / 1e3 for x in row["step_us"].split()]
    return v[0], v[1:]
for f in ("first-warm.json", "first-cold.json"):
    try:
        for row in json.load(open(f))["rows"]:
            print(f, {k: v for k, v in row.items() if v is not None})
    except (OSError, ValueError) as e:
        print(f, e)
local = None
for name in ("modes", "again", "naive"):
    for r in rows(name):
        p, s = steps(r)
        up, down = (list(map(int, r[k].split()))[1:] for k in ("step_bytes_up", "step_bytes_down"))
        mid = st.median(s)
        local = mid if r["mode"] == "local" else local
        print(f"{name:8} {r['mode']:14} trial {r['trial']} prefill {p:9.2f} ms, token median {mid:9.3f}"
              f" first12 mean {st.mean(s[:12]):9.3f} max {max(s):9.2f} ms,"
              f" bytes up {st.median(up):.0f} down {st.median(down):.0f},"
              f" over local {mid / local if local else float('nan'):.3f}")
for name in ("rtt", "rtt-n10", "rtt-n50"):
    for r in rows(name):
        _, s = steps(r)
        rtt = float(r["rtt_us"]) / 1e3
        tokens = len(r["token_ids"].split()) - 1
        each, n = sum(s) / tokens, tokens / len(s)
        want = (local or float("nan"))
        print(f"{name:8} rtt {rtt:6.1f} ms: exchange median {st.median(s):9.3f} ms, a token"
              f" {each:8.3f} ms; exchange over local + rtt {st.median(s) / (want * n + rtt):.3f},"
              f" token over local {each / want:.3f}")
for name in ("cpu-134m", "cpu-134m-n10", "cpu-4m", "cpu-4m-nolend"):
    for rtt in sorted({float(r["rtt_us"]) for r in rows(name)}):
        of = {m: [sum(steps(r)[1]) / (len(r["token_ids"].split()) - 1) for r in rows(name)
                  if r["mode"] == m and float(r["rtt_us"]) == rtt] for m in
              ("local", "sys_simulated")}
        each = [len(steps(r)[1]) / (len(r["token_ids"].split()) - 1) for r in rows(name)
                if r["mode"] == "sys_simulated"][0] # exchanges a token
        here, there = (st.median(of[m]) for m in ("local", "sys_simulated"))
        print(f"{name:13} rtt {rtt / 1e3:5.1f} ms: a token {here:7.3f} local, {there:7.3f} semantic;"
              f" over local + rtt {there / (here + each * rtt / 1e3):.3f}")
try:
    text = open("vulkan.txt", errors="replace").read()
    v = [float(x) / 1e3 for x in re.findall(r"STEP_US:(.*)", text)[-1].split()]
    print(f"vulkan   prefill {v[0]:.2f} ms, token median {st.median(v[1:]):.3f} ms")
    for way in ("send", "recv", "receive"): # the last two summaries: a hundred messages of steps
        at = [(int(m), int(b)) for m, b in re.findall(
            way + r" .*?messages=(\d+).*? bytes=(\d+)", open("vulkan-net.txt").read())]
        if len(at) > 1 and at[-1][0] > at[-2][0]:
            print(f"vulkan   {way}: {(at[-1][1] - at[-2][1]) / (at[-1][0] - at[-2][0]):.0f} bytes a"
                  f" message, {at[-1][0]} messages in all")
except (OSError, IndexError) as e:
    print("vulkan:", e)
P
rm -f ./*.html
note "done"
