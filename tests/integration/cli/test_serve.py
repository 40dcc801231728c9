"""Servers over every transport, what they refuse, and what they leave behind."""

import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from harness import (DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Relay, Server,
                     clean_environment, hawser, lines_of)

ROWS = ["rtt min", "rtt p50", "rtt p90", "rtt p99", "rtt p99.9", "rtt max", "upload", "download",
        "connect"]


def metrics_page(server, path):
    line = next(l for l in server.lines if l.startswith("metrics on "))
    with urllib.request.urlopen(line.removeprefix("metrics on ") + path, timeout=TIMEOUT) as page:
        return page.read().decode()


class Transports(Case):
    def check_info(self, *args, transport, tls=False, token=False, env=None):
        report = self.info_json(*args, env=env)
        self.assertEqual([r["name"] for r in report["rows"]], ROWS)
        for row in report["rows"]:
            self.assertEqual(set(row), {"name", "value", "unit", "baseline", "ratio"})
            self.assertGreater(row["value"], 0, row)
        for key in ("benchmark", "commit", "host", "date"):
            self.assertTrue(report[key])
        self.assertIn(transport, report["connection"]["transport"])
        self.assertEqual(report["connection"]["tls"], tls)
        self.assertEqual(report["connection"]["token"], token)
        self.assertEqual(report["server"]["devices"], [])
        return report

    def test_tcp(self):
        with Server("--listen", "127.0.0.1:0") as server:
            self.check_info(server.addresses[0], transport="tcp", token=True)

    def test_unix(self):
        with Server("--listen", f"unix:{self.dir}/s") as server:
            self.assertEqual(server.addresses, [f"unix:{self.dir}/s"])
            self.check_info(server.addresses[0], transport="unix")

    def test_shm(self):
        with Server("--listen", f"shm:{self.dir}/s") as server:
            self.check_info(server.addresses[0], transport="shm")

    def test_several_addresses_in_one_line(self):
        with Server("-l", f"127.0.0.1:0,unix:{self.dir}/a", "-l", f"shm:{self.dir}/b") as server:
            self.assertEqual(len(server.addresses), 3)
            for address in server.addresses:
                self.expect(hawser("info", address, "--no-bench"), DONE)

    def test_tls_and_token(self):
        keys, fingerprint = self.keys()
        with Server("--listen", "127.0.0.1:0", "--cert", keys / "server.crt", "--key",
                    keys / "server.key", "--token-file", keys / "token") as server:
            address = server.addresses[0]
            self.check_info(address, "--fingerprint", fingerprint, "--token-file", keys / "token",
                            transport="tls", tls=True, token=True)
            self.check_info(address, transport="tls", tls=True, token=True,
                            env={"VENUS_TLS_CA": str(keys / "server.crt"),
                                 "VENUS_TOKEN_FILE": str(keys / "token")})

    def test_text_form(self):
        with Server("--listen", f"unix:{self.dir}/s") as server:
            text = self.expect(hawser("info", server.addresses[0], "--duration", "20ms"), DONE).stdout
        for word in ("server ", "client ", "connection ", "not encrypted", "p50", "p99.9", "####",
                     "bandwidth", "GB/s", "--no-devices"):
            self.assertIn(word, text)
        figures = text[text.index("round trip"):]
        self.assertLessEqual(max(map(len, figures.splitlines())), 80, figures)

    def test_default_address_comes_from_the_environment(self):
        with Server("--listen", "127.0.0.1:0") as server:
            host, port = server.addresses[0].rsplit(":", 1)
            for env in ({"VENUS_SERVERS": f"{host}:{port},other:1"},
                        {"VENUS_SERVER_HOST": host, "VENUS_SERVER_PORT": port}):
                with self.subTest(env):
                    self.expect(hawser("info", "--no-bench", env=env), DONE)

    def test_a_server_that_is_lost_while_info_measures_cannot_be_reached(self):
        with Server("--listen", "127.0.0.1:0") as server:
            relay = Relay(self, server.addresses[0], [100000])
            self.expect(hawser("info", relay.address), UNREACHABLE, relay.address)

    def test_output_of_info_to_a_full_disk_is_noticed(self):
        with Server("--listen", f"unix:{self.dir}/s") as server, open("/dev/full", "w") as full:
            for form in ([], ["--json"]):
                self.expect(hawser("info", server.addresses[0], "--no-bench", *form, stdout=full),
                            FAILED, "cannot write the output")


