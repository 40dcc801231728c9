"""Workers that register in etcd, and a gateway that follows them there."""

import os
import shutil
import signal
import subprocess
import unittest

from rig import TIMEOUT, Case, Process, call, free_port, state, wait_for, worker

ASK = {"prompt": "And God said", "temperature": 0, "max_tokens": 12}


class Refused(Case):
    def test_what_is_refused(self):
        from harness import hawser
        for code, word, *args in (
                (2, "not both", "gateway", "--etcd", "http://127.0.0.1:1", "--servers", "127.0.0.1:1"),
                (2, "http://host:2379", "gateway", "--etcd", "127.0.0.1:1", "--http", "127.0.0.1:0"),
                (2, "--cluster", "gateway", "--etcd", "http://127.0.0.1:1", "--cluster", "a/b",
                 "--http", "127.0.0.1:0"),
                (69, "cannot reach", "gateway", "--etcd", "http://127.0.0.1:1", "--member-ttl", "2s",
                 "--http", "127.0.0.1:0"),
                (2, "--model", "serve", "--no-devices", "--etcd", "http://127.0.0.1:1", "--listen",
                 f"unix:{self.dir}/s")):
            result = hawser(*args)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(word, result.stderr)


@unittest.skipUnless(shutil.which("etcd"), "etcd is not installed: apt-get install etcd-server")
class Etcd(Case):
    def setUp(self):
        super().setUp()
        self.url = f"http://127.0.0.1:{free_port()}"
        etcd = subprocess.Popen(
            ["etcd", "--data-dir", self.dir / "etcd", "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", "http://127.0.0.1:0",
             "--heartbeat-interval", "20", "--election-timeout", "200"],
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (etcd.kill(), etcd.wait(TIMEOUT)))

    def join(self, name, ttl="60s"):
        w = worker("--etcd", self.url, "--cluster", "test", "--member-ttl", ttl,
                   listen=f"unix:{self.dir}/{name}")
        self.addCleanup(w.stop)
        return w

    def test_workers_come_and_go(self):
        with Process("gateway", "--etcd", self.url, "--cluster", "test", "--http", "127.0.0.1:0") as front:
            self.assertEqual(call(front.url, "/v1/completions", ASK)[0], 503)
            first, second = self.join("a", "2s"), self.join("b")
            wait_for(lambda: state(front.url).count(": up,") == 2)
            text = call(front.url, "/v1/completions", ASK)[2]["choices"][0]["text"]
            first.send(signal.SIGKILL)  # its lease ends by itself
            wait_for(lambda: f"{self.dir}/a" not in state(front.url))
            self.assertEqual(call(front.url, "/v1/completions", ASK)[2]["choices"][0]["text"], text)
            self.assertEqual(second.stop()[0], 0)  # it gives its lease back
            wait_for(lambda: "worker unix:" not in state(front.url))
            self.join("c")
            wait_for(lambda: state(front.url).count(": up,") == 1)
            self.assertEqual(call(front.url, "/v1/completions", ASK)[2]["choices"][0]["text"], text)


if __name__ == "__main__":
    signal.alarm(1200)
    unittest.main()
