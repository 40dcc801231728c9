"""serve --shadow rediss://: three real Redis servers as a cluster, with TLS and a password, keep a worker's KV."""

import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Server, free_port, hawser
from test_resp import Resp

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models" / "kjv.gguf"
NODES, SLOTS = 3, 16384
NODE_TIMEOUT_MS = 60000  # a machine that stands still for a second must not split the cluster
PASSWORD = "a password: of some length"
TOKENS, CHUNK_TOKENS, LAYERS = 320, 64, 6  # of the prompt; of a chunk of its KV; of the model


class TlsResp(Resp):
    def __init__(self, port, ca):
        context = ssl.create_default_context(cafile=ca)
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.file = self.socket.makefile("rb")
        self("AUTH", PASSWORD)


class Cluster:
    """Redis servers that share the slots; ready when the constructor returns."""

    def __init__(self, case):
        """A certificate of our own: Redis' nodes are clients of each other, too, and show theirs."""
        self.keys, self.servers, self.ports, self.buses, self.nodes = case.dir, [], [], [], []
        case.addCleanup(self.stop)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-subj", "/CN=redis", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                        "-keyout", case.dir / "server.key", "-out", case.dir / "server.crt"],
                       check=True, timeout=TIMEOUT, capture_output=True)
        self.share_slots(case.dir)

    def share_slots(self, folder):
        for i in range(NODES):
            self.start(folder / f"redis{i}")
            self.nodes.append(self.connect(i))
        self.ids = [n("CLUSTER", "MYID").decode() for n in self.nodes]
        each = SLOTS // NODES
        for i, node in enumerate(self.nodes):
            node("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            node("CLUSTER", "ADDSLOTSRANGE", i * each, SLOTS - 1 if i + 1 == NODES else (i + 1) * each - 1)
            for met in range(i):
                node("CLUSTER", "MEET", "127.0.0.1", self.ports[met], self.buses[met])
        self.wait(lambda: all(b"cluster_state:ok" in n("CLUSTER", "INFO") and
                              b"cluster_known_nodes:3" in n("CLUSTER", "INFO") for n in self.nodes))

    def start(self, folder):
        folder.mkdir()
        port, bus = free_port(), free_port()
        command = ["redis-server", "--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--dir", folder,
                   "--save", "", "--cluster-enabled", "yes", "--cluster-port", bus, "--tls-cluster", "yes",
                   "--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-require-full-coverage", "no",
                   "--tls-cert-file", self.keys / "server.crt", "--tls-key-file", self.keys / "server.key",
                   "--tls-ca-cert-file", self.keys / "server.crt", "--tls-auth-clients", "no",
                   "--requirepass", PASSWORD]
        self.servers.append(subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.ports.append(port)
        self.buses.append(bus)
        self.wait(lambda: self.listens(port))

    @staticmethod
    def listens(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    @staticmethod
    def wait(condition):
        until = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > until:
                raise AssertionError("the Redis cluster is not ready")

    def connect(self, i):
        return TlsResp(self.ports[i], self.keys / "server.crt")

    def moved(self, source, target, finish):
        """Moves the keys of every slot in use; without finish clients are told to ASK."""
        slots = 0
        for slot in range(source * (SLOTS // NODES), (source + 1) * (SLOTS // NODES)):
            if not self.nodes[source]("CLUSTER", "COUNTKEYSINSLOT", slot):
                continue
            slots += 1
            self.nodes[target]("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
            self.nodes[source]("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
            for key in self.nodes[source]("CLUSTER", "GETKEYSINSLOT", slot, 100):
                value = self.nodes[source]("DUMP", key)
                self.nodes[target].send("ASKING")
                self.nodes[target].send("RESTORE-ASKING", key, 0, value)
                assert [self.nodes[target].reply(), self.nodes[target].reply()] == ["OK", "OK"]
                assert self.nodes[source]("DEL", key) == 1
            for i in (target, source) if finish else ():
                self.nodes[i]("CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])
        return slots

    def stop(self):
        for node in self.nodes:
            node.close()
        for server in self.servers:
            server.kill()
            server.wait(TIMEOUT)


@unittest.skipUnless(shutil.which("redis-server"), "redis-server is not installed (Debian: redis-server)")
class RedisStore(Case):
    def worker(self, *args):
        server = Server("--model", MODEL, "--listen", "127.0.0.1:0", *args)
        self.addCleanup(server.stop)
        return server

    def text(self, server, tokens=48):
        port = server.addresses[0].rsplit(":", 1)[1]
        out = self.expect(hawser("llm", "--mode", "semantic", "--model", MODEL, "--master_port", port,
                                 "--prompt_tokens", TOKENS, "-n", tokens), DONE).stdout
        return out.split("\n\n")[0], int(re.search(r"KV_FETCHED_BYTES: (\d+)", out).group(1))

    def await_prompt(self, *nodes):
        """A worker stores a prompt beside its other work.  What is short are records."""
        Cluster.wait(lambda: sum(node("STRLEN", key) > 10000 for node in nodes for key in node("KEYS", "*")) >=
                     TOKENS // CHUNK_TOKENS * LAYERS)

    def test_a_cluster_keeps_what_a_worker_evicts(self):
        login = self.dir / "login"
        login.write_text(f":{PASSWORD}\n")
        login.chmod(0o600)
        cluster = Cluster(self)
        url = f"rediss://127.0.0.1:{cluster.ports[0]},127.0.0.1:{cluster.ports[1]}"
        store = ("--shadow", url, "--shadow-ca", self.dir / "server.crt", "--shadow-login", login, "--share-prefixes")
        wanted, _ = self.text(self.worker())

        first = self.worker(*store, "--evict", "all@8")
        got, fetched = self.text(first)
        self.assertEqual(got, wanted)
        self.assertGreater(fetched, 0)
        for node in cluster.nodes:
            self.assertGreater(node("DBSIZE"), 0)
        self.await_prompt(*cluster.nodes)
        first.stop(9)
        second = self.worker(*store)
        got, fetched = self.text(second)  # another process begins with what the first one left
        self.assertEqual(got, wanted)
        self.assertGreater(fetched, 0)

        # Slots move behind the workers' backs: MOVED at one node, ASK at another.
        third = self.worker(*store)
        self.assertGreater(cluster.moved(0, 1, finish=True), 0)
        self.assertGreater(cluster.moved(2, 1, finish=False), 0)
        self.assertEqual([cluster.nodes[0]("DBSIZE"), cluster.nodes[2]("DBSIZE")], [0, 0])
        got, fetched = self.text(third)
        self.assertEqual(got, wanted)
        self.assertGreater(fetched, 0)
        self.assertIn(b"errorstat_MOVED", cluster.nodes[0]("INFO", "errorstats"))
        self.assertIn(b"errorstat_ASK", cluster.nodes[2]("INFO", "errorstats"))

        # A node dies under a sequence that is evicted all the time.
        evicting = self.worker(*store, "--evict", "all@4")
        killer = threading.Timer(0.1, cluster.servers[1].kill)
        killer.start()
        got, _ = self.text(evicting)
        killer.join(TIMEOUT)
        self.assertEqual(got, wanted)
        self.assertEqual(self.text(evicting)[0], wanted)

        login.write_text("somebody:else\n")
        started = ("serve", "--no-devices", "--model", MODEL, "--listen", "127.0.0.1:0")
        self.expect(hawser(*started, *store), UNREACHABLE, "refuses name and password")
        self.expect(hawser(*started, "--shadow", url), FAILED, "--shadow-ca")
        self.expect(hawser(*started, "--shadow", url.replace("rediss", "redis"), "--shadow-login", login), UNREACHABLE, "Redis")

    def test_one_server_is_enough(self):
        port = free_port()
        server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                                   "--dir", str(self.dir)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait, TIMEOUT)
        self.addCleanup(server.kill)
        Cluster.wait(lambda: Cluster.listens(port))
        worker = self.worker("--shadow", f"redis://127.0.0.1:{port}", "--share-prefixes")
        wanted, _ = self.text(worker)
        redis = Resp(socket.AF_INET, ("127.0.0.1", port))
        self.addCleanup(redis.close)
        self.await_prompt(redis)
        again = self.worker("--shadow", f"redis://localhost:{port}", "--share-prefixes")
        got, fetched = self.text(again)
        self.assertEqual(got, wanted)
        self.assertGreater(fetched, 0)


class Refusals(Case):
    def test_what_does_not_fit_is_refused(self):
        started = ("serve", "--no-devices", "--model", MODEL, "--listen", "127.0.0.1:0")
        self.expect(hawser(*started, "--shadow", "redis:nowhere"), USAGE, "--shadow")
        for servers in ("", "nowhere:x", "127.0.0.1,", "unix:/tmp/x"):
            self.expect(hawser(*started, "--shadow", f"redis://{servers}"), USAGE, "--shadow: ", "is not")
        self.expect(hawser(*started, "--shadow", "host", "--shadow-login", "x"), USAGE, "--shadow-login")
        result = self.expect(hawser(*started, "--shadow", "redis://127.0.0.1:1"), UNREACHABLE, "127.0.0.1:1")
        self.assertNotIn("hawser serve", result.stderr)
        login = self.dir / "login"
        login.write_text(":secret\n")
        login.chmod(0o600)
        self.expect(hawser(*started, "--shadow", "redis://192.0.2.1", "--shadow-login", login), REFUSED, "rediss://")
        for option in ("--shadow-ca", "--shadow-login"):  # files of this host: nobody was asked
            url = "rediss://127.0.0.1:1" if option == "--shadow-ca" else "redis://127.0.0.1:1"
            self.expect(hawser(*started, "--shadow", url, option, self.dir / "none"), FAILED, "No such file")


if __name__ == "__main__":
    unittest.main()
