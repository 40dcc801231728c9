"""hawser doctor: a sound installation, and one fault at a time, with real servers."""

import json
import os
import pathlib
import pty
import re
import shutil
import socket
import subprocess
import termios
import threading
import unittest

from harness import DONE, FAILED, HAWSER, REFUSED, TIMEOUT, UNREACHABLE, USAGE, Case, Server, hawser

SOURCE = pathlib.Path(__file__).parents[3]
KNOBS = SOURCE / "docs/reference/knobs.md"
SWITCHES = re.findall(r'"(no_\w+)"', (SOURCE / "src/venus/client/perf.c").read_text())
HELLO_HEADER = 8  # docs/reference/protocol.md: magic, length; then lowest and highest version


class Doctor(Case):
    def doctor(self, *args, code=DONE, env=None):
        """{check: [(status, detail, remedy)]}; nothing listens at the default address."""
        env = {"VENUS_SERVER_PORT": "1", "VK_DRIVER_FILES": "/nonexistent.json", "VK_ICD_FILENAMES": "/nonexistent.json",
               **(env or {})}
        result = self.expect(hawser("doctor", "--json", "--no-bench", *args, env=env), code)
        report = json.loads(result.stdout)
        found = {}
        for check in report["checks"]:
            found.setdefault(check["check"], []).append(
                (check["status"], check["detail"], check["remedy"]))
        statuses = [check["status"] for check in report["checks"]]
        self.assertEqual(report["failed"], statuses.count("failed"))
        self.assertEqual(report["warnings"], statuses.count("warning"))
        self.assertEqual(code == DONE, report["failed"] == 0)
        for check in report["checks"]:
            if check["status"] == "failed":
                self.assertTrue(check["remedy"] or ";" in check["detail"], check)
        return found

    def only(self, found, check, status, *texts):
        self.assertEqual(len(found.get(check, [])), 1, found)
        got, detail, remedy = found[check][0]
        self.assertEqual(got, status, found[check])
        for text in texts:
            self.assertIn(text, f"{detail}\n{remedy}")


