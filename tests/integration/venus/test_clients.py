"""Clients that die, stop, talk nonsense or flood: their sessions end, others never notice."""

import random
import signal
import socket

import support
from support import GpuCase, Promise

MEMORY_IS_BACK = 1.0  # seconds after a client died
HEARTBEAT = 2.0  # seconds of silence that mean death: a client that is stopped says nothing
NONSENSE = 16  # clients that talk it
BUSY = ["fence", "loop", "upload", "query-wait", "poll-event"]  # states of program "lost"


class Clients(GpuCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.witness = self.program("many", "witness", servers=[self.server])
        self.witness.expect("ready")

    def expect_undisturbed(self):
        self.witness.say("stop")
        self.witness.expect("undisturbed")
        self.witness.expect_done()
        self.server.wait_sessions(0)
        self.assertNotIn("died with signal", self.server.log())

    def busy_programs(self):
        programs = [self.program("lost", state, servers=[self.server]) for state in BUSY]
        for program in programs:
            program.expect("ready")
        self.server.wait_sessions(1 + len(BUSY))
        return programs

    def test_killed(self):
        programs = self.busy_programs()
        with Promise(MEMORY_IS_BACK):
            for program in programs:
                program.signal(signal.SIGKILL)
            self.server.wait_sessions(1)
        self.expect_undisturbed()

    def test_stopped(self):
        programs = self.busy_programs()
        with Promise(HEARTBEAT + MEMORY_IS_BACK):
            for program in programs:
                program.signal(signal.SIGSTOP)
            self.server.wait_sessions(1)
        for program in programs:
            program.signal(signal.SIGCONT)
            program.expect("ended")
        self.expect_undisturbed()

    def test_nonsense(self):
        """Of all lengths, and as much of it as the server takes."""
        noise = random.Random(1)
        path = self.server.addresses[0].removeprefix("unix:")
        for number in range(NONSENSE):
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(support.TIMEOUT)
                caller.connect(path)
                try:
                    caller.sendall(noise.randbytes(1 << number))
                    caller.shutdown(socket.SHUT_WR)
                    while caller.recv(65536):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
        self.expect_undisturbed()

    def test_flood(self):
        """Work without end that nobody waits for, behind work that cannot begin."""
        flood = self.program("limits", "flood", servers=[self.server])
        flood.expect("ended")
        flood.expect_done()
        self.server.wait_sessions(1)
        self.assertIn("over a limit", self.server.log())
        self.expect_undisturbed()


if __name__ == "__main__":
    support.main()
