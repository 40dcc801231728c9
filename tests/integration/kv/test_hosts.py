"""A KV cluster on three hosts: network namespaces with addresses of their own, TLS and a token, one of them behind a
relay that delays; hosts are cut off, daemons stopped and killed under transfers.

The test runs in a namespace of its own, which is the switch between the hosts.  All namespaces have no names, so they
vanish with their processes."""

import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, HAWSER, TIMEOUT, Case, clean_environment, lines_of

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models" / "kjv.gguf"
NET, PORT, RELAY, DELAY = "10.119.0", 28260, 9, 0.003
INSIDE = "HAWSER_TEST_SWITCH"  # set in the namespace that is the switch
TOKENS = 320  # of a prompt
PROMPT_BLOCKS = 2 * TOKENS // 64 * 6  # two copies of each chunk of each layer
QUIET = {"ASAN_OPTIONS": "detect_leaks=0"}


def run(*command):
    subprocess.run([*map(str, command)], check=True, timeout=TIMEOUT, capture_output=True)


class Relay:
    """Passes connections on, each piece DELAY later; every way has a thread that reads and one that writes."""

    def __init__(self, listen, target):
        self.target, self.server = target, socket.create_server(listen)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.server.accept()
            try:
                far = socket.create_connection(self.target, TIMEOUT)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for source, sink in ((near, far), (far, near)):
                pieces = queue.Queue()
                threading.Thread(target=self.read, args=(source, pieces), daemon=True).start()
                threading.Thread(target=self.write, args=(sink, source, pieces), daemon=True).start()

    @staticmethod
    def read(source, pieces):
        data = b"x"
        while data:
            try:
                data = source.recv(1 << 18)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + DELAY, data))

    @staticmethod
    def write(sink, source, pieces):
        while True:
            due, data = pieces.get()
            threading.Event().wait(max(0, due - time.monotonic()))  # the delay itself
            try:
                if data:
                    sink.sendall(data)
                    continue
                sink.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            return source.close()


