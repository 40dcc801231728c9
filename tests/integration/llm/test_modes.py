"""hawser serve --model, hawser llm in every mode, hawser experiment: tokens, bytes, bad input."""

import json
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import (DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Server,
                     clean_environment, hawser)

PROMPT, STEPS = 12, 8
LAYERS, WIDTH, HEADS, VOCAB, CONTEXT = 2, 64, 4, 2048, 128
KV_POSITION = LAYERS * 2 * WIDTH * 2
SLOW_CONTEXT = 8192
REMOTE = (("naive",), ("remote_cache",), ("sys_simulated",), ("semantic",),
          ("semantic", "--tokens-per-request", 3), ("semantic", "--return", "topk:5"),
          ("semantic", "--return", "logits"))


class Run:
    """What one hawser llm printed."""

    def __init__(self, result):
        self.result = result
        self.values = dict(re.findall(r"^(\w+): ?(.*)$", result.stdout, re.M))

    def number(self, key):
        return float(self.values[key])

    def list(self, key):
        return [float(value) for value in self.values[key].split()]


class Modes(Case):
    def setUp(self):
        super().setUp()
        self.model = self.synth("m.gguf", CONTEXT)

    def synth(self, name, context, *args):
        path = self.dir / name
        self.expect(hawser("model", "synth", "--arch", "llama", "--layers", LAYERS, "--width",
                           WIDTH, "--heads", HEADS, "--vocab", VOCAB, "--context", context, "-o",
                           path, *args), DONE)
        return path

    def serve(self, *args, model=None):
        server = Server("--listen", "127.0.0.1:0", "--model", model or self.model, "--threads", 1,
                        *args)
        self.addCleanup(self.stop, server)
        return server

    def stop(self, server):
        killed = server.process.poll() is not None
        code, stderr = server.stop()
        if not killed:
            self.assertEqual(code, DONE, stderr)  # also what a sanitizer found

    @staticmethod
    def arguments(model, mode, server, *args):
        port = server.addresses[0].rsplit(":", 1)[1] if server else 1
        return ("llm", "--model", model, "--threads", 1, "--mode", mode[0], *mode[1:],
                "--master_port", port, "--ignore-end", "--trace", *args)

    def llm(self, mode, server=None, *args, code=DONE, says=()):
        base = () if "--prompt" in args or "--prompt_tokens" in args else (
            "--prompt_tokens", PROMPT)
        result = hawser(*self.arguments(self.model, mode, server, *base, *args), errors="replace")
        self.expect(result, code, *says)
        return Run(result)


class Agreement(Modes):
    def test_every_mode_generates_the_same_tokens(self):
        server = self.serve()
        for sampling in ((), ("--temperature", 0.9, "--top-k", 5, "--seed", 3)):
            args = ("--decode_steps", STEPS, *sampling)
            expected = self.llm(("local",), None, *args).values["TOKENS"]
            self.assertEqual(len(expected.split()), STEPS)
            for mode in REMOTE:
                self.assertEqual(self.llm(mode, server, *args).values["TOKENS"], expected, mode)

    def test_text_is_the_same_too(self):
        server = self.serve()
        args = ("--prompt", "Ahoy", "--decode_steps", 5)
        expected = self.llm(("local",), None, *args).result.stdout.split("\n\nprefill")[0]
        self.assertTrue(expected.startswith("Ahoy"))
        got = self.llm(("semantic",), server, *args).result.stdout.split("\n\nprefill")[0]
        self.assertEqual(got, expected)

    def test_weights_that_the_worker_does_not_have_are_sent(self):
        server = self.serve(model=self.synth("other.gguf", CONTEXT, "--seed", 9))
        expected = self.llm(("local",)).values["TOKENS"]
        run = self.llm(("semantic",), server)
        self.assertEqual(run.values["TOKENS"], expected)
        self.assertGreater(run.number("BYTES_weights"), self.model.stat().st_size)


