"""Connections that a relay cuts again and again while programs run: they say what they say without."""

import os
import pathlib
import signal
import subprocess
import threading

import support
from support import GpuCase, GpuServer, Program, Relay, clean_environment, hawser, until

VKT = pathlib.Path(os.environ["VKT_PROGRAMS"])
MODEL = pathlib.Path(__file__).resolve().parents[3] / "models/kjv.gguf"
OPEN = 12000  # bytes: behind them a session is open
PAUSE = 5.0  # seconds: longer than a heartbeat, and than the window of who was cut off before


def vkt_environment(address, env):
    drivers = {"VK_DRIVER_FILES": support.ICD, "VK_ICD_FILENAMES": support.ICD,
               "VENUS_SERVERS": address}
    return clean_environment({**drivers, **env})


def run_vkt(program, case, address, **env):
    return subprocess.run([VKT / program, case], env=vkt_environment(address, env),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=support.TIMEOUT)


class Resume(GpuCase):
    plain = {}  # what programs say without cuts

    def listen(self, *args):
        server = GpuServer(self.dir / "log", "--listen", "127.0.0.1:0", *args)
        self.addCleanup(server.stop)
        return server

    def expect_the_same(self, server, program, case, cuts, silent=(), **env):
        """Cut early and late, within messages and between them."""
        address = server.addresses[0]
        if (program, case) not in self.plain:
            whole = run_vkt(program, case, address, VENUS_RESUME="0", **env)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            self.plain[program, case] = whole.stdout
            server.wait_sessions(0)
        relay = Relay(self, address, [OPEN, *cuts], silent=silent)
        cut = run_vkt(program, case, relay.address, VENUS_RESUME="1", **env)
        self.assertEqual((cut.returncode, cut.stdout), (0, self.plain[program, case]), cut.stderr)
        self.assertGreater(relay.cuts, 3)
        server.wait_sessions(0)  # after the window, where a cut took the goodbye with it
        return cut.stderr

    def test_the_same_bytes_through_many_cuts(self):
        """The one client that may come in may come back."""
        server = self.listen("--max-clients", 1, "--resume-window", "10s")
        self.expect_the_same(server, "vkt-uploads", "staged", [300000 + 977 * i for i in range(40)])
        self.expect_the_same(server, "vkt-memory", "coherent", [1600 + 977 * i for i in range(40)])

    def test_attempts_to_resume_that_nobody_answers(self):
        """They end in time for the next one, also where the server was told of the cut.  One is cut behind its
        handshake.  Nobody is told of such attempts."""
        server = self.listen("--resume-window", "30s")
        said = self.expect_the_same(server, "vkt-memory", "coherent",
                                    [270, *(1600 + 977 * i for i in range(9))], silent=(1, 2))
        self.assertEqual(said, b"")

    def test_stripes_that_are_cut(self):
        """The session's own connection is dialled first, and its stripes next."""
        server = self.listen("--resume-window", "10s")
        self.expect_the_same(server, "vkt-uploads", "staged",
                             [900, 900, 400000, *(300000 + 977 * i for i in range(40))],
                             VENUS_UPLOAD_STRIPES="2", VENUS_UPLOAD_CACHE="0")

    def test_the_same_over_tls(self):
        keys = self.dir / "keys"
        self.expect(hawser("keygen", keys), 0)
        server = self.listen("--cert", keys / "server.crt", "--key", keys / "server.key",
                             "--token-file", keys / "token", "--resume-window", "10s")
        env = {"VENUS_TLS_CA": str(keys / "server.crt"), "VENUS_TOKEN_FILE": str(keys / "token")}
        self.expect_the_same(server, "vkt-memory", "coherent", [5000 + 977 * i for i in range(20)],
                             **env)
        self.expect_the_same(server, "vkt-uploads", "staged",
                             [9000, 9000, *(300000 + 977 * i for i in range(40))],
                             VENUS_UPLOAD_STRIPES="2", VENUS_UPLOAD_CACHE="0", **env)

    def test_the_same_text_through_many_cuts(self):
        """A worker's sequences live on while their client is cut off."""
        server = self.listen("--model", MODEL)
        relay = Relay(self, server.addresses[0], [1200, *(400 + 37 * i for i in range(30))])
        texts = []
        for address, resume in ((server.addresses[0], "0"), (relay.address, "1")):
            host, _, port = address.rpartition(":")
            done = hawser("llm", "--mode", "semantic", "--model", MODEL, "--gpu_host", host,
                          "--master_port", port, "--prompt", "And God said", "--decode_steps", 200,
                          env={"VENUS_RESUME": resume})
            self.assertEqual(done.returncode, 0, done.stderr)
            texts.append(done.stdout.partition("\n\nprefill")[0])
        self.assertEqual(texts[0], texts[1])
        self.assertGreater(len(texts[0]), 200)
        self.assertGreater(relay.cuts, 3)

    def wait_at(self, address, **env):
        """A program that waits for ever."""
        program = Program(self, "lost", "together", servers=[address], env={"VENUS_RESUME": "1", **env})
        program.expect("ready")
        return program

    def waiting(self, server):
        """The same, through a relay."""
        relay = Relay(self, server.addresses[0])
        return relay, self.wait_at(relay.address)

    def test_a_relay_that_closes_is_told_from_a_killed_program(self):
        """The one has the whole window to come back; the other's memory is free soon.  With TLS the session's end of
        the server's own relay is told of the second alone."""
        keys = self.dir / "keys"
        self.expect(hawser("keygen", keys), 0)
        tls = ("--cert", keys / "server.crt", "--key", keys / "server.key", "--token-file", keys / "token")
        env = {"VENUS_TLS_CA": str(keys / "server.crt"), "VENUS_TOKEN_FILE": str(keys / "token")}
        for i, (options, env) in enumerate((((), {}), (tls, env))):
            server = GpuServer(self.dir / f"log{i}", "--listen", "127.0.0.1:0", *options,
                               env={"VENUS_LOG_LEVEL": "INFO"})
            self.addCleanup(server.stop)
            if not options:
                relay, _ = self.waiting(server)
                relay.cut()
                until(lambda: "it may be resumed for 60 s" in server.log(), "a session that waits")
            self.wait_at(server.addresses[0], **env).signal(signal.SIGKILL)
            until(lambda: "it may be resumed for 5 s" in server.log(), "a session that waits shortly")

    def expect_lost(self, program, why):
        program.expect("ended")
        program.expect("lost")
        self.assertIn(why, program.errors())

    def test_a_session_that_is_gone_is_a_lost_device(self):
        server = self.listen()
        relay, program = self.waiting(server)
        relay.cut()
        until(lambda: relay.pairs, "a resumption")
        server.signal_sessions(signal.SIGKILL)
        self.expect_lost(program, "no such session")
        program.say("again")
        program.expect("works")

    def test_a_pause_is_not_the_peers_silence(self):
        """Programs stand still and go on: of one server they alone, of the other all that it has
        started and itself, too.  One was cut off before."""
        log = {"VENUS_LOG_LEVEL": "INFO"}
        runs = GpuServer(self.dir / "runs", "--heartbeat", "100ms", "--listen",
                         f"127.0.0.1:0,unix:{self.dir}/r,shm:{self.dir}/rm")
        self.addCleanup(runs.stop)
        server = GpuServer(self.dir / "log", "--resume-window", "4s", "--listen",
                           f"127.0.0.1:0,unix:{self.dir}/s", env=log)
        self.addCleanup(server.stop)
        relay = Relay(self, server.addresses[0])
        ways = [(relay.address, "1")] + [(each, "0") for each in server.addresses + runs.addresses]
        programs = [Program(self, "many", "witness", servers=[address],
                            env={"VENUS_RESUME": resume, **log}) for address, resume in ways]
        for program in programs:
            program.expect("ready")
        relay.closed = True
        relay.cut()
        until(lambda: "connection cut" in server.log() and "connection cut" in programs[0].errors(),
              "a cut that both have noticed")
        for program in programs:
            program.signal(signal.SIGSTOP)
        server.signal_sessions(signal.SIGSTOP)
        server.process.send_signal(signal.SIGSTOP)
        threading.Event().wait(PAUSE)
        self.assertEqual(len(runs.sessions()), 3)
        relay.closed = False
        server.process.send_signal(signal.SIGCONT)
        server.signal_sessions(signal.SIGCONT)
        for program in programs:
            program.signal(signal.SIGCONT)
        for program in programs:
            program.say("stop")
            program.expect("undisturbed")
            program.expect_done()
        self.assertIn("resumed after", programs[0].errors())

    def test_a_window_that_passes_is_a_lost_device(self):
        server = self.listen("--resume-window", "500ms")
        relay, program = self.waiting(server)
        relay.closed = True
        relay.cut()
        self.expect_lost(program, "not resumed within")
        server.wait_sessions(0)
        self.assertIn("not resumed within", server.log())


if __name__ == "__main__":
    support.main()
