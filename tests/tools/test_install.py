"""What meson installs is complete: programs that find each other, pages, completion, units."""
import json
import os
import pathlib
import re
import pty
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD, MESON = pathlib.Path(sys.argv.pop(1)).resolve(), sys.argv.pop(1)
TIMEOUT = 60


def run(*command, **kwargs):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          timeout=TIMEOUT, **kwargs)


# Notes what compadd adds when Tab is pressed; zsh completes at a terminal only.
ZSHRC = """fpath=({place} $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {{
  if (( ${{@[(I)-(O|A|D)]}} )); then builtin compadd "$@"; return; fi
  local -a found
  builtin compadd -A found "$@"
  (( $#found )) && print -rl -- $found >>{noted}
  builtin compadd "$@"
}}
finish() {{ zle complete-word; print END >>{noted} }}
zle -N finish
bindkey '^I' finish
print READY >>{noted}
"""


def zsh_completes(place, line):
    with tempfile.TemporaryDirectory() as folder:
        noted = pathlib.Path(folder, "noted")
        noted.touch()
        pathlib.Path(folder, ".zshrc").write_text(ZSHRC.format(place=place, noted=noted), encoding="utf-8")
        terminal, inner = pty.openpty()
        with subprocess.Popen(["zsh", "-i"], stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
                              env={**os.environ, "ZDOTDIR": folder}) as zsh:
            reader = threading.Thread(target=drain, args=(terminal,))
            reader.start()
            os.close(inner)
            try:
                wait_for_line(noted, "READY")
                os.write(terminal, f"hawser {line}\t".encode())
                wait_for_line(noted, "END")
            finally:
                zsh.kill()
        reader.join()
        os.close(terminal)
        return [found for found in noted.read_text().splitlines() if found not in ("READY", "END")]


def drain(terminal):
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass


def wait_for_line(path, line):
    end = time.monotonic() + TIMEOUT
    while line not in path.read_text().splitlines():
        if time.monotonic() > end:
            raise AssertionError(f"zsh did not come to {line}: {path.read_text()}")
        threading.Event().wait(0.02)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="hawser-install-")
        cls.addClassCleanup(folder.cleanup)
        result = run(MESON, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder.name)
        if result.returncode:
            raise AssertionError(result.stdout + result.stderr)
        cls.stage = pathlib.Path(folder.name)
        cls.hawser = next(cls.stage.rglob("bin/hawser"))
        cls.prefix = cls.hawser.parents[1]
        tables = run(cls.hawser, "help", "--json")
        cls.commands = json.loads(tables.stdout)["commands"]

    def test_the_parts_find_each_other(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HAWSER_", "VENUS_", "VK_"))}
        env["VK_DRIVER_FILES"] = "/nonexistent.json"
        result = run(self.hawser, "doctor", "--json", "--no-bench", env=env)
        checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
        for name, place in (("manifest", "share/vulkan/icd.d/hawser_icd.json"),
                            ("driver", "libhawser_vulkan.so can be loaded"),
                            ("software GPU", "libexec/hawser/find-vulkan")):
            self.assertEqual("ok", checks[name]["status"], checks[name])
            self.assertIn(place, checks[name]["detail"])
            self.assertIn(str(self.prefix.resolve()), checks[name]["detail"])
        self.assertTrue(os.access(self.prefix / "libexec/hawser/hawser-vkprobe", os.X_OK))
        self.assertTrue((self.prefix / "share/doc/hawser/guide/troubleshooting.md").is_file())

    def test_links_of_the_installed_pages_lead_somewhere(self):
        pages = list((self.prefix / "share/doc/hawser").rglob("*.md"))
        links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text())]
        self.assertGreater(len(links), 100)
        self.assertEqual([], [(page.name, link) for page, link in links if not (page.parent / link).exists()])

    def test_every_command_has_a_page_that_renders(self):
        pages = sorted((self.prefix / "share/man/man1").iterdir())
        names = ["hawser", *(f"hawser-{command['name']}" for command in self.commands)]
        self.assertEqual(sorted(f"{name}.1" for name in names), [page.name for page in pages])
        for command in self.commands:
            text = (self.prefix / f"share/man/man1/hawser-{command['name']}.1").read_text()
            for option in command["options"]:
                self.assertIn("\\-\\-" + option["name"].replace("-", "\\-"), text)
        if shutil.which("groff"):
            result = run("groff", "-man", "-Tutf8", "-ww", "-z", *pages)
            self.assertEqual((0, ""), (result.returncode, result.stderr))

    def test_the_guide_removes_all_of_it(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/install.md"
        commands = re.findall("^rm .*", page.read_text().partition("## Remove")[2], re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(self.prefix, pathlib.Path(folder, "copy"), symlinks=True)
            result = run("sh", "-ec", "\n".join(commands), cwd=copy)
            self.assertEqual((0, ""), (result.returncode, result.stderr))
            self.assertEqual([], [place for place in copy.rglob("*") if not place.is_dir()])

    def complete(self, *words, cwd=None):
        script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hawser; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        place = self.prefix / "share/bash-completion/completions/hawser"
        result = run("bash", "-uc", script, "bash", place, "hawser", *words, cwd=cwd)
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        return result.stdout.split()

    @unittest.skipUnless(shutil.which("bash"), "needs bash")
    def test_bash_completes(self):
        names = [command["name"] for command in self.commands]
        self.assertEqual([*names, "--help", "--version"], self.complete(""))
        self.assertEqual(["keygen"], self.complete("ke"))
        self.assertEqual(["--max-clients", "--max-calls"], self.complete("serve", "--max-c"))
        self.assertEqual(["cpu"], self.complete("serve", "--backend", "c"))
        self.assertEqual(["cpu"], self.complete("serve", "--backend", "=", "c"))
        self.assertEqual(["serve"], self.complete("help", "ser"))
        self.assertEqual(["import", "info"], sorted(self.complete("model", "--json", "i")))
        self.assertEqual([], self.complete("model", "info", "impo"))
        self.assertEqual([], self.complete("serve", "--listen", ""))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "token file").touch()
            pathlib.Path(folder, "tokens").mkdir()
            self.assertEqual(["file", "token", "tokens"],
                             sorted(self.complete("info", "--token-file", "tok", cwd=folder)))
            self.assertEqual(["tokens"], self.complete("keygen", "tok", cwd=folder))
        self.assertIn("bash", self.complete("run", "--servers", "a", "--", "bas"))

    def assert_completes(self, complete):
        self.assertEqual(["keygen"], complete("ke"))
        self.assertEqual(["--max-calls", "--max-clients"], sorted(complete("serve --max-c")))
        self.assertEqual(["cpu"], complete("serve --backend c"))
        self.assertEqual(["serve"], complete("help ser"))
        self.assertEqual(["import"], complete("model imp"))
        self.assertIn("basename", complete("run --servers a -- basena"))

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish_completes(self):
        place = self.prefix / "share/fish/vendor_completions.d/hawser.fish"

        def complete(line):
            result = run("fish", "--no-config", "-c", 'source $argv[1]; complete -C "hawser $argv[2]"', place, line)
            self.assertEqual((0, ""), (result.returncode, result.stderr))
            return [found.split("\t")[0] for found in result.stdout.splitlines()]

        self.assert_completes(complete)
        self.assertEqual(["--backend=cpu"], complete("serve --backend=c"))

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh_completes(self):
        place = self.prefix / "share/zsh/vendor-completions"
        self.assert_completes(lambda line: zsh_completes(place, line))
        self.assertEqual(["cpu"], zsh_completes(place, "serve --backend=c"))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "needs systemd-analyze")
    def test_the_units_are_sound(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in (self.prefix / "lib/systemd/system").iterdir():
                text = unit.read_text()
                installed = f"/{self.hawser.relative_to(self.stage)}"
                self.assertIn(f"ExecStart={installed} ", text)
                pathlib.Path(folder, unit.name).write_text(text.replace(installed, str(self.hawser)))
            units = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual(["hawser-gateway.service", "hawser-kvd.service", "hawser.service"],
                             [unit.name for unit in units])
            result = run("systemd-analyze", "verify", "--man=no", *units)
            self.assertEqual((0, ""), (result.returncode, result.stdout + result.stderr))


if __name__ == "__main__":
    unittest.main()