class Host(Doctor):
    def test_a_sound_installation_has_no_failure(self):
        found = self.doctor()
        self.only(found, "manifest", "ok", "hawser_icd.json")
        self.only(found, "driver", "ok", "libhawser_vulkan.so can be loaded")
        self.only(found, "software GPU", "ok", "find-vulkan")
        self.only(found, "GPU", "warning", "--software")
        for check in ("program", "clock", "mapped pages", "open files", "locked memory",
                      "huge pages", "Vulkan loader", "device files", "CUDA", "keys"):
            self.assertEqual(len(found[check]), 1, check)

    def manifest(self, text):
        path = self.dir / "hawser_icd.json"
        path.write_text(text)
        return {"HAWSER_ICD": str(path)}

    def test_broken_manifests_and_drivers_are_told(self):
        found = self.doctor(code=FAILED, env={"HAWSER_ICD": f"{self.dir}/none.json"})
        self.only(found, "manifest", "failed", "none.json", "HAWSER_ICD")
        found = self.doctor(code=FAILED, env=self.manifest("{"))
        self.only(found, "manifest", "failed", "hawser_icd.json:1")
        found = self.doctor(code=FAILED, env=self.manifest('{"ICD": {"library_path": 5}}'))
        self.only(found, "manifest", "failed", "library_path")
        for library, text in (("./none.so", "No such file"), ("./hawser_icd.json", "not a library"),
                              ("none.so.7", "cannot be loaded")):
            env = self.manifest(json.dumps({"ICD": {"library_path": library}}))
            self.only(self.doctor(code=FAILED, env=env), "driver", "failed", text)

    def test_a_driver_for_another_machine_is_told(self):
        elf = bytearray(pathlib.Path(HAWSER).read_bytes()[:4096])
        elf[18:20] = b"\x08\x00"  # MIPS
        (self.dir / "other.so").write_bytes(elf)
        env = self.manifest('{"ICD": {"library_path": "./other.so"}}')
        self.only(self.doctor(code=FAILED, env=env), "driver", "failed", "another machine",
                  "architecture")

    def test_long_lines_break_between_words_on_a_terminal(self):
        ours, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        env, seen = {"VENUS_SERVER_PORT": "1", "VENUS_FETCH": "some"}, []

        def read():
            try:
                while data := os.read(ours, 65536):
                    seen.append(data)
            except OSError:
                pass  # the other end is closed
        reader = threading.Thread(target=read)
        reader.start()
        hawser("doctor", "--no-bench", stdout=terminal, env=env)
        os.close(terminal)
        reader.join()
        os.close(ours)
        shown = b"".join(seen).decode()
        lines = shown.splitlines()
        plain = hawser("doctor", "--no-bench", env=env).stdout
        self.assertGreater(len(lines), len(plain.splitlines()))
        self.assertEqual([line for line in lines if len(line) > 80 and " " in line[24:]], [])
        words, expected = (re.sub(r"[-\d:]+ UTC", "", " ".join(text.split())) for text in (shown, plain))
        self.assertEqual(words, expected)

    def test_an_installation_without_its_other_files_is_told(self):
        """Only the program was copied."""
        shutil.copy(HAWSER, self.dir / "hawser")
        result = subprocess.run([self.dir / "hawser", "doctor", "--no-bench"], check=False,
                                capture_output=True, text=True, timeout=TIMEOUT)
        self.assertRegex(result.stdout, r"failed +manifest +hawser_icd.json: not found")
        self.assertRegex(result.stdout, r"warning +software GPU ")

    def test_misspelt_variables_are_told(self):
        found = self.doctor(env={"VENUS_TOKNE_FILE": "x", "VENUS_SYNC": "1",
                                 "VK_LOADER_DRIVERS_DISABLE": "hawser_icd.json"})
        self.assertIn(("warning", "Hawser does not read VENUS_TOKNE_FILE",
                       "did you mean VENUS_TOKEN_FILE?"), found["variable"])
        self.assertIn(("ok", "VENUS_SYNC=1", None), found["variable"])
        self.assertIn("leaves Hawser's driver out", str(found["variable"]))

    def test_values_that_cannot_be_read_are_told(self):
        good = {"VENUS_TRACK": "compare", "VENUS_SERVER_PORT": "1", "VENUS_EARLY_FENCE": "no",
                "VENUS_UPLOAD_STRIPES": "8", "VENUS_SOCKET_BUFFER_BYTES": "1MiB", "VENUS_FETCH": "None",
                "VENUS_DESCRIPTOR_BUFFER": "1", "VENUS_LOG_LEVEL": "error", "HAWSER_SANDBOX": "watch",
                "VENUS_LOG_CATEGORIES": "network=INFO,kv=WARN", "HAWSER_TP_TIMEOUT_S": "60",
                "VENUS_PERF": ",".join(SWITCHES), "VENUS_INVALIDATE_HANDLES": "0x9,11",
                "HAWSER_VISIBLE_DEVICES": f"{'0aF1' * 8},{'0' * 32}"}
        bad = {"VENUS_TRACK": "foo", "VENUS_SERVER_PORT": "abc", "VENUS_EARLY_FENCE": "maybe",
               "VENUS_UPLOAD_STRIPES": "9", "VENUS_SOCKET_BUFFER_BYTES": "x", "VENUS_FETCH": "some",
               "VENUS_DESCRIPTOR_BUFFER": "perhaps", "VENUS_LOG_LEVEL": "loud", "HAWSER_SANDBOX": "on",
               "HAWSER_TP_TIMEOUT_S": "0"}
        parts = {"VENUS_LOG_CATEGORIES": ("NET=INFO,net", "net"), "VENUS_PERF": ("no_packing,packing", "packing"),
                 "VENUS_INVALIDATE_HANDLES": ("0x9,all", "all"), "HAWSER_VISIBLE_DEVICES": ("0", "0")}
        for name, value in good.items():
            self.assertIn(("ok", f"{name}={value}", None), self.doctor(env={name: value})["variable"])
        for name, value in bad.items():
            found = self.doctor("unix:/none", env={name: value}, code=UNREACHABLE)["variable"]
            self.assertIn(f"{name}={value} cannot be read",
                          "\n".join(line[1] for line in found if line[0] == "warning"))
        for name, (value, part) in parts.items():
            found = self.doctor("unix:/none", env={name: value}, code=UNREACHABLE)["variable"]
            self.assertIn(("warning", f"{name}={value}: '{part}' cannot be read"), [line[:2] for line in found])

    def test_the_log_does_not_say_it_again(self):
        env = {"VENUS_SERVER_PORT": "abc", "VENUS_SYNC": "maybe", "VENUS_TRACK": "foo", "VENUS_UPLOAD_STRIPES": "9"}
        result = hawser("doctor", "--no-bench", "unix:/none", env=env)
        self.assertEqual(result.stdout.count("cannot be read"), len(env), result.stdout)
        self.assertEqual(result.stderr, "")

    def test_a_list_without_a_server_is_told(self):
        self.only(self.doctor(env={"VENUS_SERVERS": ","}), "server", "warning", "VENUS_SERVERS names no server")

    def test_every_knob_is_known(self):
        names = re.findall(r"^\| `((?:VENUS|HAWSER)_\w+)`", KNOBS.read_text(), re.M)
        self.assertGreater(len(names), 40)
        found = self.doctor(env={name: "" for name in names} | {"VENUS_SERVER_PORT": "1"})
        unknown = [line for line in found["variable"] if line[0] == "warning"]
        self.assertEqual(unknown, [])


