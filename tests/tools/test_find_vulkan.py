"""What find-vulkan decides, remembers and leaves behind, with a probe that only pretends."""
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

FIND_VULKAN = os.path.abspath(sys.argv.pop(1))

# Counts its runs, then behaves as the file "behaviour" says.
FAKE_PROBE = """#!/bin/sh
here=$(dirname "$0")
echo "$*|${LD_PRELOAD:-}|$VK_ICD_FILENAMES" >>"$here/runs"
echo "probe: integer shader" >&2
. "$here/behaviour"
"""
WORKS = 'echo \'{"device": "fake", "type": "cpu", "int": true, "f16": true}\'\n'
REFUSES = 'echo "probe: wrong result" >&2; exit 1\n'
ILLEGAL = "kill -ILL $$\n"

# apt-get and dpkg-deb of a mirror whose packages are files of their names; $FAIL are suites that it lacks.
FAKE_APT = """#!/bin/sh
for word; do
    case $word in
    -* | *=*) ;;
    */*)
        case " $FAIL " in *" ${word#*/} "*) exit 100 ;; esac
        : >"${word%/*}_${word#*/}.deb" ;;
    esac
done
"""
FAKE_DPKG = """#!/bin/sh
suite=${2##*_} suite=${suite%.deb}
eval "version=\\$VERSION_$suite"
mkdir -p "$3/usr/include/vulkan" "$3/usr/share/vulkan/registry"
echo "#define VK_HEADER_VERSION $version" >"$3/usr/include/vulkan/vulkan_core.h"
: >"$3/usr/share/vulkan/registry/vk.xml"
"""


