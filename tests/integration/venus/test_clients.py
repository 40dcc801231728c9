"""Clients that die, stop, talk nonsense or attack: their sessions end, others never notice."""

import contextlib
import random
import signal
import socket
import threading

import support
from support import GpuCase, GpuServer, Program, Promise

MEMORY_IS_BACK = 1.0  # seconds after a client died
BREAK = 2.5  # seconds that a client is stopped for, longer than any heartbeat of an older server
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
        programs = self.busy_programs()
        with Promise(MEMORY_IS_BACK):
            for program in programs:
                program.signal(signal.SIGKILL)
            self.server.wait_sessions(1)
        self.expect_undisturbed()

    def test_stopped(self):
        """Programs in a debugger go on; one that is killed there gives its memory back."""
        server = GpuServer(self.dir / "wide.log", "--heartbeat", "100ms", "--listen",
                           f"127.0.0.1:0,shm:{self.dir}/shm")
        self.addCleanup(server.stop)
        doomed = self.busy_programs()
        stopped = [Program(self, "many", "witness", servers=[address])
                   for address in self.server.addresses + server.addresses]
        for program in stopped:
            program.expect("ready")
        for program in stopped + doomed:
            program.signal(signal.SIGSTOP)
        threading.Event().wait(BREAK)
        self.server.wait_sessions(2 + len(doomed))
        server.wait_sessions(2)
        with Promise(MEMORY_IS_BACK):
            for program in doomed:
                program.signal(signal.SIGKILL)
            self.server.wait_sessions(2)
        for program in stopped:
            program.signal(signal.SIGCONT)
            program.say("stop")
            program.expect("undisturbed")
            program.expect_done()
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
        """The driver sees it, and the session may die of it.  Four attackers at a time."""
        server = self.server
        attacks = [self.program("hostile", case, servers=[server])
                   for case in ("copies", "crashes", "shaders", "memory")]
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
