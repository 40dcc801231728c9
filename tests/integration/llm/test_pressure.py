"""hawser serve --shadow, hawser llm --evict, hawser experiment --sweep pressure: what comes back."""

import json
import subprocess
import unittest

from test_modes import DONE, FAILED, HAWSER, LAYERS, USAGE, WIDTH, Modes, hawser
from harness import UNREACHABLE, clean_environment, free_port, lines_of

PROMPT, STEPS, CONTEXT, EVICT_AT = 140, 6, 256, 3
ROW = 2 * WIDTH * 2  # bytes of a layer, of a position
ROWS = PROMPT + EVICT_AT - 1  # that are there when layers go: exchange N computes token N
WHOLE = ("remote_cache", "remote_cache_compressed")
PARTS = ("remote_cache_delta_raw", "remote_cache_delta_compressed", "semantic")


class Recovery(Modes):
    def setUp(self):
        super().setUp()
        self.model = self.synth("long.gguf", CONTEXT)

    def run_mode(self, mode, server, *args):
        return self.llm((mode,), server, "--prompt_tokens", PROMPT, "--decode_steps", STEPS, *args)

    def test_what_comes_back_is_what_was_out(self):
        expected = self.run_mode("local", None).values["TOKENS"]
        for mode in WHOLE + PARTS:
            server = self.serve("--shadow", "host")
            for out in ("1", "all"):
                run = self.run_mode(mode, server, "--evict", f"{out}@{EVICT_AT}")
                layers = LAYERS if out == "all" or mode in WHOLE else 1
                self.assertEqual(run.values["TOKENS"], expected, mode)
                self.assertEqual(run.number("KV_RECOVERED_LAYERS"), layers, mode)
                self.assertEqual(run.number("KV_RECOVERED_BYTES"), layers * ROWS * ROW, mode)
                other = "STORE_kv_delta" if mode in WHOLE else "STORE_kv_regular"
                self.assertEqual(run.number(other), 0, mode)

    def test_nothing_comes_back_when_it_is_computed(self):
        expected = self.run_mode("local", None).values["TOKENS"]
        run = self.run_mode("remote_cache_recompute", self.serve("--shadow", "host"), "--evict",
                            f"1@{EVICT_AT}")
        self.assertEqual(run.values["TOKENS"], expected)
        self.assertEqual(run.number("KV_FETCHED_BYTES"), 0)
        self.assertEqual(run.number("KV_COMPUTED_ROWS"), ROWS)

    def test_a_rule_of_the_worker(self):
        expected = self.run_mode("local", None).values["TOKENS"]
        server = self.serve("--shadow", "host", "--evict", "50%@2")
        run = self.run_mode("semantic", server)
        self.assertEqual(run.values["TOKENS"], expected)
        self.assertEqual(run.number("KV_RECOVERED_LAYERS"), 2)  # after the second and the fourth

    def test_the_sweep(self):
        csv, page = self.dir / "p.csv", self.dir / "p.html"
        result = hawser("experiment", "--model", self.model, "--threads", 1, "--prompt_tokens",
                        PROMPT, "--decode_steps", STEPS, "--trials", 1, "--sweep", "pressure",
                        "--modes", "remote_cache,remote_cache_delta_raw,sys_simulated",
                        "--output", csv, "--report", page)
        self.expect(result, DONE)
        self.assertIn("KV fetched", result.stdout)
        head, *lines = csv.read_text().splitlines()
        rows = [dict(zip(head.split(","), line.split(","))) for line in lines]
        self.assertEqual(len(rows), 3 * (LAYERS + 1))
        for row in rows:
            out = int(row["evicted_layers"])
            layers = LAYERS if out and row["mode"] == "remote_cache" else out
            self.assertEqual(float(row["kv_recovered"]), layers * ROWS * ROW, row["mode"])
        self.assertIn("Bytes of KV that came back", page.read_text())
        self.assertIn("found layers missing", page.read_text())

    def test_the_sweep_as_json_has_its_own_figures(self):
        result = hawser("experiment", "--model", self.model, "--threads", 1, "--prompt_tokens", PROMPT,
                        "--decode_steps", STEPS, "--trials", 1, "--sweep", "pressure", "--points", LAYERS, "--modes",
                        "remote_cache", "--output", self.dir / "p.csv", "--report", self.dir / "p.html", "--json")
        row, = json.loads(self.expect(result, DONE).stdout)["rows"]
        self.assertLessEqual({"recovery ms", "KV fetched", "rows computed"}, set(row))

    def test_the_link_to_the_store_has_a_rate(self):
        csv = self.dir / "p.csv"
        rate = 20_000_000
        self.expect(hawser("experiment", "--model", self.model, "--threads", 1, "--prompt_tokens",
                           PROMPT, "--decode_steps", STEPS, "--trials", 1, "--sweep", "pressure",
                           "--points", LAYERS, "--rate", "20Mbit", "--modes",
                           "remote_cache", "--output", csv, "--report", self.dir / "p.html"),
                    DONE)
        head, *lines = csv.read_text().splitlines()
        row = dict(zip(head.split(","), lines[0].split(",")))
        self.assertEqual(int(row["rate_bits"]), rate)
        self.assertGreater(float(row["kv_fetched"]), 0)
        # Not how fast it is, but that all of it was on the line.
        self.assertGreater(float(row["latency_s"]), 8 * float(row["kv_fetched"]) / rate)

    def sweep(self, name, *args):
        """Rows of a sweep of pressure at one point, all layers."""
        csv = self.dir / f"{name}.csv"
        self.expect(hawser("experiment", "--model", self.model, "--threads", 1, "--prompt_tokens", PROMPT,
                           "--decode_steps", STEPS, "--trials", 1, "--sweep", "pressure", "--points", LAYERS, "--modes",
                           "remote_cache", "--output", csv, "--report", self.dir / "p.html", *args), DONE)
        head, *lines = csv.read_text().splitlines()
        return [dict(zip(head.split(","), line.split(","))) for line in lines]

    def test_the_link_to_the_store_has_a_round_trip(self):
        rtt = 0.2
        row, = self.sweep("rtt", "--rtt", "200ms")
        # Not how long it takes, but what must be in it: a round trip to the worker for each token and to make it evict,
        # and one to the store for what comes back.  Half of that one is enough to tell.
        self.assertGreater(float(row["latency_s"]), rtt * (STEPS - 1) + rtt + rtt / 2)

    def test_the_store_is_a_cluster(self):
        plain, = self.sweep("plain")
        members = ",".join(f"{name}=127.0.0.1:{free_port()}" for name in "ab")
        for name in "ab":
            daemon = subprocess.Popen([HAWSER, "kvd", "--socket", self.dir / name, "--members", members, "--name", name,
                                       "--blocks", "64MiB", "--copies", "2", "--min-copies", "2"],
                                      stdout=subprocess.PIPE, env=clean_environment())
            self.addCleanup(daemon.stdout.close)
            self.addCleanup(daemon.wait)
            self.addCleanup(daemon.terminate)
            next(lines_of(daemon.stdout.fileno()))
        row, = self.sweep("cluster", "--shadow", f"kvd:{self.dir}/a", "--rtt", "1ms")
        self.assertEqual(row["kv_recovered"], plain["kv_recovered"])
        there = hawser("kv", "info", "--json", "--socket", self.dir / "b")  # the other member has a copy of each
        self.assertGreater(json.loads(self.expect(there, DONE).stdout)["blocks"], 0)

    def test_bad_store(self):
        base = ("experiment", "--model", self.model, "--output", self.dir / "x.csv", "--report", self.dir / "x.html")
        self.expect(hawser(*base, "--shadow", "host"), USAGE, "--sweep pressure")
        for option in (("--shadow", "host"), ("--rtt", "1ms"), ("--rate", "1Gbit")):
            self.expect(hawser(*base, "--sweep", "pressure", "--external_server", *option), USAGE, option[0],
                        "drop --external_server")
        for where, why in (("moon", "kvd:"), (f"kvd:{self.dir}/none", "none"), ("redis://127.0.0.1:1", "127.0.0.1:1")):
            self.expect(hawser(*base, "--sweep", "pressure", "--shadow", where), FAILED, why, "did not start")

    def test_bad_input(self):
        self.llm(("semantic",), self.serve(), "--evict", "0@2", code=FAILED, says=["--shadow"])
        self.llm(("local",), None, "--evict", "0-9@2", code=USAGE, says=["layers 0 to 1"])
        for args, says in ((("--shadow", "moon"), "kvd:"), (("--evict", "all"), "--shadow"),
                           (("--share-prefixes",), "--shadow"),
                           (("--shadow", "host", "--evict", "5@1"), "layers 0 to 1"),
                           (("--shadow", "host", "--evict", "0@0"), "layers 0 to 1")):
            self.expect(hawser("serve", "--no-devices", "--model", self.model, *args), USAGE, says)
        for args in (("--evict", "all"), ("--shadow", "host")):
            self.expect(hawser("serve", "--no-devices", *args), USAGE, "--model")
        self.expect(hawser("serve", "--no-devices", "--model", self.model, "--shadow",
                           f"kvd:{self.dir}/none"), UNREACHABLE, "is \"hawser kvd\" running?")


if __name__ == "__main__":
    unittest.main()
