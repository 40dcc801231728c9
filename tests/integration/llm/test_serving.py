"""Many clients of one worker at a time: the same tokens, the worker's figures, bench-llm."""

import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import (DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Relay, Server,
                     clean_environment, hawser, lines_of)

LAYERS, WIDTH, HEADS, VOCAB, CONTEXT = 2, 64, 4, 2048, 256
CLIENTS, STEPS = 4, 16


class Host:
    """A network namespace, by a process in it."""

    def __init__(self, pid):
        self.pid, self.enter = str(pid), ["nsenter", "-t", str(pid), "-n"]
        self.program = [*self.enter, HAWSER]

    def run(self, *command):
        return subprocess.run([*self.enter, *command], capture_output=True, timeout=TIMEOUT).returncode


class Serving(Case):
    def setUp(self):
        super().setUp()
        self.model = self.dir / "m.gguf"
        self.expect(hawser("model", "synth", "--arch", "llama", "--layers", LAYERS, "--width",
                           WIDTH, "--heads", HEADS, "--vocab", VOCAB, "--context", CONTEXT, "-o",
                           self.model), DONE)

    def llm(self, mode, port, seed):
        """The tokens of one run; prompts of every length, so that they end at different steps."""
        result = hawser("llm", "--model", self.model, "--threads", 1, "--mode", mode,
                        "--master_port", port, "--ignore-end", "--trace", "--prompt_tokens",
                        seed * 40, "--decode_steps", STEPS, "--temperature", 0.8, "--seed", seed,
                        errors="replace")
        self.expect(result, DONE)
        return re.search(r"^TOKENS: (.*)$", result.stdout, re.M).group(1).split()

    @staticmethod
    def complete(server, prompt, seed, tokens=STEPS, **more):
        """The text of a completion, and how many tokens of its prompt were not computed."""
        line = next(l for l in server.lines if l.startswith("answering on "))
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0.8, "seed": seed,
                "ignore_eos": True, **more}
        request = urllib.request.Request(line.removeprefix("answering on ") + "/v1/completions",
                                         json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            got = json.loads(answer.read())
        return got["choices"][0]["text"], got["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_clients_at_a_time_get_what_they_get_alone(self):
        """Also of a server that is two processes."""
        alone = [self.llm("local", 1, seed) for seed in range(1, CLIENTS + 1)]
        server = Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1, "--tp", 2,
                        "--kv-memory", "4MiB", "--metrics", "127.0.0.1:0")
        try:
            port = server.addresses[0].rsplit(":", 1)[1]
            with ThreadPoolExecutor(CLIENTS) as pool:
                runs = pool.map(lambda seed: self.llm("semantic", port, seed),
                                range(1, CLIENTS + 1))
            self.assertEqual(list(runs), alone)
            figures = self.figures(server)
        finally:
            code, stderr = server.stop()
        self.assertEqual(code, DONE, stderr)
        prompts = sum(seed * 40 for seed in range(1, CLIENTS + 1))
        self.assertEqual(figures["llm_prompt_rows_total"], prompts)
        self.assertEqual(figures["llm_rows_total"], prompts + CLIENTS * (STEPS - 1))
        self.assertEqual(figures["llm_models"], 1)

    def test_texts_that_begin_alike_are_computed_once(self):
        """But for the last token, whose logits are needed; also where that is in the middle of a page."""
        rows = 140
        def complete(ending):
            return self.complete(server, "x" * rows + ending, 1)

        server = Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1, "--http",
                        "127.0.0.1:0", "--kv-memory", "4MiB", "--metrics", "127.0.0.1:0")
        try:
            alone, cached = complete("")
            self.assertEqual(cached, 0)
            with ThreadPoolExecutor(CLIENTS) as pool:
                runs = list(pool.map(lambda i: complete(""), range(CLIENTS)))
            self.assertEqual(runs, [(alone, rows - 1)] * CLIENTS)
            self.assertEqual(complete("y")[1], rows)
            figures = self.figures(server)
        finally:
            code, stderr = server.stop()
        self.assertEqual(code, DONE, stderr)
        self.assertEqual(figures["llm_adopted_rows_total"], (rows - 1) * CLIENTS + rows)

    def test_texts_that_come_together_compute_their_prompt_once(self):
        """Each of the others computes the last row, for its logits."""
        rows, texts = 100, 8
        server = Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1, "--http",
                        "127.0.0.1:0", "--kv-memory", "4MiB", "--metrics", "127.0.0.1:0")
        try:
            first = self.complete(server, "x" * rows, 1, n=texts)
            figures = self.figures(server)
            again = self.complete(server, "x" * rows, 1, n=texts)
        finally:
            code, stderr = server.stop()
        self.assertEqual(code, DONE, stderr)
        self.assertEqual(again[0], first[0])
        self.assertEqual(figures["llm_prompt_rows_total"], rows + texts - 1)
        self.assertEqual(figures["llm_adopted_rows_total"], (rows - 1) * (texts - 1))

    def test_a_text_that_outgrows_the_memory_names_the_remedy(self):
        with Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1, "--kv-memory", "64KiB") as server:
            asked = hawser("llm", server.addresses[0], "--prompt", "x", "-n", CONTEXT // 2 + 64, "--ignore-end",
                           errors="replace")
        self.expect(asked, REFUSED, "tokens the text does not fit", "--kv-memory")

    def test_a_model_that_is_shortened_while_it_is_served_is_named(self):
        server = Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1)
        try:
            os.truncate(self.model, 4096)
            asked = hawser("llm", server.addresses[0], "--prompt", "x", "-n", 8)
            self.expect(asked, UNREACHABLE)
            self.assertEqual(server.process.wait(TIMEOUT), FAILED)
        finally:
            code, stderr = server.stop()
        self.assertIn(f"{self.model} was shortened or overwritten", stderr)
        self.expect(hawser("serve", "--no-devices", "--model", self.model, "--listen", "127.0.0.1:0"), FAILED,
                    str(self.model))

    def test_tensor_parallel_workers_under_a_tight_limit(self):
        """1, 2 and 4 workers while layers are evicted and texts give memory up: the same texts."""
        asked, texts = [chr(97 + i) * (40 + 30 * i) for i in range(CLIENTS)], []
        for ranks in (1, 2, 4):
            with Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1, "--tp", ranks, "--http",
                        "127.0.0.1:0", "--kv-memory", "256KiB", "--shadow", "host", "--evict", "0@16", "--metrics",
                        "127.0.0.1:0") as server, ThreadPoolExecutor(CLIENTS) as pool:
                texts.append([text for text, _ in pool.map(lambda p: self.complete(server, p, 1, 80), asked)])
                self.assertTrue(self.figures(server)["llm_kv_evicted_total"])
        self.assertEqual(texts, texts[:1] * 3)

    def test_texts_outlive_a_tensor_parallel_worker(self):
        """A worker is killed again and again: texts pause, with and without a store, and none changes."""
        tokens, alone = 100, None
        for shadow in ([], ["--shadow", "host"]):
            server = Server("--listen", "127.0.0.1:0", "--model", self.model, "--threads", 1, "--tp", 2,
                            "--http", "127.0.0.1:0", "--kv-memory", "4MiB", *shadow)
            try:
                asked = [chr(97 + i) * (20 + 30 * i) for i in range(CLIENTS)]
                alone = alone or [self.complete(server, prompt, 1, tokens)[0] for prompt in asked]
                with ThreadPoolExecutor(CLIENTS) as pool:
                    os.kill(self.child_of(server), signal.SIGSTOP)  # so that no text ends before the first is killed
                    runs = [pool.submit(self.complete, server, prompt, 1, tokens) for prompt in asked]
                    for _ in range(2):  # a text that loses its rows more than three times fails
                        os.kill(self.child_of(server), signal.SIGKILL)
                    self.assertEqual([run.result()[0] for run in runs], alone)
            finally:
                code, stderr = server.stop()
            self.assertEqual(code, DONE, stderr)
            self.assertIn("tensor-parallel worker 1 of 2 died", stderr)
        self.expect(hawser("serve", "--no-devices", "--model", self.model, "--tp", 5, "--listen",
                           "127.0.0.1:0"), FAILED, "use --tp 4 or less")

    @staticmethod
    def child_of(server):
        """The process of the other worker, started and not yet dead."""
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = path.read_text().rsplit(")", 1)[1].split()
                    if fields[1] == str(server.process.pid) and fields[0] != "Z" and \
                            b"tp-worker" in (path.parent / "cmdline").read_bytes():
                        return int(path.parent.name)
                except OSError:
                    pass  # it ended meanwhile
        raise AssertionError("there is no other worker")

    def serve_three(self, *args, at="127.0.0.1:0", **kwargs):
        server = Server("--model", self.dir / "three.gguf", "--threads", 1, "--listen", at, *args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def lose_one(self, alone, last, how, args, message):
        """Texts of a front with these arguments, whose KV comes and goes; the last of its servers is killed in the
        middle, and comes back; then it is stopped, which holds up no other model, and goes on."""
        there = last.addresses[0]
        front = self.serve_three(*args, "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--shadow", "host",
                                 "--evict", "1-2@10")
        self.refuse(args, FAILED, "it has another front")
        with ThreadPoolExecutor(len(alone)) as pool:
            runs = [pool.submit(self.complete, front, prompt, 1, 40) for prompt in alone]
            until = time.monotonic() + TIMEOUT
            while self.figures(front)["llm_generated_total"] < 10:
                self.assertLess(time.monotonic(), until)
            last.stop(signal.SIGKILL)
            last = self.serve_three(*how, at=there)
            self.assertEqual([run.result()[0] for run in runs], list(alone.values()))
            os.kill(last.process.pid, signal.SIGSTOP)
            runs = [pool.submit(self.complete, front, prompt, 1, 40) for prompt in alone]
            self.llm("semantic", front.addresses[0].rsplit(":", 1)[1], 1)  # of a model that the client sends
            os.kill(last.process.pid, signal.SIGCONT)
            self.assertEqual([run.result()[0] for run in runs], list(alone.values()))
        figures = self.figures(front)
        self.assertTrue(figures["llm_kv_evicted_total"] and figures["llm_kv_restored_total"])
        code, stderr = front.stop()
        self.assertEqual(code, DONE, stderr)
        self.assertIn(message + " is lost", stderr)
        return last

    def cut_one(self, alone, part, args):
        """Texts of a front whose connection to a server is cut again and again: none is computed again.  A front that
        is killed and started again has its place, although it might have come back."""
        server = self.serve_three(*part)
        relay = Relay(self, server.addresses[0], itertools.cycle([30000, 9000, 14000, 25000]))
        front, env = ["--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"], {"VENUS_RESUME": "1"}
        with self.serve_three(*args(relay.address), *front, env=env) as cut, ThreadPoolExecutor(len(alone)) as pool:
            runs = [pool.submit(self.complete, cut, prompt, 1, 40) for prompt in alone]
            self.assertEqual([run.result()[0] for run in runs], list(alone.values()))
            figures = self.figures(cut)
            self.assertGreater(relay.cuts, 4)
            self.assertEqual(figures["llm_prompt_rows_total"], sum(map(len, alone)))
            _, stderr = cut.stop()
        self.assertNotIn("is lost", stderr)
        direct = [*args(server.addresses[0]), *front]
        self.serve_three(*direct, env=env).stop(signal.SIGKILL)
        with self.serve_three(*direct, env=env) as again:
            prompt = next(iter(alone))
            self.assertEqual(self.complete(again, prompt, 1, 40)[0], alone[prompt])
        server.stop()

    def refuse(self, args, code, *texts, model="three.gguf"):
        self.expect(hawser("serve", "--no-devices", "--model", self.dir / model, "--listen", "127.0.0.1:0", *args),
                    code, *texts)

    def test_parts_of_a_model_at_several_servers(self):
        """Layers, and shares of every layer.  Clients at a time, a prompt of two batches."""
        self.expect(hawser("model", "synth", "--arch", "llama", "--layers", 3, "--width", WIDTH, "--heads",
                           HEADS, "--vocab", VOCAB, "--context", 1024, "-o", self.dir / "three.gguf"), DONE)
        asked = [chr(97 + i) * length for i, length in enumerate((20, 700, 90))]
        with self.serve_three("--http", "127.0.0.1:0") as server:
            alone = {prompt: self.complete(server, prompt, 1, 40)[0] for prompt in asked}
        with self.subTest("layers"):
            self.check_layers(alone)
        with self.subTest("shares"):
            self.check_shares(alone)
        with self.subTest("hosts"):
            self.check_hosts()

    def check_layers(self, alone):
        last = self.serve_three("--layers", "2")
        there = last.addresses[0]
        stages = f"0@local,1@{self.serve_three('--layers', '1').addresses[0]},2@{there}"
        last = self.lose_one(alone, last, ["--layers", "2"], ["--layers", stages], f"stage 2@{there}")
        # One message each, and nothing is lost.
        for stages, code, text in (
                (f"0@local,1-2@{there}", FAILED, "it has layers 2-2, not 1-2"),
                (f"0@local,2@{there}", USAGE, "layer 1 has none; each layer has one stage"),
                ("0-5", USAGE, "the model has layers 0 to 2")):
            self.refuse(["--layers", stages], code, text)
        front = ["--layers", f"0-1@local,2@{there}"]
        self.refuse([*front, "--tp", 2], USAGE, "--layers and --tp cannot be combined")
        self.refuse(["--layers", "1-2", "--http", "127.0.0.1:0"], USAGE, "--http answers with a whole model")
        self.refuse(["--tp", 2, "--tp-peers", there], FAILED, "start it with --model FILE --tp-share")
        self.refuse(["--layers", f"0@local,1@{there}"], FAILED, "give both servers the same file", model="m.gguf")
        last.stop()
        self.refuse(front, UNREACHABLE, f"stage 2@{there}: cannot reach")
        self.cut_one(alone, ["--layers", "1-2"], lambda at: ["--layers", f"0@local,1-2@{at}"])

    def check_shares(self, alone):
        last = self.serve_three("--tp-share")
        first, there = self.serve_three("--tp-share").addresses[0], last.addresses[0]
        front = ["--tp", 3, "--tp-peers", f"{first},{there}"]
        last = self.lose_one(alone, last, ["--tp-share"], front, f"tensor-parallel worker 2 at {there}")
        for args, code, text in (
                (["--tp", 3, "--tp-peers", there], USAGE, "give --tp 2"),
                (["--tp-peers", there], USAGE, "give --tp 2"),
                (["--tp", 3, "--tp-peers", f"{there},{there}"], USAGE, f"'{there}' is named twice"),
                (["--tp", 2, "--tp-peers", "x:y:z"], USAGE, "'x:y:z'"),
                (["--tp-share", "--tp", 2], USAGE, "--tp is for the front"),
                (["--tp-share", "--layers", "2"], USAGE, "cannot be combined"),
                (["--tp-share", "--shadow", "host"], USAGE, "--shadow is for the front"),
                (["--tp-share", "--http", "127.0.0.1:0"], USAGE, "--http answers with a whole model"),
                (["--tp-share", "--model", self.model], USAGE, "--tp-share is about one model"),
                (["--layers", f"0-1@local,2@{there}"], FAILED, "start it with --model FILE --layers 2-2"),
                (["--tp", 5, "--tp-peers", f"{there},a,b,c"], FAILED, "use --tp 4 or less")):
            self.refuse(args, code, text)
        self.refuse(["--tp", 2, "--tp-peers", there], FAILED, "give both servers the same file", model="m.gguf")
        last.stop()
        self.refuse(front, UNREACHABLE, f"tensor-parallel worker 2 at {there}: cannot reach")
        self.cut_one(alone, ["--tp-share"], lambda at: ["--tp", 2, "--tp-peers", at])

    def check_hosts(self):
        """Two network namespaces, with TLS and a token: shares, then layers."""
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
            self.skipTest("needs root, ip and unshare")
        here, peer = (self.namespace() for _ in range(2))
        if here.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", peer.pid):
            self.skipTest("this kernel has no veth")
        for number, host in enumerate((here, peer), 1):
            for command in (f"addr add 10.119.7.{number}/24 dev eth0", "link set eth0 up", "link set lo up"):
                self.assertEqual(host.run("ip", *command.split()), 0)
        folder, _ = self.keys("10.119.7.2")
        client = {"VENUS_TOKEN_FILE": folder / "token", "VENUS_TLS_CA": folder / "server.crt"}
        keys = ["--cert", folder / "server.crt", "--key", folder / "server.key", "--token-file", folder / "token"]
        texts = []
        for part, front in ((None, []), (["--tp-share"], ["--tp", 2, "--tp-peers", "10.119.7.2:28110"]),
                            (["--layers", "1-2"], ["--layers", "0@local,1-2@10.119.7.2:28110"])):
            other = self.serve_three(*part, *keys, at="10.119.7.2:28110", program=peer.program) if part else None
            at = self.dir / "front.sock"
            with self.serve_three(*front, at=f"unix:{at}", program=here.program, env=client) as server:
                texts.append(self.expect(hawser("llm", f"unix:{at}", "--prompt", "abc", "-n", 40, "--ignore-end",
                                                errors="replace"), DONE).stdout)
            if other:
                other.stop()
        self.assertEqual(texts, texts[:1] * 3)

    def namespace(self):
        """A host with a network of its own, which vanishes with its process."""
        holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.addCleanup(holder.communicate, timeout=TIMEOUT)
        next(lines_of(holder.stdout.fileno()), None)
        return Host(holder.pid)

    def test_a_priority_that_makes_no_sense_is_refused(self):
        for given, told in (("one", "is not a model and a number of 0 to 100, such as one=1"),
                            ("one=101", "is not a model"), ("two=1", "there is no model 'two'")):
            self.expect(hawser("serve", "--no-devices", "--model", f"one={self.model}", "--kv-priority", given),
                        USAGE, told)

    def test_kvctl_moves_memory_while_requests_run(self):
        """Two models under one limit that goes down and up: texts wait, and none changes."""
        other = self.dir / "other.gguf"
        self.expect(hawser("model", "synth", "--arch", "llama", "--layers", LAYERS + 1, "--width", WIDTH,
                           "--heads", HEADS, "--vocab", VOCAB, "--context", CONTEXT, "-o", other), DONE)
        env = {"HAWSER_RUNTIME_DIR": str(self.dir / "groups")}

        def kvctl(*args):
            return self.expect(hawser("kvctl", *args, env=env), DONE).stdout

        def group():
            return json.loads(kvctl("list", "one", "--json"))["groups"][0]

        def complete(model, seed):
            return self.complete(server, chr(97 + seed) * 70, seed, 150, model=model)[0]

        server = Server("--listen", "127.0.0.1:0", "--model", f"one={self.model}", "--model",
                        f"two={other}", "--threads", 1, "--http", "127.0.0.1:0", "--kv-memory",
                        "2MiB", "--kv-priority", "two=3", "--metrics", "127.0.0.1:0", env=env)
        try:
            self.assertIn("KV memory: 2MiB, group one", server.lines)
            asked = [(model, seed) for seed in range(6) for model in ("one", "two")]
            alone = [complete(*each) for each in asked]
            limits = [1 << 20, 4096, 2 << 20, 512 << 10, 8 << 20]
            with ThreadPoolExecutor(len(asked)) as pool:
                runs = [pool.submit(complete, *each) for each in asked]
                for limit in limits:
                    kvctl("limit", "one", limit)
                    until, held = time.monotonic() + TIMEOUT, limit + 1
                    while held > limit:
                        self.assertLess(time.monotonic(), until)
                        now = group()
                        held = sum(w["mapped"] + w["reserve"] for w in now["workers"])
                    self.assertEqual(now["limit"], limit)
                    self.assertEqual([(w["model"], w["priority"]) for w in now["workers"]], [("one", 0), ("two", 3)])
                self.assertEqual([run.result() for run in runs], alone)
            self.expect(hawser("kvctl", "limit", "one", "9MiB", env=env), FAILED, "can have 8MiB at most",
                        "--kv-memory")
            self.assertEqual(group()["limit"], 8 << 20)
            self.assertIn("given back by 2 models", kvctl("trim", "one"))
            self.assertEqual([w["reserve"] for w in group()["workers"]], [0, 0])
            self.assertRegex(kvctl("list"), r"(?m)^one +1 +two +\d+ ")
            self.assertGreater(self.figures(server)["llm_kv_given_total"], 0)
            screen = self.expect(hawser("kvtop", "--once", env=env), DONE).stdout
            self.assertRegex(screen, r"(?m)^one +\[.{20,}\] .* limit 8MiB, free ")
            self.assertRegex(screen, r"(?m)^  two +\d+ \[.{20,}\] ")
            self.expect(hawser("kvtop", "none", env=env), FAILED, "no group 'none'")
            # Another server of the same model has a group of its own.
            beside = Server("--listen", "127.0.0.1:0", "--model", f"one={self.model}", "--threads", 1,
                            "--kv-memory", "1MiB", env=env)
            try:
                self.assertRegex("\n".join(beside.lines), r"KV memory: 1MiB, group one-\d+")
                self.assertRegex(kvctl("trim", f"one-{beside.process.pid}"), r" given back by 1 model\n$")
            finally:
                beside.stop()
        finally:
            code, stderr = server.stop()
        self.assertEqual(code, DONE, stderr)
        self.assertRegex(kvctl("list"), "^no groups in ")

    def test_trims_that_overtake_each_other_are_both_answered(self):
        """Two are asked for while the server stands still, which then answers the later one.  Neither may take
        more than a few seconds, so that on a busy machine it has a few tries."""
        groups = self.dir / "groups"
        env = {"HAWSER_RUNTIME_DIR": str(groups)}

        def trim(number):
            run = subprocess.Popen([HAWSER, "kvctl", "trim", "one"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=clean_environment({"ASAN_OPTIONS": "detect_leaks=0", **env}))
            until = time.monotonic() + TIMEOUT
            while struct.unpack_from("<I", (groups / "one/limit").read_bytes(), 16)[0] != number:
                self.assertLess(time.monotonic(), until)
            return run

        with Server("--listen", "127.0.0.1:0", "--model", f"one={self.model}", "--threads", 1, "--http",
                    "127.0.0.1:0", env=env) as server:
            codes = None
            for tried in range(0, 10, 2):
                self.complete(server, "a" * 70, 1)
                server.process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
                runs = [trim(tried + 1), trim(tried + 2)]
                server.process.send_signal(signal.SIGCONT)
                for run in runs:
                    run.communicate(timeout=TIMEOUT)
                codes = [run.returncode for run in runs]
                if codes == [DONE, DONE]:
                    break
            self.assertEqual(codes, [DONE, DONE])

    def test_servers_share_one_budget(self):
        """Two processes in one group: texts wait for each other's memory, and none changes; one that is killed
        leaves its memory to the other."""
        env = {"HAWSER_RUNTIME_DIR": str(self.dir / "groups")}
        asked = [(chr(97 + seed) * 70, seed, 150) for seed in range(8)]
        servers = [Server("--listen", "127.0.0.1:0", "--model", f"one={self.model}", "--threads", 1, "--http",
                          "127.0.0.1:0", "--kv-memory", "1MiB", "--kv-group", "pair", env=env) for _ in range(2)]
        for server in servers:
            self.addCleanup(server.stop)

        def users():
            group = json.loads(self.expect(hawser("kvctl", "list", "pair", "--json", env=env), DONE).stdout)["groups"][0]
            self.assertLessEqual(sum(w["mapped"] + w["reserve"] for w in group["workers"]), group["limit"])
            return {w["pid"] for w in group["workers"]}

        alone = [self.complete(servers[0], *each)[0] for each in asked]
        self.assertEqual(users(), {server.process.pid for server in servers})
        with ThreadPoolExecutor(2 * len(asked)) as pool:
            runs = [pool.submit(self.complete, server, *each) for each in asked for server in servers]
            while not all(run.done() for run in runs):
                users()
            self.assertEqual([run.result()[0] for run in runs], [text for text in alone for _ in servers])
        servers[1].stop(signal.SIGKILL)
        self.expect(hawser("kvctl", "limit", "pair", "256KiB", env=env), DONE)
        watch = hawser("kvctl", "watch", "pair", "--count", 1, env=env)
        self.assertIn("one", self.expect(watch, DONE).stdout)
        self.assertEqual(self.complete(servers[0], *asked[-1])[0], alone[-1])
        self.assertEqual(users(), {servers[0].process.pid})

    def test_a_server_that_joins_a_group_changes_no_limit(self):
        """The first one's --kv-memory counts, and kvctl changes it; who joins can use what that may become."""
        env = {"HAWSER_RUNTIME_DIR": str(self.dir / "groups")}
        model = self.dir / "deep.gguf"
        self.expect(hawser("model", "synth", "--arch", "llama", "--layers", 2 * LAYERS, "--width", WIDTH, "--heads",
                           HEADS, "--vocab", VOCAB, "--context", 2 * CONTEXT, "-o", model), DONE)

        def serve(memory):
            server = Server("--listen", "127.0.0.1:0", "--model", f"one={model}", "--threads", 1, "--http",
                            "127.0.0.1:0", "--kv-memory", memory, "--kv-group", "one", env=env)
            self.addCleanup(server.stop)
            return server

        def limit(size):
            self.expect(hawser("kvctl", "limit", "one", size, env=env), DONE)

        first = serve("256KiB")
        self.assertIn("KV memory: 256KiB, group one", first.lines)
        limit("none")
        self.assertIn("KV memory: no limit, group one", serve("64KiB").lines)
        limit("64KiB")
        last = serve("256KiB")
        self.assertIn("KV memory: 64KiB, group one", last.lines)
        limit("1MiB")
        self.assertEqual(self.complete(last, "a" * 70, 1, CONTEXT)[0], self.complete(first, "a" * 70, 1, CONTEXT)[0])

    @staticmethod
    def figures(server):
        line = next(l for l in server.lines if l.startswith("metrics on "))
        page = line.removeprefix("metrics on ") + "metrics"
        with urllib.request.urlopen(page, timeout=TIMEOUT) as answer:
            text = answer.read().decode()
        return {name: int(value) for name, value in
                re.findall(r"^hawser_(llm_\w+) (\d+)$", text, re.M)}

    def bench(self, *args, code=DONE, says=()):
        return self.expect(hawser("bench-llm", "--model", self.model, "--threads", 1, "-p", 8,
                                  "-n", 8, "-r", 1, *args), code, *says)

    def test_bench_of_many_clients(self):
        report = json.loads(self.bench("--clients", "1,3", "--json").stdout)
        self.assertEqual(report["benchmark"], "llm-serving")
        one, three = report["rows"]
        self.assertEqual([one["name"], three["name"]], ["1 client", "3 clients"])
        self.assertEqual(one["batch"], "1.00")
        self.assertEqual(three["baseline"], one["value"])
        for row in (one, three):
            self.assertGreater(row["value"], 0)
        turns = json.loads(self.bench("--clients", 3, "--batch", 1, "--no-gather", "--json").stdout)
        self.assertEqual(turns["rows"][0]["batch"], "1.00")

    def test_bench_counts_the_experts_that_a_token_reads(self):
        read = {}
        for used in (1, 9, 16):
            self.model = self.dir / f"{used}.gguf"
            self.expect(hawser("model", "synth", "--like", "tiny-moe", "--ffn", 512, "--experts", 16,
                               "--experts-used", used, "-o", self.model), DONE)
            rows = {row["name"]: row for row in json.loads(self.bench("--json").stdout)["rows"]}
            read[used] = float(re.search(r"/ ([\d.]+) MB of weights a token", rows["decode"]["baseline_is"])[1])
        self.assertGreater(read[16], 4 * read[1])
        self.assertAlmostEqual((read[9] - read[1]) / (read[16] - read[1]), 8 / 15, delta=0.05)

    def test_bench_names_the_threads_that_it_uses(self):
        for threads, used in ((0, len(os.sched_getaffinity(0))), (2, 4)):
            rows = json.loads(self.bench("--json", "--tp", 2, "--threads", threads).stdout)["rows"]
            self.assertEqual({row["name"]: row for row in rows}["tp prefill"]["baseline_is"],
                             f"one worker, {used} threads")

    def test_bench_of_shared_memory(self):
        run = hawser("bench-serve", "--model", self.model, "--threads", 1, "--share", 2, "--clients", 4,
                     "--tokens", 8, "--reps", 1, "--deadline", "3600s", "--json")
        rows = {row["name"]: row for row in json.loads(self.expect(run, DONE).stdout)["rows"]}
        for load in ("alternating", "even"):
            self.assertEqual(rows[f"in_time.{load}"]["in_time"], "8 of 8")
            self.assertGreater(rows[f"first.p99.{load}"]["value"], 0)
        self.expect(hawser("bench-serve", "--model", self.model, "--share", 4, "--clients", 2), USAGE,
                    "'2' is not 4 to 256")
        self.expect(hawser("bench-serve", "--model", self.model, "--priority"), USAGE,
                    "--priority is about several models: --share N")

    def test_bench_of_priorities(self):
        run = hawser("bench-serve", "--model", self.model, "--threads", 1, "--share", 2, "--clients", 4,
                     "--tokens", 8, "--reps", 1, "--deadline", "3600s", "--priority", "--json")
        rows = {row["name"]: row for row in json.loads(self.expect(run, DONE).stdout)["rows"]}
        self.assertEqual(len(rows), 12)
        for group in ("first", "others"):  # an even burst asks both alike, an alternating one each in turn
            self.assertEqual(rows[f"in_time.even.{group}"]["in_time"], "4 of 4")
            self.assertEqual(rows[f"in_time.alternating.{group}"]["equals_in_time"], "4 of 4")
            self.assertGreater(rows[f"first.median.even.{group}"]["ratio"], 0)

    def test_bench_of_a_prompt_beside_texts(self):
        def bench(prompt, tokens):
            return hawser("bench-serve", "--model", self.model, "--threads", 1, "--clients", 2, "--reps", 1,
                          "--beside", prompt, "--tokens", tokens, "--json")
        for _ in range(10):  # or both are computed in one step
            short = bench(200, 2)
            if short.returncode != DONE:
                break
        self.expect(short, FAILED, "of 2 texts ended before the first token of the prompt beside them")
        for _ in range(10):  # a busy machine may send the prompt when the texts have ended
            run = bench(8, 220)
            if run.returncode == DONE:
                break
        rows = {row["name"]: row for row in json.loads(self.expect(run, DONE).stdout)["rows"]}
        for way in ("engine", "http", "gateway"):
            self.assertEqual(rows[f"beside.{way}.2"]["prompt"], "8 tokens")
            self.assertGreater(rows[f"beside.{way}.2"]["baseline"], 0)

    def test_bench_of_kv_that_moves(self):
        names = [f"a token, {n} of {LAYERS} layers missing" for n in (1, 2)]
        elsewhere = ["first token of a known prompt", "next token at another worker"]
        for _ in range(10):  # a store that a busy machine holds up for seconds is not waited for
            run = hawser("bench-llm", "--model", self.model, "--threads", 1, "-p", 140, "-n", 8, "-r",
                         1, "--moves", "1Gbit", "--json")
            rows = {row["name"].removeprefix("1Gbit: "): row for row in
                    json.loads(self.expect(run, DONE).stdout)["rows"]}
            if all(rows[name]["computed_rows"] == "0" for name in names) and \
                    all(float(rows[name]["fetched_mb"]) > 0 for name in elsewhere):
                break
        one, both = (float(rows[name]["fetched_mb"]) for name in names)
        self.assertGreater(one, 0)
        self.assertAlmostEqual(both / one, 2, delta=0.5)  # two decimals of a megabyte
        self.assertGreater(int(rows["a token, all computed again"]["computed_rows"]), 140)
        for name in elsewhere:
            self.assertGreater(float(rows[name]["fetched_mb"]), 0, name)

    def test_wrong_usage(self):
        self.bench("--moves", "fast", code=USAGE, says=["'fast'", "10Gbit"])
        self.bench("--moves", "0", "--clients", 1, code=USAGE, says=["not both"])
        self.bench("--clients", "many", code=USAGE, says=["'many'", "from 1 to 256"])
        self.bench("--clients", "0", code=USAGE, says=["'0'"])
        self.model = self.dir / "none.gguf"
        self.bench("--clients", 1, code=FAILED, says=["none.gguf"])


if __name__ == "__main__":
    unittest.main()
