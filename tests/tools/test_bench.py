"""tools/bench runs every benchmark and writes one page; the hawser here only pretends."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

BENCH = pathlib.Path(sys.argv.pop(1)).resolve()

# Prints the report named for its command, or fails where a file says so; keeps its arguments.
FAKE_HAWSER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
echo "$*" >>"$here/calls"
case $* in *--native*) [ ! -e "$here/no-gpu" ]; exit $? ;; esac
if [ -e "$here/$1.fails" ]; then echo "hawser: no luck < today" >&2; exit 3; fi
if [ -e "$here/$1.json" ]; then cat "$here/$1.json"; else cat "$here/report.json"; fi
"""
COMMANDS = ["bench-rpc", "bench-vulkan", "bench-ipc", "benchkv", "bench-blocks", "bench-llm",
            "experiment"]
NAMES = ["rpc", "vulkan", "ipc", "kv", "blocks", "llm", "llm-serving", "llm-moves", "experiment",
         "kvreplay"]


def report(rows, **more):
    return {"benchmark": "x", "commit": "0123abc", "host": "riscv64, 2 CPUs", "date": "2026",
            "rows": rows, "left_out": [], **more}


def row(name, value, baseline=None, **more):
    ratio = value / baseline if baseline and value is not None else None
    return {"name": name, "value": value, "unit": "us", "baseline": baseline, "ratio": ratio, **more}


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.cli = self.root / "build/release/src/cli"
        self.cli.mkdir(parents=True)
        (self.root / "tools").mkdir()
        for name in (BENCH, BENCH.parent / "bench_page.py"):
            shutil.copy(name, self.root / "tools")
        (self.cli / "hawser").write_text(FAKE_HAWSER)
        (self.cli / "hawser").chmod(0o755)
        self.say("report", report([row("plain", 5.5, 5)]))

    def say(self, command, content):
        (self.cli / f"{command}.json").write_text(json.dumps(content))

    def bench(self, *args, code=0, **env):
        result = subprocess.run([self.root / "tools/bench", *args], capture_output=True, text=True,
                                env={"PATH": os.environ["PATH"], "HAWSER_BUILD": "build", **env},
                                timeout=240, check=False)
        self.assertEqual(code, result.returncode, result.stdout + result.stderr)
        return result

    def page(self):
        text = (self.root / "build/bench/index.html").read_text()
        ElementTree.fromstring(text)  # well-formed
        return text

    def calls(self):
        return (self.cli / "calls").read_text().splitlines()

    def test_every_benchmark_runs_and_has_json_and_a_section(self):
        self.bench(HAWSER_TRACE="some.jsonl")
        called = [line.split()[0] for line in self.calls()]
        for command in COMMANDS + ["kvreplay"]:
            self.assertIn(command, called)
        self.assertIn("kvreplay some.jsonl --json", self.calls())
        page = self.page()
        for name in NAMES:
            self.assertTrue((self.root / f"build/bench/{name}.json").exists(), name)
            self.assertIn(f'<h2 id="{name}">', page)
        for text in ("riscv64, 2 CPUs", "commit 0123abc", " UTC", "prefers-color-scheme:dark"):
            self.assertIn(text, page)
        self.assertNotIn("<script", page)

    def test_targets_are_in_the_table_and_on_the_page(self):
        self.say("bench-rpc", report([row("tcp", 6, 5, target="<= 1.15", met="NO"),
                                      row("shm", 1, 1, target="<= 2", met="yes")]))
        result = self.bench("--only", "rpc")
        self.assertRegex(result.stdout, r"(?m)^name +value +unit +baseline +ratio +target +met$")
        self.assertRegex(result.stdout, r"(?m)^tcp +6 +us +5 +1\.2 +<= 1\.15 +NO$")
        self.assertIn("1 of 2 targets met", self.page())
        self.assertIn('<td class="bad">NO</td>', self.page())

    def test_what_is_left_out_is_said(self):
        self.say("bench-rpc", report([row("a", 1)], left_out=[
            {"why": "--quick", "rows": ["b", "c", "d", "e"]}]))
        result = self.bench("--only", "rpc")
        for text in (result.stdout, self.page()):
            self.assertIn("left out by --quick: 4 rows: b, c, d and others", text)
        self.assertIn("kvreplay: left out: --only", result.stdout)
        result = self.bench()
        self.assertIn("HAWSER_TRACE", result.stdout)
        self.assertIn("Left out: no recorded trace", self.page())

    def test_a_difference_that_is_not_shown_is_said(self):
        self.say("experiment", report([row("prefill.local", 21, 21, difference="-"),
                                       row("prefill.naive", 2, 21, difference="no difference shown (p 0.23)")]))
        result = self.bench("--only", "experiment")
        for text in (result.stdout, self.page()):
            self.assertIn("no difference shown (p 0.23)", text)

    def test_a_busy_machine_is_told(self):
        for load, busy in ((0.1, False), (1000.0, True)):
            (self.root / "sitecustomize.py").write_text(
                f"import os\nos.getloadavg = lambda: ({load}, 0, 0)\n")
            result = self.bench("--only", "rpc", PYTHONPATH=str(self.root))
            for text in (result.stdout, self.page()):
                self.assertEqual("kept this machine busy" in text, busy)

    def test_invalid_rows_are_never_met(self):
        self.say("bench-rpc", report([row("delay.calls", None, 5, target="<= 1.3", met="invalid",
                                          valid=False, reason="-1486 us is impossible")]))
        result = self.bench("--only", "rpc")
        for text in (result.stdout, self.page()):
            self.assertIn("invalid: delay.calls: -1486 us is impossible", text)
        self.assertIn("0 of 1 targets met, 1 invalid", self.page())

    def test_a_benchmark_that_fails_is_a_row_and_the_exit_status(self):
        (self.cli / "bench-ipc.fails").touch()
        self.say("benchkv", {"no": "rows"})
        result = self.bench(code=1)
        self.assertIn("FAILED: exit status 3: hawser: no luck < today", result.stdout)
        self.assertIn("failed: ipc, kv", result.stderr)
        page = self.page()
        self.assertIn("Failed: exit status 3: hawser: no luck &lt; today", page)
        self.assertIn("2 of 11 benchmarks failed", page)
        self.assertFalse((self.root / "build/bench/ipc.json").exists())
        self.assertTrue((self.root / "build/bench/blocks.json").exists())  # the others ran

    def test_a_program_that_cannot_be_started_is_a_failure(self):
        (self.cli / "hawser").write_text("#!/nonexistent/interpreter\n")
        self.assertIn("FAILED: it cannot be started: No such file",
                      self.bench("--only", "rpc", code=1).stdout)

    def test_quick_by_flag_and_by_variable(self):
        for args, env in ((["--quick"], {}), ([], {"QUICK": "1"})):
            (self.cli / "calls").unlink(missing_ok=True)
            self.bench(*args, **env)
            self.assertIn("bench-rpc --quick --json", self.calls())
            self.assertIn("a quick run", self.page())
        (self.cli / "calls").unlink()
        self.bench(QUICK="")
        self.assertIn("bench-rpc --limit 1200s --json", self.calls())

    def test_a_software_gpu_only_where_there_is_no_other(self):
        self.bench("--only", "vulkan")
        self.assertEqual(self.calls()[-1], "bench-vulkan --json")
        (self.cli / "no-gpu").touch()
        self.bench("--only", "vulkan")
        self.assertEqual(self.calls()[-1], "bench-vulkan --software --json")

    def test_rows_of_one_name_are_told_apart(self):
        self.say("kvreplay", report([row("lru", 1, capacity="1GiB"), row("lru", 2, capacity="2GiB")]))
        result = self.bench("--only", "kvreplay", HAWSER_TRACE="t")
        self.assertIn("lru (capacity 2GiB)", result.stdout)
        self.assertIn("lru (capacity 1GiB)", self.page())

    def test_without_a_build_nothing_is_measured(self):
        (self.cli / "hawser").unlink()
        self.assertIn("make build", self.bench(code=2).stderr)

    def test_no_such_benchmark(self):
        self.assertIn("nonesuch", self.bench("--only", "nonesuch", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
