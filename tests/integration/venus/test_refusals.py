"""Servers that are not there or do not want us: no device, one warning, and `hawser run` says it
before the program starts."""

import contextlib
import os
import signal
import socket
import struct
import threading

import support
from support import PROGRAMS, GpuCase, hawser, start_helper

UNREACHABLE, REFUSED = 69, 77
HELLO = 1  # of the handshake
OTHER_VERSION = 99  # of whatever has versions


def hello(version):
    """What a server of that version of the connection's protocol says first."""
    name = b"stranger"
    body = struct.pack("<HHIIIIB", version, version, 0, 1 << 20, 64, 2000, 0) + bytes(32)
    body += bytes([len(name)]) + name
    return b"HWSR" + struct.pack("<BBH", HELLO, 0, len(body)) + body


@contextlib.contextmanager
def answering(listener, answer):
    """Whoever calls meanwhile gets the answer, and then the end."""
    def answer_all():
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError):
                caller.sendall(answer)
                caller.shutdown(socket.SHUT_WR)
                while caller.recv(65536):
                    pass

    thread = threading.Thread(target=answer_all)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


class Refusals(GpuCase):
    def check(self, address, status, *texts, env=None):
        """Every text is in the one warning of a program, and in what `hawser run` says."""
        program = support.Program(self, "many", "count", servers=[address], env=env)
        ran = hawser("run", "--servers", address, "--", PROGRAMS / "venus-many", "count", env=env)
        program.expect("0 devices")
        program.expect_done()
        warnings = program.errors().splitlines()
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("warn: vulkan: no ", warnings[0])
        self.expect(ran, status)
        self.assertEqual(ran.stdout, "")
        for text in texts:
            self.assertIn(text, warnings[0])
            self.assertIn(text, ran.stderr)

    def test_no_server(self):
        self.check(f"unix:{self.dir}/none", UNREACHABLE, f"unix:{self.dir}/none",
                   "No such file or directory", 'is "hawser serve" running?')
        with socket.socket() as bound:  # nobody listens
            bound.bind(("127.0.0.1", 0))
            self.check(f"127.0.0.1:{bound.getsockname()[1]}", UNREACHABLE, "Connection refused",
                       'is "hawser serve" running there?')

    def test_no_such_host(self):
        self.check("nowhere.invalid:28100", UNREACHABLE, "nowhere.invalid", "check the name")

    def test_somebody_else_listens(self):
        """One that hangs up on what it does not understand."""
        with socket.create_server(("127.0.0.1", 0)) as listener, \
                answering(listener, b"HTTP/1.1 400"):
            self.check(f"127.0.0.1:{listener.getsockname()[1]}", REFUSED, "hawser")

    def test_tls_and_token(self):
        keys, fingerprint = self.keys()
        other = self.dir / "other"
        self.expect(hawser("keygen", other, "--name", "localhost"), 0)
        server = self.serve("s", "--listen", "127.0.0.1:0", "--cert", keys / "server.crt", "--key",
                            keys / "server.key", "--token-file", keys / "token")
        address = server.addresses[1]
        right = {"VENUS_TLS_FINGERPRINT": fingerprint, "VENUS_TOKEN_FILE": str(keys / "token")}
        self.check(address, REFUSED, "the server speaks TLS", "VENUS_TLS_FINGERPRINT")
        self.check(address, REFUSED, "certificate", "fingerprint",
                   env={**right, "VENUS_TLS_FINGERPRINT": "0" * 64})
        self.check(address, REFUSED, "token",
                   env={**right, "VENUS_TOKEN_FILE": str(other / "token")})
        self.check(address, REFUSED, "token", env={"VENUS_TLS_FINGERPRINT": fingerprint})
        ran = hawser("run", "--servers", address, "--", PROGRAMS / "venus-many", "count", env=right)
        self.expect(ran, 0)
        self.assertEqual(ran.stdout, "1 devices\n")

    def test_plain_server_and_a_client_that_wants_tls(self):
        server = self.serve("s", "--listen", "127.0.0.1:0")
        self.check(server.addresses[1], REFUSED, "TLS", env={"VENUS_TLS_FINGERPRINT": "0" * 64})

    def test_another_version_of_the_connection(self):
        with socket.create_server(("127.0.0.1", 0)) as listener, \
                answering(listener, hello(OTHER_VERSION)):
            self.check(f"127.0.0.1:{listener.getsockname()[1]}", REFUSED, "version",
                       str(OTHER_VERSION))

    def test_another_version_of_vulkan(self):
        start_helper(self, "stranger", f"unix:{self.dir}/s", OTHER_VERSION)
        self.check(f"unix:{self.dir}/s", REFUSED, "version", "the Vulkan protocol",
                   "use the same release of hawser at both ends")

    def test_one_of_two_is_not_there(self):
        server = self.serve()
        program = support.Program(self, "many", "count",
                                  servers=[f"unix:{self.dir}/none", server.addresses[0]])
        program.expect("1 devices")
        program.expect_done()
        self.assertEqual(program.errors().count("warn: "), 1, program.errors())

    def test_a_server_that_does_not_move(self):
        """It took the connection, and answers nothing: the program starts all the same."""
        server = self.serve()
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            self.check(server.addresses[0], UNREACHABLE, "hawser")
        finally:
            os.kill(server.process.pid, signal.SIGCONT)


if __name__ == "__main__":
    support.main()