class FindVulkan(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        for name in ("tools", "icd", "gpu"):
            os.mkdir(self.path(name))
        self.write("tools/hawser-vkprobe", FAKE_PROBE)
        os.chmod(self.path("tools/hawser-vkprobe"), 0o755)
        self.write("icd/lvp_icd.json", "{}")
        self.env = dict(os.environ,
                        HAWSER_VKPROBE_DIR=self.path("tools"),
                        HAWSER_SOFTGPU_DIR=self.path("gpu"),
                        HAWSER_ICD_PATH=self.path("icd"),
                        HAWSER_SOFTGPU_OFFLINE="1")
        for name in ("LD_PRELOAD", "VK_ICD_FILENAMES", "VK_DRIVER_FILES"):
            self.env.pop(name, None)

    def path(self, name):
        return os.path.join(self.tmp.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def behave(self, script):
        self.write("tools/behaviour", script)

    def runs(self):
        try:
            with open(self.path("tools/runs"), encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def start(self, *args):
        return subprocess.Popen([FIND_VULKAN, "--software", *args], env=self.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def find(self, *args):
        process = self.start(*args)
        out, err = process.communicate(timeout=240)
        return process.returncode, out, err

    def assert_nothing_left(self):
        self.assertEqual([], [n for n in os.listdir(self.path("gpu")) if n.startswith("tmp")])

    def registry(self, headers):
        os.makedirs(self.path("include/vulkan"))
        self.write("include/vulkan/vulkan_core.h", headers)
        self.env["HAWSER_VULKAN_INCLUDE"] = self.path("include")
        return self.find("--registry")

    def test_a_registry_that_is_new_enough_needs_no_other(self):
        os.makedirs(self.path("gpu/vulkan/compiler"))
        self.assertEqual((0, "", ""), self.registry("#define VK_API_VERSION_1_4 x\n"))

    def test_a_registry_that_was_laid_out_is_found_without_a_probe(self):
        os.makedirs(self.path("gpu/vulkan/compiler"))
        os.remove(self.path("tools/hawser-vkprobe"))
        self.assertEqual((0, self.path("gpu/vulkan/usr") + "\n", ""),
                         self.registry("#define VK_API_VERSION_1_3 x\n"))
        self.assert_nothing_left()

    def test_an_old_registry_is_used_where_no_newer_one_can_be_had(self):
        status, out, err = self.registry("#define VK_API_VERSION_1_3 x\n")
        self.assertEqual((0, ""), (status, out))
        self.assertIn("no Vulkan 1.4", err)
        self.assertIn("remedy", err)
        self.assert_nothing_left()

    def laid_out(self, fail="", **versions):
        """The version of the headers that are laid out from a mirror with these."""
        if "VERSION_CODENAME=bookworm" not in pathlib.Path("/etc/os-release").read_text(encoding="utf-8"):
            self.skipTest("not Debian 12")
        os.mkdir(self.path("bin"))
        for name, text in (("apt-get", FAKE_APT), ("dpkg-deb", FAKE_DPKG)):
            self.write("bin/" + name, text)
            os.chmod(self.path("bin/" + name), 0o755)
        self.env.update(HAWSER_SOFTGPU_OFFLINE="", HAWSER_APT_URI="http://mirror.invalid", FAIL=fail,
                        PATH=self.path("bin") + ":" + os.environ["PATH"],
                        **{"VERSION_" + suite: str(version) for suite, version in versions.items()})
        status, out, err = self.registry("#define VK_API_VERSION_1_3 x\n")
        self.assertEqual((0, self.path("gpu/vulkan/usr") + "\n"), (status, out), err)
        self.assert_nothing_left()
        header = pathlib.Path(self.path("gpu/vulkan/usr/include/vulkan/vulkan_core.h"))
        return int(header.read_text(encoding="utf-8").split()[-1])

    def test_the_newest_registry_that_is_known_is_laid_out(self):
        self.assertEqual(363, self.laid_out(forky=363, trixie=309))

    def test_a_registry_that_no_test_has_seen_is_not_laid_out(self):
        self.assertEqual(309, self.laid_out(forky=999, trixie=309))

    def test_an_older_registry_is_laid_out_where_the_newest_cannot_be_had(self):
        self.assertEqual(309, self.laid_out(fail="forky", forky=363, trixie=309))

    def test_a_driver_that_works_is_probed_once_and_remembered(self):
        self.behave(WORKS)
        first = self.find("--env")
        second = self.find("--env")
        self.assertEqual((0, 0), (first[0], second[0]), first[2])
        self.assertEqual(first[1], second[1])
        self.assertEqual(1, len(self.runs()))
        self.assertIn("export HAWSER_VULKAN='system'", first[1])
        self.assertIn(f"export VK_DRIVER_FILES='{self.path('icd/lvp_icd.json')}'", first[1])
        self.assertNotIn("LD_PRELOAD", first[1])
        self.assert_nothing_left()

    def test_a_changed_manifest_is_probed_again(self):
        self.behave(WORKS)
        self.find("--env")
        self.write("icd/lvp_icd.json", "{ }")
        self.assertEqual(0, self.find("--env")[0])
        self.assertEqual(2, len(self.runs()))

    def test_a_changed_probe_is_asked_again(self):
        self.behave(WORKS)
        self.find("--env")
        self.write("tools/hawser-vkprobe", FAKE_PROBE + "# newer\n")
        self.assertEqual(0, self.find("--env")[0])
        self.assertEqual(2, len(self.runs()))

    def test_a_damaged_decision_is_made_again(self):
        self.behave(WORKS)
        self.find("--env")
        self.write("gpu/decision-software", "nonsense\n")
        self.assertEqual(0, self.find("--env")[0])
        self.assertEqual(2, len(self.runs()))

    def test_a_refusal_is_explained_and_not_remembered(self):
        self.behave(REFUSES)
        status, out, err = self.find("--env")
        self.assertEqual((1, ""), (status, out))
        self.assertIn("probe: wrong result", err)
        self.assertIn("HAWSER_SOFTGPU_OFFLINE", err)
        self.assertIn("remedy", err)
        self.assert_nothing_left()
        self.behave(WORKS)
        self.assertEqual(0, self.find("--env")[0])

    def test_an_illegal_instruction_is_tried_again_with_the_cpu_name(self):
        self.write("tools/libhawser-cpuname.so", "")  # the loader warns and goes on
        self.behave('case "${LD_PRELOAD:-}" in *cpuname*) ' + WORKS.strip() + ";; *) "
                    + ILLEGAL.strip() + ";; esac\n")
        status, out, err = self.find("--env")
        self.assertEqual(0, status, err)
        self.assertEqual(2, len(self.runs()))
        self.assertIn(f"export LD_PRELOAD='{self.path('tools/libhawser-cpuname.so')}'", out)
        self.assertIn("cache/system-cpuname", out)

    def test_an_illegal_instruction_without_the_library_is_a_refusal(self):
        self.behave(ILLEGAL)
        status, _, err = self.find("--env")
        self.assertEqual(1, status)
        self.assertIn("illegal instruction after 'probe: integer shader'", err)

    def test_many_at_once_probe_once(self):
        self.behave(WORKS)
        processes = [self.start("--env") for _ in range(4)]
        outputs = {process.communicate(timeout=240)[0] for process in processes}
        self.assertEqual(1, len(outputs))
        self.assertEqual([0] * 4, [process.returncode for process in processes])
        self.assertEqual(1, len(self.runs()))

    def test_an_interrupted_run_leaves_nothing(self):
        # The probe waits in a FIFO, so the signal arrives while it runs, not before.
        os.mkfifo(self.path("tools/started"))
        os.mkfifo(self.path("tools/go"))
        self.behave('echo >"$here/started"; read -r line <"$here/go"; exit 1\n')
        process = self.start("--env")
        with open(self.path("tools/started"), encoding="utf-8") as fifo:
            fifo.read()
        process.send_signal(signal.SIGTERM)
        with open(self.path("tools/go"), "w", encoding="utf-8") as fifo:
            fifo.write("\n")
        process.communicate(timeout=240)
        self.assertEqual(130, process.returncode)
        self.assert_nothing_left()
        self.assertFalse(os.path.exists(self.path("gpu/decision-software")))

    def test_a_program_runs_in_the_environment_with_its_own_status(self):
        self.behave(WORKS)
        status, out, err = self.find("--", "sh", "-c", 'echo "$VK_DRIVER_FILES"; exit 7')
        self.assertEqual((7, self.path("icd/lvp_icd.json") + "\n"), (status, out), err)

    def test_assignments_survive_the_shell(self):
        self.behave(WORKS)
        self.env["HAWSER_SOFTGPU_DIR"] = self.path("it's a folder")
        status, out, err = self.find("--env")
        self.assertEqual(0, status, err)
        words = dict(word.split("=", 1) for word in shlex.split(out) if "=" in word)
        self.assertEqual(self.path("it's a folder") + "/cache/system",
                         words["MESA_SHADER_CACHE_DIR"])

    def test_wrong_usage(self):
        for args in ([], ["--nonsense"], ["--"]):
            self.assertEqual(2, self.find(*args)[0], args)


if __name__ == "__main__":
    unittest.main()
