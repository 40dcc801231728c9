"""bench-ipc and kvctl: forms, refusals, what is left behind; figures are the machine's business."""

import csv
import fcntl
import io
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, HAWSER, TIMEOUT, USAGE, Case, Server, clean_environment, hawser  # noqa: E402

STRATEGIES = ["seq", "thread", "async", "epoll", "shm"]

SUMMARY = """\
=== IPC Benchmark Summary ===
Broadcast impl       : NAME (NAME.c)
TP size                 : 2
Iterations              : 3
Pages Per Iteration     : 4

+---------------+-----------+------------+
| Metric        |  Map (ms) | Unmap (ms) |
|---------------|-----------|------------|
| mean          |      #.## |       #.## |
| p95           |      #.## |       #.## |
| max           |      #.## |       #.## |
| min           |      #.## |       #.## |
|---------------|-----------|------------|
| per-page mean |      #.## |       #.## |
+---------------+-----------+------------+
"""


class PageCase(Case):
    def setUp(self):
        super().setUp()
        self.run_dir = self.dir / "run"
        self.env = {"HAWSER_RUNTIME_DIR": str(self.run_dir)}

    def tearDown(self):
        """Whatever happened, no file is left."""
        left = list(self.run_dir.iterdir()) if self.run_dir.exists() else []
        self.assertEqual(left, [])

    def bench(self, *args, code=DONE, texts=()):
        result = hawser("bench-ipc", "--tp-size", 2, "--backend", "null", *args, env=self.env)
        return self.expect(result, code, *texts).stdout