class Relay(threading.Thread):
    """Between a client and a server; the server's HELLO offers another version."""

    def __init__(self, path, target):
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.target = str(target)

    def run(self):
        client, _ = self.listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.target)
        server.sendall(client.recv(65536))
        hello = bytearray(server.recv(65536))
        hello[HELLO_HEADER:HELLO_HEADER + 4] = b"\x63\x00\x63\x00"
        client.sendall(hello)
        client.recv(65536)
        for end in (client, server, self.listener):
            end.close()


class Servers(Doctor):
    def test_a_server_that_works(self):
        with Server("--listen", f"unix:{self.dir}/s") as server:
            found = self.doctor(server.addresses[0])
            listed = self.doctor(env={"VENUS_SERVERS": f"{server.addresses[0]},unix:{self.dir}/no"},
                                 code=UNREACHABLE)
            text = self.expect(hawser("doctor", server.addresses[0], "--duration", "20ms"), DONE)
        self.only(found, "connection", "ok", server.addresses[0], "no token")
        self.only(found, "protocol", "ok", "Vulkan protocol")
        self.only(found, "remote GPU", "warning", "--no-devices", "--software")
        self.assertEqual([line[0] for line in listed["connection"]], ["ok", "failed"])
        self.assertRegex(text.stdout, r"ok +speed +round trip \d+\.\d us .*up \d+\.\d+ GB/s")
        self.assertRegex(text.stdout, r"\n\d+ warnings?, 0 failed\n$")

    def test_a_server_that_is_away(self):
        self.only(self.doctor(), "server", "warning", "hawser doctor ADDR")
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            found = self.doctor(f"127.0.0.1:{unused.getsockname()[1]}", code=UNREACHABLE)
        self.only(found, "connection", "failed", "Connection refused", "firewall")
        found = self.doctor("no-such-host.invalid:28100", code=UNREACHABLE)
        self.only(found, "name", "failed", "no-such-host.invalid", "DNS")
        self.only(self.doctor("unix:here", code=USAGE), "address", "failed", "absolute")

    def test_keys_and_tokens(self):
        keys, fingerprint = self.keys()
        (self.dir / "open").write_bytes((keys / "token").read_bytes())
        os.chmod(self.dir / "open", 0o644)
        (self.dir / "wrong").write_text("x" * 64)
        os.chmod(self.dir / "wrong", 0o600)
        with Server("--listen", "127.0.0.1:0", "--cert", keys / "server.crt", "--key",
                    keys / "server.key", "--token-file", keys / "token") as server:
            address = server.addresses[0]
            pin = ["--fingerprint", fingerprint]
            good = self.doctor(address, "--ca", keys / "server.crt", "--token-file", keys / "token")
            plain = self.doctor(address, code=REFUSED)
            none = self.doctor(address, *pin, "--token-file", "none", code=REFUSED)
            wrong = self.doctor(address, *pin, "--token-file", self.dir / "wrong", code=REFUSED)
            other = self.doctor(address, "--fingerprint", "0" * 64, code=REFUSED)
            open_ = self.doctor(address, *pin, "--token-file", self.dir / "open", code=FAILED)
        self.only(good, "connection", "ok", "TLS 1.3", "token accepted")
        self.only(good, "token", "ok", "mode 0600")
        self.only(plain, "connection", "failed", "VENUS_TLS_CA")
        self.only(none, "connection", "failed", "wants a token")
        self.only(wrong, "connection", "failed", "wrong token")
        self.only(other, "connection", "failed", "fingerprint")
        self.only(open_, "keys", "failed", "chmod 600")

    def test_another_protocol(self):
        with Server("--listen", f"unix:{self.dir}/s"):
            relay = Relay(self.dir / "relay", self.dir / "s")
            relay.start()
            found = self.doctor(f"unix:{self.dir}/relay", code=REFUSED)
            relay.join()
        self.only(found, "connection", "failed", "no common protocol version", "99 to 99")

    def test_what_is_no_hawser_server(self):
        with socket.socket() as web:
            web.bind(("127.0.0.1", 0))
            web.listen()

            def answer():
                connection, _ = web.accept()
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.close()
            thread = threading.Thread(target=answer)
            thread.start()
            found = self.doctor(f"127.0.0.1:{web.getsockname()[1]}", code=REFUSED)
            thread.join()
        self.only(found, "connection", "failed", "an HTTP server")


if __name__ == "__main__":
    unittest.main()