class OtherUsers(Case):
    """Loopback is not trust: who started the server comes in without a word, and nobody else."""

    def setUp(self):
        super().setUp()
        self.env = {"XDG_STATE_HOME": str(self.dir / "state")}
        self.token = self.dir / "state/hawser/token"

    def test_the_token_is_made_once_and_is_private(self):
        for _ in range(2):
            with Server("--listen", f"unix:{self.dir}/s", env=self.env):
                self.assertFalse(self.token.exists(), "the kernel vouches for a Unix socket's user")
        with Server("--listen", "127.0.0.1:0", env=self.env) as first:
            made = self.token.read_bytes()
            self.assertEqual(stat.S_IMODE(self.token.stat().st_mode), 0o600)
            self.assertEqual(stat.S_IMODE(self.token.parent.stat().st_mode), 0o700)
            self.assertEqual([p.name for p in self.token.parent.iterdir()], ["token"])
            with Server("--listen", "127.0.0.1:0", env=self.env) as second:
                self.assertEqual(self.token.read_bytes(), made)
                for server in (first, second):
                    self.expect(hawser("info", server.addresses[0], "--no-bench", env=self.env), DONE)
            info = ("info", first.addresses[0], "--no-bench")
            for path, text in ((self.dir / "none", "wants a token"), (self.dir / "other", "started it")):
                env = {"XDG_STATE_HOME": str(path)}
                if path.name == "other":
                    Server("--listen", "127.0.0.1:0", env=env).stop()
                self.expect(hawser(*info, env=env), REFUSED, text)
            self.expect(hawser(*info, env={**self.env, "VENUS_TOKEN_FILE": "none"}), REFUSED,
                        "wants a token")
            self.expect(hawser(*info, "--token-file", self.token, env={"XDG_STATE_HOME": "/none"}), DONE)
        # Somebody else may have the port now.
        with Server("--listen", "127.0.0.1:0", "--insecure", env=self.env) as server:
            info = ("info", server.addresses[0], "--no-bench")
            self.expect(hawser(*info, env=self.env), REFUSED, "VENUS_TOKEN_FILE=none")
            self.expect(hawser(*info, env={**self.env, "VENUS_TOKEN_FILE": "none"}), DONE)

    def test_a_token_that_cannot_be_made(self):
        (self.dir / "state").write_text("")
        self.expect(hawser("serve", "--listen", "127.0.0.1:0", "--no-devices", env=self.env), FAILED,
                    "state/hawser/token", "--token-file")
        (self.dir / "state").unlink()
        self.token.parent.mkdir(parents=True)
        self.token.write_text("0123456789abcdef0123456789abcdef\n")
        self.token.chmod(0o644)
        self.expect(hawser("serve", "--listen", "127.0.0.1:0", "--no-devices", env=self.env), FAILED,
                    "chmod 600")

    def test_a_home_that_is_read_only_is_told_as_such(self):
        if os.geteuid() != 0 or not shutil.which("unshare"):
            self.skipTest("needs root and unshare")
        mount = f"mount -t tmpfs -o ro none {self.dir} && " \
                f"exec {HAWSER} serve --no-devices --listen 127.0.0.1:0"
        result = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, text=True,
                                timeout=TIMEOUT, env=clean_environment(self.env))
        if "mount:" in result.stderr or "unshare:" in result.stderr:
            self.skipTest(result.stderr)
        self.expect(result, FAILED, "Read-only file system", "XDG_STATE_HOME")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"),
                         "another user's client needs root and setpriv")
    def test_another_user(self):
        self.dir.chmod(0o755)
        program = self.dir / "hawser"
        shutil.copy(HAWSER, program)
        program.chmod(0o755)
        other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(program), "info",
                 "--no-bench"]
        with Server("--listen", f"127.0.0.1:0,unix:{self.dir}/u,shm:{self.dir}/s",
                    env=self.env) as server:
            def ask(address, *args):
                return subprocess.run([*other, address, *map(str, args)], capture_output=True,
                                      text=True, timeout=TIMEOUT, env=clean_environment(self.env))

            self.expect(ask(server.addresses[0]), REFUSED, "wants a token")
            for name, address in zip("us", server.addresses[1:]):
                self.expect(ask(address), REFUSED, "its owner")
                (self.dir / name).chmod(0o666)  # as an administrator might
                self.expect(ask(address), REFUSED, "wants a token")
            readable = self.dir / "copy"
            shutil.copy(self.token, readable)
            os.chown(readable, 65534, 65534)
            self.expect(ask(server.addresses[0], "--token-file", readable), DONE)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_a_server_of_another_user_is_not_believed(self):
        self.dir.chmod(0o777)
        program = self.dir / "hawser"
        shutil.copy(HAWSER, program)
        program.chmod(0o755)
        for scheme in ("unix", "shm"):
            with Server("--listen", f"{scheme}:{self.dir}/{scheme}", program=[
                    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(program)]) as server:
                self.expect(hawser("info", server.addresses[0], "--no-bench"), REFUSED, "another user")


