"""bench-vulkan's form and completeness; its times are the machine's business, not a test's."""

import json
import pathlib
import tempfile
import unittest

from harness import DONE, FAILED, USAGE, Case, Server, hawser

COLUMNS = {"name", "value", "unit", "baseline", "ratio", "against", "native", "target", "met"}
LINES = ("unix", "tcp", "1ms", "10ms")
RATES = {"1Gbit": 1e9, "10Gbit": 10e9, "25Gbit": 25e9}
SWITCHES = ("coalescing", "pipelining", "transport_tuning", "quiet_batches",
            "small_uploads", "whole_pages", "references", "stripes")


MANY = {"four-clients.tcp", "eight-clients.tcp"}
SHORT = ("--software", "--quick", "--time", "2ms", "--size", "1MiB")


class BenchVulkan(Case):
    @classmethod
    def setUpClass(cls):
        """One run for all; the first of the two also sets the software GPU up."""
        super().setUpClass()
        if hawser("bench-vulkan", "--software", "--native", "--quick").returncode != DONE:
            raise unittest.SkipTest("no software GPU here")
        done = hawser("bench-vulkan", "--json", *SHORT)
        cls.report = json.loads(done.stdout) if done.returncode == DONE else None
        cls.errors = done.stderr

    def setUp(self):
        super().setUp()
        self.assertIsNotNone(self.report, self.errors)
        self.rows = {row["name"]: row for row in self.report["rows"]}

    def test_every_row_is_there(self):
        self.assertEqual(self.report["benchmark"], "vulkan")
        for row in self.rows.values():
            self.assertLessEqual(COLUMNS, set(row))
            if row["baseline"] is not None and row.get("valid", True):
                self.assertGreater(row["baseline"], 0, row)
                self.assertGreater(row["value"], 0, row)
        expected = {"cycle.native", "exchanges.tcp", "messages.tcp", "writes.tcp", "bytes-up.tcp",
                    "bytes-down.tcp", "polled.tcp", "fence-status.tcp", "record.tcp",
                    "dirty-page.tcp"}
        expected |= {f"{kind}.{line}" for kind in ("cycle", "early") for line in LINES}
        expected |= {f"{kind}.{line}" for kind in ("upload", "readback")
                     for line in (*LINES[:2], *RATES)}
        expected |= {f"{kind}.{side}" for kind in ("two-clients", "two-tiny")
                     for side in ("native", "tcp")}
        expected |= {f"{name}.tcp" for name in SWITCHES}
        self.assertEqual(set(self.rows), expected)
        left, = self.report["left_out"]
        self.assertEqual((left["why"], set(left["rows"])), ("--quick", MANY))

    def test_counts_do_not_depend_on_the_machine(self):
        self.assertEqual(self.rows["exchanges.tcp"]["value"], 1)
        self.assertEqual(self.rows["fence-status.tcp"]["value"], 0)
        for line in LINES:
            self.assertEqual(self.rows[f"early.{line}"]["exchanges"], "1 of 2")

    def test_a_longer_line_is_a_longer_line(self):
        # Not the cycle's: on a busy machine its baseline may be disturbed, and the row invalid.
        self.assertGreater(self.rows["early.10ms"]["value"], 9900)  # the histogram keeps 0.4%

    def test_no_line_carries_more_than_its_rate(self):
        for line, bits in RATES.items():
            for kind in ("upload", "readback"):
                row = self.rows[f"{kind}.{line}"]
                self.assertLess(row["value"], bits / 8e9 * 1.01)  # the histogram keeps 0.4%
                self.assertLess(row["baseline"], bits / 8e9 * 1.01)

    def test_two_programs_both_get_something(self):
        for kind in ("two-clients", "two-tiny"):
            for side in ("native", "tcp"):
                self.assertGreater(float(self.rows[f"{kind}.{side}"]["share"]), 0)
            ours, native = (self.rows[f"{kind}.{side}"]["value"] for side in ("tcp", "native"))
            self.assertAlmostEqual(float(self.rows[f"{kind}.tcp"]["to_native"]), ours / native,
                                   delta=ours / native / 100)

    def test_nothing_is_said_but_the_figures(self):
        """Now and then a session misses the goodbye of a program that leaves; why is not known."""
        said = [line for line in self.errors.splitlines() if "the peer vanished" not in line]
        self.assertEqual(said, [])

    def test_native_only(self):
        result = self.expect(hawser("bench-vulkan", "--software", "--native", "--quick", "--json"),
                             DONE)
        report = json.loads(result.stdout)
        self.assertEqual([row["name"] for row in report["rows"]], ["cycle.native"])
        left, = report["left_out"]
        self.assertEqual(left["why"], "--native")
        self.assertEqual(set(left["rows"]), MANY | {name for name in self.rows if ".native" not in name})

    def test_table_form_and_nothing_left_behind(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(dir="/tmp"))
        text = self.expect(hawser("bench-vulkan", *SHORT, "--only", "cycle.tcp,early.1ms",
                                  env={"TMPDIR": folder}), DONE).stdout
        self.assertIn("raw round trip + native", text)
        table, _, left = text.partition("\nleft out by --only: ")
        self.assertRegex(left, r"^\d+ rows: cycle.native, ")
        names = {line.split()[0] for line in table.splitlines()[1:]}
        self.assertEqual(names, {"cycle.tcp", "exchanges.tcp", "messages.tcp", "writes.tcp",
                                 "bytes-up.tcp", "bytes-down.tcp", "early.1ms"})
        self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_no_such_row(self):
        self.expect(hawser("bench-vulkan", *SHORT, "--only", "nonesuch"), USAGE,
                    "no row's name holds 'nonesuch'")

    def test_no_such_device(self):
        self.expect(hawser("bench-vulkan", "--software", "--quick", "--device", "9"), FAILED,
                    "no Vulkan device 9")

    def test_a_server_that_wants_to_hear_from_its_clients(self):
        """Job processes take longer to start than this heartbeat."""
        with Server("--software", "--listen", "127.0.0.1:0", "--heartbeat", "100ms",
                    devices=True) as server:
            done = hawser("bench-vulkan", server.addresses[0], "--only", "cycle", *SHORT)
            self.expect(done, DONE)
            self.assertIn("cycle.remote", done.stdout)


class Usage(Case):
    def test_native_takes_no_server(self):
        self.expect(hawser("bench-vulkan", "--native", "gpu:1"), USAGE, "leave ADDR out")

    def test_nobody_there(self):
        result = hawser("bench-vulkan", "unix:/nonexistent/socket")
        self.assertNotEqual(result.returncode, DONE)
        self.assertIn("/nonexistent/socket", result.stderr)


if __name__ == "__main__":
    unittest.main()
