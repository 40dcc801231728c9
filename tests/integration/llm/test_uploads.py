"""Models that clients upload: each in a process of its own, which may crash and has limits."""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, HAWSER, REFUSED, TIMEOUT, Case, Relay, Server, clean_environment, hawser

STEPS, LONG_CONTEXT = 8, 8192
MANY = 8000  # steps: more than a test takes to look


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Uploads(Case):
    def setUp(self):
        super().setUp()
        self.served = self.synth("served.gguf", 1)
        self.own = self.synth("own.gguf", 2)

    def synth(self, name, seed, *args):
        path = self.dir / name
        shape = args or ("--layers", 2, "--width", 64, "--heads", 4, "--vocab", 2048, "--context", LONG_CONTEXT)
        self.expect(hawser("model", "synth", "--arch", "llama", "--seed", seed, *shape, "-o", path), DONE)
        return path

    def serve(self, *args):
        server = Server("--listen", "127.0.0.1:0", "--model", self.served, "--threads", 1, *args)
        self.addCleanup(server.stop)
        return server

    @staticmethod
    def arguments(model, mode, address, steps, prompt=12):
        return ["llm", "--model", str(model), "--threads", "1", "--mode", mode, "--master_port",
                address.rsplit(":", 1)[1], "--ignore-end", "--trace", "--prompt_tokens",
                str(prompt), "--decode_steps", str(steps)]

    def llm(self, model, mode, address, *says, code=DONE, env=None):
        result = hawser(*self.arguments(model, mode, address, STEPS), errors="replace", env=env)
        self.expect(result, code, *says)
        return dict(re.findall(r"^(\w+): ?(.*)$", result.stdout, re.M))

    def tokens(self, model, mode="local", address=":1"):
        return self.llm(model, mode, address)["TOKENS"]

    def begin(self, model, mode, address):
        """A client in the midst of many steps."""
        client = subprocess.Popen([HAWSER, *self.arguments(model, mode, address, MANY)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=clean_environment(None))
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        return client

    def sessions(self, server, count):
        pid, until = server.process.pid, time.monotonic() + TIMEOUT
        while True:
            children = map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            found = [child for child in children if name_of(child) == "hawser-session"]
            if len(found) == count:
                return found
            self.assertLess(time.monotonic(), until, f"{len(found)} sessions, not {count}")

    def wait_for_steps(self, client, session):
        """Until the session has the model mapped, and so has parsed it."""
        until = time.monotonic() + TIMEOUT
        while "hawser-upload" not in self.maps(session):
            self.assertIsNone(client.poll())
            self.assertLess(time.monotonic(), until)

    @staticmethod
    def maps(pid):
        return pathlib.Path(f"/proc/{pid}/maps").read_text()

    def test_only_the_session_has_the_model(self):
        server = self.serve()
        for mode in "remote_cache", "naive":
            client = self.begin(self.own, mode, server.addresses[0])
            session, = self.sessions(server, 1)
            self.wait_for_steps(client, session)
            self.assertNotIn("hawser-upload", self.maps(server.process.pid))
            client.kill()
            self.sessions(server, 0)

    def test_a_session_that_dies_takes_nobody_along(self):
        server = self.serve()
        address = server.addresses[0]
        expected = self.tokens(self.served)
        for mode, number in ("remote_cache", signal.SIGKILL), ("semantic", signal.SIGABRT), ("naive", signal.SIGSEGV):
            with self.subTest(mode=mode):
                other = self.begin(self.served, "semantic", address)
                client = self.begin(self.own, mode, address)
                session, = self.sessions(server, 1)
                self.wait_for_steps(client, session)
                os.kill(session, number)
                _, stderr = client.communicate(timeout=TIMEOUT)
                self.assertEqual(client.returncode, FAILED, stderr)
                self.assertIn(b"the process that computed this client's own model has ended", stderr)
                self.assertIsNone(other.poll())  # in the midst of its steps
                self.assertEqual(self.tokens(self.served, "semantic", address), expected)
                other.kill()
        self.assertEqual(self.tokens(self.own, "remote_cache", address), self.tokens(self.own))  # it serves on
        code, stderr = server.stop()
        self.assertEqual(code, DONE)
        self.assertIn("its session died with signal 6", stderr)

    def test_a_session_ends_with_its_client_whatever_it_does(self):
        server = self.serve()
        for mode in "remote_cache", "naive":
            client = self.begin(self.own, mode, server.addresses[0])
            session, = self.sessions(server, 1)
            self.wait_for_steps(client, session)
            os.kill(session, signal.SIGSTOP)
            client.kill()
            self.sessions(server, 0)
        _, stderr = server.stop()
        self.assertNotIn("died", stderr)  # nobody needs it

    @unittest.skipIf("HAWSER_SANITIZED" in os.environ, "a sanitizer's allocator ends the process instead")
    def test_a_model_beyond_the_memory_limit_is_refused(self):
        server = self.serve("--max-memory", "48MiB")
        address = server.addresses[0]
        large = self.synth("large.gguf", 3, "--layers", 1, "--width", 64, "--heads", 4, "--vocab", 2048,
                           "--ffn", 1 << 20, "--context", 64)
        for mode in "remote_cache", "semantic", "naive":
            self.llm(large, mode, address, "memory", code=FAILED)
            self.assertEqual(self.tokens(self.own, mode, address), self.tokens(self.own))
        self.assertEqual(self.tokens(self.served, "semantic", address), self.tokens(self.served))

    @unittest.skipIf("HAWSER_SANITIZED" in os.environ, "it computes many tokens")
    def test_the_memory_limit_is_for_kv_too(self):
        deep = self.synth("deep.gguf", 5, "--layers", 120, "--width", 64, "--heads", 4, "--ffn", 64, "--vocab", 512,
                          "--context", 2048)  # 60 MiB of KV
        address = self.serve("--max-memory", "48MiB").addresses[0]
        result = hawser(*self.arguments(deep, "semantic", address, 1, 1700), errors="replace")
        self.expect(result, REFUSED, "KV pages")

    def test_weights_stay_for_the_next_client_within_the_limit(self):
        third = self.synth("third.gguf", 4)
        limit = self.own.stat().st_size * 2 - 1
        server = self.serve("--max-upload", limit)
        address = server.addresses[0]

        def weights(model):
            figures = self.llm(model, "semantic", address)
            self.assertEqual(figures["TOKENS"], self.tokens(model))
            return int(figures["BYTES_weights"])

        self.assertGreater(weights(self.own), 0)
        self.assertEqual(weights(self.own), 0)
        self.assertGreater(weights(third), 0)  # which takes the first one's place
        self.assertEqual(weights(third), 0)
        self.assertGreater(weights(self.own), 0)

    def test_a_connection_that_is_cut_goes_on(self):
        server = self.serve()
        size = self.own.stat().st_size
        relay = Relay(self, server.addresses[0], [size // 2, size * 3 // 4])  # in the upload, and behind it
        figures = self.llm(self.own, "semantic", relay.address, env={"VENUS_RESUME": "1"})
        self.assertEqual(figures["TOKENS"], self.tokens(self.own))
        self.assertGreater(relay.cuts, 0)

    def test_a_client_changes_between_models(self):
        metrics = self.serve("--metrics", "127.0.0.1:0")
        for model, mode in itertools.product((self.own, self.served), ("remote_cache", "semantic")):
            self.assertEqual(self.tokens(model, mode, metrics.addresses[0]), self.tokens(model))
        self.sessions(metrics, 0)


if __name__ == "__main__":
    unittest.main()
