"""Servers that die, freeze or are cut off while programs are in the middle of something.

Every program is in another state; one blow hits them all.
"""

import os
import signal

import support
from support import TIMEOUT, GpuCase, Program, is_running, start_helper, until

STATES = ["between", "fence", "idle", "semaphore", "query-wait", "poll-fence", "poll-value",
          "poll-event", "loop", "upload", "together", "early", "pages"]


class Losing(GpuCase):
    states = STATES

    def start(self, server):
        """A program in each state."""
        programs = {state: self.program("lost", state, servers=[server]) for state in self.states}
        for program in programs.values():
            program.expect("ready")
        self.assertEqual(len(server.sessions()), len(programs))
        return programs

    def expect_all_end(self, programs):
        """The waits end; one that is between calls is told as soon as it makes one."""
        until(lambda: "is lost" in programs["between"].errors(), "a line in the log")
        programs["between"].say("go")
        for program in programs.values():
            program.expect("ended")
            program.expect("lost")
            self.assertEqual(program.errors().count("is lost: "), 1, program.errors())

    def expect_all_work_again(self, programs):
        for program in programs.values():
            program.say("again")
            program.expect("works")
            program.expect_done()


class Lost(Losing):
    def test_sessions_killed(self):
        server = self.serve()
        programs = self.start(server)
        server.signal_sessions(signal.SIGKILL)
        self.expect_all_end(programs)
        self.expect_all_work_again(programs)
        self.assertEqual(server.log().count("died with signal 9"), len(programs))

    def test_server_killed_and_restarted(self):
        server = self.serve()
        programs = self.start(server)
        sessions = server.sessions()
        server.process.kill()
        self.expect_all_end(programs)
        self.assertFalse([pid for pid in sessions if is_running(pid)])
        self.serve("again", "--listen", server.addresses[0])
        self.expect_all_work_again(programs)

    def test_sessions_frozen(self):
        server = self.serve()
        programs = self.start(server)
        frozen = server.signal_sessions(signal.SIGSTOP)
        self.expect_all_end(programs)
        self.expect_all_work_again(programs)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        server.wait_sessions(0)


class Nonsense(Losing):
    def test_server_talks_nonsense(self):
        """The connection lives on; what came over it cannot be read."""
        server = self.serve()
        states = ["fence", "idle", "semaphore", "poll-event", "loop", "together"]
        addresses = [f"unix:{self.dir}/{state}" for state in states]
        between = [start_helper(self, "babbler", address, server.addresses[0])
                   for address in addresses]
        programs = [Program(self, "lost", state, servers=[address])
                    for state, address in zip(states, addresses)]
        for program in programs:
            program.expect("ready")
        for babbler in between:
            babbler.send_signal(signal.SIGUSR1)
        for program in programs:
            program.expect("ended")
            program.expect("lost")
            self.assertEqual(program.errors().count("cannot be read"), 1, program.errors())
        for babbler in between:
            self.assertEqual(babbler.wait(TIMEOUT), 0)
        self.serve("again", "--listen", ",".join(addresses))
        self.expect_all_work_again(dict(zip(states, programs)))


class LostOverSharedMemory(Lost):
    """What a transport adds: how a loss is seen by one who sleeps, spins, sends much or does nothing."""

    scheme = "shm"
    states = ["between", "fence", "poll-fence", "upload"]


if __name__ == "__main__":
    support.main()
