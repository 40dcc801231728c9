"""The upload cache: what a program sends again, through a relay that counts."""

import contextlib
import ctypes
import os
import pathlib
import pty
import re
import subprocess

import support
from support import HAWSER, PROGRAMS, TIMEOUT, GpuCase, GpuServer, Relay, clean_environment

PROGRAM = pathlib.Path(os.environ["VKT_PROGRAMS"], "vkt-uploads")
CASE = "staged"
PATTERNS = 3 * (2 << 20)  # bytes that the case uploads, each several times


LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1


def has_landlock():
    """Without it a session may write what its user may."""
    return ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION) >= 1


def read_all(fd):
    """A terminal whose other side is closed is an error."""
    said = b""
    with open(fd, "rb", buffering=0) as stream, contextlib.suppress(OSError):
        while part := stream.read(4096):
            said += part
    return said


class Uploads(GpuCase):
    def serve_tcp(self, *args, **kwargs):
        server = GpuServer(self.dir / "server.log", "--listen", "127.0.0.1:0", *args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def run_case(self, server, **env):
        """What the program printed, what it sent, and what the driver said."""
        relay = Relay(self, server.addresses[0])
        done = subprocess.run([HAWSER, "run", "--servers", relay.address, "--", PROGRAM, CASE],
                              env=clean_environment({"VENUS_UPLOAD_CACHE": "1"} | env),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        server.wait_sessions(0)  # what it uploaded is kept
        return done.stdout, relay.up, done.stderr

    def test_a_second_run_sends_next_to_nothing(self):
        """And a session that somebody has taken over cannot change that."""
        server = self.serve_tcp(env={"LD_PRELOAD": PROGRAMS / "libvenus-intruder.so"})
        first, sent, _ = self.run_case(server)
        again, sent_again, _ = self.run_case(server)
        self.assertEqual(first, again)
        self.assertGreater(sent, PATTERNS)
        self.assertLess(sent_again, sent / 20)
        tried = re.findall("intruder: (.*): (.*)", server.log())
        self.assertGreaterEqual(len(tried), 8, server.log())
        if has_landlock():
            self.assertEqual([what for what, outcome in tried if outcome == "DONE"], [])

    def test_a_folder_serves_the_next_server(self):
        cache = self.dir / "cache"
        server = self.serve_tcp("--upload-cache-dir", cache)
        first, sent, _ = self.run_case(server)
        server.stop()
        again, sent_again, _ = self.run_case(self.serve_tcp("--upload-cache-dir", cache))
        self.assertEqual(first, again)
        self.assertLess(sent_again, sent / 20)

    def test_either_side_turns_it_off(self):
        off = self.serve_tcp("--upload-cache", "0")
        first, _, _ = self.run_case(off)
        again, sent, _ = self.run_case(off)
        self.assertEqual(first, again)
        self.assertGreater(sent, PATTERNS)
        on = self.serve_tcp()
        self.run_case(on)
        for env in ({"VENUS_PERF": "no_upload_cache"}, {"VENUS_UPLOAD_CACHE": "0"}):
            again, sent, _ = self.run_case(on, **env)
            self.assertEqual(first, again)
            self.assertGreater(sent, PATTERNS)

    def test_progress_is_for_a_terminal_that_asks(self):
        """On a line that takes some seconds; the line is erased."""
        server = self.serve_tcp("--upload-cache", "0")
        said = {}
        for where in ("terminal", "pipe"):
            relay = Relay(self, server.addresses[0], delay=0.01)
            read, write = pty.openpty() if where == "terminal" else os.pipe()
            with subprocess.Popen([HAWSER, "run", "--servers", relay.address, "--progress", "--", PROGRAM, CASE],
                                  env=clean_environment({"VENUS_UPLOAD_STRIPES": "0"}), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=write) as program:
                os.close(write)
                said[where] = read_all(read)
                self.assertEqual(program.wait(TIMEOUT), 0, said[where])
        self.assertEqual(said["pipe"], b"")
        self.assertRegex(said["terminal"], rb"^\r.*MiB sent to the GPU +\d+ +\d+s")
        self.assertRegex(said["terminal"], rb"\r\x1b\[K$")

    def test_an_unknown_switch_is_named(self):
        _, _, said = self.run_case(self.serve_tcp(), VENUS_PERF="no_such,no_upload_cache")
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn("VENUS_PERF: 'no_such' is unknown", said)

    def test_a_folder_that_cannot_be_used_is_refused(self):
        shared = self.dir / "open"
        shared.mkdir()
        shared.chmod(0o755)
        done = subprocess.run([HAWSER, "serve", "--no-devices", "--listen", f"unix:{self.dir}/x",
                               "--upload-cache-dir", shared], env=clean_environment({}),
                              capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--upload-cache-dir", done.stderr)
        self.assertIn("0700", done.stderr)


if __name__ == "__main__":
    support.main()
