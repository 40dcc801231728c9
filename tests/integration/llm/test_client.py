"""Clients without a model file: hawser llm ADDR, chat on a terminal and in a pipe, drain, info."""

import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "http"))
from harness import (DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Server,
                     clean_environment, free_port, hawser)
from rig import with_template

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models/kjv.gguf"
PROMPT = "And God said"


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *args, term="xterm", columns=80):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # nohup and a shell's & leave them ignored
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            termios.tcsetwinsize(1, (24, columns))
            os.execve(HAWSER, [HAWSER, *args], clean_environment({"TERM": term}))

    def read_until(self, text):
        """What came up to and with the text."""
        end = time.monotonic() + TIMEOUT
        while text not in self.seen:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {text!r} in {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the end, and no {text!r} in {self.seen!r}") from None
        before, self.seen = self.seen.split(text, 1)
        return before + text

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        status = self.wait()
        os.close(self.fd)
        return status


class Client(Case):
    def setUp(self):
        super().setUp()
        # kvtop shows the servers of this test only.
        self.enterContext(unittest.mock.patch.dict(os.environ, HAWSER_RUNTIME_DIR=str(self.dir / "run")))
        self.server = Server("--listen", "127.0.0.1:0", "--model", MODEL, "--model",
                             f"second={MODEL}", "--threads", 1)
        self.addCleanup(self.server.stop)
        self.address = self.server.addresses[0]
        self.port = self.address.rsplit(":", 1)[1]

    def llm(self, *args, code=DONE, says=(), **kwargs):
        result = hawser("llm", *args, **kwargs)
        self.expect(result, code, *says)
        return result

    def local(self, *args):
        """The continuation that a run with the file prints."""
        out = self.llm("--model", MODEL, "--prompt", PROMPT, "--threads", 1, *args).stdout
        return out.split("\n\nprefill")[0].removeprefix(PROMPT)

    def test_the_text_is_that_of_a_model_in_the_process(self):
        expected = self.local("-n", 24)
        for args in ((self.address,), (self.address, "--model", "second")):
            result = self.llm(*args, "-p", PROMPT, "--max-tokens", 24)
            self.assertEqual(result.stdout, expected + "\n")
            self.assertEqual(result.stderr, "")
        drawn = ("-n", 24, "--temperature", 1, "--top-k", 20, "--seed", 5)
        self.assertEqual(self.llm(self.address, "-p", PROMPT, *drawn).stdout,
                         self.local(*drawn) + "\n")
        self.assertEqual(self.llm(self.address, "-p", PROMPT, "-n", 24, "--echo").stdout,
                         PROMPT + expected + "\n")

    def test_a_server_is_named_by_host_and_port_too(self):
        expected = self.llm(self.address, "-p", PROMPT, "-n", 8).stdout
        for where in (("--gpu_host", self.address), ("--gpu_host", "127.0.0.1", "--master_port", self.port),
                      ("--master_port", self.port), ("localhost", "--master_port", self.port)):
            result = self.llm(*where, "-p", PROMPT, "-n", 8, env={"VENUS_SERVERS": "127.0.0.1:1"})
            self.assertEqual(result.stdout, expected)

    def test_figures_of_a_model_here_are_json_too(self):
        served = json.loads(self.llm(self.address, "-p", PROMPT, "-n", 8, "--json").stderr)
        for mode in ("local", "semantic"):
            run = self.llm("--mode", mode, "--model", MODEL, "--threads", 1, "--master_port", self.port, "-p", PROMPT,
                           "-n", 8, "--json")
            figures = json.loads(run.stderr)
            self.assertEqual(set(served) - set(figures), {"server", "shared_tokens", "ended_by"})
            self.assertEqual((figures["mode"], figures["prompt_tokens"], figures["generated_tokens"]), (mode, 4, 8))
            self.assertEqual(figures["bytes_sent"] > 0, mode == "semantic")
            self.assertEqual(run.stdout.rstrip(), (PROMPT + self.local("-n", 8)).rstrip())

    def test_what_a_model_writes_cannot_drive_the_terminal(self):
        comma, escape = (struct.pack("<Q", len(name)) + name for name in (b",", "\u011b".encode()))
        parts = [part.replace(escape, comma) for part in MODEL.read_bytes().split(comma)]
        path = self.dir / "escapes.gguf"
        path.write_bytes(escape.join(parts))
        server = Server("--listen", "127.0.0.1:0", "--model", path, "--threads", 1)
        self.addCleanup(server.stop)
        for where in (("--model", path, "--threads", "1"), (server.addresses[0],)):
            t = Terminal("llm", *map(str, where), "-p", PROMPT, "-n", "40", "--temperature", "0", term="dumb")
            seen = t.read_until("good work") + t.read_until("LORD")
            t.close()
            self.assertIn("Solomon? I", seen)
            self.assertNotIn("\x1b", seen)
            self.assertIn("\x1b", self.llm(*where, "-p", PROMPT, "-n", 40, "--temperature", 0).stdout)

    def test_a_prompt_comes_from_a_file_or_a_pipe(self):
        expected = self.llm(self.address, "-p", PROMPT, "-n", 8).stdout
        path = self.dir / "prompt"
        path.write_text(PROMPT)
        self.assertEqual(self.llm(self.address, "-f", path, "-n", 8).stdout, expected)
        self.assertEqual(self.llm(self.address, "-n", 8, input=PROMPT).stdout, expected)
        env = {"VENUS_SERVERS": self.address}
        self.assertEqual(self.llm("-f", "-", "-n", 8, input=PROMPT, env=env).stdout, expected)
        env = {"VENUS_SERVERS": f"127.0.0.1:1,{self.address}"}
        second = self.llm("-f", path, "-n", 8, env=env)
        self.assertEqual(second.stdout, expected)
        self.assertIn("cannot reach 127.0.0.1:1", second.stderr)
        here = ("--model", MODEL, "--threads", 1, "-n", 8)
        continued = f"{PROMPT}{expected}"
        self.assertTrue(self.llm(*here, "--file", path).stdout.startswith(continued))
        self.assertTrue(self.llm(*here, "--file", "-", input=PROMPT).stdout.startswith(continued))
        (self.dir / "zero").write_bytes(b"And\0God")
        for args in ((self.address,), here):
            self.llm(*args, "-f", self.dir / "none", code=FAILED, says=["none: No such file"])
            self.llm(*args, "-f", self.dir, code=FAILED, says=["Is a directory"])
            self.llm(*args, "-f", self.dir / "zero", code=FAILED, says=["it is no text"])
            self.llm(*args, "-f", path, "-p", "x", code=USAGE, says=["not both"])

    def test_a_stop_string_is_never_shown(self):
        text = self.llm(self.address, "-p", PROMPT, "-n", 24).stdout
        self.assertIn("this good work", text)
        result = self.llm(self.address, "-p", PROMPT, "-n", 24, "--stop", "od wor", "--json")
        self.assertEqual(result.stdout, text.split("od wor")[0] + "\n")
        figures = json.loads(result.stderr)
        self.assertEqual(figures["ended_by"], "stop string")
        self.assertIn(", I have", text)
        result = self.llm(self.address, "-p", PROMPT, "-n", 24, "--stop", "Zion, to", "--stop", ", I")
        self.assertEqual(result.stdout, text.split(", I")[0] + "\n")
        self.assertEqual(figures["prompt_tokens"], 4)
        self.assertEqual(figures["model"], "kjv")
        stats = self.llm(self.address, "-p", PROMPT, "-n", 24, "--stats").stderr
        self.assertRegex(stats, r"generated  24 tokens[,;].* ended by: length")

    def test_a_rate_stands_for_a_tenth_of_a_second_at_least(self):
        # Of tokens that come together it would tell how they were sent, not how fast the model is.
        for count in (2, 24, 400):
            figures = json.loads(self.llm(self.address, "-p", PROMPT, "-n", count, "--ignore-end", "--json").stderr)
            after_first = figures["total_ms"] - figures["first_token_ms"]
            if figures["tokens_per_second"] is None:
                self.assertTrue(after_first < 100.01 or count < 400, figures)  # fewer may come in one message
            else:
                self.assertGreater(after_first, 99.99, figures)
                self.assertLess(figures["tokens_per_second"] * after_first / 1e3, count, figures)

    def test_errors_name_cause_and_remedy(self):
        self.llm(self.address, "-p", "x", "--model", "third", code=FAILED, says=["'third'", "kjv"])
        result = self.llm(self.address, code=REFUSED, says=["the context has 512"],
                          input="lord " * 3000)
        self.assertEqual(result.stdout, "")
        self.assertLess(len(result.stderr), 200)
        self.llm("127.0.0.1:1", "-p", "x", code=UNREACHABLE, says=["cannot reach"])
        self.llm(env={"VENUS_SERVERS": "127.0.0.1:1"}, code=UNREACHABLE, says=["--model FILE"],
                 input="")
        self.llm(self.address, "--mode", "semantic", code=USAGE, says=["--model FILE is needed"])
        with Server("--listen", "127.0.0.1:0") as other:
            self.llm(other.addresses[0], "-p", "x", code=FAILED, says=["serves no model"])

    def test_a_port_that_hangs_up_may_be_one_for_http(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def hang_up():
                with listener.accept()[0] as client:
                    client.recv(1)

            thread = threading.Thread(target=hang_up)
            thread.start()
            port = listener.getsockname()[1]
            self.expect(hawser("llm", f"127.0.0.1:{port}", "-p", PROMPT), UNREACHABLE,
                        f"127.0.0.1:{port} does not answer as a Hawser server", "--http")
            thread.join()

    def test_a_server_that_dies_is_told_once(self):
        endless = self.dir / "endless.gguf"
        self.expect(hawser("model", "synth", "--like", "tiny", "--context", 65536, "-o", endless), DONE)
        for by_mode in (False, True):
            server = Server("--listen", "127.0.0.1:0", "--model", endless, "--threads", 1)
            self.addCleanup(server.stop)
            address = server.addresses[0]
            where = ["--mode", "semantic", "--model", endless, "--gpu_host", address] if by_mode else [address]
            client = subprocess.Popen([HAWSER, "llm", *where, "-p", "x", "-n", "60000", "--ignore-end"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
            self.assertTrue(client.stdout.read(1))  # of the answer
            server.process.kill()
            errors = client.communicate(timeout=TIMEOUT)[1].decode()
            self.assertEqual(client.returncode, UNREACHABLE, errors)
            self.assertRegex(errors, r"^hawser: llm: .*the worker is gone: .*\n$")
            self.assertEqual(errors.count("vanished"), 1)

    def test_a_text_that_nobody_reads_ends(self):
        endless = self.dir / "endless.gguf"
        self.expect(hawser("model", "synth", "--like", "tiny", "--context", 65536, "-o", endless), DONE)
        server = Server("--listen", "127.0.0.1:0", "--model", endless, "--threads", 1)
        self.addCleanup(server.stop)
        address = server.addresses[0]
        for args, most in ((["llm", address, "-p", "x", "-n", 60000, "--ignore-end", "--json"], 60000),
                           (["chat", address, "--stats"], 65000),
                           (["llm", "--model", endless, "-p", "x", "-n", 60000, "--ignore-end"], None)):
            with self.subTest(args):
                read_end, write_end = os.pipe()
                os.close(read_end)
                with os.fdopen(write_end, "w") as pipe:
                    result = hawser(*args, input="x\nx\n" if args[0] == "chat" else "", stdout=pipe)
                self.expect(result, FAILED, "cannot write the output")
                made = re.findall(r"generated\D+(\d+)", result.stderr)
                self.assertEqual(len(made), 1 if most else 0, result.stderr)  # chat asks no second question
                self.assertTrue(all(int(count) < most for count in made), made)

    def test_a_drained_server_takes_no_texts_until_undone(self):
        self.assertIn("drains: 0 texts", self.expect(hawser("drain", self.address), DONE).stdout)
        self.assertIn("draining", self.expect_info())
        self.llm(self.address, "-p", PROMPT, code=UNREACHABLE, says=["drains"])
        undone = self.expect(hawser("drain", self.address, "--undo"), DONE)
        self.assertIn("again", undone.stdout)
        self.llm(self.address, "-p", PROMPT, "-n", 2)
        self.expect(hawser("drain", "127.0.0.1:1"), UNREACHABLE, "cannot reach")

    def test_info_names_the_models(self):
        out = self.expect_info()
        self.assertRegex(out, r"model\s+kjv \(llama\), context 512")
        self.assertRegex(out, r"model\s+second \(llama\)")

    def expect_info(self):
        result = hawser("info", self.address, "--no-bench")
        self.expect(result, DONE)
        return result.stdout

    def test_chat_answers_each_line_of_a_pipe(self):
        def ask(text, *args):
            result = hawser("chat", self.address, "--temperature", 0, "-n", 8, *args, input=text)
            self.expect(result, DONE)
            self.assertIn("no chat template", result.stderr)
            return result.stdout
        one = ask("And God said\n")
        self.assertEqual(ask("And God said\n/clear \r\nAnd God said\n"), one + one)
        self.assertEqual(ask("/system\tNoah\n/system\r\nAnd God said\n"), one)
        self.assertNotEqual(ask("/system\tNoah\nAnd God said\n"), one)
        self.assertNotEqual(ask("And God said\nAnd God said\n"), one + one)
        told = ask("Let there be\n/clear\nLet there be\n", "--system", PROMPT)  # it stays
        self.assertEqual(told, 2 * self.llm(self.address, "-p", f"{PROMPT}\nLet there be", "-n", 8).stdout)
        self.expect(hawser("chat", self.address, "--system", ""), USAGE, "--system")

    def test_q_and_an_interrupt_end_a_live_screen(self):
        line_by_line = termios.ECHO | termios.ICANON
        for command in (("top", self.address), ("kvtop",)):
            for key, status in (("q", 0), ("\x03", 0 if command == ("kvtop",) else -signal.SIGINT)):
                with self.subTest(command=command, key=key):
                    t = Terminal(*command)
                    t.read_until("q or Ctrl-C quits")
                    t.read_until("kjv" if command[0] == "top" else "group")
                    self.assertEqual(termios.tcgetattr(t.fd)[3] & line_by_line, 0)
                    t.type("x" + key)
                    self.assertEqual(t.wait(), status)
                    self.assertEqual(termios.tcgetattr(t.fd)[3] & line_by_line, line_by_line)
                    os.close(t.fd)

    def test_a_signal_that_ends_a_command_gives_the_terminal_back(self):
        ends = pty.openpty()  # nobody changes this one
        before = termios.tcgetattr(ends[1])
        for end in ends:
            os.close(end)
        for command, shows in ((("top", self.address), "kjv"), (("kvtop",), "group"),
                               (("chat", self.address), "\x1b[?2004h\r> ")):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                with self.subTest(command=command, signal=number):
                    t = Terminal(*command)
                    t.read_until(shows)
                    self.assertEqual(termios.tcgetattr(t.fd)[3] & termios.ICANON, 0)
                    os.kill(t.pid, number)
                    caught = command == ("kvtop",) and number == signal.SIGTERM
                    self.assertEqual(t.wait(), 0 if caught else -number)
                    self.assertEqual(termios.tcgetattr(t.fd), before)
                    t.read_until("\x1b[?7h" if caught else "\x1b[?2004l")
                    os.close(t.fd)

    def test_a_live_screen_cuts_long_lines_while_it_draws(self):
        t = Terminal("top", self.address)
        look = t.read_until("\x1b[?7h")
        self.assertTrue(look.startswith("\x1b[?7l\x1b[H\x1b[J"), look)
        t.type("q")
        self.assertEqual(t.close(), 0)

    def test_a_live_screen_fits_its_terminal(self):
        for command, columns, wide in ((["top", self.address], 80, "GPU time: not measured"),
                                       (["kvtop"], 80, " limit "), (["kvtop"], 120, ", free ")):
            with self.subTest(command=command, columns=columns):
                t = Terminal(*command, columns=columns)
                t.read_until("quits")
                look = t.read_until("\x1b[?7h")
                self.assertIn(wide, look)
                self.assertLessEqual(max(map(len, look.replace("\x1b[?7h", "").splitlines())), columns, look)
                t.type("q")
                self.assertEqual(t.close(), 0)

    def test_what_a_server_says_does_not_drive_the_terminal(self):
        with socket.create_server(("127.0.0.1", 0)) as gateway:
            def answer():
                with gateway.accept()[0] as connection:
                    connection.recv(65536)
                    body = json.dumps({"workers": [{"address": "a\x1b[2J\u009b2J\u00e9", "state": "up"}]})
                    connection.sendall(f"HTTP/1.0 200 OK\r\n\r\n{body}".encode())
            thread = threading.Thread(target=answer)
            thread.start()
            shown = hawser("top", "--once", f"http://127.0.0.1:{gateway.getsockname()[1]}").stdout
            thread.join()
        self.assertRegex(shown, r"(?m)^  a\?\[2J\?\?2J\u00e9 {16,18}up ")

    def test_a_dumb_terminal_gets_plain_lines(self):
        t = Terminal("top", self.address, term="dumb")
        self.assertNotIn("\x1b", t.read_until("kjv") + t.read_until("kjv"))
        t.type("\x03")
        self.assertEqual(t.close(), -signal.SIGINT)
        t = Terminal("chat", self.address, "--temperature", "0", "-n", "6", term="dumb")
        seen = t.read_until("> ")
        t.type("And God said\n")
        t.read_until("\n")
        seen += t.read_until("> ")
        self.assertIn("to Solomon", seen)
        self.assertNotIn("\x1b", seen)
        t.type("\x04")
        self.assertEqual(t.close(), 0)

    def test_chat_on_a_terminal(self):
        t = Terminal("chat", self.address, "--temperature", "0", "-n", "6")
        t.read_until("/help lists commands")
        t.read_until("> ")
        t.type("And Gox\x7fd sai\x1b[D\x1b[D\x1b[D\x01!\x04\x05d\r")  # ends as: !nd God said
        t.read_until("\r\n")
        first = t.read_until("> ")
        t.type("/stats\r")
        t.read_until("generated  6 tokens")
        t.read_until("> ")
        t.type("/claer\r")
        t.read_until("there is no command /claer")
        t.read_until("> ")
        t.type("/clear \r")
        self.assertNotIn("there is no command", t.read_until("> "))
        t.type("\x1b[A\x1b[A\x1b[A\x1b[A")  # up to the first line
        t.read_until("!nd God said")
        t.type("\r")
        t.read_until("\r\n")
        again = t.read_until("> ")
        self.assertEqual(strip(first), strip(again))
        t.type("half a li\x03")
        t.read_until("/quit or Ctrl-D leaves")
        t.read_until("> ")  # the editor reads keys again
        t.type("\x04")
        self.assertEqual(t.close(), DONE)

    def test_the_cursor_stands_where_a_wide_character_ends(self):
        t = Terminal("chat", self.address, columns=10)
        t.read_until("/help lists commands")
        t.read_until("> ")
        t.type("日本e\u0301")  # two that take two columns, and an accent
        t.read_until("\r> 日本e\u0301\x1b[K\r\x1b[7C")
        t.type("\x02\x02")  # before the e
        t.read_until("\x1b[K\r\x1b[6C")
        t.type("\x05語漢")  # seven columns hold text: the first two do not fit
        t.read_until("\r> e\u0301語漢\x1b[K\r\x1b[7C")
        t.type("\x15\x04")
        self.assertEqual(t.close(), DONE)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        t = Terminal("chat", self.address, "--temperature", "1")
        t.read_until("> ")
        t.type("In the beginning\r")
        t.read_until("\r\n")
        t.read_until(" ")  # of the answer
        t.type("\x03")
        t.read_until("> ")
        t.type("/quit\r")
        self.assertEqual(t.close(), DONE)


class Reasoning(Case):
    def test_chat_shows_reasoning_on_a_terminal_only(self):
        template = "{{ messages[-1].content }}{% if messages[-1].content != 'b' %}<think>{% else %}</think>{% endif %}"
        server = Server("--listen", "127.0.0.1:0", "--model", with_template(self.dir, template), "--threads", 1)
        self.addCleanup(server.stop)
        address = server.addresses[0]
        result = hawser("chat", address, "--temperature", 0, "-n", 8, input="And God said\nb\n")
        self.expect(result, DONE)
        thought, said = result.stdout[0], result.stdout[1:]
        self.assertEqual(thought, "\n", "all of the first answer is reasoning")
        self.assertGreater(len(said), 2)
        t = Terminal("chat", address, "--temperature", "0", "-n", "8")
        t.read_until("> ")
        t.type("And God said\r")
        t.read_until("\r\n")
        self.assertRegex(t.read_until("> "), r"\x1b\[2m[^\x1b]+\x1b\[0m")
        t.type("\x04")
        self.assertEqual(t.close(), DONE)


class Template(Case):
    def test_chat_takes_the_template_of_the_model_that_answers_now(self):
        port = free_port()
        args = ("--listen", f"127.0.0.1:{port}", "--threads", 1, "--model")
        models = (with_template(self.dir, "{{ 'And God said' }}"), MODEL)
        t, answers = None, []

        def ask(line):
            t.type(line + "\r")
            t.read_until(line + "\x1b[K")
            t.read_until("\r\n")
            return t.read_until("> ")

        for model in (*models, *models):
            with Server(*args, model):
                if not t:
                    t = Terminal("chat", f"127.0.0.1:{port}", "--temperature", "0", "-n", "8")
                    t.read_until("> ")
                ask("/clear")
                while "hawser: " in (answer := ask("The word")):
                    pass  # it did not know yet that the old server is gone
                answers.append(strip(answer).split("plain text")[-1])
        self.assertEqual(answers[:2], answers[2:])
        self.assertNotEqual(answers[0], answers[1])
        t.type("\x04")
        self.assertEqual(t.close(), DONE)


def strip(text):
    return re.sub(r"\x1b\[[0-9?]*[A-Za-z]|[\r\n]", "", text)


if __name__ == "__main__":
    unittest.main()
