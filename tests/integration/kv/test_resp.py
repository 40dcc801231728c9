"""kvd --resp as Redis clients see it: the protocol byte by byte, and redis-cli where there is one."""

import json
import os
import pathlib
import pty
import re
import shutil
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, clean_environment, hawser, lines_of

TOKEN = "0123456789abcdef0123456789abcdef"


class Resp:
    """A connection that sends requests and reads replies."""

    def __init__(self, family, address):
        self.socket = socket.socket(family)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")

    @staticmethod
    def request(*args):
        args = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in args)

    def send(self, *args):
        self.socket.sendall(self.request(*args))

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in b"*%" and kind:
            return [self.reply() for _ in range(int(rest) * (2 if kind == b"%" else 1))]
        if kind == b"$" and rest != b"-1":
            return self.file.read(int(rest) + 2)[:-2]
        return {b"+": rest.decode(), b"-": ValueError(rest.decode()), b":": int(rest or 0) if kind == b":" else 0,
                b"$": None, b"_": None, b"": EOFError()}[kind]

    def __call__(self, *args):
        self.send(*args)
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()


class RespDoor(Case):
    """A daemon with --resp, and connections to it."""

    def start(self, *args, addresses=1):
        daemon = subprocess.Popen([HAWSER, "kvd", "--socket", self.dir / "kvd", "--blocks", "256MiB", *map(str, args)],
                                  stdout=subprocess.PIPE, env=clean_environment())
        lines = lines_of(daemon.stdout.fileno())
        address = next(lines).split(" at ")[1]
        for _ in range(addresses):
            next(lines)

        def stop():
            daemon.terminate()
            self.assertEqual(daemon.wait(TIMEOUT), 0)
            daemon.stdout.close()

        self.addCleanup(stop)
        return address

    def connect(self, address):
        if address.startswith("unix:"):
            client = Resp(socket.AF_UNIX, address[5:])
        else:
            host, port = address.rsplit(":", 1)
            client = Resp(socket.AF_INET, (host, int(port)))
        self.addCleanup(client.close)
        return client

    def error(self, reply, text):
        self.assertIsInstance(reply, ValueError)
        self.assertIn(text, str(reply))


