"""Programs over UCX, whose sessions open their own endpoints."""

import secrets
import shutil
import signal

import support
from support import GpuCase, GpuServer, ICD
from test_walls import holds

TRANSPORTS = {  # of UCX; its shared memory cannot be had in a sandbox
    "tcp": {"UCX_TLS": "tcp"},
    "shared memory": {"UCX_TLS": "posix,tcp", "HAWSER_SANDBOX": "off"},
}


class Ucx(GpuCase):
    def serve(self, name="s", *args, **kwargs):
        server = GpuServer(self.dir / f"{name}.log", "--listen", "ucx:127.0.0.1:0", *args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def test_programs(self):
        for name, env in TRANSPORTS.items():
            with self.subTest(name):
                server = self.serve(name, env=env)
                self.run_program("many", "threads", servers=[server], env=env)
                server.wait_sessions(0)
                self.assertEqual(server.log(), "")

    def test_shared_memory_in_a_sandbox(self):
        """One line at each end says what is missing."""
        env = TRANSPORTS["shared memory"] | {"HAWSER_SANDBOX": "deny"}
        server = self.serve(env=env)
        program = self.program("many", "count", servers=[server], env=env)
        program.expect("0 devices")
        program.expect_done()
        self.assertIn("the server's log says why", program.errors())
        self.assertIn("need HAWSER_SANDBOX=off", server.log())
        server.wait_sessions(0)

    def test_a_child_of_a_program(self):
        """UCX's threads are not in it."""
        program = self.program("hosts", "forks", servers=[self.serve()])
        program.wait()
        self.assertIn("in a process that was forked", program.errors())

    def test_a_session_does_not_know_the_token(self):
        """It admits its client by a secret of that session."""
        keys = self.dir / "keys"
        support.hawser("keygen", keys)
        server = self.serve("s", "--token-file", keys / "token")
        names = [secrets.token_hex(16) for _ in range(2)]
        programs = [self.program("many", "witness", servers=[server], env={
            "KIT_NAME": name, "VENUS_TOKEN_FILE": str(keys / "token")}) for name in names]
        for program in programs:
            program.expect("ready")
        known = {"token": (keys / "token").read_bytes().strip()}
        self.assertEqual(holds(server.process.pid, known), {"token"})
        known |= {name: name.encode() for name in names}
        self.assertEqual(sorted(sorted(holds(pid, known)) for pid in server.sessions()),
                         [[name] for name in sorted(names)])
        for program in programs:
            program.say("stop")
            program.expect("undisturbed")
            program.expect_done()

    def test_a_benchmark(self):
        """Its processes are children of one that speaks UCX itself."""
        result = support.hawser("bench-vulkan", "--software", "--quick", "--only", "cycle.remote",
                                *self.serve().addresses)
        self.expect(result, 0)
        self.assertIn("cycle.remote", result.stdout)

    def test_a_client_that_is_killed(self):
        server = self.serve()
        program = self.program("many", "in_a_row", servers=[server])
        program.expect("instance")
        server.wait_sessions(1)
        program.signal(signal.SIGKILL)
        server.wait_sessions(0)

    def test_a_session_that_is_killed(self):
        server = self.serve()
        program = self.program("lost", "fence", servers=[server])
        program.expect("ready")
        server.signal_sessions(signal.SIGKILL)
        for line in ("ended", "lost"):
            program.expect(line)
        program.say("again")
        program.expect("works")
        program.expect_done()

    def test_a_driver_without_ucx(self):
        alone = self.dir / "alone"
        alone.mkdir()
        folder = support.pathlib.Path(ICD).parent
        for name in ("hawser_icd.json", "libhawser_vulkan.so"):
            shutil.copy(folder / name, alone / name)
        manifest = str(alone / "hawser_icd.json")
        program = self.program("many", "count", servers=[self.serve()],
                               env={"VK_DRIVER_FILES": manifest, "VK_ICD_FILENAMES": manifest})
        program.expect("0 devices")
        program.expect_done()
        self.assertIn("the driver cannot open UCX", program.errors())
        self.assertIn("or use host:port", program.errors())


if __name__ == "__main__":
    support.main()
