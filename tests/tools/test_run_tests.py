"""The runner itself: what counts as passed, failed and skipped, and what is left running."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

PATH = os.path.abspath(sys.argv.pop(1))
LOADER = importlib.machinery.SourceFileLoader("run_tests", PATH)
SPEC = importlib.util.spec_from_loader("run_tests", LOADER)
run_tests = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(run_tests)


def quietly(call, *args):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        return call(*args), out.getvalue()


class Runner(unittest.TestCase):
    def log(self, *results):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "log.json")
        path.write_text("".join(
            json.dumps({"name": f"t{i}", "result": result, "returncode": 1,
                        "stdout": f"said by t{i}\n"}) + "\n"
            for i, result in enumerate(results)), encoding="utf-8")
        return path

    def test_each_result_is_counted_as_what_it_is(self):
        path = self.log("OK", "SKIP", "FAIL", "TIMEOUT", "ERROR", "EXPECTEDFAIL", "UNEXPECTEDPASS",
                        "INTERRUPT")
        tally, _ = quietly(run_tests.read_log, path)
        self.assertEqual((2, 5, 1), tally)

    def test_a_failure_shows_its_log_and_a_success_does_not(self):
        _, out = quietly(run_tests.read_log, self.log("OK", "FAIL"))
        self.assertIn("said by t1", out)
        self.assertNotIn("said by t0", out)

    def main_with(self, **stages):
        calls = {name: lambda tally=tally: tally for name, tally in stages.items()}
        with mock.patch.object(run_tests, "STAGES", calls), mock.patch.object(run_tests, "configure_all"):
            return quietly(run_tests.main, [])

    def test_the_last_line_sums_all_stages(self):
        status, out = self.main_with(a=run_tests.Tally(3, 0, 1), b=run_tests.Tally(4, 0, 0))
        self.assertEqual(0, status)
        self.assertEqual("7 passed, 0 failed, 1 skipped", out.splitlines()[-1])

    def test_one_failure_fails_the_run(self):
        status, out = self.main_with(a=run_tests.Tally(3, 1, 0), b=run_tests.Tally(4, 0, 0))
        self.assertEqual(1, status)
        self.assertEqual("7 passed, 1 failed, 0 skipped", out.splitlines()[-1])

    def test_a_stage_without_tests_fails(self):
        status, out = self.main_with(a=run_tests.NONE)
        self.assertEqual((1, "0 passed, 1 failed, 0 skipped"), (status, out.splitlines()[-1]))

    def test_an_unknown_stage_is_wrong_usage(self):
        self.assertEqual(2, quietly(run_tests.main, ["nonsense"])[0])

    def test_a_command_past_its_time_is_ended_with_its_children(self):
        # The child of the shell holds the pipe; it closes only when both are gone.
        read, write = os.pipe()
        os.set_inheritable(write, True)
        with mock.patch.object(run_tests.subprocess, "Popen", self.popen_with(write)):
            status, _ = run_tests.run(["sh", "-c", "cat /dev/zero >/dev/null & wait"], timeout=0.2)
        os.close(write)
        self.assertEqual(124, status)
        self.assertEqual(b"", os.read(read, 1))
        os.close(read)

    @staticmethod
    def popen_with(descriptor):
        original = run_tests.subprocess.Popen
        return lambda *args, **kwargs: original(*args, pass_fds=[descriptor], **kwargs)


if __name__ == "__main__":
    unittest.main()