class Bytes(Modes):
    def steps(self, mode, server):
        run = self.llm(mode, server, "--decode_steps", STEPS)
        classes = sum(run.number(f"BYTES_{name}") for name in (
            "weights", "tokens", "logits", "kv_regular", "kv_delta", "control"))
        self.assertEqual(run.number("NETWORK_BYTES"), classes)
        # A heartbeat may fall into a step, so the middle one counts.
        return (run, statistics.median(run.list("STEP_BYTES_UP")[1:]),
                statistics.median(run.list("STEP_BYTES_DOWN")[1:]))

    def test_naive_is_weights_caches_and_logits(self):
        run, *_ = self.steps(("naive",), self.serve())
        weights, logits = self.model.stat().st_size, 4 * VOCAB
        for i, (up, down) in enumerate(zip(run.list("STEP_BYTES_UP"), run.list("STEP_BYTES_DOWN"))):
            before = (PROMPT + i - 1) * KV_POSITION if i else 0
            after = (PROMPT + i) * KV_POSITION
            expected = weights + before + after + logits
            self.assertLess(abs(up + down - expected), 0.01 * expected)
            self.assertGreaterEqual(up, weights + before)
            self.assertGreaterEqual(down, after + logits)

    def test_remote_cache_is_logits(self):
        run, up, down = self.steps(("remote_cache",), self.serve())
        self.assertLessEqual(up + down, 4 * VOCAB + 64)
        self.assertGreaterEqual(run.number("BYTES_weights"), self.model.stat().st_size)
        self.assertLess(run.number("BYTES_weights"), 1.01 * self.model.stat().st_size)

    def test_semantic_is_sixteen_bytes_each_way(self):
        run, up, down = self.steps(("semantic",), self.serve())
        self.assertLessEqual(up, 16)
        self.assertLessEqual(down, 16)
        self.assertEqual(run.number("BYTES_weights"), 0)
        self.assertEqual(run.number("BYTES_logits"), 0)
        self.assertNotIn("SERVER_GPU_KERNEL_MS", run.values)  # the worker computes on a CPU

    def test_local_is_nothing(self):
        run = self.llm(("local",))
        self.assertEqual(run.number("NETWORK_BYTES"), 0)
        self.assertNotIn("SERVER_GPU_KERNEL_MS", run.values)  # neither a server nor a GPU

    def test_lossy_logits_are_half(self):
        server = self.serve()
        exact = self.llm(("semantic", "--return", "logits"), server).number("BYTES_logits")
        lossy = self.llm(("semantic", "--return", "logits", "--lossy"), server)
        self.assertLess(lossy.number("BYTES_logits"), 0.6 * exact)


class Download(Modes):
    def test_the_model_comes_whole(self):
        copy = self.dir / "copy.gguf"
        port = self.serve().addresses[0].rsplit(":", 1)[1]
        self.expect(hawser("llm", "--download", copy, "--master_port", port), REFUSED, "--allow-download")
        port = self.serve("--allow-download").addresses[0].rsplit(":", 1)[1]
        self.expect(hawser("llm", "--download", copy, f"127.0.0.1:{port}"), DONE)
        self.assertEqual(copy.read_bytes(), self.model.read_bytes())
        self.expect(hawser("llm", "--download", self.dir / "no" / "x", "--master_port", port),
                    FAILED, "No such file")
        full = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$0" "$@"', HAWSER, "llm",
                               "--download", self.dir / "full.gguf", "--master_port", port],
                              capture_output=True, text=True, timeout=TIMEOUT, env=clean_environment())
        self.expect(full, FAILED, "cannot write", "full.gguf: File too large")
        # A signal in the middle, as Ctrl-C may be, leaves nothing either.
        killed = subprocess.run(["sh", "-c", 'ulimit -c 0; ulimit -f 1; exec "$0" "$@"', HAWSER, "llm", "--download",
                                 self.dir / "killed.gguf", "--master_port", port],
                                capture_output=True, timeout=TIMEOUT, env=clean_environment())
        self.assertEqual(killed.returncode, -signal.SIGXFSZ)
        copy.write_text("mine")
        self.expect(hawser("llm", "--download", copy, "--master_port", port), FAILED,
                    "copy.gguf is there already", "remove it, or choose another name")
        self.assertEqual(copy.read_text(), "mine")
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()),
                         ["copy.gguf", "m.gguf"])


