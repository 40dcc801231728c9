"""Weights of models that nobody asks for leave the GPU and come back, with real requests on the software GPU."""

import json
import os
import shutil
import signal
import unittest

from rig import MODEL, Case, Process, call, counter, hawser, in_threads, wait_for, wait_ready

TOKENS = 12


class IdleWeights(Case):
    def serve(self):
        self.files = []
        for name in ("a", "b"):
            self.files.append(self.dir / f"{name}.gguf")
            shutil.copyfile(MODEL, self.files[-1])
        self.runtime = {"XDG_RUNTIME_DIR": str(self.dir)}
        server = Process("serve", "--no-devices", "--backend", "vulkan", "--kv-memory", "8MiB", "--listen",
                         "127.0.0.1:0", "--http", "127.0.0.1:0", "--idle-weights", "100ms", "--model",
                         f"a={self.files[0]}", "--model", f"b={self.files[1]}",
                         env={"VENUS_LOG_LEVEL": "INFO", **self.runtime})
        self.addCleanup(server.stop)
        wait_ready(server.url)
        return server

    @staticmethod
    def complete(server, model, prompt="And God said"):
        return call(server.url, "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": TOKENS,
                                                    "temperature": 0.8, "seed": 5, "ignore_eos": True})

    def text(self, server, model):
        status, _, body = self.complete(server, model)
        self.assertEqual(status, 200, body)
        return body["choices"][0]["text"]

    @staticmethod
    def aside(server):
        return counter(server.url, "hawser_llm_weights_aside")

    @staticmethod
    def returns(server):
        return counter(server.url, "hawser_llm_weights_return_seconds_count")

    def all_aside(self, server):
        """Waits until none has weights on the GPU."""
        wait_for(lambda: hawser("kvtop", "--once", env=self.runtime).stdout.count("weights aside") == 2)
        self.assertGreater(self.aside(server), 2 * 0.9 * MODEL.stat().st_size)

    def told(self, server, aside):
        """Every place that lists models tells whose weights are aside."""
        info = json.loads(hawser("info", server.address, "-d", "1ms", "--json").stdout)
        self.assertEqual([m["name"] for m in info["server"]["models"] if m["weights_aside"]], aside)
        self.assertEqual(hawser("info", server.address, "-d", "1ms").stdout.count(", up, weights aside\n"), len(aside))
        wait_for(lambda: [m["id"] for m in call(server.url, "/v1/models")[2]["data"] if m["weights_aside"]] == aside)
        for place in (server.address, server.url):
            top = json.loads(hawser("top", "--once", "--json", place).stdout)
            self.assertEqual(sorted(top["places"][0]["workers"][0]["weights_aside"]), aside)
            self.assertIn(f"a, b; weights aside: {', '.join(aside)}\n", hawser("top", "--once", place).stdout)
        for name in aside:
            self.assertEqual(counter(server.url, f'hawser_http_weights_aside{{model_name="{name}"}}'), 1)

    def test_a_request_brings_them_back(self):
        server = self.serve()
        told = self.text(server, "a")
        self.all_aside(server)
        before = self.returns(server)
        self.assertEqual(in_threads([lambda: self.text(server, "a")] * 3), [told] * 3)
        self.assertGreater(self.returns(server), before)
        self.all_aside(server)
        self.told(server, ["a", "b"])
        self.assertEqual(self.text(server, "b"), told)
        self.assertGreater(self.returns(server), before + 1)
        code, stderr = server.stop()
        self.assertEqual(code, 0, stderr)
        self.assertIn("b: weights put aside, ", stderr)
        self.assertIn("b: weights are back after ", stderr)

    def test_a_file_that_was_overwritten_is_told(self):
        server = self.serve()
        told = self.text(server, "b")
        self.all_aside(server)
        os.utime(self.files[1], (1, 1))
        status, _, body = self.complete(server, "b")
        self.assertEqual(status, 503, body)
        self.assertRegex(body["error"]["message"], "start the server again: .*/b.gguf was overwritten after it was loaded")
        self.files[0].unlink()  # a file that is mapped stays whole
        self.assertEqual(self.text(server, "a"), told)
        code, stderr = server.stop()
        self.assertEqual(code, 0, stderr)

    def test_a_server_stops_while_they_come_back(self):
        server = self.serve()
        self.all_aside(server)
        server.send(signal.SIGSTOP)  # so that the request and the end are there together

        def ask():
            try:
                return self.complete(server, "a")[0]
            except OSError:
                return None

        def stop():
            return server.stop()[0]

        status, code = in_threads([ask, stop])
        self.assertIn(status, (None, 200, 503))
        self.assertEqual(code, 0)

    def test_bench_of_weights_that_come_back(self):
        run = hawser("bench-serve", "--model", MODEL, "--share", 2, "--backend", "vulkan", "--idle-weights", "50ms",
                     "--tokens", 2, "--clients", 2, "--reps", 1, "--json")
        rows = {row["name"]: row for row in json.loads(self.expect(run, 0).stdout)["rows"]}
        self.assertEqual(list(rows), ["first.aside", "first.aside.p99"])
        self.assertGreater(rows["first.aside"]["baseline"], 0)

    def test_backends_that_need_it_not(self):
        for args in (("--backend", "cpu"), ("--backend", "vulkan", "--tp", 2)):
            result = hawser("serve", "--no-devices", "--model", MODEL, "--idle-weights", "1s", *args)
            self.expect(result, 2, "--idle-weights is ")


if __name__ == "__main__":
    unittest.main()
