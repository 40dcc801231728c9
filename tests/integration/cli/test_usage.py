"""Help, wrong usage, exit codes, and output that cannot be written."""

import json
import os
import pathlib
import re
import subprocess
import unittest

from harness import DONE, FAILED, HAWSER, UNREACHABLE, USAGE, Case, hawser

KJV = pathlib.Path(__file__).resolve().parents[3] / "models" / "kjv.gguf"
COMMANDS = [command["name"] for command in json.loads(hawser("help", "--json").stdout)["commands"]]


class Help(Case):
    def test_lists_every_command_on_one_screen(self):
        text = self.expect(hawser("--help"), DONE).stdout
        self.assertEqual(text, self.expect(hawser("help"), DONE).stdout)
        listed = re.findall(r"(?<=  )[a-z][a-z-]+(?=  |\n)", text)
        self.assertEqual(sorted(set(COMMANDS)), sorted(set(COMMANDS) & set(listed)))
        self.assertGreater(len(COMMANDS), 20)
        self.assertLessEqual(len(text.splitlines()), 24)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_of_every_command_is_complete(self):
        for command in COMMANDS:
            with self.subTest(command):
                text = self.expect(hawser(command, "--help"), DONE).stdout
                self.assertTrue(text.startswith(f"usage: hawser {command} [OPTIONS]"))
                self.assertEqual(text, self.expect(hawser("help", command), DONE).stdout)
                for heading in ("Options:", "Environment:", "Exit status:", "Examples:"):
                    self.assertIn(f"\n{heading}\n", text)
                self.assertIn("--help", text)
                self.assertEqual([line for line in text.splitlines()[1:] if len(line) > 80], [])
                self.assertIn(f"hawser {command}", text.split("Examples:")[1])
                for code in ("0", "1", "2", "69", "77"):
                    self.assertRegex(text, rf"\n +{code}  \w")

    def test_names_take_hyphens_and_underscores(self):
        for name in ("--master_port", "--master-port"):
            self.expect(hawser("serve", name, "no"), USAGE, "--master_port: 'no'")
        for name in ("--max-clients", "--max_clients"):
            self.expect(hawser("serve", name, "no"), USAGE, "--max-clients: 'no'")

    def test_defaults_are_shown(self):
        self.assertIn("[default: 127.0.0.1:28100]", hawser("serve", "--help").stdout)

    def test_version_names_version_commit_and_protocol(self):
        text = self.expect(hawser("--version"), DONE).stdout
        self.assertRegex(text, r"^hawser \d+\.\d+\.\d+ \(commit \S+, protocol \d+ to \d+, "
                               r"Vulkan 1\.\d+\.\d+\)\n$")


