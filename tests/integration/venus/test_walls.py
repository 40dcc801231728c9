"""What a session's process has in its memory, and what it may do."""

import base64
import contextlib
import os
import pathlib
import pwd
import re
import secrets
import shutil
import subprocess
import tempfile
import unittest

import support
from support import GpuCase, GpuServer, Program, Relay, hawser

NEXT_READ = 1 << 20
MAIN_MEMORY = 128 << 20  # bytes that are left to the server and its sessions


def regions(pid):
    """Of a process's memory, those that can be read and are not devices'."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, rights, *rest = line.split(maxsplit=5)
        path = rest[3] if len(rest) > 3 else ""
        if rights.startswith("r") and path not in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
            yield tuple(int(part, 16) for part in addresses.split("-"))


def holds(pid, secrets):
    """Which of the secrets are in the memory of a process."""
    found = set()
    longest = max(map(len, secrets.values()))
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end in regions(pid):
            tail = b""
            for at in range(begin, end, NEXT_READ):
                memory.seek(at)
                try:
                    piece = tail + memory.read(min(NEXT_READ, end - at))
                except OSError:
                    break
                found |= {name for name, secret in secrets.items() if secret in piece}
                tail = piece[-longest:]
    return found


OTHER = "nobody"


def other_user_sees_the_driver():
    """Whether a session of another user could load the software GPU's driver."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    user = pwd.getpwnam(OTHER)
    return subprocess.run(["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}",
                           "--clear-groups", "test", "-r", os.environ["HAWSER_SOFTGPU_DIR"]],
                          check=False).returncode == 0


def status_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {name: value.split() for name, _, value in
            (line.partition(":") for line in text.splitlines())}


class MemoryGroup:
    """A cgroup of this test's own whose memory can be limited, of version 1 or 2.  None of either that this
    process may make: OSError."""

    def __init__(self):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in ("", "memory"):
                root = pathlib.Path("/sys/fs/cgroup" if kinds == "" else "/sys/fs/cgroup/memory")
                names = ("memory.current", "memory.max", "memory.swap.max") if kinds == "" else \
                    ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.swappiness")
                self.folder = root / path.lstrip("/") / f"hawser-test-{os.getpid()}"
                with contextlib.suppress(OSError):
                    self.folder.mkdir()
                    self.used, self.limit, self.swap = (self.folder / name for name in names)
                    if self.limit.exists():
                        return
                    self.folder.rmdir()
        raise OSError("no memory controller that this user may use")

    def enter(self):
        """What a command is prefixed with to run in it."""
        return "sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh"

    def leave(self, more):
        """From now on so many bytes more, and then the kernel ends a process."""
        if self.swap.exists():
            self.swap.write_text("0")
        self.limit.write_text(str(int(self.used.read_text()) + more))


class MainMemory(GpuCase):
    def setUp(self):
        super().setUp()
        try:
            self.group = MemoryGroup()
        except OSError as why:
            raise unittest.SkipTest(str(why)) from None
        self.addCleanup(lambda: support.until(self.gone, "an empty cgroup"))

    def gone(self):
        """A process that has ended is in it for a moment."""
        with contextlib.suppress(OSError):
            self.group.folder.rmdir()
        return not self.group.folder.exists()

    def test_a_client_that_fills_the_hosts_memory(self):
        """Of server and sessions the kernel ends the session that has most."""
        server = self.serve("s", prefix=self.group.enter())
        witness = self.program("many", "witness", servers=[server])
        witness.expect("ready")
        greedy = self.program("hostile", "main_memory", servers=[server])
        greedy.expect("ready")
        self.group.leave(MAIN_MEMORY)
        greedy.say("fill")
        greedy.expect("lost")
        greedy.expect_done()
        server.wait_sessions(1)
        support.until(lambda: "died with signal 9" in server.log(), "the server's word for it")
        self.run_program("many", "count", servers=[server])
        witness.say("stop")
        witness.expect("undisturbed")
        witness.expect_done()
        self.assertIsNone(server.process.poll())


