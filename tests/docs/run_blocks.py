#!/usr/bin/env python3
"""Runs the command blocks of documentation pages, as they are written.

    run_blocks.py --hawser FILE [--find-vulkan FILE --softgpu-dir DIR] [--tree DIR] PAGE...

A fenced block marked `sh` is run by bash, in the order of the page; a command that fails fails the page.
The blocks of a page share a scratch folder, exported variables and background processes. The runner waits
until each `hawser serve`, `kvd` or `gateway` `... &` of a block says that it is ready, and ends all
processes of the page after its last block.

An HTML comment on the line before a fence changes what happens:

    <!-- test: skip, REASON -->     sh: not run; the summary prints the reason
    <!-- test: needs PROGRAM -->    sh: skipped where there is no such program
    <!-- test: status N -->         sh: the last command must end with status N
    <!-- test: output -->           text: must be the output of the sh block before it
    <!-- test: shape -->            text: the same, but any number stands for any other
    <!-- test: file NAME -->        any: written to NAME in the scratch folder

In compared text `...` stands for anything: alone on a line for any lines, else for any part of the line.

What the pages name and the machine may use for something else is replaced, in commands and in expected
text: see Places. The scratch folder has `models` and `build/hawser` as the source tree does. Status 77
when nothing could be run.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

SECONDS = 240  # for one block: only to end what hangs
READY = re.compile(r"^(listening on|attach at|answering on) ", re.M)
STARTS = re.compile(r"\bhawser (serve|kvd|gateway)\b[^&|;\n]*&(?!&)")
FENCE = re.compile(r"^```(\S*)\s*$")
DIRECTIVE = re.compile(r"^<!-- test: (?P<verb>[a-z]+)[, ]?\s*(?P<rest>.*?) -->$")
ALLOWED = {"skip": "sh", "needs": "sh", "status": "sh", "output": "text", "shape": "text", "file": ""}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SKIPPED = 77


class BadPage(Exception):
    """The page breaks the conventions above."""


class Block:
    def __init__(self, line, language, verb, rest):
        self.line, self.language, self.verb, self.rest = line, language, verb, rest
        self.lines = []

    @property
    def text(self):
        return "".join(line + "\n" for line in self.lines)


def read_directive(line, number):
    if not line.startswith("<!-- test:"):
        return None
    match = DIRECTIVE.match(line)
    if not match or match["verb"] not in ALLOWED:
        raise BadPage(f"line {number}: not a directive: {line}")
    if match["verb"] in ("skip", "needs", "status", "file") and not match["rest"]:
        raise BadPage(f"line {number}: {match['verb']} needs an argument")
    return match


def parse(text):
    """The blocks of a page that have a language, each with the directive before it."""
    blocks, block, directive = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if block:
            if fence:
                block = None
            else:
                block.lines.append(line)
            continue
        if fence:
            verb, rest = (directive["verb"], directive["rest"]) if directive else ("", "")
            if not fence[1]:
                raise BadPage(f"line {number}: a fence without a language; use sh, text, c, ini ...")
            if ALLOWED.get(verb) and ALLOWED[verb] != fence[1]:
                raise BadPage(f"line {number}: {verb} is for {ALLOWED[verb]} blocks")
            block = Block(number, fence[1], verb, rest)
            blocks.append(block)
            directive = None
        elif line.strip():
            if directive:
                raise BadPage(f"line {number}: a directive stands right before its fence")
            directive = read_directive(line, number)
    if block or directive:
        raise BadPage("the page ends within a block or after a directive")
    return blocks


def matches(expected, actual, loose):
    """Whether actual is what a text block says."""
    def part(text):
        if not loose:
            return re.escape(text)
        pieces, at = [], 0
        for number in NUMBER.finditer(text):
            pieces += [re.escape(text[at:number.start()]), r"\d[\d,]*(?:\.\d+)?"]
            at = number.end()
        blanks = "".join(pieces) + re.escape(text[at:])
        return re.sub(r"(\\ )+", r"\\s+", blanks)  # columns move with their numbers

    def line(text):
        if text.strip() == "...":
            return r"(?:.*\n)*?"
        return ".*?".join(part(piece) for piece in text.split("...")) + r"[ \t]*\n"

    pattern = "".join(line(text) for text in expected.rstrip("\n").split("\n"))
    return re.fullmatch(pattern, actual.rstrip("\n") + "\n") is not None


CLAIMS = []  # of this process, until it ends


def free_ports():
    """Ports that nobody has, below those that the kernel gives to clients; no other test is given them,
    see free_port() in tests/integration/cli/harness.py."""
    ports = list(range(20000, 32000))
    random.shuffle(ports)
    for port in ports:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0hawser-test-port-{port}")
            socket.create_server(("0.0.0.0", port)).close()
        except OSError:
            claim.close()
            continue
        CLAIMS.append(claim)
        yield str(port)


class Places:
    """What pages name, and what stands for it in this run."""

    PORTS = ("28100", "28101", "28200", "28201", "29501", "29502", "9100", "2379", "8000",
             "8001")

    def __init__(self, scratch, program):
        self.table = {"/usr/local/bin/hawser": program, "/tmp/": f"{scratch}/tmp/",
                      "gpu.example": "localhost"}
        self.table.update(zip(self.PORTS, free_ports()))
        names = sorted(self.table, key=len, reverse=True)
        self.pattern = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}" +
                                           (r"(?!\w)" if name[-1] != "/" else "") for name in names))

    def put(self, text):
        return self.pattern.sub(lambda match: self.table[match.group()], text)


class Shell:
    """The scratch folder of one page, and the processes that its blocks start."""

    def __init__(self, scratch, program, tree):
        self.scratch = scratch
        for folder in ("tmp", "home", "run", "work/build"):
            (scratch / folder).mkdir(parents=True, mode=0o700)
        (scratch / "work/models").symlink_to(tree / "models")
        (scratch / "work/build/hawser").symlink_to(program)
        (scratch / "state").write_text(f"cd '{scratch}/work'\n")
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("VENUS_", "VK_", "XDG_")) and name != "DISPLAY"}
        self.env.update(PATH=f"{scratch}/work/build:{os.environ['PATH']}", HOME=f"{scratch}/home",
                        TMPDIR=f"{scratch}/tmp", XDG_RUNTIME_DIR=f"{scratch}/run", LC_ALL="C.UTF-8",
                        HAWSER_RUNTIME_DIR=f"{scratch}/run/hawser")
        self.groups = []  # (process, reader)

    def run(self, script):
        """Status and output; the status is a text when the block did not end or get ready."""
        (self.scratch / "block").write_text(script)
        wrapper = (f"trap 'rc=$?; {{ export -p; echo cd \"${{PWD@Q}}\"; }} >{self.scratch}/state; exit $rc' EXIT\n"
                   f". {self.scratch}/state; set -ea; . {self.scratch}/block")
        process = subprocess.Popen(["bash", "-c", wrapper], env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        reader = Reader(process.stdout)
        self.groups.append((process, reader))
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"not done after {SECONDS} s", reader.text()
        servers = len(STARTS.findall(script.replace("\\\n", " ")))
        if servers == 0:
            reader.drain()
        elif status == 0 and not reader.wait(lambda text: len(READY.findall(text)) >= servers):
            return "a server did not get ready", reader.text()
        return status, reader.text()

    def end(self):
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process, reader in self.groups:
                if reader.thread.is_alive():
                    try:
                        os.killpg(process.pid, sign)
                    except ProcessLookupError:
                        pass
            for _, reader in self.groups:
                reader.thread.join(10)


class Reader:
    """Collects what a block and its background processes write."""

    def __init__(self, pipe):
        self.pipe, self.data = pipe, b""
        self.news = threading.Condition()
        self.ended = False
        self.thread = threading.Thread(target=self.collect, daemon=True)
        self.thread.start()

    def collect(self):
        while True:
            piece = os.read(self.pipe.fileno(), 65536)
            with self.news:
                self.data += piece
                self.ended = not piece
                self.news.notify_all()
                if self.ended:
                    self.pipe.close()
                    return

    def text(self):
        with self.news:
            return self.data.decode("utf-8", "replace")

    def wait(self, ready):
        with self.news:
            self.news.wait_for(lambda: self.ended or ready(self.data.decode("utf-8", "replace")), SECONDS)
            return ready(self.data.decode("utf-8", "replace"))

    def drain(self):
        """The end of the output, if no background process keeps it open."""
        with self.news:
            self.news.wait_for(lambda: self.ended, 1)


class Run:
    """All pages; counts what was run and what was not, and why."""

    def __init__(self, options):
        self.options = options
        self.ran = self.compared = self.failed = 0
        self.skipped = []
        self.has_gpu = None

    def software_gpu(self):
        if self.has_gpu is None:
            find = self.options.find_vulkan
            self.has_gpu = bool(find) and subprocess.run(
                [find, "--software", "--env"], stdout=subprocess.DEVNULL, check=False).returncode == 0
        return self.has_gpu

    def why_skip(self, block, gpu_page):
        if block.verb == "skip":
            return block.rest
        if block.verb == "needs" and not shutil.which(block.rest):
            return f"no {block.rest} here"
        if gpu_page and not self.software_gpu():
            return "no software GPU here"
        return None

    def fail(self, page, block, problem, output=""):
        self.failed += 1
        print(f"FAILED {page.name}:{block.line if block else 1}: {problem}")
        for line in output.splitlines():
            print(f"    | {line}")

    @staticmethod
    def show_servers(shell):
        """What the processes that still run have said: the cause is often there."""
        for process, reader in shell.groups:
            if not reader.ended:
                print(f"  background processes of group {process.pid} say")
                for line in reader.text().splitlines():
                    print(f"    | {line}")

    def page(self, page):
        try:
            blocks = parse(page.read_text())
        except BadPage as problem:
            self.fail(page, None, str(problem))
            return
        with tempfile.TemporaryDirectory(prefix="hawser-docs-") as folder:
            scratch = pathlib.Path(folder)
            places = Places(scratch, str(self.options.hawser))
            shell = Shell(scratch, self.options.hawser, self.options.tree)
            try:
                self.blocks(page, blocks, shell, places)
            finally:
                shell.end()

    def blocks(self, page, blocks, shell, places):
        gpu_page = any("--software" in b.text for b in blocks if b.language == "sh" and b.verb != "skip")
        output = None  # of the last sh block; None where that was skipped
        for block in blocks:
            text = places.put(block.text)
            if block.verb == "file":
                (shell.scratch / "work" / block.rest).write_text(text)
            elif block.language == "sh":
                reason = self.why_skip(block, gpu_page)
                if reason:
                    self.skipped.append(f"{page.name}:{block.line}: {reason}")
                    output = None
                    continue
                status, output = shell.run(text)
                expected = int(block.rest) if block.verb == "status" else 0
                if status != expected:
                    self.fail(page, block, f"status {status}, expected {expected}", text + output)
                    self.show_servers(shell)
                    return
                self.ran += 1
            elif block.verb and output is not None:
                if not matches(text, output, block.verb == "shape"):
                    self.fail(page, block, "the output differs; expected", text)
                    self.fail(page, block, "found", output)
                    return
                self.compared += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hawser", type=pathlib.Path, required=True)
    parser.add_argument("--find-vulkan", help="without it, pages that need a software GPU are skipped")
    parser.add_argument("--softgpu-dir", help="HAWSER_SOFTGPU_DIR where that is not set")
    parser.add_argument("--tree", type=pathlib.Path, default=pathlib.Path.cwd())
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    options.hawser, options.tree = options.hawser.resolve(), options.tree.resolve()
    if options.softgpu_dir:
        os.environ.setdefault("HAWSER_SOFTGPU_DIR", options.softgpu_dir)
    run = Run(options)
    for page in options.pages:
        run.page(page)
    for line in run.skipped:
        print(f"skipped {line}")
    print(f"{run.ran} blocks run, {run.compared} outputs compared, {len(run.skipped)} skipped, "
          f"{run.failed} failed")
    if run.failed:
        return 1
    return 0 if run.ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
