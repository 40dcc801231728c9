"""A network that is cut while programs are in the middle of something, and joined again.

The test and its server live in a network namespace each, with a wire between them.  The namespaces
have no names, so they vanish with the processes.  Needs root and iproute2; skipped without.
"""

import os
import shutil
import signal
import subprocess
import sys

import support
from support import GpuServer
from test_lost import Losing

NEAR, FAR = "10.117.0.1", "10.117.0.2"
INSIDE = "HAWSER_TEST_NETWORK"  # set once the test is in a namespace of its own


def run(command):
    return subprocess.run(command.split(), check=False, stderr=subprocess.DEVNULL).returncode == 0


class NetworkCut(Losing):
    def connect(self, server):
        pid = server.process.pid
        for command in [f"ip link add cut0 type veth peer name cut1 netns {pid}",
                        f"ip addr add {NEAR}/24 dev cut0",
                        "ip link set cut0 up",
                        f"nsenter -t {pid} -n ip addr add {FAR}/24 dev cut1",
                        f"nsenter -t {pid} -n ip link set cut1 up"]:
            self.assertTrue(run(command), command)
        server.addresses = [f"{FAR}:{server.addresses[0].rpartition(':')[2]}"]

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
