"""hawser run: what it says before the program starts, and what the program then finds."""

import json
import os
import signal
import sys
import unittest

from harness import DONE, FAILED, REFUSED, UNREACHABLE, USAGE, Case, Server, hawser

# Prints what a program was started with, as JSON, and ends with status 5.
SHOW = ("import json, os, sys; print(json.dumps({'args': sys.argv[1:], "
        "'env': {k: v for k, v in os.environ.items() if k.startswith(('VENUS_', 'VK_'))}})); "
        "sys.exit(5)")


class Run(Case):
    def shown(self, *args, **kwargs):
        result = hawser("run", *args, "--", sys.executable, "-I", "-c", SHOW, "-x", "--help",
                        **kwargs)
        self.expect(result, 5)
        return json.loads(result.stdout)

    def test_the_program_gets_our_driver_and_all_servers(self):
        with Server("--listen", f"unix:{self.dir}/a") as a, Server("--listen",
                                                                 f"unix:{self.dir}/b") as b:
            both = f"{a.addresses[0]},{b.addresses[0]}"
            shown = self.shown("--servers", both, env={"VK_LOADER_DRIVERS_DISABLE": "hawser_icd*"})
        self.assertEqual(shown["args"], ["-x", "--help"])
        env = shown["env"]
        self.assertEqual(env["VENUS_SERVERS"], both)
        self.assertNotIn("VK_LOADER_DRIVERS_DISABLE", env)
        self.assertEqual(env["VK_DRIVER_FILES"], env["VK_ICD_FILENAMES"])
        with open(env["VK_DRIVER_FILES"], encoding="utf-8") as file:
            icd = json.load(file)["ICD"]
        library = os.path.join(os.path.dirname(env["VK_DRIVER_FILES"]), icd["library_path"])
        self.assertTrue(os.path.exists(library), library)

    def test_one_server_of_two_may_be_away(self):
        with Server("--listen", f"unix:{self.dir}/a") as server:
            address, away = server.addresses[0], f"unix:{self.dir}/none"
            for kwargs in ({"args": ("--servers", f"{away},{address}")},
                           {"args": (), "env": {"VENUS_SERVERS": f"{address} {away}"}}):
                args = kwargs.pop("args")
                self.assertEqual(self.shown(*args, **kwargs)["env"]["VENUS_SERVERS"], address)
            told = hawser("run", "--servers", f"{away},{address}", "--", "true")
        self.expect(told, DONE, away, f"the GPUs of {address} alone")
        self.expect(hawser("run", "--servers", f"{away},{away}", "--", "true"), UNREACHABLE, away)

    def test_servers_come_from_the_environment(self):
        with Server("--listen", f"unix:{self.dir}/a") as server:
            address = server.addresses[0]
            shown = self.shown(env={"VENUS_SERVERS": f" {address} "})
        self.assertEqual(shown["env"]["VENUS_SERVERS"], address)

    def test_secrets_reach_the_program_as_absolute_paths(self):
        keys, fingerprint = self.keys()
        with Server("--listen", "127.0.0.1:0", "--cert", keys / "server.crt", "--key",
                    keys / "server.key", "--token-file", keys / "token") as server:
            shown = self.shown("--servers", server.addresses[0], "--fingerprint", fingerprint,
                               "--token-file", "keys/token", cwd=self.dir)
            refused = hawser("run", "--servers", server.addresses[0], "--fingerprint",
                             fingerprint, "--", "false")
        self.assertEqual(shown["env"]["VENUS_TOKEN_FILE"], os.path.realpath(keys / "token"))
        self.assertEqual(shown["env"]["VENUS_TLS_FINGERPRINT"], fingerprint)
        self.expect(refused, REFUSED, "token")

    def program(self, name):
        path = self.dir / name
        path.write_text('#!/bin/sh\necho "fence=$VENUS_EARLY_FENCE"\n')
        path.chmod(0o755)
        return path

    def test_fences_are_honest_where_time_is_measured(self):
        with Server("--listen", f"unix:{self.dir}/a") as server:
            def fence(name, *args, **env):
                return self.expect(hawser("run", "-s", server.addresses[0], *args, "--",
                                          self.program(name), env=env), DONE)
            for name, args, env, expected in (
                    ("any", (), {}, ""), ("any", ("--honest-fences",), {}, "0"),
                    ("any", ("--honest-fences",), {"VENUS_EARLY_FENCE": "1"}, "0"),
                    ("vkpeak", (), {"VENUS_EARLY_FENCE": "1"}, "1"), ("vkpeakless", (), {}, ""),
                    ("vkpeak", ("--honest-fences",), {}, "0")):
                done = fence(name, *args, **env)
                self.assertEqual((done.stdout, done.stderr), (f"fence={expected}\n", ""), name)
            for name in ("vkpeak", "glmark2-es2", "VkFFT_TestSuite", "clpeak"):
                done = fence(name)
                self.assertEqual(done.stdout, "fence=0\n")
                self.assertRegex(done.stderr, f"{name} is a benchmark: --honest-fences is on; "
                                 "VENUS_EARLY_FENCE=1 turns it off\n$")

    def test_a_server_that_is_not_there_is_told_before_the_program_starts(self):
        marker = self.dir / "started"
        result = hawser("run", "--servers", f"unix:{self.dir}/none", "--", "touch", marker)
        self.expect(result, UNREACHABLE, f"unix:{self.dir}/none", "hawser serve")
        self.assertFalse(marker.exists())

    def test_signals_are_as_the_program_expects(self):
        with Server("--listen", f"unix:{self.dir}/a") as server:
            result = self.expect(hawser("run", "--servers", server.addresses[0], "--", "grep",
                                        "SigIgn", "/proc/self/status"), DONE)
        ignored = int(result.stdout.split()[1], 16)
        self.assertFalse(ignored >> (signal.SIGPIPE - 1) & 1)

    def test_a_program_that_is_not_there(self):
        with Server("--listen", f"unix:{self.dir}/a") as server:
            for program, status in (("/no/such", 127), ("no-such-program", 127), ("/", 126)):
                self.expect(hawser("run", "--servers", server.addresses[0], "--", program), status, program)
        self.expect(hawser("run"), USAGE, "PROGRAM")

    def test_a_manifest_that_is_not_there(self):
        self.expect(hawser("run", "--", "true", env={"HAWSER_ICD": "/no/such.json"}), FAILED,
                    "HAWSER_ICD")

    def test_done_is_done(self):
        with Server("--listen", f"unix:{self.dir}/a") as server:
            self.expect(hawser("run", "-s", server.addresses[0], "true"), DONE)


if __name__ == "__main__":
    unittest.main()