class RespCase(RespDoor):
    def test_connections_take_no_place_of_other_clients(self):
        """Who asks more than the door can answer by itself becomes a client of the daemon, and stays one."""
        address = self.start("--resp", f"unix:{self.dir}/redis", "--max-clients", 1)
        for client in [self.connect(address) for _ in range(8)]:
            self.assertEqual((client("DBSIZE"), client("SCAN", 0)), (0, [b"0", []]))
        out = hawser("kv", "info", "--socket", self.dir / "kvd")
        self.assertEqual(out.returncode, DONE, out.stderr)

    def test_a_cache_over_a_unix_socket(self):
        address = self.start("--resp", f"unix:{self.dir}/redis")
        self.assertEqual(os.stat(self.dir / "redis").st_mode & 0o777, 0o600)
        r, other = self.connect(address), self.connect(address)
        self.assertEqual(r("PING"), "PONG")
        self.assertIsNone(r("GET", "a"))
        self.assertEqual(r("SET", "a", "one"), "OK")
        self.assertEqual(r("set", "a", "two"), "OK")
        self.assertEqual(other("GET", "a"), b"two")
        self.assertIsNone(other("SET", "a", "three", "NX"))
        self.assertEqual((other("SETNX", "a", "x"), other("SETNX", "n", "x")), (0, 1))
        self.assertEqual(r("SET", "e", b"", "PX", 1000000), "OK")
        self.assertEqual((r("GET", "e"), r("STRLEN", "e"), r("TTL", "e"), r("TTL", "a"), r("TTL", "no")),
                         (b"", 0, 1000, -1, -2))
        self.assertEqual(r("MSET", "x", "1", "y", b"\0\r\n"), "OK")
        self.assertEqual(r("MGET", "x", "no", "y"), [b"1", None, b"\0\r\n"])
        self.assertEqual((r("EXISTS", "a", "x", "no"), r("DEL", "x", "no"), r("UNLINK", "y"), r("EXISTS", "x")),
                         (2, 1, 1, 0))
        self.assertEqual((r("GETRANGE", "a", 1, -1), r("GETRANGE", "a", 5, 9)), (b"wo", b""))
        self.assertEqual(r("SET", "short", "life", "PX", 1), "OK")
        for _ in range(1000000):  # it ends by the clock
            if r("GET", "short") is None:
                break
        self.assertEqual(r("SET", "short", "new", "NX"), "OK")
        large = os.urandom(1 << 20) * 12
        self.assertEqual(r("SET", "large", large), "OK")
        self.assertEqual(other("GET", "large"), large)
        for args in (("MULTI",), ("SET", "large", large[:5000000]), ("GET", "large"), ("GET", "a"), ("EXEC",), ("GET", "a")):
            r.send(*args)
        self.assertEqual([r.reply() for _ in range(6)],
                         ["OK", "QUEUED", "QUEUED", "QUEUED", ["OK", large[:5000000], b"two"], b"two"])
        self.assertEqual((r("MULTI"), r("SET", "large", large)), ("OK", "QUEUED"))
        for _ in range(5):  # together they are too long
            last = r("SET", "large", large)
        self.error(last, "OOM")
        self.error(r("EXEC"), "EXECABORT")
        self.assertEqual(other("STRLEN", "large"), 5000000)
        self.error(r("SET", "a"), "wrong number of arguments")
        self.error(r("SET", "a", "b", "EX", "soon"), "not an integer")
        self.error(r("NOSUCH", "x"), "unknown command")
        self.assertEqual((len(r("COMMAND", "LIST")), b"get" in r("COMMAND", "LIST")), (r("COMMAND", "COUNT"), True))
        self.assertEqual(sorted(r("KEYS", "*")), [b"a", b"e", b"large", b"n", b"short"])
        self.assertEqual((r("KEYS", "[l-o]*"), r("KEYS", "?"), r("KEYS", "[^a-n]*"), r("KEYS", "sh\\ort")),
                         ([b"n", b"large"] if r("KEYS", "[l-o]*")[0] == b"n" else [b"large", b"n"],
                          r("KEYS", "[aen]"), [b"short"], [b"short"]))
        self.assertEqual(r("MSET", *(x for i in range(60) for x in (f"scan:{i}", "x"))), "OK")
        seen, cursor = [], b"0"
        while not seen or cursor != b"0":
            cursor, names = r("SCAN", cursor, "MATCH", "scan:*", "COUNT", 7)
            seen += names
        self.assertEqual(sorted(seen), sorted(b"scan:%d" % i for i in range(60)))
        self.assertEqual(r("SCAN", 0, "TYPE", "list"), [b"0", []])
        self.error(r("SCAN", "x"), "invalid cursor")
        self.error(r("SCAN", 1 << 40), "REFUSED")
        self.error(r("FLUSHDB"), "--allow-flush")
        self.error(r("SET", "n" * 5000, "x"), "longer than the store takes")
        self.assertEqual(r("DEL", *seen), 60)
        self.assertIn(b"keyspace_hits:", r("INFO"))
        self.assertRegex(r("INFO", "server", "KEYSPACE"),
                         rb"^# Server\r\n([^#]*\r\n)*\r\n# Keyspace\r\ndb0:[^#]*\r\n$")
        self.assertEqual(r("INFO", "nosuch"), b"")
        before, after = (int(re.search(rb"total_commands_processed:(\d+)", r("INFO", "stats"))[1])
                         for _ in range(2))
        self.assertEqual(after, before + 1)
        self.assertIn(b"connected_clients:", r("INFO", "clients"))
        self.assertEqual(r("INFO", "everything").count(b"# "), r("INFO").count(b"# "))
        self.assertEqual(r("DBSIZE"), 5)
        self.assertEqual(r("HELLO", 3)[1], b"redis")
        r.send("GET", "no")
        self.assertEqual(r.file.readline(), b"_\r\n")
        r.socket.sendall(b"PING\r\nECHO x\r\n" * 100)  # lines, and many at once
        self.assertEqual([r.reply() for _ in range(200)], ["PONG", b"x"] * 100)
        self.assertIsNone(r("CLIENT", "GETNAME"))
        self.assertEqual((r("CLIENT", "SETNAME", "me"), r("CLIENT", "GETNAME")), ("OK", b"me"))
        self.error(r("CLIENT", "SETNAME", "a b"), "no spaces")
        self.error(r("HELLO", 3, "SETNAME", "x" * 64), "at most 63")
        self.assertEqual(r("CLIENT", "GETNAME"), b"me")
        for lines, why in ((b"POST / HTTP/1.1\r\nHost: here\r\n\r\nSET a page\r\n", "no HTTP server"),
                           (b"GET / HTTP/1.1\r\nHost: here\r\n\r\nSET a page\r\n", "no HTTP server"),
                           (b"SET a \"page\"\r\n", "Protocol error: quotes in a line")):
            web = self.connect(address)
            web.socket.sendall(lines)
            replies = [web.reply()]
            while not isinstance(replies[-1], EOFError):
                replies.append(web.reply())
            self.error(replies[-2], why)
        r.socket.sendall(b"*1\r\n!\r\n")
        self.error(r.reply(), "Protocol error")
        self.assertIsInstance(r.reply(), EOFError)
        self.assertEqual(other("GET", "a"), b"two")
        self.hawser_kv(other, large)
        if shutil.which("redis-cli"):
            self.redis_tools(address[5:], large)

    def test_settings_are_those_in_force(self):
        r = self.connect(self.start("--resp", f"unix:{self.dir}/redis", "--daemons", "2", "--block-policy", "lru"))

        def settings(*patterns):
            reply = r("CONFIG", "GET", *patterns)
            return dict(zip(reply[::2], reply[1::2]))

        self.assertEqual(settings("maxmemory*"), {b"maxmemory": b"%d" % (2 * 256 << 20), b"maxmemory-policy": b"allkeys-lru"})
        self.assertEqual(settings("SAVE", "appendonl?", "save", "[d-t]at*"),
                         {b"save": b"", b"appendonly": b"no", b"databases": b"1"})
        self.assertEqual(settings("*")[b"timeout"], b"0")
        self.assertEqual(settings("nosuch", "*" * 100 + "x"), {})
        largest = int(settings("proto-max-bulk-len")[b"proto-max-bulk-len"])
        self.assertEqual(r("SET", "k", bytes(largest)), "OK")
        self.error(r("SET", "k", bytes(largest + 1)), f"a name of 4096 bytes, a value of {largest},")

    def test_what_a_value_takes_and_why_its_end_stays(self):
        r = self.connect(self.start("--resp", f"unix:{self.dir}/redis"))
        self.assertEqual((r("SET", "name", bytes(1000)), r("MEMORY", "USAGE", "name")), ("OK", 8 + 1000 + 4 + 4))
        self.error(r("MEMORY", "DOCTOR"), "MEMORY takes USAGE alone")
        for request in ("EXPIRE name 10", "pexpireat name 1", "PERSIST name", "GETEX name"):
            self.error(r(*request.split()), "when a value ends is set with it, by SET")

    def test_several_addresses(self):
        paths = [self.dir / name for name in ("a", "b", "c")]
        (self.dir / "token").write_text("swordfish-swordfish\n")
        (self.dir / "token").chmod(0o600)
        self.start("--resp", f"unix:{paths[0]}", "--resp", f"127.0.0.1:0,unix:{paths[2]}", "--token-file",
                   self.dir / "token", addresses=3)
        first, last = self.connect(f"unix:{paths[0]}"), self.connect(f"unix:{paths[2]}")
        self.assertEqual((first("SET", "a", "one"), last("GET", "a")), ("OK", b"one"))
        refused = hawser("kvd", "--socket", self.dir / "other", "--blocks", "64MiB", "--resp",
                         ",".join(f"unix:{self.dir}/{i}" for i in range(4)))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("more than 3 addresses", str(refused.stderr))

    def test_as_many_connections_as_pools_have(self):
        """LMCache's connector opens 150, and a long value needs a thread and a put of its own."""
        address = self.start("--resp", f"unix:{self.dir}/redis")
        value = os.urandom(200000)
        clients = [self.connect(address) for _ in range(400)]
        for i, client in enumerate(clients):  # none has all of its value yet
            client.socket.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%d\r\n$200000\r\n" % (len(str(i)), i) + value[:1000])
        for client in clients:
            client.socket.sendall(value[1000:] + b"\r\n")
        self.assertEqual([client.reply() for client in clients], ["OK"] * 400)
        for i, client in enumerate(clients):
            client.send("GET", i)
        self.assertTrue(all(client.reply() == value for client in clients))

    def test_without_descriptors_the_clients_that_are_in_go_on(self):
        door = self.dir / "redis"
        command = ["sh", "-c", 'ulimit -n 48; exec "$@"', "sh", HAWSER, "kvd", "--socket", self.dir / "kvd", "--blocks",
                   "1MiB", "--resp", f"unix:{door}"]
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
        for line in lines_of(daemon.stdout.fileno()):
            if line.startswith("attach at"):
                break
        first = self.connect(f"unix:{door}")
        self.assertEqual(first("PING"), "PONG")
        others = [self.connect(f"unix:{door}") for _ in range(80)]
        for _ in range(100):
            self.assertEqual(first("PING"), "PONG")
        for client in others[:60]:
            client.close()
        self.assertEqual([client("PING") for client in others[60:]], ["PONG"] * 20)
        daemon.terminate()
        _, stderr = daemon.communicate(timeout=TIMEOUT)
        self.assertEqual(daemon.returncode, 0)
        self.assertIn(stderr.decode().count("cannot accept: Too many open files"), range(1, 100))  # not one a PING

    def hawser_kv(self, client, large):
        def kv(*args, **kwargs):
            return hawser("kv", "--socket", self.dir / "kvd", *args, **kwargs)

        (self.dir / "in").write_bytes(large)
        self.assertEqual(self.expect(kv("put", "file", self.dir / "in"), DONE).stdout,
                         f"file: {len(large)} bytes, 1 copy\n")
        self.assertEqual(client("STRLEN", "file"), len(large))
        self.expect(kv("get", "file", self.dir / "out"), DONE)
        self.assertEqual((self.dir / "out").read_bytes(), large)
        (self.dir / "out").write_text("the old file")  # stays where the new one cannot be written whole
        limited = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 64; exec "$@"', "sh", HAWSER, "kv", "--socket",
                                  self.dir / "kvd", "get", "file", self.dir / "out"], env=clean_environment(),
                                 capture_output=True, text=True, timeout=TIMEOUT)
        self.expect(limited, FAILED, "cannot write", "File too large")
        self.assertEqual((self.dir / "out").read_text(), "the old file")
        self.assertEqual(sorted(self.dir.glob("out*")), [self.dir / "out"])
        self.expect(kv("get", "file", "/dev/full"), FAILED, "cannot write /dev/full: No space left on device")
        self.expect(kv("get", "file", self.dir), FAILED, "Is a directory")
        self.expect(kv("put", "n" * 4097, self.dir / "in"), FAILED, "a name of 4096 bytes")
        self.assertEqual(self.expect(kv("get", "a"), DONE).stdout, "two")
        self.expect(kv("put", "--only-new", "a", self.dir / "in"), FAILED, "the name has a value already")
        steers = "\x1b[2J"
        self.assertEqual(self.expect(kv("put", steers, "/dev/stdin", input="1"), DONE).stdout, f"{steers}: 1 byte, 1 copy\n")
        self.assertIn(steers, self.expect(kv("keys"), DONE).stdout)
        ours, terminal = pty.openpty()
        self.expect(kv("keys", "*[[]2J", stdout=terminal), DONE)
        self.assertEqual(os.read(ours, 100), b"?[2J\r\n")
        for end in (ours, terminal):
            os.close(end)
        self.expect(kv("del", steers), DONE)
        self.expect(kv("get", "no"), FAILED, "no: there is no such value (MISS)")
        self.assertEqual(self.expect(kv("exists", "a", "no"), FAILED).stdout, "a: 3 bytes\nno: not there\n")
        self.assertEqual(self.expect(kv("keys", "f*"), DONE).stdout, "file\n")
        self.expect(kv("put", "--expire", "1000s", "brief", self.dir / "in"), DONE)
        self.assertIn(client("TTL", "brief"), range(900, 1001))
        self.expect(kv("put", "--expire", "1ms", "brief", self.dir / "in"), DONE)
        while client("EXISTS", "brief"):  # it ends by the clock
            pass
        self.expect(kv("put", "--expire", "0", "brief", self.dir / "in"), USAGE, "--expire", "from 1ms")
        self.assertEqual(len(self.expect(kv("keys"), DONE).stdout.split()), 6)
        self.assertEqual(len(self.expect(kv("watch", "--every", "10ms", "--count", "2"), DONE).stdout.splitlines()), 3)
        with open("/dev/full", "wb") as full:  # it ends although no count is given
            self.expect(hawser("kv", "--socket", self.dir / "kvd", "watch", "--every", "10ms", stdout=full), FAILED,
                        "cannot write the output")
        self.assertEqual(self.expect(kv("del", "file"), DONE).stdout, "file: deleted\n")
        self.assertEqual(json.loads(self.expect(kv("info", "--json"), DONE).stdout)["below_copies"], 0)
        self.expect(kv("info", "more"), USAGE, "hawser kv --help")
        self.expect(hawser("kv", "--socket", self.dir / "none", "info"), UNREACHABLE, "none")

    def redis_tools(self, path, large):
        def cli(*args, **kwargs):
            return subprocess.run(["redis-cli", "-s", path, *args], timeout=TIMEOUT, check=True, capture_output=True,
                                  **kwargs).stdout

        self.assertEqual(cli("-x", "SET", "cli", input=large), b"OK\n")
        self.assertEqual(cli("--raw", "GET", "cli"), large + b"\n")
        self.assertEqual(cli("-3", "MGET", "a", "no"), b"two\n\n")
        self.assertIn(b"hawser_version:", cli("INFO"))
        if shutil.which("redis-benchmark"):
            run = subprocess.run(["redis-benchmark", "-s", path, "-t", "get,set", "-n", "2000", "-c", "4", "-P", "16",
                                  "-q"], timeout=TIMEOUT, check=True, capture_output=True)
            self.assertEqual((run.stdout + run.stderr).count(b"requests per second"), 2)
            self.assertNotIn(b"rror", run.stdout + run.stderr)

    def test_tcp_wants_the_token(self):
        (self.dir / "token").write_text(TOKEN)
        (self.dir / "token").chmod(0o600)
        address = self.start("--resp", "127.0.0.1:0", "--token-file", self.dir / "token")
        r = self.connect(address)
        self.error(r("GET", "a"), "NOAUTH")
        self.error(r("NOSUCH"), "NOAUTH")
        self.error(r("HELLO", 3), "NOAUTH")
        self.assertEqual(r("AUTH", TOKEN), "OK")
        self.assertEqual(r("SET", "a", "x" * 100000), "OK")
        self.assertEqual(self.connect(address)("HELLO", 3, "AUTH", "default", TOKEN)[5], 3)
        wrong = self.connect(address)
        self.error(wrong("AUTH", TOKEN[:-1]), "WRONGPASS")
        self.assertIsInstance(wrong.reply(), EOFError)
        unknown = self.connect(address)
        unknown.socket.sendall(b"*1\r\n$100000\r\n")
        self.error(unknown.reply(), "Protocol error")

    def test_more_names_than_a_connection_may_list_can_be_flushed(self):
        red = self.connect(self.start("--resp", f"unix:{self.dir}/redis", "--allow-flush"))
        names, batch = 18000, 500
        for start in range(0, names, batch):  # of 4,006 bytes, 72 MB together
            red.socket.sendall(b"".join(red.request("SET", b"%06d" % (start + i) + b"n" * 4000, "v") for i in range(batch)))
            self.assertEqual([red.reply() for _ in range(batch)], ["OK"] * batch)
        self.error(red("KEYS", "*"), "too many names")
        self.assertEqual((red("DBSIZE"), red("FLUSHDB"), red("DBSIZE")), (names, "OK", 0))

    def test_tenants_do_not_see_each_other(self):
        tenants = self.dir / "tenants"
        tenants.write_text(f"# name token\nred {'r' * 32}\n\nblue {'b' * 32}\n")
        tenants.chmod(0o600)
        (self.dir / "token").write_text(TOKEN)
        (self.dir / "token").chmod(0o600)
        address = self.start("--resp", "127.0.0.1:0", "--tenants", tenants, "--token-file", self.dir / "token",
                             "--tenant-max", "1MiB", "--allow-flush")
        red, blue, owner = (self.connect(address) for _ in range(3))
        self.error(red("GET", "k"), "NOAUTH")
        self.assertEqual((red("AUTH", "r" * 32), blue("AUTH", "blue", "b" * 32), owner("AUTH", TOKEN)), ("OK",) * 3)
        for client, value in ((red, "1"), (blue, "2"), (owner, "3")):
            self.assertIsNone(client("GET", "k"))
            self.assertEqual(client("SET", "k", value), "OK")
        self.assertEqual((red("GET", "k"), blue("GET", "k"), owner("GET", "k")), (b"1", b"2", b"3"))
        self.assertEqual(blue("SET", "blue only", "x"), "OK")
        self.assertEqual((red("KEYS", "*"), owner("KEYS", "*"), len(blue("KEYS", "*"))), ([b"k"], [b"k"], 2))
        self.assertEqual((blue("DEL", "blue only"), red("DEL", "k"), red("EXISTS", "k"), blue("EXISTS", "k")), (1, 1, 0, 1))
        self.assertEqual((red("DBSIZE"), blue("DBSIZE"), owner("DBSIZE")), (0, 1, 1))
        self.assertIn(b"keys=0,", red("INFO"))
        self.assertIn(b"used_memory:0\r\n", red("INFO"))
        for i in range(8):  # a tenant's limit is its own trouble
            self.assertEqual(red("SET", f"large {i}", "x" * 300000), "OK")
        self.assertLess(red("EXISTS", *(f"large {i}" for i in range(8))), 8)
        self.assertEqual((blue("GET", "k"), owner("GET", "k")), (b"2", b"3"))
        self.assertEqual((red("FLUSHDB"), red("KEYS", "*"), blue("KEYS", "*")), ("OK", [], [b"k"]))
        self.assertEqual(self.expect(hawser("kv", "--socket", self.dir / "kvd", "get", "k"), DONE).stdout, "3")
        self.assertEqual((red("AUTH", "b" * 32), red("GET", "k")), ("OK", b"2"))  # the same connection, another one
        self.assertEqual(red("RESET"), "RESET")
        self.error(red("GET", "k"), "NOAUTH")
        self.assertEqual((red("AUTH", "r" * 32), red("GET", "k")), ("OK", None))
        for wrong in (("red", "b" * 32), ("green", "r" * 32), ("default", "r" * 32), ("r" * 31,)):
            self.error(self.connect(address)("AUTH", *wrong), "WRONGPASS")

    def test_a_client_on_another_host(self):
        """hawser kv over TLS, with a token and with a tenant's; what a laptop sees of it."""
        self.expect(hawser("keygen", self.dir / "keys", "--name", "127.0.0.1"), DONE)
        tenants, red = self.dir / "tenants", self.dir / "red"
        tenants.write_text(f"red {'r' * 32}\n")
        red.write_text("r" * 32)
        (self.dir / "wrong").write_text("w" * 32)
        for path in (tenants, red, self.dir / "wrong"):
            path.chmod(0o600)
        server = ("--cert", self.dir / "keys/server.crt", "--key", self.dir / "keys/server.key")
        address = self.start("--resp", "tls:127.0.0.1:0", *server, "--token-file", self.dir / "keys/token", "--tenants",
                             tenants)
        self.assertEqual(address[:14], "tls:127.0.0.1:")

        def kv(*args, token=self.dir / "keys/token", ca=self.dir / "keys/server.crt", **kwargs):
            return hawser("kv", args[0], address, *args[1:], "--token-file", token, "--ca", ca, **kwargs)

        def out(*args, **kwargs):
            return self.expect(kv(*args, **kwargs), DONE).stdout

        large = os.urandom(1 << 20) * 12 + b"end"
        (self.dir / "in").write_bytes(large)
        self.assertEqual(out("put", "file", self.dir / "in", leaks=True), f"file: {len(large)} bytes\n")
        out("get", "file", self.dir / "out", leaks=True)
        self.assertEqual((self.dir / "out").read_bytes(), large)
        self.assertEqual(self.expect(hawser("kv", "--socket", self.dir / "kvd", "exists", "file"), DONE).stdout,
                         f"file: {len(large)} bytes\n")
        self.assertEqual(out("put", "tcp:name", "--expire", "1000s", "--only-new", input="hello"), "tcp:name: 5 bytes\n")
        self.assertEqual(out("get", "tcp:name"), "hello")
        self.expect(kv("put", "tcp:name", "--only-new", input="x"), FAILED, "the name has a value already")
        self.assertEqual(out("put", "empty", input=""), "empty: 0 bytes\n")
        self.assertEqual(out("get", "empty"), "")
        self.assertEqual(self.expect(kv("exists", "empty", "no"), FAILED).stdout, "empty: 0 bytes\nno: not there\n")
        self.assertEqual((sorted(out("keys").split()), out("keys", "f*")), (["empty", "file", "tcp:name"], "file\n"))
        here = json.loads(self.expect(hawser("kv", "--socket", self.dir / "kvd", "info", "--json"), DONE).stdout)
        there = json.loads(out("info", "--json"))
        self.assertEqual((there.keys(), there["blocks"], there["bytes"]), (here.keys(), 3, here["bytes"]))
        out("put", "\x1b[2J\x9b", input="x")
        self.assertEqual(out("keys", "*J*"), "\x1b[2J\x9b\n")
        ends = pty.openpty()
        subprocess.run([HAWSER, "kv", "keys", "--socket", self.dir / "kvd", "*J*"], stdout=ends[1], timeout=TIMEOUT)
        self.assertEqual(os.read(ends[0], 100), b"?[2J??\r\n")
        out("del", "\x1b[2J\x9b")
        self.assertEqual(len(out("watch", "--every", "10ms", "--count", "2").splitlines()), 3)
        self.assertEqual(out("del", "empty"), "empty: deleted\n")
        self.expect(kv("get", "no"), FAILED, "no: there is no such value (MISS)")

        self.assertEqual((out("keys", token=red), out("put", "file", input="mine", token=red)), ("", "file: 4 bytes\n"))
        self.assertEqual((out("get", "file", token=red), out("keys", token=red)), ("mine", "file\n"))
        self.assertEqual(out("exists", "file"), f"file: {len(large)} bytes\n")
        self.expect(kv("info", token=red), REFUSED, "the token is a tenant's")

        plain = address.replace("tls:", "tcp:")
        self.expect(kv("get", "file", token=self.dir / "wrong"), REFUSED, "WRONGPASS", "--token-file")
        self.expect(kv("get", "file", token="none"), REFUSED, "NOAUTH", "give --token-file")
        self.expect(hawser("kv", "get", address, "file"), USAGE, "--ca or --fingerprint")
        self.expect(hawser("kv", "get", address, "file", "--fingerprint", "0" * 64), REFUSED, "fingerprint")
        self.expect(hawser("kv", "get", plain, "file"), UNREACHABLE, "use tls:")
        self.expect(hawser("kv", "info", "tcp:192.0.2.1:1", "--token-file", red), REFUSED, "for all to read", "tls:")
        self.expect(hawser("kv", "info", "tcp:127.0.0.1:1"), UNREACHABLE, "hawser kvd --resp")
        self.expect(hawser("kv", "info", f"unix:{self.dir}/kvd", "--timeout", "100ms"), UNREACHABLE, "hawser kvd --resp")
        self.expect(hawser("kv", "info", "tcp:x:y"), USAGE, "is not an address")
        if shutil.which("redis-cli"):
            cli = ["redis-cli", "--tls", "--cacert", str(self.dir / "keys/server.crt"), "-p", address.rsplit(":", 1)[1],
                   "-h", "127.0.0.1", "--no-auth-warning", "-a", (self.dir / "keys/token").read_text().strip()]
            run = subprocess.run([*cli, "--raw", "GET", "file"], timeout=TIMEOUT, capture_output=True)
            self.assertEqual(run.stdout, large + b"\n", run.stderr)

    def test_an_address_as_people_type_it(self):
        address = self.start("--resp", "127.0.0.1:0", "--insecure")
        port, here = address.rsplit(":", 1)[1], ("kv", "--socket", self.dir / "kvd")
        self.assertEqual(self.expect(hawser("kv", "put", address, "n", input="hello"), DONE).stdout, "n: 5 bytes\n")
        for host in ("127.0.0.1", "localhost", "tcp:127.0.0.1"):
            self.assertEqual(self.expect(hawser("kv", "get", f"{host}:{port}", "n"), DONE).stdout, "hello")
            self.assertEqual(self.expect(hawser("kv", "keys", f"{host}:{port}"), DONE).stdout, "n\n")
        self.expect(hawser("kv", "info", address), DONE)
        self.assertEqual(self.expect(hawser("kv", "put", address, "m", "-", input="standard"), DONE).stdout, "m: 8 bytes\n")
        self.assertEqual(self.expect(hawser(*here, "get", "m", "-"), DONE).stdout, "standard")
        self.expect(hawser(*here, "del", "m"), DONE)
        # Names have that form, too.
        for name in ("user:42", address):
            self.expect(hawser(*here, "put", name, input=name), DONE)
            self.assertEqual(self.expect(hawser(*here, "get", name), DONE).stdout, name)
        self.expect(hawser(*here, "get", f"kv0:{port}", "n"), FAILED, "MISS", "write tcp: or tls:")
        self.expect(hawser(*here, "put", f"kv0:{port}", "n"), FAILED, "cannot read n", "write tcp: or tls:")
        missing = self.expect(hawser(*here, "get", "user:43"), FAILED, "MISS")
        self.assertNotIn("tls:", missing.stderr)

    def test_what_is_not_safe_is_refused(self):
        tenants = self.dir / "tenants"
        for text, why in (("red", "NAME TOKEN"), ("red short", "16 to 256"), ("", "no tenant"),
                          (f"a {'x' * 16}\nb {'x' * 16}", "line 2")):
            tenants.write_text(text)
            tenants.chmod(0o600)
            self.expect(hawser("kvd", "--socket", self.dir / "kvd", "--blocks", "1MiB", "--resp", f"unix:{self.dir}/r",
                               "--tenants", tenants), FAILED, why)
        self.expect(hawser("kvd", "--socket", self.dir / "kvd", "--tenants", tenants), USAGE, "--resp")
        base = ("kvd", "--socket", self.dir / "kvd", "--blocks", "1MiB", "--resp")
        self.expect(hawser(*base, "127.0.0.1:0"), REFUSED, "every user of this host may reach", "--token-file")
        self.expect(hawser(*base, "0.0.0.0:0"), REFUSED, "others may reach", "unix:PATH")
        self.expect(hawser(*base, "tls:0.0.0.0:0"), USAGE, "--cert")
        self.expect(hawser("keygen", self.dir / "keys"), DONE)
        server = ("--cert", self.dir / "keys/server.crt", "--key", self.dir / "keys/server.key")
        self.expect(hawser(*base, "tls:0.0.0.0:0", *server), REFUSED, "--token-file")
        self.expect(hawser(*base, f"tls:unix:{self.dir}/r", *server), USAGE, "tls:host:port")
        self.expect(hawser(*base, "shm:/tmp/x"), USAGE, "unix:PATH")


if __name__ == "__main__":
    unittest.main()