class Refusals(Case):
    def secured(self):
        keys, fingerprint = self.keys()
        server = Server("--listen", "127.0.0.1:0", "--cert", keys / "server.crt", "--key",
                        keys / "server.key", "--token-file", keys / "token")
        self.addCleanup(server.stop)
        return server, keys, fingerprint

    def other_token(self):
        path = self.dir / "other"
        path.touch(mode=0o600)
        path.write_text("0123456789abcdef0123456789abcdef\n")
        return path

    def test_wrong_token(self):
        server, _, fingerprint = self.secured()
        self.expect(hawser("info", server.addresses[0], "--fingerprint", fingerprint,
                           "--token-file", self.other_token()), REFUSED, "token")

    def test_no_token(self):
        server, _, fingerprint = self.secured()
        self.expect(hawser("info", server.addresses[0], "--fingerprint", fingerprint), REFUSED,
                    "token")

    def test_wrong_fingerprint(self):
        server, keys, fingerprint = self.secured()
        wrong = ("0" if fingerprint[0] != "0" else "1") + fingerprint[1:]
        self.expect(hawser("info", server.addresses[0], "--fingerprint", wrong, "--token-file",
                           keys / "token"), REFUSED)

    def test_plain_client_on_a_tls_port(self):
        server, keys, _ = self.secured()
        result = hawser("info", server.addresses[0], "--token-file", keys / "token", "--timeout", "10s")
        self.expect(result, REFUSED)
        self.assertIn("the server speaks TLS", result.stderr)

    def test_tls_client_on_a_plain_port(self):
        _, fingerprint = self.keys()
        with Server("--listen", "127.0.0.1:0") as server:
            self.expect(hawser("info", server.addresses[0], "--fingerprint", fingerprint), REFUSED)

    def test_no_server(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0)) # bound and not listening: nobody else gets the port
            self.expect(hawser("info", f"127.0.0.1:{unused.getsockname()[1]}"), UNREACHABLE,
                        "hawser serve")
        self.expect(hawser("info", f"unix:{self.dir}/none"), UNREACHABLE, f"{self.dir}/none")

    def test_one_client_too_many(self):
        with Server("--listen", f"unix:{self.dir}/s", "--max-clients", "1", "--metrics",
                    "127.0.0.1:0") as server:
            holder = subprocess.Popen([HAWSER, "info", server.addresses[0], "--duration", "60s"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(holder.wait)
            self.addCleanup(holder.kill)
            deadline = time.monotonic() + TIMEOUT
            while "hawser_server_clients 1\n" not in metrics_page(server, "metrics"):
                self.assertIsNone(holder.poll(), "the first client was not let in")
                self.assertLess(time.monotonic(), deadline)
            self.expect(hawser("info", server.addresses[0], "--no-bench"), REFUSED)

    def test_beyond_this_host_needs_tls_and_token(self):
        self.expect(hawser("serve", "--listen", "0.0.0.0:0", "--no-devices"), REFUSED, "keygen")
        keys, _ = self.keys()
        self.expect(hawser("serve", "--listen", "0.0.0.0:0", "--no-devices", "--cert",
                           keys / "server.crt", "--key", keys / "server.key"), REFUSED, "token")

    def test_insecure_warns(self):
        server = Server("--listen", "0.0.0.0:0", "--insecure")
        code, stderr = server.stop()
        self.assertEqual(code, DONE, stderr)
        self.assertIn("--insecure", stderr)
        self.assertIn("warning", stderr)
        self.assertNotIn("keygen", stderr)

    def test_a_name_that_is_none_is_told_as_such(self):
        told = 'cannot resolve "no-such-host.invalid"'
        for option in ("--listen", "--metrics"):
            self.expect(hawser("serve", "--no-devices", option, "no-such-host.invalid:1"), USAGE, f"{option}: {told}")

    def test_key_that_others_can_read(self):
        keys, _ = self.keys()
        (keys / "server.key").chmod(0o644)
        self.expect(hawser("serve", "--listen", "127.0.0.1:0", "--no-devices", "--cert",
                           keys / "server.crt", "--key", keys / "server.key"), FAILED, "server.key")

    def test_session_user(self):
        serve = ("serve", "--listen", f"unix:{self.dir}/s", "--no-devices", "--session-user")
        self.expect(hawser(*serve, "no-such-user"), USAGE, "no-such-user", "no such user")
        if os.geteuid() != 0:
            self.expect(hawser(*serve, "root"), REFUSED, "only root")

    def test_a_device_that_is_none(self):
        self.expect(hawser("serve", "--listen", f"unix:{self.dir}/s", "--no-devices", "--device",
                           "0"), USAGE, "--device: there is no device", "--no-devices")

    def test_metrics_stay_on_this_host(self):
        self.expect(hawser("serve", "--listen", "127.0.0.1:0", "--no-devices", "--metrics",
                           "0.0.0.0:0"), REFUSED, "--metrics")


class Life(Case):
    def test_signals_end_it_in_order_and_leave_no_socket(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                # As a shell starts it: under nohup SIGHUP is ignored here, and would be there.
                server = Server("--listen", f"unix:{self.dir}/a,shm:{self.dir}/b",
                                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
                self.assertTrue((self.dir / "a").is_socket())
                code, stderr = server.stop(number)
                self.assertEqual((code, stderr), (DONE, ""))
                self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_live_socket_is_not_taken(self):
        with Server("--listen", f"unix:{self.dir}/s") as first:
            self.expect(hawser("serve", "--listen", f"unix:{self.dir}/s", "--no-devices"), FAILED,
                        f"{self.dir}/s")
            self.expect(hawser("info", first.addresses[0], "--no-bench"), DONE)

    def test_a_stale_socket_is_replaced(self):
        for scheme in ("unix", "shm"):
            with self.subTest(scheme):
                server = Server("--listen", f"{scheme}:{self.dir}/s")
                server.stop(signal.SIGKILL)
                self.assertTrue((self.dir / "s").is_socket())
                with Server("--listen", f"{scheme}:{self.dir}/s") as second:
                    self.expect(hawser("info", second.addresses[0], "--no-bench"), DONE)

    def test_a_file_that_is_no_socket_is_left_alone(self):
        path = self.dir / "precious"
        path.write_text("data")
        self.expect(hawser("serve", "--listen", f"unix:{path}", "--no-devices"), FAILED, str(path),
                    "another kind of file")
        self.assertEqual(path.read_text(), "data")

    def test_a_taken_port_is_refused_by_name(self):
        with Server("--listen", "127.0.0.1:0") as first:
            self.expect(hawser("serve", "--listen", first.addresses[0], "--no-devices"), FAILED,
                        first.addresses[0])

    def test_ready_fd_gets_a_line(self):
        read_end, write_end = os.pipe()
        with Server("--listen", f"unix:{self.dir}/s", "--ready-fd", write_end,
                    pass_fds=[write_end]):
            os.close(write_end)
            self.assertEqual(list(lines_of(read_end)), ["ready"])
        os.close(read_end)

    def test_systemd_is_told(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.bind(str(self.dir / "notify"))
            notified.settimeout(TIMEOUT)
            with Server("--listen", f"unix:{self.dir}/s",
                        env={"NOTIFY_SOCKET": str(self.dir / "notify")}):
                self.assertEqual(notified.recv(64), b"READY=1")

    def test_a_closed_pipe_as_output_ends_it(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "w") as pipe:
            self.expect(hawser("serve", "--listen", f"unix:{self.dir}/s", "--no-devices",
                               stdout=pipe), FAILED, "cannot write the output")
        self.assertFalse((self.dir / "s").exists())

    def test_lists_devices_or_says_why_not(self):
        with Server("--listen", f"unix:{self.dir}/s", devices=True,
                    env={"VK_DRIVER_FILES": "/nonexistent.json",
                         "VK_ICD_FILENAMES": "/nonexistent.json"}) as server:
            self.assertRegex("\n".join(server.lines), "no Vulkan device: .*; --software offers one")
            report = self.info_json(server.addresses[0], "--no-bench")
            self.assertTrue(report["server"]["devices_note"])

    def test_an_installed_driver_does_not_lead_back_to_the_server(self):
        """The loader finds our manifest; a driver that it loaded would call this socket."""
        icd = self.dir / "share/vulkan/icd.d/hawser_icd.json"
        icd.parent.mkdir(parents=True)
        built = pathlib.Path(HAWSER).resolve().parents[1] / "venus/client"
        manifest = (built / "hawser_icd.json").read_text()
        icd.write_text(manifest.replace('"./', f'"{built}/'))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as called:
            called.bind(str(self.dir / "called"))
            called.listen()
            called.setblocking(False)
            with Server("--listen", f"unix:{self.dir}/s", devices=True,
                        env={"XDG_DATA_DIRS": str(self.dir / "share"), "VK_DRIVER_FILES": "",
                             "VK_ICD_FILENAMES": "", "VENUS_SERVERS": f"unix:{self.dir}/called"}):
                self.assertRaises(BlockingIOError, called.accept)

    def test_software_says_where_the_finder_is_missing(self):
        self.expect(hawser("serve", "--software", "--listen", f"unix:{self.dir}/s",
                           env={"HAWSER_FIND_VULKAN": f"{self.dir}/none", "HAWSER_VULKAN": ""}),
                    FAILED, "HAWSER_FIND_VULKAN")

    def test_software_starts_again_under_the_finder(self):
        """A finder of the test's own shows that arguments and environment arrive."""
        finder = self.dir / "find-vulkan"
        finder.write_text('#!/bin/sh\n[ "$1 $2" = "--software --" ] || exit 9\nshift 2\n'
                          'export HAWSER_VULKAN=private\nexec "$@"\n')
        finder.chmod(0o755)
        with Server("--software", "--listen", f"unix:{self.dir}/s", devices=True,
                    env={"HAWSER_FIND_VULKAN": str(finder), "HAWSER_VULKAN": ""}) as server:
            self.expect(hawser("info", server.addresses[0], "--no-bench"), DONE)


class Metrics(Case):
    def setUp(self):
        super().setUp()
        self.server = Server("--listen", f"unix:{self.dir}/s", "--metrics", "127.0.0.1:0")
        self.addCleanup(self.server.stop)
        line = next(l for l in self.server.lines if l.startswith("metrics on "))
        self.url = line.removeprefix("metrics on ")

    def get(self, path, **kwargs):
        request = urllib.request.Request(self.url + path, **kwargs)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return response.headers["Content-Type"], response.read().decode()

    def test_prometheus_counts_what_happened(self):
        self.expect(hawser("info", self.server.addresses[0], "--no-bench"), DONE)
        kind, text = self.get("metrics")
        self.assertTrue(kind.startswith("text/plain; version=0.0.4"))
        self.assertIn("hawser_server_connections_total 1\n", text)
        self.assertIn("# TYPE hawser_rpc_messages_received_total counter", text)

    def test_text_and_json(self):
        self.assertIn("server_clients", self.get("")[1])
        kind, text = self.get("json")
        self.assertEqual(kind, "application/json")
        names = [c["name"] for c in json.loads(text)["counters"]]
        self.assertIn("server_connections", names)

    def test_other_pages_and_methods_are_refused(self):
        for path, kwargs, status, methods in (("other", {}, 404, None),
                                              ("metrics", {"method": "DELETE"}, 405, "GET, HEAD")):
            with self.subTest(path), self.assertRaises(urllib.error.HTTPError) as caught:
                self.get(path, **kwargs)
            self.assertEqual(caught.exception.code, status)
            self.assertEqual(caught.exception.headers["Allow"], methods)
            caught.exception.close()


class Keygen(Case):
    def test_private_files_are_private(self):
        keys, fingerprint = self.keys("gpu1.example", "10.0.0.7", leaks=True)
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in pathlib.Path(keys).iterdir()}
        self.assertEqual(set(modes), {"server.crt", "server.key", "token"})
        self.assertEqual(modes["server.key"] & 0o077, 0)
        self.assertEqual(modes["token"] & 0o077, 0)
        self.assertEqual(len(fingerprint.replace(":", "")), 64)

    def test_prints_the_two_commands_to_use_them(self):
        result = self.expect(hawser("keygen", self.dir / "k", "--name", "gpu1.example"), DONE)
        self.assertIn("hawser serve --listen", result.stdout)
        self.assertIn("hawser info gpu1.example:28100 --fingerprint", result.stdout)

    def test_never_overwrites(self):
        keys, _ = self.keys()
        before = (keys / "server.key").read_bytes()
        self.expect(hawser("keygen", keys), FAILED, str(keys))
        self.assertEqual((keys / "server.key").read_bytes(), before)

    def test_a_folder_that_cannot_be_made(self):
        (self.dir / "file").write_text("")
        self.expect(hawser("keygen", self.dir / "file" / "keys"), FAILED, "file")


if __name__ == "__main__":
    unittest.main()
