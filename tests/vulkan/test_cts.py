"""What cts.py makes of a deqp-vk that passes, fails, crashes, hangs and stops early."""
import os
import subprocess
import sys
import tempfile
import unittest

CTS = os.path.abspath(sys.argv.pop(1))

# Verdicts by the name of a case; at B a case "X.b_VERDICT" has that verdict, natively it passes.
FAKE = """#!/bin/sh
list=${1#--deqp-caselist-file=}
while read -r case; do
    printf "Test case '%s'..\\n" "$case"
    verdict=Pass
    case $case in *b_*) [ "$SIDE" ] && verdict=${case##*b_};; esac
    case $case in *.a_*) [ "$SIDE" ] || { verdict=${case##*a_}; verdict=${verdict%%.*}; };; esac
    case $verdict in
        Crash) kill -SEGV $$;;
        Hang) exec sleep 600;;
        Stop) exit 0;;
        End) kill -KILL "$SERVER"; printf "  Fail (said)\n"; exit 1;;
        *) printf "  %s (said)\\n" "$verdict";;
    esac
done <"$list"
"""

# `serve` says its process id as its address; `run` runs programs at B while that process is there.
FAKE_HAWSER = """#!/usr/bin/env python3
import os, signal, sys
if sys.argv[1] == "serve":
    print(f"listening on {os.getpid()}", flush=True)
    ready = int(sys.argv[sys.argv.index("--ready-fd") + 1])
    os.write(ready, b"1")
    os.close(ready)
    signal.pause()
os.kill(int(sys.argv[sys.argv.index("--servers") + 1]), 0)
program = sys.argv[sys.argv.index("--") + 1:]
os.execve(program[0], program, {**os.environ, "SIDE": "b", "SERVER": sys.argv[3]})
"""


class Cts(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.deqp = self.write("deqp-vk", FAKE)
        self.hawser = self.write("hawser", FAKE_HAWSER)

    def write(self, name, text):
        path = os.path.join(self.tmp.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def run_it(self, *cases, options=(), b=("--b", "env SIDE=b")):
        listed = self.write("list", "# a comment\n" + "\n".join(cases) + "\n")
        env = {name: value for name, value in os.environ.items() if name != "SIDE"}
        return subprocess.run([sys.executable, "-B", CTS, *b, *options, self.deqp, listed],
                              env=env, capture_output=True, text=True, check=False)

    def run_until(self, summary, *cases, options=(), **kwargs):
        """With more time for a case where a busy machine needs it: none but those that hang may be out of time."""
        for seconds in (1, 8, 64):
            done = self.run_it(*cases, options=("--case-seconds", str(seconds), *options), **kwargs)
            if summary in done.stdout:
                break
        self.assertIn(summary, done.stdout, done.stderr)
        return done

    def test_equal_verdicts_are_not_printed(self):
        done = self.run_it("x.one", "x.two", "x.b_QualityWarning")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], "3 of 3 cases: 3 same")

    def test_kinds_of_differences(self):
        done = self.run_it("x.b_Fail", "x.b_NotSupported", "x.a_Fail", "x.one")
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken\tx.b_Fail\tPass -> Fail\tsaid\n", done.stdout)
        self.assertIn("lost\tx.b_NotSupported\t", done.stdout)
        self.assertIn("better\tx.a_Fail\tFail -> Pass", done.stdout)
        self.assertIn("4 of 4 cases: 1 better, 1 broken, 1 lost, 1 same\n", done.stdout)
        self.assertTrue(done.stdout.endswith("1 newly fail\n  x.b_Fail\tPass -> Fail\tsaid\n"))

    def test_a_case_that_fails_where_it_was_not_supported_newly_fails(self):
        done = self.run_it("x.a_NotSupported.b_Fail")
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken\tx.a_NotSupported.b_Fail\tNotSupported -> Fail\tsaid\n", done.stdout)

    def test_what_is_not_supported_costs_nothing(self):
        self.assertEqual(self.run_it("x.b_NotSupported").returncode, 0)

    def test_a_run_survives_crashes_hangs_and_ends(self):
        done = self.run_until("6 of 6 cases: 4 broken, 2 same\n", "x.b_Crash", "x.one", "x.b_Hang", "x.b_Stop",
                              "x.b_Fail", "x.two", options=("--chunk", "4"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("x.b_Crash\tPass -> Crash\tstatus -11\n", done.stdout)
        self.assertIn("x.b_Hang\tPass -> Timeout\t", done.stdout)
        self.assertIn("x.b_Stop\tPass -> Crash\tstatus 0\n", done.stdout)

    def test_time_ends_a_run_between_chunks(self):
        done = self.run_it("x.one", "x.two", options=("--chunk", "1", "--seconds", "0.000001"))
        self.assertIn("1 of 2 cases", done.stdout)

    def test_b_may_be_behind_a_server(self):
        done = self.run_it("x.one", "x.b_Fail", b=("--hawser", self.hawser))
        self.assertIn("2 of 2 cases: 1 broken, 1 same\n", done.stdout, done.stderr)

    def test_a_server_that_ends_is_started_again(self):
        done = self.run_it("x.one", "x.b_End", "x.two", "x.three", "y.b_End",
                           options=("--chunk", "3"), b=("--hawser", self.hawser))
        self.assertIn("server\tended with status -9\tx.b_End\n", done.stdout, done.stderr)
        self.assertIn("5 of 5 cases: 2 broken, 3 same\n", done.stdout)

    def test_a_server_behind_which_a_case_hangs_is_started_again(self):
        done = self.run_until("2 of 2 cases: 1 broken, 1 same\n", "x.b_Hang", "x.one", b=("--hawser", self.hawser))
        self.assertIn("server\thangs\tx.b_Hang\n", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
