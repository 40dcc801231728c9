"""What the tests of remote programs share: GPU servers, their sessions, programs that talk.

Tests wait for lines, exits and processes, never for time.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
# pylint: disable=wrong-import-position,unused-import
from harness import HAWSER, TIMEOUT, Case, Relay, clean_environment, hawser, lines_of  # noqa: E402,F401

os.environ.setdefault("HAWSER_SOFTGPU_DIR", os.environ["TEST_SOFTGPU_DIR"])
SKIPPED = 77
PROGRAMS = pathlib.Path(os.environ["VENUS_PROGRAMS"])
ICD = os.environ["HAWSER_ICD"]
STEP = 0.01  # seconds between two looks


def main():
    """Runs the tests of the calling module; skipped where there is no GPU to serve."""
    found = subprocess.run([os.environ["HAWSER_FIND_VULKAN"], "--software", "--env"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                           check=False)
    if found.returncode == 1:
        print("no software Vulkan driver here:", found.stderr.strip())
        sys.exit(SKIPPED)
    unittest.main()


def until(condition, what):
    """Looks again and again at what gives no sign when it changes: logs, others' children."""
    never = threading.Event()
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {TIMEOUT} s: {what}")
        never.wait(STEP)


def children(pid):
    try:
        return [int(word) for word in
                pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def name_of(pid):
    """Of its first thread, which names the process; a process that has ended keeps it until then."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_running(pid):
    """Whether a process's first thread is there; others may outlive it by a moment."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class GpuServer:
    """hawser serve on the software GPU; what it says goes to a file that can be read meanwhile."""

    def __init__(self, log, *args, prefix=(), env=None):
        self.log_path = pathlib.Path(log)
        with open(self.log_path, "ab") as said:
            self.process = subprocess.Popen(
                [*prefix, HAWSER, "serve", "--software", *map(str, args)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=said, env=clean_environment(env))
        for line in lines_of(self.process.stdout.fileno()):
            if line.startswith("listening on "):
                self.addresses = line.removeprefix("listening on ").split(", ")
                return
        self.stop()
        raise AssertionError(f"serve ended with {self.process.returncode}: {self.log()}")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def sessions(self):
        """Those the server still counts: it has not seen the whole process end."""
        return [pid for pid in children(self.process.pid) if name_of(pid) == "hawser-session"]

    def signal_sessions(self, number):
        pids = self.sessions()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def wait_sessions(self, count):
        until(lambda: len(self.sessions()) == count, f"{count} sessions, not {self.sessions()}")

    def stop(self, signal_number=signal.SIGTERM):
        self.signal_sessions(signal.SIGCONT)
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.stdout.close()
        return self.process.returncode, self.log()


def start_helper(test, name, *args):
    """A server of the tests' own, listening when this returns; killed after the test."""
    process = subprocess.Popen([PROGRAMS / f"venus-{name}", *map(str, args)],
                               stdout=subprocess.PIPE)
    test.addCleanup(process.stdout.close)
    test.addCleanup(process.wait)
    test.addCleanup(process.kill)
    test.assertIn("listening on ", next(lines_of(process.stdout.fileno()), "nothing said"))
    return process


class Program:
    """A program with the remote driver, that talks in lines."""

    def __init__(self, test, name, *args, servers, env=None, prefix=()):
        self.name = " ".join([name, *args])
        environment = {"VK_DRIVER_FILES": ICD, "VK_ICD_FILENAMES": ICD,
                       "VENUS_SERVERS": ",".join(servers), **(env or {})}
        self.error_path = test.dir / f"{name}-{'-'.join(args)}-{time.monotonic_ns()}.err"
        with open(self.error_path, "wb") as errors:
            self.process = subprocess.Popen(
                [*prefix, PROGRAMS / f"venus-{name}", *args], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, env=clean_environment(environment))
        self.lines = lines_of(self.process.stdout.fileno())
        test.addCleanup(self.end)

    def errors(self):
        return self.error_path.read_text(errors="replace")

    def next_line(self):
        try:
            return next(self.lines, None)
        except AssertionError as late:
            raise AssertionError(f"{self.name}: {late}\n{self.errors()}") from None

    def expect(self, line):
        said = self.next_line()
        if said != line:
            raise AssertionError(f"{self.name} says {said!r}, not {line!r}\n{self.errors()}")

    def say(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def wait(self):
        """The exit status."""
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end\n{self.errors()}") from None

    def expect_done(self):
        status = self.wait()
        if status != 0:
            raise AssertionError(f"{self.name} ended with {status}\n{self.errors()}")

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class GpuCase(Case):
    scheme = "unix"

    def serve(self, name="s", *args, **kwargs):
        """A server on this host, stopped after the test."""
        server = GpuServer(self.dir / f"{name}.log", "--listen", f"{self.scheme}:{self.dir}/{name}",
                           *args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def program(self, name, *args, servers, **kwargs):
        addresses = [address for server in servers for address in server.addresses[:1]]
        return Program(self, name, *args, servers=addresses, **kwargs)

    def run_program(self, name, *args, **kwargs):
        """To its end, which must be 0; what it said."""
        program = self.program(name, *args, **kwargs)
        lines = list(iter(program.next_line, None))
        program.expect_done()
        return lines