class WrongUsage(Case):
    def test_no_command_prints_the_list_and_fails(self):
        self.expect(hawser(), USAGE, "usage: hawser COMMAND", "serve")

    def test_what_is_quoted_cannot_drive_the_terminal(self):
        result = self.expect(hawser("x\x1b[2J\n\x9b2J"), USAGE)
        self.assertIn("unknown command 'x?[2J???2J'", result.stderr)

    def test_unknown_command_is_named_and_the_nearest_suggested(self):
        for words in (["sreve"], ["help", "sreve"]):
            self.expect(hawser(*words), USAGE, "'sreve'", "did you mean serve?")

    def test_a_command_far_from_all_gets_no_suggestion(self):
        result = self.expect(hawser("quux"), USAGE, "'quux'")
        self.assertNotIn("did you mean", result.stderr)

    def test_unknown_option_is_named_and_the_nearest_suggested(self):
        self.expect(hawser("info", "--jsno"), USAGE, "--jsno", "did you mean --json?")
        self.expect(hawser("serve", "-Z"), USAGE, "-Z")

    def test_a_beginning_is_suggested_whole_and_another_word_is_none(self):
        self.expect(hawser("serve", "--api-key", "x"), USAGE, "did you mean --api-key-file?")
        self.assertNotIn("did you mean", self.expect(hawser("serve", "--port", "1"), USAGE, "--port").stderr)

    def test_what_other_programs_take_in_another_place_is_told_its_own(self):
        self.expect(hawser("serve", "model.gguf"), USAGE, "'model.gguf' (a model is given with --model FILE)")
        self.expect(hawser("gateway", "gpu1:28100"), USAGE, "--servers ADDR")
        for command in ("llm", "chat"):
            self.expect(hawser(command, "model.gguf"), USAGE, "is a model's file, not an address")
            self.expect(hawser(command, "http://127.0.0.1:8000"), USAGE, "serve's --listen")
        self.expect(hawser("serve", "-m", "/nonexistent.gguf", "--no-devices"), FAILED, "cannot open /nonexistent.gguf")

    def test_bad_values_name_option_value_and_accepted_form(self):
        cases = [
            (("serve", "--max-clients", "lots"), "--max-clients", "'lots'", "whole number from 1"),
            (("serve", "--max-clients=0"), "--max-clients", "'0'", "from 1"),
            (("serve", "--window", "12parsecs"), "--window", "'12parsecs'", "a size such as"),
            (("serve", "--window", "1"), "--window", "'1'", "from 64KiB to 1GiB"),
            (("serve", "--heartbeat", "5"), "--heartbeat", "'5'", "a duration such as"),
            (("serve", "--listen", ""), "--listen", "''"),
            (("serve", "--listen", "a,,b"), "--listen", "'a,,b'"),
            (("serve", "--listen", "127.0.0.1:99999"), "99999"),
            (("serve", "--listen", "carrier:pigeon"), "carrier:pigeon"),
            (("serve", "--ready-fd", "1"), "--ready-fd", "'1'"),
            (("serve", "--cert", "x"), "--cert", "--key"),
            (("serve", "--metrics", "unix:/x"), "--metrics", "host:port"),
            (("serve", "--software", "--no-devices"), "--software or --no-devices"),
            (("serve", "--no-devices", "--api-key-file", "x"), "--api-key-file", "give --http"),
            (("chat", "--temperature", "-1"), "--temperature", "'-1'", "from 0 to 100"),
            (("keygen", "x", "--name", "a b"), '"a b"', "neither a host name"),
            (("info", "nonsense:port:"), "nonsense"),
            (("info", "--timeout", "soon"), "--timeout", "'soon'"),
            (("keygen", "x", "--days", "0"), "--days", "'0'"),
            (("bench-rpc", "--reps", "-1"), "--reps", "'-1'"),
            (("bench-rpc", "--only", "nothing-like-it"), "--only", "nothing-like-it"),
            (("pingpong", "--count", "100", "-q", "101"), "--count 100", "--queue-depth 101"),
        ]
        for args, *texts in cases:
            with self.subTest(args):
                self.expect(hawser(*args), USAGE, *texts)

    def test_options_of_a_model_here_do_not_go_with_a_served_one(self):
        given = (("--tokenizer", "x"), ("--phase", "prefill"), ("--backend", "vulkan"), ("--math", "fast"),
                 ("--threads", "1"), ("--context", "8"), ("--prompt_tokens", "8"), ("--deadline", "1s"),
                 ("--return", "logits"), ("--tokens-per-request", "2"), ("--lossy",), ("--evict", "all@1"), ("--trace",))
        for option in given:
            for where in (("127.0.0.1:1",), ("--gpu_host", "127.0.0.1:1"), ()):
                with self.subTest(option=option, where=where):
                    self.expect(hawser("llm", *where, "-p", "x", *option), USAGE,
                                f"{option[0]} goes with --model FILE")

    def test_options_of_a_served_model_do_not_go_with_one_here(self):
        for option in (("--stop", "x"), ("--echo",), ("--stats",)):
            for mode in ("local", "semantic"):
                with self.subTest(option=option, mode=mode):
                    self.expect(hawser("llm", "--model", KJV, "--mode", mode, "--master_port", 1, *option), USAGE,
                                f"{option[0]} goes with a served model")
        self.expect(hawser("llm", "gpu1", "--gpu_host", "gpu2"), USAGE, "ADDR or --gpu_host, not both")

    def test_missing_and_superfluous_arguments(self):
        self.expect(hawser("keygen"), USAGE, "DIR is missing")
        self.expect(hawser("kvctl"), USAGE, ": list|limit|trim|watch is missing")
        self.expect(hawser("run"), USAGE, "-- PROGRAM [ARGUMENT...] is missing")
        self.expect(hawser("serve", "--listen"), USAGE, "--listen needs a value")
        self.expect(hawser("bench-rpc", "extra"), USAGE, "'extra'")
        self.expect(hawser("info", "--json=yes"), USAGE, "--json takes no value")
        self.expect(hawser("serve", *["--listen=127.0.0.1:1"] * 17), USAGE, "at most 16")

    def test_an_address_is_told_as_it_must_be_written(self):
        self.assertIn("cannot reach [::1]:1: ", hawser("info", "[::1]:1").stderr)
        self.assertEqual(hawser("top", "--once", "127.0.0.1:1").stdout.count("127.0.0.1:1"), 1)

    def test_options_end_at_two_dashes(self):
        self.expect(hawser("info", "--", "--json:port"), USAGE, "--json:port")


class Output(Case):
    def test_a_full_disk_is_noticed(self):
        for args in (["--version"], ["--help"], ["serve", "--help"]):
            with self.subTest(args), open("/dev/full", "w") as full:
                self.expect(hawser(*args, stdout=full), FAILED, "cannot write the output")

    def test_a_full_disk_is_told_once_also_by_commands_that_fail(self):
        missing = {"HAWSER_ICD": "/nonexistent", "VENUS_SERVER_PORT": "1"}
        for args, status in ((["top", "--once", "127.0.0.1:1"], UNREACHABLE), (["kvtop", "--once"], FAILED),
                             (["top", "--once", "--json", "127.0.0.1:1"], UNREACHABLE),
                             (["doctor", "--no-bench"], FAILED), (["doctor", "--no-bench", "--json"], FAILED),
                             (["doctor", "--no-bench", "127.0.0.1:1"], UNREACHABLE), (["kvctl", "list"], FAILED),
                             (["help", "--json"], FAILED), (["model", "info", KJV], FAILED)):
            with self.subTest(args), open("/dev/full", "w") as full:
                result = self.expect(hawser(*args, stdout=full, env=missing), status, "cannot write the output")
                self.assertEqual(result.stderr.count("cannot write the output"), 1)

    def test_a_closed_pipe_is_noticed(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "w") as pipe:
            self.expect(hawser("--help", stdout=pipe), FAILED, "cannot write the output")

    def test_a_closed_standard_output_is_noticed(self):
        result = subprocess.run(["sh", "-c", '"$0" --version >&-', HAWSER], stderr=subprocess.PIPE,
                                text=True, timeout=240)
        self.expect(result, FAILED, "cannot write the output")


if __name__ == "__main__":
    unittest.main()
