"""What differential.py calls equal, different, skipped and invalid, with programs that pretend."""
import os
import subprocess
import sys
import tempfile
import unittest

DIFFERENTIAL = os.path.abspath(sys.argv.pop(1))

# Lists four cases, then does what the file "behaviour" says.
PROGRAM = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = --list ]; then printf 'one\\ntwo it breaks a rule\\nthree\\nfour\\n'; exit 0; fi
. "$here/behaviour"
"""

# Serves by telling where it logs, and runs programs as they are.
SERVER = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = run ]; then while [ "$1" != -- ]; do shift; done; shift; exec "$@"; fi
readlink /proc/self/fd/2 >"$here/log"
echo "${MALLOC_PERTURB_:-none}" >>"$here/fills"
while [ "$1" != --ready-fd ]; do shift; done
eval "echo ready >&$2; exec $2>&-"
exec sleep 1000
"""


class Differential(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.write("vkt-fake", PROGRAM)
        os.chmod(self.path("vkt-fake"), 0o755)
        self.env = {**os.environ, "VK_LAYER_PATH": self.tmp.name}
        self.env.pop("SIDE", None)

    def path(self, name):
        return os.path.join(self.tmp.name, name)

    def write(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)

    def run_it(self, behaviour, *options):
        self.write("behaviour", behaviour)
        return subprocess.run([sys.executable, "-B", DIFFERENTIAL, *options, self.path("vkt-fake"),
                               "one"], env=self.env, capture_output=True, text=True, check=False)

    def remote(self, behaviour, *options):
        return self.run_it(behaviour, "--b", "env SIDE=b", *options)

    def test_equal_output_is_ok(self):
        done = self.remote("echo $1 same; exit 0")
        self.assertEqual((done.returncode, done.stdout), (0, "1..1\nok 1 - vkt-fake one\n"))

    def test_the_first_line_that_differs_is_named(self):
        done = self.remote("echo same; echo side $SIDE; echo same")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not ok 1 - vkt-fake one", done.stdout)
        self.assertIn("# mode plain: line 2:\n# A: side\n# B: side b\n",
                      done.stdout.replace("side \n", "side\n"))

    def test_missing_lines_differ(self):
        done = self.remote('echo same; [ "$SIDE" ] || echo more')
        self.assertEqual(done.returncode, 1)
        self.assertIn("B: (nothing)", done.stdout)

    def test_a_missing_line_end_differs(self):
        done = self.remote('printf same; [ "$SIDE" ] || echo')
        self.assertEqual(done.returncode, 1)

    def test_status_counts(self):
        done = self.remote('echo same; [ ! "$SIDE" ] || kill -SEGV $$')
        self.assertEqual(done.returncode, 1)
        self.assertIn("A ended with 0, B with -11", done.stdout)

    def test_a_native_failure_is_a_failure_also_when_equal(self):
        done = self.remote("echo fail: why >&2; exit 1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("A ended with 1: fail: why", done.stdout)

    def test_what_a_skips_is_skipped(self):
        done = self.remote("echo skip: no such feature; exit 77")
        self.assertEqual(done.returncode, 0)
        self.assertIn("ok 1 - vkt-fake one # SKIP no such feature\n", done.stdout)

    def test_what_only_b_skips_has_failed(self):
        done = self.remote('[ ! "$SIDE" ] || exit 77')
        self.assertEqual(done.returncode, 1)

    def test_every_mode_is_run(self):
        done = self.remote('[ "$VENUS_TRACK" != mprotect ] || echo stale',
                           "--modes", "plain,sync,mprotect")
        self.assertEqual(done.returncode, 1)
        self.assertIn("mode mprotect: line 1", done.stdout)
        self.assertEqual(self.remote("echo x", "--modes", "plain,sync").returncode, 0)

    def test_unknown_cases_and_modes_are_refused(self):
        self.assertNotEqual(self.remote("exit 0", "--modes", "never").returncode, 0)
        self.assertNotEqual(self.run_it("exit 0", self.path("vkt-fake")).returncode, 0)

    def behind_server(self):
        self.write("hawser", SERVER)
        os.chmod(self.path("hawser"), 0o755)
        return ["--hawser", self.path("hawser")]

    def sanitized(self, behaviour):
        """The server is a fake one, too."""
        return self.run_it(behaviour, *self.behind_server(), "--sanitized")

    def test_sanitized_programs_run_alone(self):
        self.assertEqual(self.sanitized("echo anything; exit 0").returncode, 0)
        self.assertIn("# SKIP no such feature",
                      self.sanitized("echo skip: no such feature; exit 77").stdout)
        self.assertEqual(self.sanitized("exit 1").returncode, 1)

    def together(self, behaviour, *options):
        """All cases in the mode sync: each says its name, then does what it does behind the others."""
        self.write("behaviour", 'echo "$@" >>"$here/runs"\nfor case in "$@"; do [ $# = 1 ] || echo "== $case"\n'
                   f'echo I am $case\n[ $# = 1 ] || [ $case != three ] || {{ {behaviour}; }}; done')
        done = subprocess.run([sys.executable, "-B", DIFFERENTIAL, *self.behind_server(), "--together", "--modes",
                               "sync", *options, self.path("vkt-fake")], env=self.env, capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout

    def test_cases_run_together(self):
        self.assertEqual(self.together(":")[0], 0)
        with open(self.path("runs"), encoding="utf-8") as file:
            self.assertEqual(sorted(file.read().splitlines()),
                             ["one three four", "one three four", "two", "two"])
        self.assertEqual(self.together(":", "--sanitized")[0], 0)

    def test_a_case_that_differs_behind_others_is_named(self):
        status, out = self.together('[ -z "$VENUS_SYNC" ] || echo stale')
        self.assertEqual((status, out.count("not ok")), (1, 1))
        self.assertIn("not ok 3 - vkt-fake three\n# mode sync: line 2:\n# A: (nothing)\n# B: stale", out)

    def test_what_a_dead_process_did_not_reach_has_failed(self):
        for options in ((), ("--sanitized",)):
            status, out = self.together('[ -n "$VENUS_SYNC" ] && exit 3', *options)
            self.assertEqual((status, out.count("not ok")), (1, 2), out)
            self.assertIn("ok 1 - vkt-fake one\nok 2", out)
            self.assertIn("with 3", out)

    def test_one_that_is_skipped_ends_only_itself(self):
        status, out = self.together("echo skip: why", "--sanitized")
        self.assertEqual((status, out.count("SKIP")), (0, 1))
        self.assertIn("ok 3 - vkt-fake three # SKIP why\nok 4", out)

    def test_a_finding_on_either_side_is_a_failure(self):
        done = self.sanitized("echo SUMMARY: UndefinedBehaviorSanitizer: x >&2")
        self.assertEqual(done.returncode, 1)
        done = self.sanitized('echo WARNING: ThreadSanitizer: data race >>"$(cat "$here/log")"')
        self.assertEqual(done.returncode, 1)
        self.assertIn("# WARNING: ThreadSanitizer: data race", done.stdout)

    def validate(self, layer, case="one", options=()):
        """The fake layer acts where its settings are, as the real one does."""
        self.write("VkLayer_khronos_validation.json", "{}")
        self.write("behaviour", 'echo same\n[ "$VK_INSTANCE_LAYERS" ] || exit 0\n'
                   'log=$VK_LAYER_SETTINGS_PATH/validation.log\n' + layer)
        return subprocess.run([sys.executable, "-B", DIFFERENTIAL, "--validate", *options,
                               self.path("vkt-fake"), case], env=self.env, capture_output=True,
                              text=True, check=False)

    def test_a_silent_layer_is_ok(self):
        self.assertEqual(self.validate(': >"$log"').returncode, 0)
        self.assertEqual(self.validate(': >"$log"', "one", self.behind_server()).returncode, 0)

    def test_a_message_of_the_layer_is_a_failure(self):
        done = self.validate('echo VUID-one >"$log"')
        self.assertEqual(done.returncode, 1)
        self.assertIn("# VUID-one", done.stdout)

    def test_a_message_of_the_layer_at_the_server_is_a_failure(self):
        self.write("VkLayer_khronos_validation.json", "{}")
        done = self.run_it('echo validation: VUID-one >>"$(cat "$here/log")"', *self.behind_server(), "--validate")
        self.assertEqual(done.returncode, 1)
        self.assertIn("# validation: VUID-one", done.stdout)
        status, out = self.together('echo validation: VUID-three >>"$(cat "$here/log")"', "--validate", "--modes", "plain")
        self.assertEqual((status, out.count("not ok")), (1, 1), out)
        self.assertIn("# validation: VUID-three", out)

    def test_what_a_skips_among_others_is_skipped(self):
        status, out = self.together("echo skip: why")
        self.assertEqual((status, out.count("SKIP")), (0, 1))
        self.assertIn("ok 3 - vkt-fake three # SKIP why\nok 4", out)

    def test_the_server_that_validates_fills_memory(self):
        self.env["MALLOC_PERTURB_"] = "5"
        self.validate(': >"$log"', "one", self.behind_server())
        with open(self.path("fills"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "none\n5\n")

    def test_a_server_alone_fills_memory(self):
        self.env["MALLOC_PERTURB_"] = "5"
        self.run_it("exit 0", *self.behind_server())
        with open(self.path("fills"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "5\n")

    def test_a_bug_that_the_layer_calls_its_own_is_no_failure(self):
        late = 'printf "UNASSIGNED-VkSemaphore-state-timeout: late\\n    Objects: 1\\n" >"$log"\n'
        self.assertEqual(self.validate(late).returncode, 0)
        done = self.validate(late + 'echo VUID-one >>"$log"')
        self.assertEqual(done.returncode, 1)
        self.assertIn("says:\n# VUID-one", done.stdout)

    def test_a_layer_that_does_not_load_is_a_failure(self):
        self.assertIn("did not load", self.validate("exit 0").stdout)

    def test_a_case_that_breaks_a_rule_is_spared_the_layer(self):
        self.assertEqual(self.validate('echo VUID-two >"$log"', "two").returncode, 0)

    def test_no_software_gpu_skips_all(self):
        self.write("find", "#!/bin/sh\nexit 1\n")
        os.chmod(self.path("find"), 0o755)
        done = self.run_it("exit 0", "--software", self.path("find"))
        self.assertEqual((done.returncode, done.stdout), (0, "1..0 # SKIP no software GPU here\n"))


if __name__ == "__main__":
    unittest.main()
