"""kvd, benchkv, kvreplay, kvscale, bench-blocks and pingpong as programs: form and completeness; figures are the machine's business."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, clean_environment, hawser, lines_of

QUICK = ("--duration", "30ms", "--warmup", "5ms")
TITLES = ["1. ", "2. ", "3. ", "4. ", "5.2", "5.4", "6.1", "6.2", "6.3", "6.4", "7. ", "8. ", "9.2", "9.3"]


class Daemon:
    """hawser kvd, ready when the constructor returns."""

    def __init__(self, *args):
        self.process = subprocess.Popen([HAWSER, "kvd", *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=clean_environment())
        self.line = next(lines_of(self.process.stdout.fileno()), None)

    def stop(self):
        self.process.terminate()
        _, stderr = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, stderr.decode()


class Kvd(Case):
    def start(self, *args):
        daemon = Daemon(*args)
        self.addCleanup(lambda: daemon.process.poll() is None and daemon.stop())
        return daemon

    def test_attaches_here_and_removes_its_sockets(self):
        path = self.dir / "kvd"
        daemon = self.start("--socket", path, "--daemons", 2)
        self.assertEqual(daemon.line, f"attach at {path}, 2 daemons")
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertTrue((self.dir / "kvd.1").exists())
        code, stderr = daemon.stop()
        self.assertEqual((code, stderr), (0, ""))
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_without_options_it_keeps_what_is_put(self):
        path = self.dir / "kvd"
        self.start("--socket", path)
        ask = ("kv", "--socket", path)
        self.expect(hawser(*ask, "put", "name", input="value"), DONE)
        self.assertEqual(self.expect(hawser(*ask, "get", "name"), DONE).stdout, "value")

    def test_attaching_takes_as_long_as_the_timeout_says(self):
        path = self.dir / "kvd"
        daemon = self.start("--socket", path)
        daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(daemon.process.send_signal, signal.SIGCONT)
        patient = subprocess.Popen([HAWSER, "kv", "--socket", path, "--timeout", "3600s", "info"],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean_environment())
        self.expect(hawser("kv", "--socket", path, "--timeout", "10ms", "info"), UNREACHABLE, "cannot attach to")
        self.assertIsNone(patient.poll())  # it began before, and has its time still
        daemon.process.send_signal(signal.SIGCONT)
        output, _ = patient.communicate(timeout=TIMEOUT)
        self.assertEqual(patient.returncode, 0, output)

    def test_a_socket_in_use_is_not_taken(self):
        path = self.dir / "kvd"
        self.start("--socket", path)
        self.expect(hawser("kvd", "--socket", path), FAILED, "another server has it")
        self.expect(hawser("kvd", "--socket", f"/{'x' * 200}"), FAILED, "at most 107 characters")
        self.expect(hawser("kvd", "--socket", self.dir / "b", "--blocks", "16"), USAGE, "from 4KiB")

    def test_ready_fd_is_told(self):
        read, write = os.pipe()
        process = subprocess.Popen([HAWSER, "kvd", "--socket", self.dir / "kvd", "--ready-fd", str(write)],
                                   stdout=subprocess.DEVNULL, pass_fds=[write], env=clean_environment())
        os.close(write)
        self.assertEqual(next(lines_of(read)), "ready")
        os.close(read)
        process.terminate()
        self.assertEqual(process.wait(TIMEOUT), 0)

    def test_beyond_this_host_it_wants_tls_and_a_token(self):
        self.expect(hawser("kvd", "--socket", self.dir / "kvd", "--metrics", "0.0.0.0:0"), REFUSED,
                    "--metrics: 0.0.0.0:0 is not on this host and the page has no password; use 127.0.0.1")

    def test_wrong_usage_names_the_option(self):
        self.expect(hawser("kvd", "--daemons", 0), USAGE, "--daemons")
        self.expect(hawser("kvd", "--cert", "x"), USAGE, "--key")
        for command in (("kvd",), ("kv", "info", "tls:127.0.0.1:1"), ("info", "127.0.0.1:1"),
                        ("gateway", "-s", "127.0.0.1:1", "--http", "127.0.0.1:0")):
            self.expect(hawser(*command, "--fingerprint", "zz"), USAGE, "expected are 64 hex digits")
        for option, value in (("--resp", "{}"), ("--metrics", "{}"), ("--members", "a={},b=127.0.0.1:1")):
            name = ("--name", "a") if option == "--members" else ()
            for address, why in (("nowhere:x", "is not an address"), ("nowhere.invalid:1", "cannot resolve")):
                self.expect(hawser("kvd", "--socket", self.dir / "kvd", "--blocks", "1MiB", "--insecure", *name, option,
                                   value.format(address)), USAGE, f"{option}: ", why)


class Benchkv(Case):
    def bench(self, *args, **kwargs):
        result = self.expect(hawser("benchkv", *QUICK, *map(str, args), **kwargs), DONE)
        return result.stdout

    def rows(self, *args):
        return {row["name"]: row for row in json.loads(self.bench("--json", *args))["rows"]}

    def test_every_table_and_every_form(self):
        page = self.dir / "kv.html"
        folder = self.dir / "sockets"  # a folder of its own: other tests run benchkv, too
        folder.mkdir()
        made = folder.stat().st_mtime_ns
        report = json.loads(self.bench("--json", "--client-threads", "1,2", "--transport", "unix",
                                       "--report", page, leaks=True, env={"TMPDIR": str(folder)}))
        self.assertEqual([t["title"][:3] for t in report["tables"]], TITLES)
        for table in report["tables"][:-1]:
            self.assertTrue(table["rows"], table["title"])
            for row in table["rows"]:
                self.assertNotRegex(" ".join(row), r"(^| )-\d|\b(inf|nan)\b", table["title"])
        little = report["tables"][2]
        for row in little["rows"]:  # the group queue and what is in flight are all request slots
            slots = sum(float(row[little["columns"].index(c)]) for c in ("GQ size (mean)", "In flight (mean)"))
            self.assertAlmostEqual(slots, int(row[0]), delta=0.02)
        rows = {row["name"]: row for row in report["rows"]}
        for point in ("c1.d1", "c2.d1", "one-rank"):
            self.assertGreater(rows[f"{point}.rps"]["value"], 0)
            self.assertEqual(rows[f"{point}.errors"]["value"], 0)
        self.assertGreater(rows["c2.d1.remote_rps"]["value"], 0)
        self.assertEqual(rows["c1.d1.rtt_p50"]["baseline"], rows["chain.rtt_p50"]["value"])
        self.assertGreater(rows["c1.d1.remote_p50"]["baseline"], rows["chain.rtt_p50"]["value"])
        self.assertEqual(rows["one-rank.remote_rps"]["value"], 0)
        root = xml.fromstring(page.read_text())
        self.assertGreaterEqual(sum(e.tag.endswith("svg") for e in root.iter()), 4)
        self.assertGreater(folder.stat().st_mtime_ns, made)  # it was used, and is empty again
        self.assertEqual(list(folder.iterdir()), [])

    def test_a_file_that_cannot_be_written_is_told_before_the_measurement(self):
        path = self.dir / "missing" / "file"
        self.expect(hawser("benchkv", "--duration", "3600s", "--report", path), FAILED, str(path))

    def test_a_bare_chain_stands_beside_every_transport_and_way_of_waiting(self):
        for transport, wait in (("shm", "adaptive"), ("shm", "block"), ("tcp", "block")):
            rows = self.rows("--client-threads", "1", "--transport", transport, "--wait", wait, "--no-single")
            self.assertGreater(rows["chain.rtt_p50"]["value"], 0, (transport, wait))
        self.assertNotIn("chain.rtt_p50", self.rows("--client-threads", "1", "--ranks", "1"))

    def test_little_s_law_holds_by_construction(self):
        report = json.loads(self.bench("--json", "--client-threads", "2", "--transport", "unix",
                                       "--duration", "100ms", "--no-single"))
        little = next(t for t in report["tables"] if t["title"].startswith("3."))
        self.assertAlmostEqual(float(little["rows"][0][-1]), 1, delta=0.25)

    def test_settings_reach_the_ranks(self):
        rows = self.rows("--client-threads", "2", "--queue-depth", "8", "--daemons", "2", "--flush",
                         "batch", "--distribution", "zipfian", "--read-ratio", "0.9", "--value-size",
                         "100", "--transport", "tcp", "--seed", "5", "--numa-isolate",
                         "--runs", "2", "--no-single", "--key-range", "50")
        self.assertGreater(rows["c2.d8.rps"]["value"], 0)
        self.assertEqual(rows["c2.d8.errors"]["value"], 0)

    def test_open_loop_keeps_its_rate(self):
        rows = self.rows("--client-threads", "1", "--rate", "1000", "--ranks", "1", "--duration", "300ms")
        # Without it the rate is far higher; what a stall held up is caught up with.
        self.assertLess(rows["c1.d1.rps"]["value"], 3000)

    def test_optimisations_alone_and_together(self):
        report = json.loads(self.bench("--json", "--client-threads", "1", "--optimisations",
                                       "--no-single", "--transport", "unix", "--duration", "10ms"))
        names = [row[0] for row in report["tables"][-1]["rows"]]
        self.assertEqual(names, ["base", "incremental flush", "adaptive flush", "depth 16", "2 daemons",
                                 "numa placement", "all together",
                                 *(f"all but {name}" for name in ("adaptive flush", "depth 16", "2 daemons",
                                                                  "numa placement"))])

    def ranks_meet(self, start):
        """Two ranks, each started by start(rank); rank 0 alone reports, and both took part."""
        ranks = [start(i) for i in range(2)]
        outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        self.assertEqual(outputs[1], b"")
        rows = {row["name"]: row for row in json.loads(outputs[0])["rows"]}
        self.assertGreater(rows["c1.d1.remote_rps"]["value"], 0)
        return json.loads(outputs[0])

    def rank(self, *arguments, environment=None):
        peers = ",".join(f"unix:{self.dir}/r{i}" for i in range(2))
        command = [HAWSER, "benchkv", *QUICK, "--client-threads", "1", "--peers", peers, "--json",
                   "--no-single", "--numa-isolate"]
        extra = {"ASAN_OPTIONS": "detect_leaks=0", **(environment or {})}
        return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, env=clean_environment(extra))

    def test_ranks_started_by_hand(self):
        report = self.ranks_meet(lambda i: self.rank("--rank", str(i)))
        conditions = dict(report["tables"][0]["rows"])
        self.assertEqual(conditions["Transport"], "copyrpc unix")

    def test_ranks_started_by_hand_within_a_launchers_script(self):
        self.ranks_meet(lambda i: self.rank("--rank", str(i), environment={"SLURM_PROCID": "0"}))

    def test_ranks_started_by_a_launcher(self):
        for rank, ranks in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
            with self.subTest(rank):
                self.expect(hawser("benchkv", *QUICK, env={rank: "0", ranks: "2"}), USAGE, "--peers")
        self.ranks_meet(lambda i: self.rank(environment={"PMI_RANK": str(i), "PMI_SIZE": "2"}))

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed (Debian: openmpi-bin)")
    def test_under_mpirun(self):
        peers = ",".join(f"unix:{self.dir}/r{i}" for i in range(2))
        result = subprocess.run(["mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe", HAWSER, "benchkv",
                                 *QUICK, "--client-threads", "1", "--peers", peers, "--json", "--no-single"],
                                capture_output=True, text=True, timeout=TIMEOUT,
                                env=clean_environment({"ASAN_OPTIONS": "detect_leaks=0"}))
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row["name"]: row for row in json.loads(result.stdout)["rows"]}
        self.assertGreater(rows["c1.d1.remote_rps"]["value"], 0)

    def test_wrong_usage_names_the_option(self):
        self.expect(hawser("benchkv", "--read-ratio", "2"), USAGE, "--read-ratio")
        self.expect(hawser("benchkv", "--client-threads", "0"), USAGE, "--client-threads")
        self.expect(hawser("benchkv", "--seed", "x"), USAGE, "--seed")
        self.expect(hawser("benchkv", "--peers", "unix:/tmp/a", "--rank", "1"), USAGE, "--peers")


class Kvreplay(Case):
    def trace(self, *requests):
        path = self.dir / "trace.jsonl"
        path.write_text("".join(json.dumps({"timestamp": 0, "hash_ids": ids}) + "\n" for ids in requests))
        return path

    def test_every_policy_stands_beside_the_optimum(self):
        path = self.trace([0, 1, 2], [0, 1, 2], [0, 3, 2])
        out = self.expect(hawser("kvreplay", path, "--capacity", "1GiB,400KiB", "--block", "4KiB",
                                 "--json", leaks=True), DONE).stdout
        rows = json.loads(out)["rows"]
        self.assertEqual([(r["name"], r["capacity"]) for r in rows],
                         [(n, c) for c in ("1GiB", "400KiB") for n in ("s3fifo", "lru", "optimum")])
        for row in rows:
            self.assertAlmostEqual(row["value"], 100 * 5 / 9)
            self.assertEqual(row["prefix"], "44.44")

    def test_what_is_no_trace_is_told_with_its_line(self):
        path = self.trace([1])
        with open(path, "a") as file:
            file.write('{"hash_ids": [1, -2]}\n')
        self.expect(hawser("kvreplay", path), FAILED, "line 2")
        self.expect(hawser("kvreplay", self.dir / "none"), FAILED, "No such file")
        self.expect(hawser("kvreplay", self.dir), FAILED, f"{self.dir}: Is a directory")
        self.expect(hawser("kvreplay", "/dev/zero"), FAILED, "line 1 is not")
        path.write_bytes(b" " * (17 << 20))
        self.expect(hawser("kvreplay", path), FAILED, "line 1 is longer than 16 MiB")
        self.expect(hawser("kvreplay", self.trace([])), FAILED, "no request")
        self.expect(hawser("kvreplay", self.trace([1]), "--capacity", "1KiB"), USAGE, "--capacity")
        self.expect(hawser("kvreplay"), USAGE, "FILE")


class Kvscale(Case):
    def trace(self, *times, ids=4):
        path = self.dir / "trace.jsonl"
        path.write_text("".join(json.dumps({"timestamp": at, "hash_ids": list(range(ids))}) + "\n"
                                for at in times))
        return path

    def run_rows(self, *arguments):
        out = self.expect(hawser("kvscale", *arguments, "--json", leaks=True), DONE).stdout
        return json.loads(out)["rows"]

    def test_every_figure_stands_beside_the_formula(self):
        path = self.trace(*range(0, 60000, 1000))
        rows = {row["name"]: row for row in self.run_rows(path, "--members", "20", "--seed", "3")}
        for name in ("keys_balance", "messages", "busiest_member", "death_noticed_mean", "view",
                     "join1.keys_moved", "leave1.propagated", "kill1.lost"):
            self.assertIsNotNone(rows[name]["value"], name)
            self.assertIsNotNone(rows[name]["baseline"], name)
        self.assertGreater(rows["hits"]["value"], 90)
        self.assertEqual(rows["kill1.propagated"]["at"], "44.25s")

    def test_a_seed_repeats_and_times_are_taken(self):
        path = self.trace(*range(0, 60000, 1000))
        arguments = (path, "--members", "5", "--copies", "2", "--spread", "turns", "--kill", "10s,20s")
        self.assertEqual(self.run_rows(*arguments), self.run_rows(*arguments))
        self.assertEqual([row["at"] for row in self.run_rows(*arguments) if row["name"].endswith(".lost")],
                         ["10s", "20s"])
        names = [row["name"] for row in self.run_rows(path, "--members", "5", "--steady")]
        self.assertFalse([name for name in names if "." in name])

    def test_wrong_usage_is_told(self):
        path = self.trace(0, 60000)
        for arguments, word in ((("--members", "10001"), "--members"), (("--kill", "2m"), "--kill 2m"),
                                (("--join", "7"), "--join 7"), (("--capacity", "1"), "--capacity"),
                                (("--members", "1024", "--join", "1s"), "more than 1024"),
                                (("--block", "64MiB", "--capacity", "64GiB"), "the stores take 62.5TiB"),
                                (("--members", "1", "--kill", "1s"), "must be left"),
                                (("--steady", "--join", "1s"), "--steady"),
                                (("--spread", "none"), "--spread")):
            with self.subTest(word):
                self.expect(hawser("kvscale", path, *arguments), USAGE, word)
        self.expect(hawser("kvscale", path, "--join", ",".join(["1s"] * 9), "--leave", ",".join(["2s"] * 9)),
                    USAGE, "at most 16")

    def test_what_is_no_trace_is_told(self):
        self.expect(hawser("kvscale", self.trace(5, 4)), FAILED, "request 2 came before")
        self.expect(hawser("kvscale", self.dir / "none"), FAILED, "No such file")
        path = self.trace(0)
        path.write_text('{"timestamp": 1.5, "hash_ids": [1]}\n')
        self.expect(hawser("kvscale", path), FAILED, "line 1")
        path.write_text('{"timestamp": 1, "hash_ids": [1048576]}\n')
        self.expect(hawser("kvscale", path), FAILED, "below 1048576")


class Blocks(Case):
    def test_reading_and_putting_stand_beside_memcpy(self):
        result = self.expect(hawser("bench-blocks", "--size", "100KiB", "--blocks", "8", "--reps", "2",
                                    "--json", leaks=True), DONE)
        self.assertNotIn("is lost", result.stderr)  # its two daemons end together
        rows = {row["name"]: row for row in json.loads(result.stdout)["rows"]}
        self.assertEqual(set(rows), {"memcpy", "checksum", "put", "leased", "get", "in_place",
                                     "tcp", "remote_put", "remote_get", "remote_get_4"})
        self.assertTrue(all(row["value"] > 0 for row in rows.values()))

    def test_only_some_of_it(self):
        out = self.expect(hawser("bench-blocks", "--size", "100KiB", "--blocks", "8", "--reps", "1",
                                 "--only", "put,in_place", "--json"), DONE).stdout
        self.assertEqual([row["name"] for row in json.loads(out)["rows"]],
                         ["memcpy", "put", "in_place", "tcp", "remote_put"])
        self.expect(hawser("bench-blocks", "--only", "nothing"), USAGE, "'nothing'")
        # Fewer would stay at the near daemon, and a remote get bring nothing.
        self.expect(hawser("bench-blocks", "--blocks", "7"), USAGE, "from 8 to")


class Pingpong(Case):
    def test_stands_beside_the_raw_transport(self):
        out = self.expect(hawser("pingpong", "--transport", "unix", "--count", "200", "--reps", "1",
                                 "--json"), DONE).stdout
        rows = json.loads(out)["rows"]
        self.assertEqual([r["name"] for r in rows], ["copyrpc.p50", "copyrpc.p99", "copyrpc.rate"])
        self.assertTrue(all(r["value"] > 0 and r["baseline"] > 0 for r in rows))


if __name__ == "__main__":
    unittest.main()