class BenchIpc(PageCase):
    def test_summary_has_the_original_s_form_to_the_byte(self):
        for name in STRATEGIES:
            text = self.bench("--iters", 3, "--pages-per-iter", 4, "--map-impl", name)
            head, _, tail = text.partition("\n\nWhere the time went")
            # Numbers are right-aligned in their columns: a digit more takes a space less.
            shown = re.sub(r" *\d+\.\d\d \|", lambda m: "#.## |".rjust(len(m.group())), head + "\n")
            self.assertEqual(shown, SUMMARY.replace("NAME", name))
            for part in ("driver", "worker", "transit", "slowest"):
                self.assertIn(part, tail)
            self.assertRegex(tail, r"(?m)^Backend                 : null \(.+\)$")
            self.assertIn("\nLayout                  : contiguous, 32 layers, pages of 2MiB\n", tail)
            self.assertIn("\nWarm-up                 : 2 iterations, not counted\n", tail)

    def test_main_memory_instead_of_a_gpu_is_said(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a GPU")
        small = ("--tp-size", 1, "--memory", "32MiB", "--page-size", "64KiB", "--num-layers", 2,
                 "--first-id", 0, "--iters", 1)
        note = "no GPU was found, so pages are main memory"
        text = self.expect(hawser("bench-ipc", *small, env=self.env), DONE).stdout
        self.assertIn(f"Note                    : {note}", text)
        text = self.expect(hawser("bench-ipc", *small, "--json", env=self.env), DONE).stdout
        self.assertEqual({row["note"] for row in json.loads(text)["rows"]}, {note})
        text = self.expect(hawser("bench-ipc", *small, "--backend", "host", env=self.env), DONE).stdout
        self.assertNotIn("Note", text)

    def test_warm_up_is_no_sample(self):
        rows = list(csv.DictReader(io.StringIO(self.bench("--iters", 3, "--warmup", 5, "--csv"))))
        self.assertEqual([row["iteration"] for row in rows if row["operation"] == "map"],
                         ["0", "1", "2"])
        self.assertIn("Warm-up                 : 5 iterations", self.bench("--warmup", 5))

    def test_a_page_that_cannot_be_written_is_found_first(self):
        self.bench("--html", self.dir / "no" / "page.html", "-v", code=FAILED, texts=("No such file",))
        self.assertEqual(self.bench("--html", self.dir, "-v", code=FAILED,
                                    texts=("is a folder",)), "")

    def test_verbose_line(self):
        lines = self.bench("--iters", 12, "-v").splitlines()[:12]
        for i, line in enumerate(lines):
            self.assertRegex(line, rf"^\[iter {i:02}\] map=\d\.\d{{6}}s  unmap=\d\.\d{{6}}s$")

    def test_statistics_are_those_of_the_samples(self):
        """p95 by linear interpolation, as numpy has it."""
        args = ("--iters", 21, "--map-impl", "shm", "--unmap-impl", "seq")
        rows = list(csv.DictReader(io.StringIO(self.bench(*args, "--csv"))))
        self.assertEqual(len(rows), 42)
        self.assertEqual({(r["strategy"], r["operation"]) for r in rows},
                         {("shm", "map"), ("seq", "unmap")})
        for row in rows:
            parts = sum(float(row[k]) for k in ("driver_ns", "worker_ns", "transit_ns", "wait_ns"))
            self.assertAlmostEqual(parts, float(row["total_ns"]), delta=1)
        report = json.loads(self.bench(*args, "--json"))
        values = {row["name"]: row["value"] for row in report["rows"]}
        self.assertEqual(report["benchmark"], "ipc")
        self.assertLessEqual(values["shm.map.min"], values["shm.map.median"])
        self.assertLessEqual(values["shm.map.median"], values["shm.map.p95"])
        self.assertLessEqual(values["shm.map.p95"], values["shm.map.max"])
        self.assertAlmostEqual(values["shm.map.mean"], values["shm.map.per-page"])
        self.assertIn("seq.unmap.mean", values)

    def test_compare_has_every_strategy_and_a_plot(self):
        page = self.dir / "compare.html"
        text = self.bench("--iters", 5, "--compare", "--html", page)
        for name in STRATEGIES:
            self.assertRegex(text, rf"(?m)^{name} +map ")
            self.assertRegex(text, rf"(?m)^{name} +unmap ")
            self.assertRegex(text, rf"(?m)^  {name} +#+ [\d.]+$")
        self.assertIn("<svg", page.read_text())
        rows = json.loads(self.bench("--iters", 5, "--compare", "--json"))["rows"]
        self.assertEqual({row["strategy"] for row in rows}, set(STRATEGIES))

    def test_ids_past_the_range_are_refused_with_the_arithmetic(self):
        args = ("--memory", "45312MiB", "--pages-per-iter", 305)
        self.bench(*args, code=USAGE, texts=(
            "page id 354 is out of range 0 to 353", "use --first-id 49 or less, more --memory",
            "354 pages: 45312 MiB / (2 (K and V) x 2MiB x 32 layers)"))
        self.bench("--memory", "45312MiB", "--pages-per-iter", 304, "--iters", 1)

    def test_wrong_usage(self):
        for args, text in ((["--map-impl", "telepathy"], "one of seq, thread, async"),
                           (["--backend", "abacus"], "one of host, cuda, vulkan, null"),
                           (["--json", "--csv"], "exclude")):
            self.bench(*args, code=USAGE, texts=(text,))
        self.expect(hawser("bench-ipc", env=self.env), USAGE, "--tp-size N is required")
        self.expect(hawser("bench-ipc", "--tp-size", 65, env=self.env), USAGE, "1 to 64")

    def test_a_missing_driver_is_named(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has the driver")
        self.expect(hawser("bench-ipc", "--tp-size", 1, "--backend", "cuda", env=self.env), FAILED,
                    "rank 0", "no CUDA driver here")

    def test_a_path_too_long_is_refused_with_the_remedy(self):
        env = {"HAWSER_RUNTIME_DIR": str(self.dir / ("x" * 90))}
        self.expect(hawser("bench-ipc", "--tp-size", 1, "--backend", "null", env=env), FAILED,
                    "too long", "HAWSER_RUNTIME_DIR")

    def test_host_memory_in_both_layouts(self):
        for layout in ((), ("--not-contiguous",)):
            text = self.expect(hawser("bench-ipc", "--tp-size", 2, "--backend", "host", "--memory",
                                      "64MiB", "--page-size", "64KiB", "--num-layers", 4, "--first-id",
                                      3, "--iters", 3, "--async-sched", *layout,
                                      env=self.env, leaks=True), DONE).stdout
            self.assertIn("=== IPC Benchmark Summary ===", text)

    def test_huge_pages_are_left_alone(self):
        """Where the administrator keeps a pool of them the backend would say so."""
        text = self.expect(hawser("bench-ipc", "--tp-size", 1, "--backend", "host", "--memory", "64MiB",
                                  "--num-layers", 2, "--first-id", 0, "--pages-per-iter", 2, "--iters", 1, "--no-huge",
                                  env=self.env), DONE).stdout
        self.assertIn("Backend                 : host (main memory)\n", text)


class Trace(PageCase):
    def test_the_pages_of_a_served_model_are_replayed(self):
        trace = self.dir / "trace"
        root = pathlib.Path(__file__).resolve().parents[3]
        with Server("--listen", "127.0.0.1:0", "--model", root / "models" / "kjv.gguf", "--kv-memory",
                    "16MiB", "--tp", 2, env={**self.env, "HAWSER_PAGE_TRACE": str(trace)}) as server:
            for prompt in ("In the beginning", "And God said"):
                self.expect(hawser("llm", server.addresses[0], "-p", prompt, "-n", 8), DONE)
            self.assertEqual(server.stop(), (DONE, ""))
        head, shape, *batches = trace.read_text().splitlines()
        self.assertEqual(head, "hawser page trace 1")
        self.assertRegex(shape, r"^ids \d+ bytes \d+$")
        maps = [line.split()[2] for line in batches if " map " in line]
        unmaps = [line.split()[2] for line in batches if " unmap " in line]
        self.assertGreater(len(maps), 0)
        count = lambda lists: sum(int(b or a) - int(a) + 1 for text in lists  # noqa: E731
                                  for a, _, b in (part.partition("-") for part in text.split(",")))
        args = ("--trace", trace, "--page-size", "4KiB", "--iters", 2, "--map-impl", "shm")
        text = self.bench(*args)
        self.assertIn(f"Maps                    : {len(maps)} of {count(maps)} ids, ", text)
        self.assertIn(f"Unmaps                  : {len(unmaps)} of {count(unmaps)} ids\n", text)
        rows = list(csv.DictReader(io.StringIO(self.bench(*args, "--csv"))))
        self.assertEqual(sum(row["operation"] == "map" for row in rows), 2 * len(maps))
        self.assertEqual(sum(row["operation"] == "unmap" for row in rows), 2 * len(unmaps))
        report = json.loads(self.bench(*args, "--json", "--compare"))
        self.assertEqual({row["trace"] for row in report["rows"]}, {str(trace)})
        # Memory for one id of two workers, in K and V pages of 4 KiB.
        one = -(-int(shape.split()[3]) // 4 // 4096) * 4096 * 2
        self.bench(*args, "--memory", one, code=USAGE, texts=("out of range", "more --memory"))

    def test_files_that_are_no_trace(self):
        trace = self.dir / "trace"
        head = "hawser page trace 1\nids 4 bytes 4096\n"
        for text, said in (("hello\n", ":1: no page trace"), (head, "nothing was mapped"),
                           (head + "0 map 1\n2 map 1\n", ":4: no page trace"),
                           (head + "0 map 4\n", "HAWSER_PAGE_TRACE=FILE hawser serve")):
            trace.write_text(text)
            self.bench("--trace", trace, code=FAILED, texts=(said,))
        self.bench("--trace", self.dir / "none", code=FAILED, texts=("No such file",))
        trace.write_text(head + "".join(f"{i} {'un' * (i % 2)}map 1\n" for i in range(40)))
        self.bench("--trace", trace, "--iters", 1000000, code=USAGE, texts=("at most 419430",))


class Endless:
    """A benchmark that runs until it is told to stop."""

    def __init__(self, case, group):
        command = [HAWSER, "bench-ipc", "--tp-size", "2", "--backend", "host", "--memory", "32MiB",
                   "--page-size", "64KiB", "--num-layers", "2", "--first-id", "0", "--iters",
                   "1000000", "--map-impl", "epoll", "--group", group, "-v"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=clean_environment(case.env), bufsize=0)
        self.read_some()

    def read_some(self):
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT)
        assert ready, "no line in time"
        return os.read(self.process.stdout.fileno(), 65536)

    def end(self, number):
        """The exit status."""
        self.process.send_signal(number)
        self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Kvctl(PageCase):
    def kvctl(self, *args, code=DONE, texts=()):
        return self.expect(hawser("kvctl", *args, env=self.env), code, *texts).stdout

    def test_list_limit_trim_and_watch(self):
        self.assertRegex(self.kvctl("list"), r"^no groups in /.*: hawser serve --model .*\n$")
        with Endless(self, "engine0") as bench:
            text = self.kvctl("list")
            self.assertRegex(text, r"(?m)^engine0 +0 +- +\d+ .* none$")
            self.assertRegex(text, r"(?m)^engine0 +1 +- +\d+ .* none$")
            group, = json.loads(self.kvctl("list", "engine0", "--json"))["groups"]
            self.assertEqual([w["rank"] for w in group["workers"]], [0, 1])
            self.assertIn("given back by 2 workers", self.kvctl("trim", "engine0"))
            self.assertEqual(self.kvctl("limit", "engine0", "1GiB"), "engine0: limit 1GiB\n")
            looks = self.kvctl("watch", "engine0", "--count", 2, "--interval", "10ms", "--json")
            for line in looks.splitlines():
                self.assertEqual(json.loads(line)["groups"][0]["limit"], 1 << 30)
            self.kvctl("limit", "engine0", "4KiB")
            # The benchmark cannot map any more, says so and ends.
            _, stderr = bench.process.communicate(timeout=TIMEOUT)
            self.assertEqual(bench.process.returncode, FAILED)
            self.assertIn(b"the shared limit of 4KiB is reached", stderr)

    def test_a_group_that_is_not_there(self):
        for args in (("list", "none"), ("trim", "none"), ("limit", "none", "1GiB")):
            self.kvctl(*args, code=FAILED, texts=("no group 'none'",))
        self.kvctl("limit", "none", "much", code=USAGE, texts=("not a size",))
        self.kvctl("limit", "none", code=USAGE)
        self.kvctl("dance", code=USAGE, texts=("use list",))

    def test_a_group_whose_limit_cannot_be_read_is_named(self):
        group = self.run_dir / "other"
        group.mkdir(mode=0o700, parents=True)
        self.run_dir.chmod(0o700)
        (group / "limit").write_text("something else")
        told = ("other: cannot use the limit file", "another version made it")
        with open(group / "alive", "w") as alive:
            fcntl.flock(alive, fcntl.LOCK_SH)
            for form in ((), ("--json",)):
                self.assertNotIn("no groups", self.kvctl("list", *form, texts=told))
                self.kvctl("list", "other", *form, code=FAILED, texts=told)
                self.kvctl("watch", "other", *form, code=FAILED, texts=told)
                self.kvctl("watch", "--count", 2, "--interval", "10ms", *form, texts=told)
            screen = self.expect(hawser("kvtop", "--once", env=self.env), DONE).stdout
            self.assertTrue(all(text in screen for text in told), screen)
        self.assertRegex(self.kvctl("list"), "^no groups in ")  # and what was left is removed

    def test_a_signal_ends_the_benchmark_in_order(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Endless(self, "engine1") as bench:
                self.assertEqual(bench.end(number), FAILED)
            self.assertEqual(list(self.run_dir.iterdir()), [])

    def test_a_name_that_is_taken_is_refused(self):
        with Endless(self, "engine2"):
            result = hawser("bench-ipc", "--tp-size", 2, "--backend", "null", "--group", "engine2",
                            env=self.env)
            self.expect(result, FAILED, "another server has it")
            # The first one goes on.
            self.assertRegex(self.kvctl("list"), r"(?m)^engine2 +1 ")


if __name__ == "__main__":
    unittest.main()
