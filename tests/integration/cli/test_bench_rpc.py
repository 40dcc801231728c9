"""bench-rpc's form and completeness; its figures are the machine's business, not a test's."""

import json
import pathlib
import signal
import subprocess
import tempfile
import unittest

from harness import DONE, FAILED, HAWSER, TIMEOUT, Case, clean_environment, hawser

FIELDS = {"name", "value", "unit", "baseline", "ratio", "transport", "wait", "size", "depth",
          "against", "spread", "target", "met"}


class BenchRpc(Case):
    def bench(self, *args):
        result = self.expect(hawser("bench-rpc", "--json", *args, leaks=True), DONE)
        return json.loads(result.stdout)

    def test_quick_has_every_transport_and_every_promise(self):
        report = self.bench("--quick", "--time", "1ms", "--reps", "1")
        self.assertEqual(report["benchmark"], "rpc")
        self.assertEqual(set(report), {"benchmark", "commit", "host", "date", "rows", "left_out"})
        rows = {row["name"]: row for row in report["rows"]}
        for row in rows.values():
            # On a busy machine a difference of times may come out impossible, and is said to be.
            if not row.get("valid", True):
                self.assertIsNone(row["value"])
                self.assertIn(row["met"], ("invalid", "-"))
                self.assertTrue(row["reason"])
                continue
            self.assertEqual(set(row), FIELDS)
            self.assertGreater(row["value"], 0, row)
            if row["baseline"] is not None:
                self.assertAlmostEqual(row["ratio"], row["value"] / row["baseline"], delta=1e-3 * row["ratio"])
        for transport in ("tcp", "unix", "shm", "tls"):
            for figure in ("64B.d1", "64B.d64", "stream"):
                self.assertIn(f"{transport}.{figure}.adaptive", rows)
        for promised in ("tcp.64B.d1.adaptive", "unix.64B.d1.adaptive", "shm.64B.d1.adaptive",
                         "tcp.64B.d64-over-d1.adaptive", "tcp.stream.adaptive",
                         "tls.stream.adaptive", "delay.calls", "delay.posts",
                         "one-core.adaptive-over-block"):
            self.assertIn(rows[promised]["met"], ("yes", "NO", "invalid"))
        left = {entry["why"]: entry["rows"] for entry in report["left_out"]}
        self.assertIn("tcp.64B.d1.block", left["--quick"])
        self.assertIn("shm.1MiB.d1.adaptive", left["--quick"])
        self.assertFalse(set(left["--quick"]) & set(rows))

    def test_the_table_names_what_was_left_out(self):
        text = self.expect(hawser("bench-rpc", "--quick", "--only", "unix.64B.d1", "--time", "1ms",
                                  "--reps", "1"), DONE).stdout
        self.assertIn("left out by --quick: 2 rows: unix.64B.d1.block, unix.64B.d1.busy", text)
        self.assertRegex(text, r"left out by --only: \d+ rows: delay.calls, ")
        # Over a long line the first row takes longer than the limit, on an idle and on a busy machine.
        text = self.expect(hawser("bench-rpc", "--limit", "1s", "--via-delay", "60ms", "--reps", "1",
                                  "--only", "delay,unix.64B.d1.block"), DONE).stdout
        self.assertIn("left out by --limit: 2 rows: delay.posts, unix.64B.d1.block", text)

    def test_posts_are_gathered_into_few_writes(self):
        row, = self.bench("--only", "delay.posts", "--reps", "3")["rows"]
        self.assertEqual(row["unit"], "writes")
        self.assertLess(row["value"], 100)  # of 1,000 posts; the target of 4 is for a machine that is not busy

    def test_only_picks_rows_and_no_delay_leaves_them_out(self):
        rows = self.bench("--only", "unix.1KiB.d8,shm.64B.d1.busy", "--time", "1ms", "--reps", "1")["rows"]
        self.assertEqual([r["name"] for r in rows], ["unix.1KiB.d8.block", "unix.1KiB.d8.busy",
                                                     "unix.1KiB.d8.adaptive", "shm.64B.d1.busy"])
        self.expect(hawser("bench-rpc", "--only", "delay", "--via-delay", "0"), 2, "delay")

    def test_a_slower_line_is_a_slower_line(self):
        """The relay delays by at least what it was asked to: 20 ms a round trip."""
        row, = self.bench("--only", "delay.calls", "--via-delay", "20ms", "--reps", "1")["rows"]
        self.assertGreaterEqual(row["baseline"], 19900)  # the histogram keeps 0.4%

    def test_table_form_and_nothing_left_behind(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(dir="/tmp"))
        text = self.expect(hawser("bench-rpc", "--only", "unix.64B.d1.block", "--time", "1ms",
                                  "--no-pin", env={"TMPDIR": folder}), DONE).stdout
        self.assertIn("unix.64B.d1.block", text)
        self.assertIn("plain Unix socket", text)
        self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_interrupted_it_says_so_and_leaves_nothing(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(dir="/tmp"))
        with subprocess.Popen([HAWSER, "bench-rpc", "--reps", "101"], stderr=subprocess.PIPE, text=True,
                              env=clean_environment({"TMPDIR": folder})) as process:
            while not list(pathlib.Path(folder).iterdir()):
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, stderr), (FAILED, "hawser: bench-rpc: interrupted\n"))
        self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_a_signal_that_ends_a_benchmark_leaves_no_folder(self):
        model = str(pathlib.Path(__file__).resolve().parents[3] / "models" / "kjv.gguf")
        cases = ((["pingpong", "--count", "10000000"], "token", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
                 (["bench-blocks", "--reps", "101"], "far", (signal.SIGTERM,)),
                 (["bench-llm", "--model", model, "--moves", "1Mbit", "-r", "99"], "kvd", (signal.SIGTERM,)),
                 (["bench-serve", "--model", model, "--reps", "31"], "w", (signal.SIGTERM,)),
                 (["bench-serve", "--model", model, "--reps", "31", "--share", "2", "--clients", "64"], "1",
                  (signal.SIGINT,)))
        for args, last, numbers in cases:  # last: of the files in its folder
            for number in numbers:
                folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir="/tmp")))
                with self.subTest(args, signal=number), \
                        subprocess.Popen([HAWSER, *args], stdout=subprocess.DEVNULL,
                                         env=clean_environment({"TMPDIR": str(folder)}),
                                         # nohup and a shell's & leave some ignored
                                         preexec_fn=lambda which=number: signal.signal(which, signal.SIG_DFL)) as process:
                    while not list(folder.glob(f"*/{last}")):
                        self.assertIsNone(process.poll())
                    process.send_signal(number)
                    self.assertEqual(process.wait(timeout=TIMEOUT), -number)
                    self.assertEqual(list(folder.glob("*/*")) + list(folder.iterdir()), [])

    def test_output_to_a_full_disk_is_noticed(self):
        with open("/dev/full", "w") as full:
            self.expect(hawser("bench-rpc", "--only", "unix.64B.d1.block", "--time", "1ms",
                               stdout=full), FAILED, "cannot write the output")


if __name__ == "__main__":
    unittest.main()
