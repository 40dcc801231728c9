"""The demo, and that it leaves nothing behind, however it ends; there the hawser only pretends."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

DEMO = os.path.abspath(sys.argv.pop(1))
BUILD = os.path.abspath(sys.argv.pop(1))  # .../release

# Serves until it is told to stop.
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
run) [ -e "$here/up" ] && echo "ok 1 - ${5##*/}" ;;
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
                                timeout=240, check=False)
        self.assertEqual([], os.listdir(self.path("tmp")))
        return result

    def calls(self):
        with open(self.cli("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def assert_server_gone(self):
        self.assertEqual("stopped", self.calls()[-1])
        with open(self.cli("up"), encoding="utf-8") as file:
            self.assertRaises(ProcessLookupError, os.kill, int(file.read()), 0)

    def test_the_demo_itself(self):
        env = {**os.environ, "TMPDIR": self.path("tmp"), "HAWSER_BUILD": os.path.dirname(BUILD)}
        result = subprocess.run([DEMO], env=env, capture_output=True, text=True, timeout=300,
                                check=False)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"The same bytes in each of its \d\d cases")
        self.assertIn("is killed here", " ".join(result.stdout.split()))  # lines are folded
        self.assertIn("The same text, byte for byte.", result.stdout)
        self.assertNotIn("\x1b", result.stdout)
        self.assertEqual([], [n for n in os.listdir(self.path("tmp")) if "demo" in n])

    def test_a_program_with_other_bytes_fails_the_demo_and_stops_the_server(self):
        self.script("tests/vulkan/differential.py", "print('not ok 1 - other bytes')\nraise SystemExit(1)\n")
        result = self.run_demo()
        self.assertEqual(1, result.returncode)
        self.assertIn("not ok 1 - other bytes", result.stderr)
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