class Walls(GpuCase):
    def start_server(self, *args):
        keys = self.dir / "keys"
        hawser("keygen", keys, "--name", "localhost")
        self.server = GpuServer(self.dir / "log", "--listen", "127.0.0.1:0", "--cert",
                                keys / "server.crt", "--key", keys / "server.key", "--token-file",
                                keys / "token", *args)
        self.addCleanup(self.server.stop)
        self.env = {"VENUS_TLS_CA": str(keys / "server.crt"),
                    "VENUS_TOKEN_FILE": str(keys / "token")}
        port = self.server.addresses[0].rpartition(":")[2]
        self.server.addresses = [f"localhost:{port}"]
        pem = (keys / "server.key").read_text()
        der = base64.b64decode("".join(line for line in pem.splitlines() if "-" not in line))
        # RFC 8410: an Ed25519 key is the last 32 bytes.  Of others SEC 1 has 32 in the middle.
        scalar = re.search(rb"\x04\x20(.{32})", der, re.DOTALL).group(1)
        self.secrets = {"token": (keys / "token").read_bytes().strip(), "key": scalar,
                        "key's file": pem.splitlines()[1].encode()}

    def start(self, name="", address=None):
        program = Program(self, "many", "witness", servers=[address or self.server.addresses[0]],
                          env=self.env | {"KIT_NAME": name, "VENUS_RESUME": "1"})
        program.expect("ready")
        return program

    def test_a_session_knows_no_secret(self):
        """Of the server, or of other clients; one of them was cut off again and again."""
        self.start_server()
        self.assertLessEqual({"token"}, holds(self.server.process.pid, self.secrets),
                             "the server has it, or this test would find nothing")
        host, _, port = self.server.addresses[0].rpartition(":")
        relay = Relay(self, f"{host}:{port}", [40000 + 977 * i for i in range(9)])
        cut = f"{host}:{relay.address.rpartition(':')[2]}"
        names = {f"client {i}": secrets.token_hex(16) for i in range(3)}
        programs = [self.start(name, address) for name, address in  # the first is not started ahead
                    zip(names.values(), (None, cut, None))]
        support.until(lambda: relay.cuts > 3, "cuts")  # one may end otherwise, and not count
        sessions = self.server.sessions()
        self.assertEqual(len(sessions), len(programs))
        known = self.secrets | {client: name.encode() for client, name in names.items()}
        found = [holds(pid, known) for pid in sessions]
        self.assertEqual(sorted(map(sorted, found)), [[client] for client in sorted(names)])
        for pid in sessions:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            self.assertNotIn(b"VENUS_TOKEN_FILE", environment)
            status = status_of(pid)
            self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), (["1"], ["2"]))
            self.assertEqual(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text(), "500\n")
        for program in programs:
            program.say("stop")
            program.expect("undisturbed")
            program.expect_done()
        self.server.wait_sessions(0)

    def test_a_session_reads_nothing_of_the_servers_terminal(self):
        """Nor can it write what the server says on standard output."""
        near, terminal = os.openpty()
        self.addCleanup(os.close, near)
        process = subprocess.Popen([support.HAWSER, "serve", "--software", "--listen", f"unix:{self.dir}/s"],
                                   stdin=terminal, stdout=subprocess.PIPE, stderr=terminal,
                                   env=support.clean_environment())
        os.close(terminal)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        lines = support.lines_of(process.stdout.fileno())
        while not next(lines).startswith("listening on "):
            pass
        program = Program(self, "many", "witness", servers=[f"unix:{self.dir}/s"])
        program.expect("ready")
        session, = [pid for pid in support.children(process.pid) if support.name_of(pid) == "hawser-session"]
        files = [os.readlink(f"/proc/{session}/fd/{fd}") for fd in range(3)]
        self.assertEqual(files[0], "/dev/null")
        self.assertEqual(files[1], files[2])
        for fd in (1, 2):
            flags = re.search(r"flags:\s*(\d+)", pathlib.Path(f"/proc/{session}/fdinfo/{fd}").read_text())[1]
            self.assertEqual(int(flags, 8) & os.O_ACCMODE, os.O_WRONLY)
        program.say("stop")
        program.expect("undisturbed")
        program.expect_done()

    @unittest.skipUnless(other_user_sees_the_driver(),
                         "another user needs root, setpriv, and a driver that it can read")
    def test_a_session_of_another_user(self):
        cache = tempfile.mkdtemp(prefix="hawser-cache-")
        os.rmdir(cache)  # the server makes it, and no session has it
        self.start_server("--session-user", OTHER, "--upload-cache-dir", cache)
        self.addCleanup(shutil.rmtree, cache, ignore_errors=True)
        program = self.start()
        [session] = self.server.sessions()
        user, status = pwd.getpwnam(OTHER), status_of(session)
        self.assertEqual(status["Uid"], [str(user.pw_uid)] * 4)
        self.assertEqual(status["Gid"], [str(user.pw_gid)] * 4)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(status[kind][0], 16), 0, kind)
        self.assertIn(f"HOME={user.pw_dir}".encode(),
                      pathlib.Path(f"/proc/{session}/environ").read_bytes().split(b"\0"))
        self.assertEqual(os.stat(cache).st_uid, os.geteuid())
        program.say("stop")
        program.expect("undisturbed")
        program.expect_done()
        self.server.wait_sessions(0)
        # It ends with the server, which the change of user must not make it forget.
        self.start()
        [session] = self.server.sessions()
        self.server.process.kill()
        support.until(lambda: not support.is_running(session), "the session's end")


if __name__ == "__main__":
    support.main()
