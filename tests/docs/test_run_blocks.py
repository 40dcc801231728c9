"""run_blocks.py itself: what it runs, refuses, compares and ends."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_blocks  # noqa: E402

SCRIPT = pathlib.Path(run_blocks.__file__)
# Stands in for the program: a server that says it is ready, and leaves its process id.
PROGRAM = """#!/bin/sh
case $1 in
serve) echo $$ >"$2"; echo "listening on here"; exec tail -f /dev/null ;;
mute) exit 1 ;;
*) echo "ran $*" ;;
esac
"""


def sh(text, directive=""):
    return f"{directive}\n```sh\n{text}\n```\n"


def text(expected, directive="<!-- test: output -->"):
    return f"{directive}\n```text\n{expected}\n```\n"


def is_running(pid):
    """A process that ended may wait for its parent, who is not ours, to take notice of it."""
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.mark = self.dir / "mark"  # blocks name it $MARK, since paths in them are replaced
        self.program = self.dir / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def run_page(self, *parts):
        page = self.dir / "page.md"
        page.write_text("# Page\n\n" + "\n".join(parts))
        return subprocess.run([sys.executable, "-B", SCRIPT, "--hawser", self.program, page], text=True,
                              env=dict(os.environ, MARK=str(self.mark)), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)

    def passes(self, *parts):
        result = self.run_page(*parts)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    def fails(self, *parts):
        result = self.run_page(*parts)
        self.assertEqual(result.returncode, 1, result.stdout)
        return result.stdout

    def test_a_block_that_succeeds(self):
        self.assertIn("1 blocks run, 0 outputs compared, 0 skipped, 0 failed", self.passes(sh("hawser info")))

    def test_a_block_that_fails(self):
        self.assertIn("page.md:4: status 1, expected 0", self.fails(sh("false")))

    def test_a_failure_before_the_last_command(self):
        self.fails(sh("false\ntrue"))

    def test_blocks_after_a_failure_are_not_run(self):
        self.fails(sh("false"), sh(': >"$MARK"'))
        self.assertFalse(self.mark.exists())

    def test_another_status(self):
        self.passes(sh("exit 69", "<!-- test: status 69 -->"), sh("true"))
        self.fails(sh("true", "<!-- test: status 69 -->"))

    def test_skipped_blocks_are_counted_with_their_reason(self):
        output = self.passes(sh("true"), sh("false", "<!-- test: skip, needs a second machine -->"),
                             text("never compared"))
        self.assertIn("page.md:9: needs a second machine", output)
        self.assertIn("1 blocks run, 0 outputs compared, 1 skipped", output)

    def test_a_program_that_is_not_there(self):
        self.assertIn("no nosuch-program here",
                      self.passes(sh("true"), sh("false", "<!-- test: needs nosuch-program -->")))
        self.fails(sh("false", "<!-- test: needs sh -->"))

    def test_nothing_run_is_not_a_success(self):
        self.assertEqual(self.run_page(sh("true", "<!-- test: skip, all of it -->")).returncode, 77)

    def test_output_is_compared(self):
        self.passes(sh("hawser info"), text("ran info"))
        self.assertIn("the output differs", self.fails(sh("hawser info"), text("ran other")))

    def test_variables_and_folder_carry_over(self):
        self.passes(sh("a='x y'\nmkdir sub; cd sub"), sh('echo "$a $(basename "$PWD")"'), text("x y sub"))

    def test_servers_get_ready_and_are_ended(self):
        self.passes(sh('hawser serve "$MARK" &'), sh('kill -0 "$(cat "$MARK")"'))
        self.assertFalse(is_running(self.mark.read_text().strip()))

    def test_a_server_that_does_not_get_ready(self):
        self.program.write_text(PROGRAM.replace("listening on here", "no").replace("exec tail", ": tail"))
        self.assertIn("a server did not get ready", self.fails(sh('hawser serve "$MARK" &')))

    def test_files_and_places(self):
        self.passes("<!-- test: file a.ini -->\n```ini\nport = 28100\n```\n",
                    sh("! grep 281'00' a.ini\ncat a.ini"), text("port = 28100"))

    def test_own_home(self):
        self.passes(sh(f'[ "$HOME" != "{os.environ.get("HOME", "")}" ] && touch "$HOME/x"'))

    def test_pages_that_break_the_conventions(self):
        for part in ("```\ntrue\n```\n", sh("true", "<!-- test: maybe -->"), sh("true", "<!-- test: skip -->"),
                     sh("true", "<!-- test: output -->"), "```sh\ntrue\n",
                     "<!-- test: output -->\nwords\n"):
            with self.subTest(part):
                self.fails(sh("true"), part)


class Matching(unittest.TestCase):
    def check(self, expected, actual, answer, loose=False):
        self.assertEqual(run_blocks.matches(expected, actual, loose), answer, (expected, actual))

    def test_exact(self):
        self.check("a\nb\n", "a\nb\n", True)
        self.check("a\nb\n", "a\nb\nc\n", False)
        self.check("a.c\n", "abc\n", False)

    def test_left_out(self):
        self.check("a\n...\nd\n", "a\nb\nc\nd\n", True)
        self.check("a\n...\nd\n", "a\nd\n", True)
        self.check("a\n...\nd\n", "a\nb\n", False)
        self.check("rate ... tok/s\n", "rate 12.5 tok/s\n", True)
        self.check("rate ... tok/s\n", "rate 12.5 B/s\n", False)

    def test_shape(self):
        self.check("p50 12.5 us  x\n", "p50 7 us      x\n", True, loose=True)
        self.check("p50 12.5 us\n", "p50 none us\n", False, loose=True)
        self.check("p50 12.5 us\n", "p50 7 us\n", False)


if __name__ == "__main__":
    unittest.main()
