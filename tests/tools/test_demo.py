"""The demo leaves nothing behind, however it ends; the hawser here only pretends."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

DEMO = os.path.abspath(sys.argv.pop(1))

# Serves until it is told to stop; info answers only when the server is up.
FAKE_HAWSER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
echo "$*" >>"$here/calls"
case $1 in
serve)
    [ ! -e "$here/broken" ] || { echo "cannot listen" >&2; exit 1; }
    trap 'echo stopped >>"$here/calls"; exit 0' TERM
    echo $$ >"$here/up"
    echo ready >&3
    exec 3>&-
    while :; do read -r line <"$here/never"; done ;;
info) [ -e "$here/up" ] && echo "RTT 5 us" ;;
run) [ -e "$here/up" ] && echo "ok 1 - ${5##*/}" ;;
bench-rpc) echo "64 B: 1.1 x raw"; [ ! -e "$here/bench-fails" ] ;;
esac
"""
FIND_VULKAN = "#!/bin/sh\necho fake device\n"
# Runs what its --b says with the program, as the real one does.
DIFFERENTIAL = """import shlex, subprocess, sys
prefix = shlex.split(sys.argv[sys.argv.index("--b") + 1])
sys.exit(subprocess.call([*prefix, sys.argv[-1]]))
"""


class Demo(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        for folder in ("tools", "tmp", "build/release/src/cli", "tests/vulkan"):
            os.makedirs(self.path(folder))
        shutil.copy(DEMO, self.path("tools/demo"))
        self.script("tools/find-vulkan", FIND_VULKAN)
        self.script("tests/vulkan/differential.py", DIFFERENTIAL)
        self.script("build/release/src/cli/hawser", FAKE_HAWSER)
        os.mkfifo(self.cli("never"))

    def path(self, name):
        return os.path.join(self.tmp.name, name)

    def cli(self, name):
        return self.path("build/release/src/cli/" + name)

    def script(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def run_demo(self):
        env = {"PATH": os.environ["PATH"], "TMPDIR": self.path("tmp"), "HAWSER_BUILD": "build"}
        result = subprocess.run([self.path("tools/demo")], env=env, capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual([], os.listdir(self.path("tmp")))
        return result

    def calls(self):
        with open(self.cli("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def assert_server_gone(self):
        self.assertEqual("stopped", self.calls()[-1])
        with open(self.cli("up"), encoding="utf-8") as file:
            self.assertRaises(ProcessLookupError, os.kill, int(file.read()), 0)

    def test_the_server_is_started_asked_measured_and_stopped(self):
        result = self.run_demo()
        self.assertEqual(0, result.returncode, result.stderr)
        self.assertIn("fake device", result.stdout)
        self.assertIn("RTT 5 us", result.stdout)
        self.assertIn("ok 1 - vkt-compute", result.stdout)
        self.assertIn("1.1 x raw", result.stdout)
        self.assertNotIn("\x1b", result.stdout)
        self.assert_server_gone()

    def test_a_failing_benchmark_fails_the_demo_and_stops_the_server(self):
        open(self.cli("bench-fails"), "w", encoding="utf-8").close()
        self.assertEqual(1, self.run_demo().returncode)
        self.assert_server_gone()

    def test_a_server_that_does_not_start_is_reported_with_its_words(self):
        open(self.cli("broken"), "w", encoding="utf-8").close()
        result = self.run_demo()
        self.assertEqual(1, result.returncode)
        self.assertIn("cannot listen", result.stderr)

    def test_without_a_driver_no_server_is_started(self):
        self.script("tools/find-vulkan", "#!/bin/sh\nexit 1\n")
        self.assertEqual(1, self.run_demo().returncode)
        self.assertFalse(os.path.exists(self.cli("calls")))


if __name__ == "__main__":
    unittest.main()
