"""What the CLI tests share: the program, bounded waits, servers that always end.

The program's path is in HAWSER.  Tests wait for conditions (a line, an exit), never for time;
TIMEOUT only bounds how long a failure takes.
"""

import itertools
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


class CuttingRelay:
    """Carries connections to an address, and cuts each after so many bytes, both ways together."""

    def __init__(self, address, cut_after):
        host, port = address.rsplit(":", 1)
        self.target, self.cut_after, self.cuts = (host, int(port)), itertools.cycle(cut_after), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "%s:%d" % self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
                far = socket.create_connection(self.target)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                near.close()
                continue
            left, lock = [next(self.cut_after)], threading.Lock()
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(*ends, left, lock), daemon=True).start()

    def carry(self, source, sink, left, lock):
        try:
            while data := source.recv(1 << 16):
                with lock:
                    data, before = data[:left[0]], left[0]
                    left[0] -= len(data)
                    self.cuts += before > 0 and left[0] == 0
                sink.sendall(data)
                if left[0] == 0:
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


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
