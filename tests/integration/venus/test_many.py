"""Several servers, programs, instances, devices and threads at a time."""

import signal

import support
from support import GpuCase

PROGRAMS = 4


class Many(GpuCase):
    def test_threads_of_one_device(self):
        server = self.serve()
        self.run_program("many", "threads", servers=[server])
        self.run_program("many", "threads", servers=[server], env={"VENUS_SYNC": "1"})

    def sessions_in_a_row(self, server, env, case="in_a_row"):
        """The sessions during each instance; none is left though the program lives."""
        program = self.program("many", case, servers=[server], env=env)
        sessions = []
        while program.next_line() == "instance":
            sessions.append(server.sessions())
            program.say("next")
        server.wait_sessions(0)
        program.say("stop")
        program.expect_done()
        self.assertEqual(program.errors(), "")
        return sessions

    def test_the_next_instance_takes_over_an_unused_session(self):
        server = self.serve()
        sessions = self.sessions_in_a_row(server, {})
        self.assertTrue(any(a == b for a, b in zip(sessions, sessions[1:])), sessions)
        sessions = self.sessions_in_a_row(server, {"VENUS_PERF": "no_kept_sessions"})
        self.assertFalse(any(a == b for a, b in zip(sessions, sessions[1:])), sessions)

    def test_an_instance_with_other_settings_has_a_session_of_its_own(self):
        sessions = self.sessions_in_a_row(self.serve(), {}, "changing")
        self.assertTrue(set(sessions[1]) - set(sessions[0]), sessions)

    def test_threads_of_many_devices(self):
        server = self.serve()
        self.run_program("many", "devices", servers=[server])
        server.wait_sessions(0)

    def test_programs(self):
        server = self.serve()
        programs = [self.program("many", "threads", servers=[server]) for _ in range(PROGRAMS)]
        for program in programs:
            program.expect_done()

    def test_devices_of_all_servers_are_there(self):
        servers = [self.serve("a"), self.serve("b")]
        self.assertEqual(self.run_program("many", "count", servers=servers), ["2 devices"])
        self.run_program("many", "devices", servers=servers)

    def test_a_failure_costs_its_device_only(self):
        server = self.serve()
        self.assertEqual(self.run_program("many", "apart", servers=[server]), ["apart"])
        server.wait_sessions(0)

    def test_a_server_that_dies_takes_its_devices_only(self):
        servers = [self.serve("a"), self.serve("b")]
        program = self.program("many", "servers", servers=servers)
        program.expect("ready")
        servers[1].process.send_signal(signal.SIGKILL)
        program.expect("lost")
        program.say("stop")
        program.expect_done()
        self.assertEqual(program.errors().count("is lost: "), 1, program.errors())
        self.assertEqual(self.run_program("many", "count", servers=servers), ["1 devices"])


if __name__ == "__main__":
    support.main()
