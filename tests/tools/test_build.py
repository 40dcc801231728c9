"""What the build script says and ends with, with a meson and a ninja that only pretend."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))


class Build(unittest.TestCase):
    def setUp(self):
        self.fakes = 0
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        os.mkdir(self.path("tools"))
        os.mkdir(self.path("bin"))
        shutil.copy(BUILD, self.path("tools/build"))
        self.fake("meson", 'echo "configured: $*"; touch "$2/build.ninja"')
        self.ninja('echo "ninja: Entering directory"; i=0; while [ $i -lt 40 ]; do i=$((i + 1)); '
                   'echo "$((i * 100 / 40))% of 40: Compiling $i"; done')

    def path(self, name):
        return os.path.join(self.tmp.name, name)

    def fake(self, name, body):
        with open(self.path(f"bin/{name}"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(self.path(f"bin/{name}"), 0o755)

    def ninja(self, body, again="true"):
        """As the real one, it first configures again, once, whatever it is to build."""
        self.fake("ninja", f'[ -e ninja-{self.fakes} ] || {{ touch ninja-{self.fakes}; {again}; }}; '
                           f'case "$*" in *" build.ninja") exit;; esac; {body}')
        self.fakes += 1

    def run_it(self, status=0, args=(), **env):
        env = {"PATH": self.path("bin") + ":" + os.environ["PATH"], "HAWSER_BUILD": "out", **env}
        result = subprocess.run([self.path("tools/build"), *args], env=env, capture_output=True, text=True, timeout=240,
                                check=False)
        self.assertEqual(status, result.returncode, result.stdout + result.stderr)
        return result

    def test_a_log_gets_a_line_for_each_tenth(self):
        lines = self.run_it().stdout.splitlines()
        self.assertIn("out/release/setup.log", lines[0])
        self.assertEqual(lines[1:], [f"built: {n}%" for n in range(10, 101, 10)])
        self.assertEqual(self.run_it().stdout.splitlines(), lines[1:])  # configured once

    def test_what_a_compiler_says_is_shown_and_its_failure_is_the_end(self):
        self.ninja('echo " 50% of 2: Compiling a"; echo "a.c:1: error: no"; exit 1')
        self.assertIn("a.c:1: error: no\n", self.run_it(1).stdout)
        self.ninja('echo "100% of 1: Linking"')
        self.assertEqual(self.run_it().stdout, "")  # little work needs no words

    def test_under_sudo_the_build_stays_the_users(self):
        self.fake("id", "echo 0")
        self.fake("stat", "echo 1000")
        self.fake("sudo", 'echo "sudo $*"')
        said = self.run_it(SUDO_UID="1000", args=("--prefix", "/opt/x")).stdout
        self.assertEqual(said, "sudo -H -u #1000 HAWSER_BUILD=out tools/build --prefix /opt/x\n")
        self.assertNotIn("sudo", self.run_it(SUDO_UID="1001").stdout)  # another's tree
        self.assertNotIn("sudo", self.run_it().stdout)

    def test_what_meson_says_is_shown_where_it_fails(self):
        self.fake("meson", 'echo "no such library"; exit 1')
        self.assertEqual(self.run_it(1).stderr, "no such library\n")

    def test_what_meson_says_again_is_for_a_log_unless_it_fails(self):
        self.run_it()
        self.ninja('echo "100% of 1: Linking"', again='echo "Program python3 found: YES"')
        self.assertEqual(self.run_it(args=("--prefix", "/opt/x")).stdout, "configured: configure out/release "
                                                                          "-Dprefix=/opt/x\n")
        self.ninja('echo "100% of 1: Linking"', again='echo "no such library"; exit 1')
        self.assertEqual(self.run_it(1).stderr, "no such library\n")


if __name__ == "__main__":
    unittest.main()
