"""Two hosts: programs on one, the GPU on the other; and a network between them that is cut.

The test and its server live in a network namespace each, with a wire between them.  The namespaces
have no names, so they vanish with the processes.  Needs root and iproute2; skipped without.
"""

import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import support
from support import GpuServer, Program, Relay, clean_environment, hawser, until
from test_lost import Losing
from test_resume import VKT, run_vkt, vkt_environment

NEAR, MOVED, FAR = "10.117.0.1", "10.117.0.3", "10.117.0.2"
INSIDE = "HAWSER_TEST_NETWORK"  # set once the test is in a namespace of its own


def run(command):
    return subprocess.run(command.split(), check=False, stderr=subprocess.DEVNULL).returncode == 0


@functools.lru_cache
def run_native(program, case):
    return subprocess.run([os.environ["HAWSER_FIND_VULKAN"], "--software", "--", VKT / program, case],
                          env=clean_environment({}), stdout=subprocess.PIPE, check=True,
                          timeout=support.TIMEOUT).stdout


def bytes_sent():
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return int(next(line for line in lines if "cut0:" in line).partition(":")[2].split()[8])


class TwoHosts(Losing):
    def connect(self, server):
        pid = server.process.pid
        for command in [f"ip link add cut0 mtu 1500 type veth peer name cut1 mtu 1500 netns {pid}",
                        f"ip addr add {NEAR}/24 dev cut0",
                        "ip link set cut0 up", "ip link set lo up",
                        f"nsenter -t {pid} -n ip addr add {FAR}/24 dev cut1",
                        f"nsenter -t {pid} -n ip link set cut1 up"]:
            self.assertTrue(run(command), command)
        self.addCleanup(run, "ip link del cut0")
        server.addresses = [f"{FAR}:{server.addresses[0].rpartition(':')[2]}"]

    def move(self, old, new):
        """A Wi-Fi that gives this host another address: nothing tells either end."""
        self.assertTrue(run(f"ip addr del {old}/24 dev cut0"))
        self.assertTrue(run(f"ip addr add {new}/24 dev cut0"))

    def expect_the_same(self, program, case, address, env):
        far = run_vkt(program, case, address, **env)
        self.assertEqual((far.returncode, far.stdout), (0, run_native(program, case)), far.stderr)

    def move_during(self, case, server, env):
        """Moves this host while the program uploads; what it prints is as ever."""
        before = bytes_sent()
        # So slow that a busy machine has a minute for the move; what is left then goes fast.
        _ = run("tc qdisc add dev cut0 root tbf rate 2mbit burst 64k latency 100ms")
        moving = subprocess.Popen([VKT / "vkt-uploads", case],
                                  env=vkt_environment(server.addresses[0],
                                                      {"VENUS_LOG_LEVEL": "INFO",
                                                       "VENUS_UPLOAD_CACHE": "0", **env}),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(moving.kill)
        until(lambda: bytes_sent() - before > 1 << 18, "an upload under way")
        self.move(NEAR, MOVED)
        _ = run("tc qdisc del dev cut0 root")
        said, errors = moving.communicate(timeout=support.TIMEOUT)
        self.assertEqual((moving.returncode, said), (0, run_native("vkt-uploads", case)), errors)
        self.assertIn(b"resumed after", errors)

    def test_the_same_bytes_over_tls(self):
        """With all of its defaults, through a line with delay; then its address changes.  A program
        that is killed holds its memory for seconds, not for the window."""
        keys = self.dir / "keys"
        self.expect(hawser("keygen", keys, "--name", FAR), 0)
        server = GpuServer(self.dir / "log", "--listen", "0.0.0.0:0", "--cert", keys / "server.crt",
                           "--key", keys / "server.key", "--token-file", keys / "token",
                           "--resume-window", "3600s", "--heartbeat", "1s",
                           prefix=["unshare", "-n"])
        self.addCleanup(server.stop)
        self.connect(server)
        fingerprint = subprocess.run(["openssl", "x509", "-in", keys / "server.crt", "-noout",
                                      "-fingerprint", "-sha256"], stdout=subprocess.PIPE, check=True,
                                     text=True).stdout.strip().partition("=")[2]
        env = {"VENUS_TLS_FINGERPRINT": fingerprint, "VENUS_TOKEN_FILE": str(keys / "token")}
        killed = Program(self, "lost", "together", servers=server.addresses, env=env)
        killed.expect("ready")
        killed.process.kill()
        relay = Relay(self, server.addresses[0], at=NEAR, delay=0.002)
        for program, case in [("vkt-memory", "coherent"), ("vkt-compute", "dispatch"),
                              ("vkt-uploads", "staged"), ("vkt-draws", "plain")]:
            self.expect_the_same(program, case, relay.address, env)
        self.move_during("staged", server, env)
        server.wait_sessions(0)
        self.assertIn("not resumed within 5 s", server.log())

    def test_a_stripe_moves_while_it_sends(self):
        """Its line has no room and says nothing, so only the session's own shows that it is cut."""
        server = GpuServer(self.dir / "log", "--listen", "0.0.0.0:0", "--insecure",
                           "--resume-window", "3600s", "--heartbeat", "1s", prefix=["unshare", "-n"])
        self.addCleanup(server.stop)
        self.connect(server)
        self.move_during("rewritten_at_once", server,
                         {"VENUS_UPLOAD_STRIPES": "1", "VENUS_COMPRESS": "0"})
        server.wait_sessions(0)

    def test_network_cut_and_joined(self):
        server = GpuServer(self.dir / "log", "--listen", "0.0.0.0:0", "--insecure",
                           "--heartbeat", "2s", "--resume-window", "0", prefix=["unshare", "-n"])
        self.addCleanup(server.stop)
        self.connect(server)
        programs = self.start(server)
        self.assertTrue(run("ip link set cut0 down"))
        self.expect_all_end(programs)
        server.wait_sessions(0)
        self.assertTrue(run("ip link set cut0 up"))
        self.expect_all_work_again(programs)
        self.assertEqual(server.stop(signal.SIGTERM)[0], 0)


def main():
    if INSIDE not in os.environ:
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare"))) or \
                not run("unshare -n true"):
            print("needs root, iproute2 and network namespaces")
            sys.exit(support.SKIPPED)
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, "-B", *sys.argv])
    if not run("ip link add probe0 type veth"):
        print("no virtual network devices here")
        sys.exit(support.SKIPPED)
    support.main()


if __name__ == "__main__":
    main()
