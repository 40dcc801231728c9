"""What the CLI tests share: the program, bounded waits, servers that always end.

The program's path is in HAWSER.  Tests wait for conditions (a line, an exit), never for time;
TIMEOUT only bounds how long a failure takes.
"""

import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

HAWSER = os.environ["HAWSER"]
TIMEOUT = 240

DONE, FAILED, USAGE, UNREACHABLE, REFUSED = 0, 1, 2, 69, 77


def clean_environment(extra=None):
    """Without what a developer's shell may carry."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("VENUS_")}
    env.update(extra or {})
    return env


def hawser(*args, env=None, leaks=False, **kwargs):
    """Runs to the end; stdout and stderr as text.

    In a sanitizer build looking for leaks takes seconds a process, so servers do it and a few
    runs of each command, not all of them.
    """
    kwargs.setdefault("stdout", subprocess.PIPE)
    if not leaks:
        env = {"ASAN_OPTIONS": "detect_leaks=0", **(env or {})}
    return subprocess.run([HAWSER, *map(str, args)], stderr=subprocess.PIPE, text=True,
                          timeout=TIMEOUT, env=clean_environment(env), **kwargs)


CLAIMS = []  # of this process, until it ends


def free_port():
    """For a server that is told its port; no other test is given it, before the server is up either.
    Below the ports that the kernel gives to callers: one who looks for the server before it is up might
    be given that very port."""
    for port in range(15000 + os.getpid() % 16000, 32768):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0hawser-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        CLAIMS.append(claim)
        return port
    raise AssertionError("no free port")


def lines_of(fd):
    """Yields lines as they come; fails when none comes in time."""
    buffered = b""
    while True:
        while b"\n" in buffered:
            line, buffered = buffered.split(b"\n", 1)
            yield line.decode()
        ready, _, _ = select.select([fd], [], [], TIMEOUT)
        if not ready:
            raise AssertionError(f"no line within {TIMEOUT} s")
        chunk = os.read(fd, 65536)
        if not chunk:
            return
        buffered += chunk


class Server:
    """hawser serve, ready when the constructor returns."""

    def __init__(self, *args, env=None, devices=False, program=(HAWSER,), **kwargs):
        command = [*program, "serve", *map(str, args)]
        if not devices:
            command.append("--no-devices")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=clean_environment(env), **kwargs)
        self.lines = []
        for line in lines_of(self.process.stdout.fileno()):
            self.lines.append(line)
            if line.startswith("listening on "):
                self.addresses = line.removeprefix("listening on ").split(", ")
                return
        _, stderr = self.process.communicate(timeout=TIMEOUT)
        raise AssertionError(f"serve ended with {self.process.returncode}: {stderr.decode()}")

    def stop(self, signal_number=15):
        """The exit status and what it said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            _, stderr = self.process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, stderr.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Relay:
    """Carries connections to an address until the test ends.  Each is cut after so many bytes, both ways together.
    Every piece of 64 KiB is late by the delay, which bounds the rate, too.  Those in silent, by their number, are
    taken and go nowhere."""

    def __init__(self, test, address, cut_after=(), at="127.0.0.1", delay=0.0, silent=()):
        host, _, port = address.rpartition(":")
        self.test = test
        self.target, self.delay = (host, int(port)), delay
        self.cut_after = iter(cut_after)  # of one connection after the other; then they hold
        self.cuts = self.up = 0  # connections that were cut; bytes from the side that connected
        self.closed = False  # new ones, too
        self.silent, self.taken = silent, 0
        self.pairs, self.lock, self.never = set(), threading.Lock(), threading.Event()
        self.listener = socket.create_server((at, 0))
        self.address = f"{at}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        test.addCleanup(self.listener.close)
        test.addCleanup(self.cut)
        test.addCleanup(self.listener.shutdown, socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            self.taken += 1
            if self.taken - 1 in self.silent:
                self.test.addCleanup(near.close)
                continue
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            pair = (near, far)
            for end in pair:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            state = {"left": next(self.cut_after, None), "ways": 2}
            with self.lock:
                self.pairs.add(pair)
            if self.closed:
                self._end(pair)
                continue
            for here, there in (pair, pair[::-1]):
                threading.Thread(target=self._carry, args=(here, there, pair, state), daemon=True).start()

    def _carry(self, here, there, pair, state):
        try:
            while data := here.recv(1 << 16):
                with self.lock:
                    if state["left"] is not None:
                        data = data[:state["left"]]
                        state["left"] -= len(data)
                    self.up += len(data) if here is pair[0] else 0
                if self.delay:
                    self.never.wait(self.delay)
                there.sendall(data)
                if state["left"] == 0:
                    break
            else:  # the end of one way; the other may still have something to say
                with self.lock:
                    state["ways"] -= 1
                if state["ways"]:
                    there.shutdown(socket.SHUT_WR)
                    return
        except OSError:
            pass
        if self._end(pair) and state["left"] == 0:
            self.cuts += 1

    def _end(self, pair):
        with self.lock:
            if pair not in self.pairs:
                return False
            self.pairs.discard(pair)
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
        return True

    def cut(self):
        """All there are."""
        for pair in list(self.pairs):
            self.cuts += self._end(pair)


class Case(unittest.TestCase):
    def setUp(self):
        # Short: a Unix socket's path has 107 characters.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="hawser-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def expect(self, result, code, *texts):
        """The exit status, and texts that standard error must hold."""
        self.assertEqual(result.returncode, code, result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)
        return result

    def keys(self, *names, **kwargs):
        """A folder with certificate, key and token, and the fingerprint."""
        folder = self.dir / "keys"
        args = [a for n in names or ("127.0.0.1", "localhost") for a in ("--name", n)]
        result = self.expect(hawser("keygen", folder, *args, **kwargs), DONE)
        return folder, re.search(r"fingerprint ([0-9a-fA-F:]{64,})", result.stdout).group(1)

    def info_json(self, *args, env=None):
        result = self.expect(hawser("info", *args, "--json", "--duration", "20ms", env=env,
                                    leaks=True), DONE)
        return json.loads(result.stdout)
