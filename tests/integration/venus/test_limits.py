"""What a server gives to one client at most, and that others have theirs."""

import signal

import support
from support import GpuCase


class Limits(GpuCase):
    def limited(self, *args):
        server = self.serve("s", *args)
        witness = self.program("many", "witness", servers=[server])
        witness.expect("ready")
        return server, witness

    def expect_undisturbed(self, witness):
        witness.say("stop")
        witness.expect("undisturbed")
        witness.expect_done()

    def check(self, case, said, *args):
        server, witness = self.limited(*args)
        self.run_program("limits", case, servers=[server])
        server.wait_sessions(1)
        self.assertIn(said, server.log())
        self.expect_undisturbed(witness)

    def test_memory(self):
        self.check("memory", "--max-memory", "--max-memory", "64MiB")

    def test_objects(self):
        self.check("objects", "--max-objects", "--max-objects", "1000")

    def test_pending_work(self):
        self.check("flood", "--max-pending", "--max-pending", "100")

    def test_clients(self):
        server, witness = self.limited("--max-clients", "1")
        program = self.program("many", "count", servers=[server])
        program.expect("0 devices")
        program.expect_done()
        self.assertEqual(program.errors().count("warn"), 1, program.errors())
        self.assertIn("--max-clients", program.errors())
        self.assertIn("max-clients", server.log())
        self.expect_undisturbed(witness)
        server.wait_sessions(0)
        self.run_program("many", "threads", servers=[server])

    def test_all_of_them_held(self):
        """Two clients have as much as they may, and with a third all connections that there are."""
        limits = {"--max-memory": "64MiB", "--max-objects": 1000, "--max-pipelines": 8, "--max-pending": 100,
                  "--max-clients": 3}
        server, witness = self.limited(*(word for limit in limits.items() for word in limit))
        holders = [self.program("hostile", "limits", servers=[server]) for _ in range(2)]
        for holder in holders:
            holder.expect("held")
        refused = self.program("many", "count", servers=[server])
        refused.expect("0 devices")
        refused.expect_done()
        self.assertNotIn("over a limit", server.log())
        self.expect_undisturbed(witness)
        server.wait_sessions(2)
        self.run_program("many", "count", servers=[server])
        for holder in holders:
            holder.signal(signal.SIGKILL)
        server.wait_sessions(0)

    def test_devices(self):
        """A session has the devices that --device chose, and none that was not chosen."""
        hidden = {"HAWSER_VISIBLE_DEVICES": "00" * 16}
        for server, count in ((self.serve("chosen", "--device", "LLVM"), "1 devices"),
                              (self.serve("hidden", env=hidden), "0 devices")):
            program = self.program("many", "count", servers=[server])
            program.expect(count)
            program.expect_done()


if __name__ == "__main__":
    support.main()