class Host:
    """A namespace that is connected to the switch, and what runs in it."""

    def __init__(self, case, number):
        self.case, self.number, self.name, self.daemon = case, number, "abc"[number - 1], None
        self.socket = case.dir / f"{self.name}.sock"
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        case.addCleanup(self.end)
        next(lines_of(self.holder.stdout.fileno()))
        self.enter = ["nsenter", "-t", str(self.holder.pid), "-n"]
        run("ip", "link", "add", f"h{number}", "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        run("ip", "link", "set", f"h{number}", "master", "switch", "up")
        run(*self.enter, "ip", "addr", "add", f"{NET}.{number}/24", "dev", "eth0")
        run(*self.enter, "ip", "link", "set", "eth0", "up")
        run(*self.enter, "ip", "link", "set", "lo", "up")

    def start(self):
        """The daemon.  Others reach c through the relay, c itself listens at its own address."""
        members = f"a={NET}.1:{PORT},b={NET}.2:{PORT},c={NET}.{3 if self.name == 'c' else RELAY}:{PORT}"
        keys = self.case.folder
        self.daemon = subprocess.Popen(
            [*self.enter, HAWSER, "kvd", "--members", members, "--name", self.name, "--socket", self.socket,
             "--blocks", "64MiB", "--copies", "2", "--heartbeat", "2s", "--cert", keys / "server.crt", "--key",
             keys / "server.key", "--ca", keys / "server.crt", "--token-file", keys / "token"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment(QUIET))
        self.case.assertIn(f"member {self.name}", next(lines_of(self.daemon.stdout.fileno()), ""))

    def signal(self, number):
        self.daemon.send_signal(number)

    def kill(self):
        self.daemon.kill()
        self.daemon.wait(TIMEOUT)
        self.daemon.stdout.close()
        self.daemon = None

    def link(self, state):
        run("ip", "link", "set", f"h{self.number}", state)

    def hawser(self, *args, **kwargs):
        return subprocess.run([*self.enter, HAWSER, *map(str, args)], capture_output=True, timeout=TIMEOUT,
                              env=clean_environment(QUIET), **kwargs)

    def put(self, name, value):
        return self.hawser("kv", "--socket", self.socket, "put", name, input=value).returncode == DONE

    def get(self, name):
        """The value, or None: a miss or a failure, which must not be mistaken for a value."""
        result = self.hawser("kv", "--socket", self.socket, "--timeout", "2s", "get", name)
        return result.stdout if result.returncode == DONE else None

    def end(self):
        if self.daemon:
            self.signal(signal.SIGCONT)
            self.kill()
        self.holder.communicate(timeout=TIMEOUT)


def value_of(name, size=1 << 20):
    return (name.encode() * (size // len(name) + 1))[:size]


class Hosts(Case):
    def setUp(self):
        super().setUp()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "addr", "add", f"{NET}.{RELAY}/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
        self.folder, _ = self.keys(*(f"{NET}.{n}" for n in (1, 2, 3, RELAY)))
        self.hosts = [Host(self, n) for n in (1, 2, 3)]
        Relay((f"{NET}.{RELAY}", PORT), (f"{NET}.3", PORT))
        for host in self.hosts:
            host.start()

    def until(self, condition, what):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end, what)

    def everywhere(self, names, hosts):
        """Every host reads every value, sooner or later, and never another one."""
        for host in hosts:
            for name in names:
                def right():
                    got = host.get(name)
                    self.assertIn(got, (None, value_of(name)), f"{host.name} reads other bytes for {name}")
                    return got is not None
                self.until(right, f"{host.name} does not read {name}")

    def put_under(self, host, names, event):
        """Puts values while the event happens; those that were taken."""
        taken = []
        thread = threading.Thread(target=lambda: taken.extend(n for n in names if host.put(n, value_of(n))))
        thread.start()
        event()
        thread.join(TIMEOUT)
        self.assertFalse(thread.is_alive())
        return taken

    def test_hosts_are_cut_off_stopped_and_killed(self):
        a, b, c = self.hosts
        names = [f"value {i}" for i in range(6)]
        self.until(lambda: a.put(names[0], value_of(names[0])), "no put is taken")
        self.assertTrue(all(a.put(n, value_of(n)) for n in names[1:]))
        self.everywhere(names, self.hosts)

        names += self.put_under(a, [f"cut {i}" for i in range(4)], lambda: c.link("down"))
        self.everywhere(names, [a, b])
        for name in names[:2]:
            self.assertIn(c.get(name), (None, value_of(name)))
        c.link("up")
        self.everywhere(names, [c])

        names += self.put_under(a, [f"stop {i}" for i in range(4)], lambda: b.signal(signal.SIGSTOP))
        self.everywhere(names, [a, c])
        b.signal(signal.SIGCONT)
        self.everywhere(names, [b])

        self.a_sequence_outlives_a_host(a, b, c)
        names += self.put_under(a, [f"dead {i}" for i in range(4)], lambda: None)
        self.everywhere(names, [a, c])
        b.start()  # empty: the others' copies must come back to it
        self.everywhere(names, [b])

    def worker(self, host, port, *args):
        process = subprocess.Popen([*host.enter, HAWSER, "serve", "--no-devices", "--model", MODEL, "--listen",
                                    f"127.0.0.1:{port}", *map(str, args)], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=clean_environment(QUIET))

        def stop():
            process.kill()
            process.wait(TIMEOUT)
            process.stdout.close()

        self.addCleanup(stop)
        self.assertTrue(any(line.startswith("listening on") for line in lines_of(process.stdout.fileno())))
        return port

    def text(self, host, port):
        result = host.hawser("llm", "--mode", "semantic", "--model", MODEL, "--master_port", port, "--prompt_tokens",
                             str(TOKENS), "-n", "64")
        self.assertEqual(result.returncode, DONE, result.stderr)
        out = result.stdout.decode()
        return out.split("\n\n")[0], int(re.search(r"KV_FETCHED_BYTES: (\d+)", out).group(1))

    def a_sequence_outlives_a_host(self, a, b, c):
        """A worker on a evicts to its daemon, which sends to the other hosts; b dies under the sequence, after the
        prompt was stored: whether a block is there that was not, nobody can say without both of its owners."""
        def blocks():
            told = (host.hawser("kv", "--socket", host.socket, "info", "--json") for host in (a, b, c))
            return sum(json.loads(t.stdout)["blocks"] for t in told)

        wanted, _ = self.text(a, self.worker(a, 28100))
        before = blocks()
        evicting = self.worker(a, 28101, "--shadow", f"kvd:{a.socket}", "--share-prefixes", "--evict", "all@4")
        self.assertEqual(self.text(a, evicting)[0], wanted)
        self.until(lambda: blocks() >= before + PROMPT_BLOCKS, "the prompt is not stored")
        killer = threading.Timer(0.15, b.kill)
        killer.start()
        self.assertEqual(self.text(a, evicting)[0], wanted)
        killer.join(TIMEOUT)
        self.assertEqual(self.text(a, evicting)[0], wanted)
        other = self.worker(c, 28102, "--shadow", f"kvd:{c.socket}", "--share-prefixes")
        got, fetched = self.text(c, other)  # on another host, with what the first worker left
        self.assertEqual(got, wanted)
        self.assertGreater(fetched, 0)


def allowed():
    """Whether namespaces, a bridge and veth pairs can be made here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return False
    probe = "ip link add switch type bridge && ip link add v0 type veth peer name v1"
    return subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True).returncode == 0


if __name__ == "__main__":
    if INSIDE in os.environ:
        unittest.main()
    if not allowed():
        print("skipped: needs root, iproute2 and network namespaces")
        sys.exit(77)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
