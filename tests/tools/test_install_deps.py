"""What install-deps says and runs, with package tools that only pretend."""
import os
import subprocess
import sys
import tempfile
import unittest

INSTALL_DEPS = os.path.abspath(sys.argv.pop(1))
PACKAGES = os.path.join(os.path.dirname(INSTALL_DEPS), "packages")
REAL = ("sh", "sed", "dirname", "printf")


def package_names():
    with open(PACKAGES, encoding="utf-8") as file:
        return [line.split()[0] for line in file if not line.startswith("#")]


class InstallDeps(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.calls = os.path.join(self.tmp.name, "calls")
        for name in REAL:
            found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True,
                                   text=True, check=True).stdout.strip()
            if found.startswith("/"):
                os.symlink(found, os.path.join(self.tmp.name, name))
        self.installed(package_names())
        self.fake("apt-get", f'echo "$*" >>{self.calls}')
        self.fake("apt-cache", "exit 0")
        self.fake("id", "echo 0")

    def fake(self, name, body):
        path = os.path.join(self.tmp.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(path, 0o755)

    def installed(self, names):
        self.fake("dpkg-query", "cat <<'END'\n" + "".join(f"ii  {name}\n" for name in names) + "END")
        cat = os.path.join(self.tmp.name, "cat")
        if not os.path.exists(cat):
            os.symlink("/bin/cat", cat)

    def run_it(self, *args, **env):
        result = subprocess.run([INSTALL_DEPS, *args], env={"PATH": self.tmp.name, **env},
                                capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(0, result.returncode, result.stderr)
        return result.stderr

    def apt_calls(self):
        if not os.path.exists(self.calls):
            return []
        with open(self.calls, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_every_package_has_a_reason(self):
        with open(PACKAGES, encoding="utf-8") as file:
            for line in file:
                self.assertGreater(len(line.split()), 1, line)

    def test_nothing_is_said_or_done_when_all_is_there(self):
        self.assertEqual("", self.run_it())
        self.assertEqual([], self.apt_calls())

    def test_what_is_missing_is_named_with_its_reason_and_installed(self):
        self.installed([name for name in package_names() if name not in ("meson", "glslc")])
        said = self.run_it()
        self.assertRegex(said, r"meson +configures the build")
        self.assertRegex(said, r"glslc +compiles the shaders")
        self.assertEqual(["-q update", "-q install -y --no-install-recommends meson glslc"],
                         self.apt_calls())

    def test_what_tests_need_is_installed_for_tests_only(self):
        self.installed([name for name in package_names() if name not in ("glslc", "redis-server")])
        self.run_it()
        self.assertEqual("-q install -y --no-install-recommends glslc", self.apt_calls()[-1])
        self.run_it("--tests")
        self.assertEqual("-q install -y --no-install-recommends glslc redis-server", self.apt_calls()[-1])

    def test_a_package_that_the_sources_lack_does_not_stop_the_others(self):
        self.installed([name for name in package_names() if name not in ("meson", "glslc")])
        self.fake("apt-cache", '[ "$2" != glslc ]')
        self.assertIn("no package glslc", self.run_it())
        self.assertEqual("-q install -y --no-install-recommends meson", self.apt_calls()[-1])

    def test_sudo_is_used_where_not_root(self):
        self.installed([])
        self.fake("id", "echo 1000")
        self.fake("sudo", f'echo "sudo $*" >>{self.calls}')
        self.run_it()
        self.assertEqual("sudo apt-get -q update", self.apt_calls()[0])

    def test_without_root_and_sudo_it_says_what_to_run(self):
        self.installed([name for name in package_names() if name != "meson"])
        self.fake("id", "echo 1000")
        self.assertIn("apt-get install meson", self.run_it())
        self.assertEqual([], self.apt_calls())

    def test_a_system_without_dpkg_is_told_what_it_lacks(self):
        os.unlink(os.path.join(self.tmp.name, "dpkg-query"))
        self.assertIn("has no meson", self.run_it())

    def test_it_can_be_skipped(self):
        self.installed([])
        self.assertEqual("", self.run_it(HAWSER_NO_INSTALL="1"))
        self.assertEqual([], self.apt_calls())


if __name__ == "__main__":
    unittest.main()