class BadInput(Modes):
    def test_wrong_usage(self):
        self.llm(("semantic", "--return", "all"), code=USAGE, says=["--return: 'all'", "topk:K"])
        self.llm(("local", "--lossy"), code=USAGE, says=["--lossy"])
        self.expect(hawser("llm", env={"VENUS_SERVERS": "127.0.0.1:1"}, input=""), UNREACHABLE,
                    "--model FILE")
        self.llm(("remote",), code=USAGE, says=["'remote'", "one of local, ", "semantic, vulkan"])
        self.llm(("semantic", "--return", "topk:3", "--temperature", 1), self.serve(), code=FAILED,
                 says=["top 3"])

    def test_a_host_may_bring_its_port(self):
        address = self.serve().addresses[0]
        for host in (address, address.replace("127.0.0.1", "localhost")):
            result = hawser("llm", "--model", self.model, "--mode", "semantic", "--gpu_host", host,
                            "--master_port", 1, "--prompt_tokens", PROMPT, errors="replace")
            self.expect(result, DONE)
        result = hawser("llm", address, "--model", self.model, "--mode", "semantic", "--prompt_tokens", PROMPT,
                        errors="replace")
        self.expect(result, DONE)
        self.expect(hawser("llm", address, "--model", self.model, "--mode", "vulkan"), USAGE, "--mode vulkan runs")

    def test_nobody_listens(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            result = hawser("llm", "--model", self.model, "--mode", "semantic", "--master_port",
                            free.getsockname()[1])
        self.expect(result, UNREACHABLE, "127.0.0.1")

    def test_a_server_without_a_model(self):
        with Server("--listen", "127.0.0.1:0") as server:
            self.llm(("semantic",), server, code=FAILED, says=["no LLM worker", "--model"])

    def test_a_prompt_longer_than_the_context(self):
        server = self.serve("--context", 16)
        for mode, *args in ((("semantic",),), (("remote_cache",),), (("naive",),),
                            (("local",), "--context", 16)):
            self.llm(mode, server, "--prompt_tokens", 17, *args, code=FAILED,
                     says=["context", "16"])

    def test_a_prompt_that_does_not_fit_is_not_echoed(self):
        result = self.llm(("local",), None, "--prompt", "Ahoy " * 20, "--context", 16, code=FAILED,
                          says=["the prompt has", "16"]).result
        self.assertNotIn("Ahoy", result.stdout + result.stderr)

    def test_a_context_beyond_the_model_warns(self):
        run = self.llm(("local",), None, "--context", 4 * CONTEXT, "--decode_steps", 2)
        self.assertIn("YaRN with a factor of 4", run.result.stderr)

    def test_a_full_context_ends_the_text(self):
        run = self.llm(("semantic",), self.serve("--context", 16), "--decode_steps", 50)
        self.assertEqual(len(run.list("TOKENS")), 16 - PROMPT + 1)

    def test_too_little_kv_memory_names_the_least(self):
        self.expect(hawser("serve", "--no-devices", "--listen", "127.0.0.1:0", "--model", self.model,
                           "--kv-memory", "1KiB"), FAILED, ": 1KiB of KV memory are too little", "a page of each layer, ")

    def test_limits_are_refusals(self):
        server = self.serve("--max-upload", "4KiB", "--max-tokens", 8)
        self.llm(("remote_cache",), server, code=REFUSED, says=["4096"])
        self.llm(("semantic",), server, code=REFUSED, says=["takes 8"])

    def test_a_token_is_asked_for(self):
        folder, _ = self.keys()
        server = self.serve("--token-file", folder / "token")
        self.llm(("semantic",), server, code=REFUSED)
        self.llm(("semantic", "--token-file", folder / "token"), server)

    def test_models_that_are_none(self):
        bad = self.dir / "bad.gguf"
        bad.write_bytes(b"GGUF" + bytes(60))
        self.expect(hawser("serve", "--no-devices", "--listen", "127.0.0.1:0", "--model", bad),
                    FAILED, "bad.gguf")


class Deaths(Modes):
    """A worker or a client that dies in the middle; long contexts make the middle long enough."""

    def setUp(self):
        super().setUp()
        self.model = self.synth("slow.gguf", SLOW_CONTEXT)

    def popen(self, mode, server, *args):
        arguments = map(str, self.arguments(self.model, mode, server, *args))
        return subprocess.Popen([HAWSER, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=clean_environment())

    def killed(self, server, client):
        server.process.kill()
        server.process.wait(TIMEOUT)
        _, stderr = client.communicate(timeout=TIMEOUT)
        self.assertEqual(client.returncode, UNREACHABLE, stderr)
        self.assertIn(b"the worker is gone", stderr)

    def test_a_worker_killed_in_a_decode(self):
        server = self.serve()
        client = self.popen(("semantic",), server, "--prompt", "a", "--decode_steps", 8000)
        self.assertTrue(client.stdout.read(8))  # text flows: it is decoding
        self.killed(server, client)

    def test_a_worker_killed_in_a_prefill(self):
        # Attention over so long a prompt takes far longer than it takes to kill the worker.
        self.model = self.synth("slower.gguf", 16 * SLOW_CONTEXT)
        server = self.serve()
        client = self.popen(("semantic",), server, "--prompt_tokens", 15 * SLOW_CONTEXT)
        port = server.addresses[0].rsplit(":", 1)[1]
        self.wait_for_sequences(port)  # the prompt has begun
        self.killed(server, client)

    def test_a_worker_stopped_in_a_decode(self):
        server = self.serve()
        client = self.popen(("semantic", "--tokens-per-request", 4000), server, "--prompt", "a",
                            "--decode_steps", 8000)
        port = server.addresses[0].rsplit(":", 1)[1]
        self.wait_for_sequences(port)
        code, stderr = server.stop()
        self.assertEqual(code, DONE, stderr)
        _, stderr = client.communicate(timeout=TIMEOUT)
        self.assertEqual(client.returncode, UNREACHABLE, stderr)

    def wait_for_sequences(self, port, count=1):
        until = time.monotonic() + TIMEOUT
        while (there := self.sequences(port)) != count:
            self.assertLess(time.monotonic(), until, f"{there} sequences, not {count}")

    @staticmethod
    def sequences(port):
        result = hawser("llm", "--worker-metrics", "--master_port", port)
        return int(re.search(r"^SEQUENCES: (\d+)$", result.stdout, re.M).group(1))

    def test_a_client_that_vanishes_leaves_nothing(self):
        server = self.serve("--grace", "100ms")
        port = server.addresses[0].rsplit(":", 1)[1]
        client = self.popen(("semantic",), server, "--prompt", "a", "--decode_steps", 8000)
        self.assertTrue(client.stdout.read(8))
        self.assertEqual(self.sequences(port), 1)
        client.send_signal(signal.SIGKILL)
        client.communicate(timeout=TIMEOUT)
        self.wait_for_sequences(port, 0)
        self.model = self.synth("m.gguf", CONTEXT)
        self.llm(("remote_cache",), server)  # and it serves on


class Experiment(Modes):
    def experiment(self, *args, code=DONE, says=()):
        result = hawser("experiment", "--model", self.model, "--threads", 1, "--prompt_tokens",
                        PROMPT, "--decode_steps", STEPS, "--output", self.dir / "r.csv",
                        "--report", self.dir / "r.html", *args)
        return self.expect(result, code, *says)

    def rows(self):
        lines = (self.dir / "r.csv").read_text().splitlines()
        names = lines[0].split(",")
        return [dict(zip(names, line.split(","))) for line in lines[1:]]

    def test_columns_rows_and_report(self):
        self.experiment("--trials", 2)
        rows = self.rows()
        self.assertEqual(",".join(rows[0])[:127], (
            "trial,phase,mode,latency_s,wall_s,net_bytes,server_gpu_kernel_ms,server_serdes_ms,"
            "client_serdes_ms,rpc_time_ms,avg_sm,weights,tokens,logits,")[:127])
        self.assertEqual(len(rows), 2 * 2 * 4)
        modes = [row["mode"] for row in rows]
        self.assertEqual(modes[:4], ["local", "naive", "remote_cache", "sys_simulated"])
        self.assertEqual(len(set(row["token_ids"] for row in rows if row["phase"] == "decode")), 1)
        page = (self.dir / "r.html").read_text()
        for phrase in ("sys_simulated", "<svg", "Bytes of a decode step", "the rest: network",
                       "; commit ", " CPU"):
            self.assertIn(phrase, page)
        self.assertNotIn("<script", page)
        # No server of these modes has a GPU, so the table has no figure of one.
        self.assertEqual({row["server_gpu_kernel_ms"] for row in rows}, {"none"})
        self.assertEqual({row["avg_sm"] for row in rows}, {"none"})
        self.assertNotIn("http://", page.replace("http://www.w3.org/", ""))

    def test_json(self):
        args = ("--trials", 2, "--modes", "local,semantic")
        report = json.loads(self.experiment(*args, "--json").stdout)
        self.assertEqual(report["benchmark"], "experiment")
        rows = {row["name"]: row for row in report["rows"]}
        self.assertEqual(set(rows), {"prefill.local", "prefill.semantic", "decode.local",
                                     "decode.semantic"})
        latencies = [float(row["latency_s"]) for row in self.rows()
                     if (row["phase"], row["mode"]) == ("decode", "semantic")]
        self.assertAlmostEqual(rows["decode.semantic"]["value"], 1e3 * statistics.mean(latencies),
                               places=6)
        self.assertEqual(rows["decode.semantic"]["baseline"], rows["decode.local"]["value"])
        self.assertEqual(rows["decode.semantic"]["tokens that agree"], f"{2 * STEPS} of {2 * STEPS}")

    def test_goes_on_after_an_interruption(self):
        self.experiment("--trials", 2)
        path = self.dir / "r.csv"
        whole = path.read_text()
        lines = whole.splitlines(keepends=True)
        path.write_text("".join(lines[:6]) + lines[6][:20])
        self.experiment("--trials", 2, says=["5 of the figures are those of an earlier run",
                                             str(path)])
        again = path.read_text().splitlines(keepends=True)
        self.assertEqual(again[:6], lines[:6])  # kept as they were
        self.assertEqual(len(again), len(lines))

    def test_another_length_is_another_experiment(self):
        args = ("--trials", 1, "--modes", "local,semantic", "--phase", "decode")
        self.experiment(*args)
        # The last of two options counts.
        result = self.experiment(*args, "--decode_steps", STEPS + 2)
        self.assertIn("2 rows of other settings", result.stderr)
        self.assertEqual([row["decode_steps"] for row in self.rows()],
                         [str(STEPS)] * 2 + [str(STEPS + 2)] * 2)
        self.assertEqual(len(set(re.findall(r"(?m)^decode .*$", result.stdout))), 2)

    def test_a_report_that_cannot_be_written_is_found_first(self):
        (self.dir / "folder").mkdir()
        for path, why in (("no/r.html", "No such file"), ("folder", "is a folder"),
                          ("/dev/full", "is no plain file")):
            self.experiment("--report", self.dir / path, code=FAILED, says=[path, why])
            self.assertFalse((self.dir / "r.csv").exists())

    def test_an_output_that_cannot_be_written_is_not_the_reports_fault(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = hawser("experiment", "--model", self.model, "--modes", "local", "--trials", 1,
                            "--output", self.dir / "r.csv", "--report", self.dir / "r.html", stdout=full)
        self.expect(result, FAILED, "cannot write the output: No space left on device")
        self.assertIn("</html>", (self.dir / "r.html").read_text())

    def test_lossy_logits_are_reported_not_refused(self):
        args = ("--trials", 1, "--modes", "local,semantic", "--return", "logits", "--lossy",
                "--phase", "decode")
        result = self.experiment(*args)
        self.assertRegex(result.stdout, rf"(?m)^decode +semantic .* \d+ of {STEPS}$")
        path = self.dir / "r.csv"
        head, local, semantic = path.read_text().splitlines()
        fields = semantic.split(",")
        tokens = fields[22].split()
        same = [a == b for a, b in zip(tokens, local.split(",")[22].split())]
        tokens[3], same[3] = "1" if tokens[3] != "1" else "2", False
        fields[22] = " ".join(tokens)
        path.write_text("\n".join((head, local, ",".join(fields))) + "\n")
        result = self.experiment(*args)
        self.assertRegex(result.stdout, rf"(?m)^decode +semantic .* {sum(same)} of {STEPS}$")
        self.assertIn("may lose digits", (self.dir / "r.html").read_text())

    def test_a_link_is_long_and_narrow_at_once(self):
        self.experiment("--trials", 1, "--modes", "semantic", "--phase", "decode", "--rtt", "2ms",
                        "--rate", "20Mbit")
        row, = self.rows()
        self.assertEqual((row["rtt_us"], row["rate_bits"]), ("2000", "20000000"))
        # Not how fast it is, but that every exchange went through the relay.
        self.assertGreater(float(row["latency_s"]), (STEPS - 1) * 0.002)
        page = (self.dir / "r.html").read_text()
        self.assertIn("adds 2ms", page)
        self.assertIn("20 Mbit/s", page)

    def test_modes_that_differ_get_no_report(self):
        self.experiment("--trials", 1, "--modes", "local,semantic", "--phase", "decode")
        (self.dir / "r.html").unlink()
        path = self.dir / "r.csv"
        head, first, second = path.read_text().splitlines()
        fields = second.split(",")
        tokens = fields[22].split()
        tokens[3] = "1" if tokens[3] != "1" else "2"
        fields[22] = " ".join(tokens)
        path.write_text("\n".join((head, first, ",".join(fields))) + "\n")
        self.experiment("--trials", 1, "--modes", "local,semantic", "--phase", "decode",
                        code=FAILED, says=["no report", "step 3 of mode semantic", "mode local"])
        self.assertFalse((self.dir / "r.html").exists())

    def test_sweeps_and_an_external_server(self):
        port = self.serve("--kv-memory", "1MiB").addresses[0].rsplit(":", 1)[1]
        args = ("--trials", 1, "--modes", "local,semantic", "--phase", "decode")
        self.experiment(*args, "--sweep", "clients", "--points", "1,2", "--external_server",
                        "--master_port", port)
        self.assertEqual(len(self.rows()), 2 + 4)
        result = self.experiment(*args, "--sweep", "rtt", "--points", "0,2ms")
        self.assertNotIn("vanished", result.stderr)
        slow = [row for row in self.rows() if row["rtt_us"] == "2000" and row["mode"] == "semantic"]
        # Not how fast it is, but that every exchange went through the relay.
        self.assertGreater(float(slow[0]["latency_s"]), (STEPS - 1) * 0.002)

    def test_a_narrow_link(self):
        result = self.experiment("--trials", 1, "--modes", "naive,semantic", "--phase", "decode",
                                 "--sweep", "rate", "--points", "20Mbit,1Gbit")
        self.assertIn("20 Mbit/s", result.stdout)
        rows = {(row["mode"], row["rate_bits"]): row for row in self.rows()}
        self.assertEqual(len(rows), 4)
        for (mode, rate), row in rows.items():
            # Both ways are as narrow: the bytes of the wider one cannot have come faster.
            bits = 8 * max(sum(map(int, row["step_bytes_up"].split()[1:])),
                           sum(map(int, row["step_bytes_down"].split()[1:])))
            slack = 1_000_000  # what sockets and the line hold before it is waited for
            self.assertGreater(float(row["latency_s"]), (bits - slack) / int(rate), mode)
        page = (self.dir / "r.html").read_text()
        self.assertIn("Mbit/s", page)

    def test_wrong_usage(self):
        self.experiment("--sweep", "rtt", "--rtt", "1ms", code=USAGE, says=["--points"])
        self.experiment("--lossy", "--modes", "local,semantic", code=USAGE, says=["--return logits"])
        self.experiment("--lossy", "--return", "logits", "--modes", "local", code=USAGE,
                        says=["semantic"])
        self.experiment("--modes", "local,remote", code=USAGE, says=["'remote'", "remote_cache"])
        self.experiment("--modes", "local,local", code=USAGE, says=["twice"])
        self.experiment("--points", "1", code=USAGE, says=["--sweep"])
        self.experiment("--sweep", "rtt", "--points", "fast", code=USAGE, says=["'fast'"])
        for rate in ("0", "1", "1Mb", "1kbit", "0.5Mbit", "-1Gbit", "2000Gbit", "Gbit", "1e3Mbit"):
            self.experiment("--sweep", "rate", "--points", rate, code=USAGE,
                            says=[f"'{rate}'", "1Gbit"])
        self.experiment("--sweep", "rate", "--external_server", "--gpu_host", "192.0.2.1",
                        code=USAGE, says=["this machine"])
        self.experiment("--rate", "fast", code=USAGE, says=["'fast'", "1Gbit"])
        self.experiment("--sweep", "rate", "--rate", "1Gbit", code=USAGE, says=["--points"])
        self.experiment("--sweep", "pressure", "--rate", "1Gbit", "--external_server", code=USAGE,
                        says=["--rate", "external worker"])
        self.experiment("--rate", "1Gbit", "--external_server", "--gpu_host", "192.0.2.1",
                        code=USAGE, says=["--rate", "this machine"])
        (self.dir / "r.csv").write_text("my notes\n")
        self.experiment(code=FAILED, says=["is not a table"])
        self.assertEqual((self.dir / "r.csv").read_text(), "my notes\n")
        self.experiment("--output", "/dev/zero", code=FAILED, says=["/dev/zero is not a table"])

    def test_a_run_that_fails_ends_it(self):
        self.experiment("--modes", "local,semantic", "--external_server", "--master_port", "1",
                        "--phase", "decode", code=UNREACHABLE, says=["mode semantic"])


if __name__ == "__main__":
    unittest.main()
