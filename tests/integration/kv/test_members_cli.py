"""kvd in a cluster of members: its options, a list, and a real etcd where one is installed."""

import itertools
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Relay, clean_environment, free_port, hawser, lines_of
from test_resp import Resp

NOBODY = "http://127.0.0.1:1"  # a port that nobody listens at


class Member:
    """hawser kvd as a member; what it logs can be waited for."""

    def __init__(self, *args, **variables):
        # Leaks are for the unit tests to find: looking for them takes seconds a process.
        env = clean_environment({"VENUS_LOG_CATEGORIES": "KV=INFO,NET=INFO", "ASAN_OPTIONS": "detect_leaks=0",
                                 **variables})
        self.process = subprocess.Popen([HAWSER, "kvd", *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=env)
        self.log = lines_of(self.process.stderr.fileno())

    def ready(self):
        return next(lines_of(self.process.stdout.fileno()), None)

    def wait_for(self, text):
        for line in self.log:
            if text in line:
                return line
        raise AssertionError(f"it ended without saying '{text}'")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return self.process.wait(TIMEOUT)


class Lost:
    """A daemon whose etcd is not there; started first, since it hopes for two leases' time."""

    folder = daemon = None


def setUpModule():
    Lost.folder = tempfile.mkdtemp(prefix="hawser-", dir="/tmp")
    Lost.daemon = Member("--socket", f"{Lost.folder}/kvd", "--etcd", NOBODY, "--name", "a",
                         "--listen", f"unix:{Lost.folder}/peer", "--member-ttl", "2s")


def tearDownModule():
    Lost.daemon.stop()
    shutil.rmtree(Lost.folder)


class Members(Case):
    def member(self, name, *args, **variables):
        daemon = Member("--socket", self.dir / f"{name}.sock", "--name", name, *args, **variables)
        self.addCleanup(daemon.stop)
        return daemon


class Cuts(Members):
    def test_requests_outlive_connections_that_are_cut_under_them(self):
        """But for those whose connection a busy machine needs longer to make again than they wait: they say so."""
        there = free_port()
        here = f"127.0.0.1:{free_port()}"
        relay = Relay(self, f"127.0.0.1:{there}", itertools.cycle([1500000, 300000, 2100000, 1200000]))
        blocks = ("--blocks", "64MiB")
        b = self.member("b", "--members", f"a={here},b=127.0.0.1:{there}", *blocks)
        self.assertIn("member b", b.ready())
        a = self.member("a", "--members", f"a={here},b={relay.address}", *blocks)
        self.assertIn("member a", a.ready())
        a.wait_for("b is connected")
        values = {f"value {i}": "abcdefghijkl"[i] * (1 << 20) for i in range(12)}
        outlived = 0

        def ask(*args, **kwargs):
            nonlocal outlived
            for _ in range(50):
                before = relay.cuts
                got = hawser("kv", "--socket", self.dir / "a.sock", *args, **kwargs)
                if "(PEER_LOST)" not in got.stderr:
                    break
            outlived += relay.cuts > before
            return self.expect(got, DONE).stdout

        for name, value in values.items():
            ask("put", name, input=value)
        for name, value in values.items():
            self.assertEqual(ask("get", name), value)
        self.assertGreater(relay.cuts, 4)
        self.assertGreater(outlived, 0)


class Options(Members):
    def refuse(self, code, text, *args):
        self.expect(hawser("kvd", "--socket", self.dir / "kvd", *args), code, text)

    def test_wrong_usage_names_the_option(self):
        etcd, listen = ("--etcd", NOBODY), ("--listen", f"unix:{self.dir}/peer")
        self.refuse(USAGE, "not both", *etcd, "--members", "a=unix:/tmp/a")
        self.refuse(USAGE, "--name", *etcd, *listen)
        self.refuse(USAGE, "--listen", *etcd, "--name", "a")
        self.refuse(USAGE, "A-Z a-z", *etcd, *listen, "--name", "a/b")
        self.refuse(USAGE, "http://host:2379", "--etcd", "127.0.0.1:1", *listen, "--name", "a")
        self.refuse(USAGE, "are for --etcd", "--etcd-ca", "ca")
        self.refuse(USAGE, "go together", *etcd, "--etcd-cert", "c", *listen, "--name", "a")
        self.refuse(USAGE, "has no TLS", *etcd, "--etcd-ca", "ca", *listen, "--name", "a")
        login = self.dir / "login"
        login.write_text("nobody")
        self.refuse(FAILED, "chmod 600", *etcd, "--etcd-login", login, *listen, "--name", "a")
        login.chmod(0o600)
        self.refuse(FAILED, "NAME:PASSWORD", *etcd, "--etcd-login", login, *listen, "--name", "a")
        self.refuse(REFUSED, "use https://", "--etcd", "http://10.255.0.1:1", "--etcd-login", login,
                    *listen, "--name", "a")
        self.refuse(USAGE, "--member-ttl", *etcd, *listen, "--name", "a", "--member-ttl", "1s")
        self.refuse(USAGE, "name a host and a port", *etcd, "--listen", "127.0.0.1:0", "--name", "a")
        self.refuse(USAGE, "are for --members", "--name", "a")
        self.refuse(USAGE, "not in --members", "--members", "a=unix:/tmp/a", "--name", "b")
        self.refuse(USAGE, "a and b have one address, 127.0.0.1:28100", "--members", "a=127.0.0.1,b=127.0.0.1:28100",
                    "--name", "a")
        self.refuse(USAGE, "give --members or --etcd", "--copies", 2)
        self.refuse(USAGE, "more than the 1 of --members", "--copies", 2, "--members", "a=unix:/tmp/a", "--name", "a")
        self.refuse(USAGE, "which of them", "--members", "a=unix:/tmp/a")
        self.refuse(USAGE, "NAME=ADDRESS", "--members", "unix:/tmp/a", "--name", "a")
        self.refuse(REFUSED, "token", "--members", "a=10.255.0.1:28200", "--name", "a")

    def test_an_etcd_that_is_not_there_is_named(self):
        Lost.daemon.wait_for("no place in the cluster yet: cannot reach http://127.0.0.1:1")
        self.assertEqual(Lost.daemon.process.wait(TIMEOUT), UNREACHABLE)

    def kv(self, member, *args, **kwargs):
        return hawser("kv", "--socket", self.dir / f"{member}.sock", *args, **kwargs)

    def test_without_a_view_nothing_is_said_to_be_missing(self):
        a = self.member("a", "--etcd", NOBODY, "--listen", f"unix:{self.dir}/a", "--member-ttl", "60s",
                        "--blocks", "1MiB")
        while not (self.dir / "a.sock").exists():
            self.assertIsNone(a.process.poll())
        self.expect(self.kv("a", "get", "name"), FAILED, "PEER_LOST")

    def test_a_list_of_members_and_one_that_comes_back_empty(self):
        options = ("--members", f"a=unix:{self.dir}/a,b=unix:{self.dir}/b", "--copies", 2, "--blocks", "16MiB")
        a = self.member("a", *options)
        self.assertIn(f"member a, 1 daemon, listening on unix:{self.dir}/a", a.ready())
        b = self.member("b", *options)
        self.assertIn("member b", b.ready())
        a.wait_for("b is connected")
        names = [f"name {i}" for i in range(2)]
        for name in names:
            self.assertIn("2 copies", self.expect(self.kv("a", "put", name, input=name), DONE).stdout)
        b.process.kill()
        b.process.wait(TIMEOUT)
        self.assertIn("warn: kv: b is lost", a.wait_for("is lost"))
        self.assertIn("member b", self.member("b", *options).ready())
        self.assertIn("warn: kv: b is connected again", a.wait_for("is connected"))
        for name in names:
            got = self.kv("b", "get", name)
            while got.returncode != DONE:  # until the two are connected
                self.assertNotIn("MISS", got.stderr)
                got = self.kv("b", "get", name)
            self.assertEqual(got.stdout, name)
        info = {}
        while info.get("below_copies", 1) or info["blocks"] - info["cached_replicas"] < len(names):
            info = json.loads(self.expect(self.kv("b", "info", "--json"), DONE).stdout)

    def test_a_redis_client_gets_values_of_both_members_in_order(self):
        options = ("--members", f"a=unix:{self.dir}/a,b=unix:{self.dir}/b", "--blocks", "16MiB")
        a = self.member("a", *options, "--resp", f"unix:{self.dir}/redis")
        b = self.member("b", *options)
        self.assertIn("Redis clients at", a.ready())
        self.assertIn("member b", b.ready())
        a.wait_for("b is connected")
        client = Resp(socket.AF_UNIX, str(self.dir / "redis"))
        self.addCleanup(client.close)
        for i in range(30):
            self.assertEqual(client("SET", f"name {i}", i), "OK")
        # What is asked for together does not go past EXEC, in either direction.
        gets = [("GET", f"name {i}") for i in range(30)]
        requests = [("MULTI",), *gets[:10], ("MGET", "name 3", "none", "name 4"), ("EXEC",), *gets[10:]]
        client.socket.sendall(b"".join(client.request(*request) for request in requests))
        replies = [client.reply() for _ in requests]
        self.assertEqual(replies[:12], ["OK"] + ["QUEUED"] * 11)
        self.assertEqual(replies[12:], [[*(b"%d" % i for i in range(10)), [b"3", None, b"4"]],
                                        *(b"%d" % i for i in range(10, 30))])
        b.process.kill()
        a.wait_for("b is lost")
        names = [f"name {i}" for i in range(30)]
        one_by_one = [client("GET", name) for name in names]
        together = client("MGET", *names)
        self.assertTrue(any(isinstance(value, ValueError) for value in one_by_one))
        self.assertEqual(list(map(str, together)), list(map(str, one_by_one)))

    def test_on_loopback_a_host_token_keeps_other_users_out(self):
        members = ("--members", ",".join(f"{name}=127.0.0.1:{free_port()}" for name in "abc"))
        ours, theirs = {"XDG_STATE_HOME": str(self.dir / "ours")}, {"XDG_STATE_HOME": str(self.dir / "theirs")}
        stranger = self.member("c", *members, **theirs)
        self.assertIn("member c", stranger.ready())
        a = self.member("a", *members, **ours)
        self.assertIn("member a", a.ready())
        self.assertEqual((self.dir / "ours/hawser/token").stat().st_mode & 0o777, 0o600)
        self.assertIn("member b", self.member("b", *members, **ours).ready())
        a.wait_for("b is connected")
        stranger.wait_for("wrong token")


@unittest.skipUnless(shutil.which("etcd"), "etcd is not installed: apt-get install etcd-server")
class Etcd(Members):
    def setUp(self):
        super().setUp()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.start_etcd("etcd")
        self.addCleanup(self.stop_etcd)

    def start_etcd(self, data):
        self.etcd = subprocess.Popen(
            ["etcd", "--data-dir", self.dir / data, "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", "http://127.0.0.1:0",
             "--heartbeat-interval", "20", "--election-timeout", "200"],
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def ask(self, path, **what):
        request = urllib.request.Request(self.url + path, json.dumps(what).encode())
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            self.assertEqual(answer.status, 200)

    def stop_etcd(self):
        self.etcd.kill()
        self.etcd.wait(TIMEOUT)

    def join(self, name, ttl, *args, urls=""):
        return self.member(name, "--etcd", urls + self.url, "--cluster", "test", "--listen",
                           f"unix:{self.dir}/{name}", "--member-ttl", ttl, *args)

    def test_daemons_find_each_other_and_are_missed(self):
        a = self.join("a", "60s", urls=NOBODY + ",")
        self.assertIn("member a", a.ready())
        b = self.join("b", "2s")
        self.assertIn("member b", b.ready())
        a.wait_for(f"2 members; joined: b (unix:{self.dir}/b)")
        b.process.kill()
        a.wait_for("1 member; left: b")
        self.stop_etcd()
        a.wait_for("the last view stays in force")
        self.assertEqual(a.stop(), 0)

    def test_users_and_the_loss_of_all_data(self):
        b = self.join("b", "20s")
        self.assertIn("member b", b.ready())  # etcd is up
        self.assertEqual(b.stop(), 0)
        for path, what in (("user/add", {"name": "root", "password": "secret"}),
                           ("user/grant", {"user": "root", "role": "root"}), ("enable", {})):
            self.ask(f"/v3/auth/{path}", **what)
        login = self.dir / "login"
        login.write_text("root:wrong\n")
        login.chmod(0o600)
        a = self.join("a", "20s", "--etcd-login", login)
        a.wait_for("authentication failed")  # and it goes on trying
        self.assertEqual(a.stop(), 0)
        login.write_text("root:secret\n")
        a = self.join("a", "20s", "--etcd-login", login)
        self.assertIn("member a", a.ready())
        self.stop_etcd()
        self.start_etcd("empty")  # without users, too
        a.wait_for("etcd begins anew; era 1")
        a.wait_for("is followed again")
        self.assertEqual(a.stop(), 0)


if __name__ == "__main__":
    unittest.main()
