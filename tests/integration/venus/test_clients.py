"""Clients that die, stop, talk nonsense or attack: their sessions end, others never notice."""

import contextlib
import random
import signal
import socket

import support
from support import GpuCase

HALF_OPEN = 300  # callers, more than the server keeps and more than --max-clients
NONSENSE = 16  # clients that talk it
BUSY = ["fence", "loop", "upload", "query-wait", "poll-event"]  # states of program "lost"


class Clients(GpuCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve("s", "--max-memory", "256MiB")
        self.witness = self.program("many", "witness", servers=[self.server])
        self.witness.expect("ready")

    def expect_undisturbed(self, crashed=False):
        self.witness.say("stop")
        self.witness.expect("undisturbed")
        self.witness.expect_done()
        self.server.wait_sessions(0)
        (self.assertIn if crashed else self.assertNotIn)("died with signal", self.server.log())
        self.run_program("many", "count", servers=[self.server])

    def busy_programs(self):
        programs = [self.program("lost", state, servers=[self.server]) for state in BUSY]
        for program in programs:
            program.expect("ready")
        self.server.wait_sessions(1 + len(BUSY))
        return programs

    def test_killed(self):
        """Some while they are stopped, as in a debugger."""
        programs = self.busy_programs()
        for program in programs[::2]:
            program.signal(signal.SIGSTOP)
        for program in programs:
            program.signal(signal.SIGKILL)
        self.server.wait_sessions(1)
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

    def test_invalid_vulkan(self):
        """The driver sees it, and the session may die of it.  Five attackers at a time."""
        server = self.server
        attacks = [self.program("hostile", case, servers=[server])
                   for case in ("copies", "crashes", "shaders", "addresses", "memory")]
        for attack in attacks[:-1]:
            attack.expect("done")
            attack.expect_done()
        attacks[-1].expect("full")
        server.wait_sessions(2)
        attacks[-1].signal(signal.SIGKILL)
        server.wait_sessions(1)
        self.expect_undisturbed(crashed=True)

    def test_half_open(self):
        """Callers who begin a handshake and say no more, more than the server keeps: whoever comes
        after them is served."""
        path = self.server.addresses[0].removeprefix("unix:")
        with contextlib.ExitStack() as held:
            for number in range(HALF_OPEN):
                caller = held.enter_context(socket.socket(socket.AF_UNIX))
                caller.connect(path)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    caller.sendall(b"HWSR"[:number % 5])
            self.run_program("many", "threads", servers=[self.server])
            self.expect_undisturbed()


if __name__ == "__main__":
    support.main()
