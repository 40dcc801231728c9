#!/usr/bin/env python3
"""Khronos' conformance tests, natively and through the driver: prints each verdict that differs.

    cts.py --hawser HAWSER [--software FIND_VULKAN] DEQP_VK CASES   behind a server of HAWSER's
    cts.py --b PREFIX DEQP_VK CASES                                 B is what the prefix starts

CASES is a file with a case a line.  deqp-vk runs a chunk of them in one process; where that process
crashes, hangs or stops, the case under way gets the verdict Crash, Timeout or Missing, and another
process goes on behind it.  A server that has ended, or behind which a case hangs, is started again.

The last lines list the cases that newly fail: those that pass natively, or are not supported there,
and neither pass remotely nor are they unsupported.  Status 1 when there is one.
"""
import argparse
import collections
import contextlib
import os
import re
import selectors
import shlex
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from differential import Server, pairs, software_environment  # noqa: E402

BEGINS = re.compile(r"Test case '([^']+)'\.\.")
ENDS = re.compile(r"  (\w+) \((.*)")
GOOD = ("Pass", "QualityWarning", "CompatibilityWarning")
UNSUPPORTED = "NotSupported"
DYING_SECONDS = 0.5  # a server that a case has ended
END_SECONDS = 10     # for a server that is told to end


class Side:
    """Where cases run: a command prefix and an environment."""

    def __init__(self, prefix, env, options):
        self.prefix, self.env, self.options = prefix, env, options

    def command(self, cases, folder):
        listed = os.path.join(folder, "cases.txt")
        with open(listed, "w", encoding="utf-8") as file:
            file.write("\n".join(cases) + "\n")
        deqp = os.path.abspath(self.options.deqp)
        data = self.options.data or os.path.dirname(deqp)
        return [*self.prefix, deqp, f"--deqp-caselist-file={listed}",
                f"--deqp-log-filename={folder}/log.qpa", "--deqp-log-images=disable",
                "--deqp-log-shader-sources=disable", f"--deqp-archive-dir={data}"]

    def run(self, cases):
        """{case: (verdict, message)} of all of them."""
        found, left = {}, list(cases)
        while left:
            with tempfile.TemporaryDirectory() as folder:
                found.update(self.run_once(left, folder))
            left = [case for case in left if case not in found]
        return found

    def run_once(self, cases, folder):
        """One process; at least one case gets a verdict."""
        child = subprocess.Popen(self.command(cases, folder), env=self.env, cwd=folder,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        try:
            found, under_way, hung = self.listen(child)
        finally:
            child.kill()
            status = child.wait()
            child.stdout.close()
        if under_way or not found:
            case = under_way or next(c for c in cases if c not in found)
            verdict = "Timeout" if hung else "Crash" if status < 0 or under_way else "Missing"
            found[case] = (verdict, f"status {status}")
        return found

    def listen(self, child):
        """Verdicts, the case without one, and whether that says nothing any more."""
        found, under_way, rest = {}, None, b""
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(self.options.case_seconds):
                    return found, under_way, True
                piece = os.read(child.stdout.fileno(), 1 << 16)
                if not piece:
                    child.wait()
                    return found, under_way, False
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    under_way = self.take(line.decode(errors="replace"), found, under_way)

    @staticmethod
    def take(line, found, under_way):
        begins, ends = BEGINS.match(line), ENDS.match(line)
        if begins:
            return begins.group(1)
        if ends and under_way:
            found[under_way] = (ends.group(1), ends.group(2).rstrip(")"))
            return None
        return under_way


class Behind(Side):
    """Remotely, behind a server of its own."""

    def __init__(self, hawser, server_env, env, options):
        super().__init__([], env, options)
        self.hawser, self.server_env = os.path.abspath(hawser), server_env
        self.server, self.folder = None, None

    def run_once(self, cases, folder):
        self.begin()
        found = super().run_once(cases, folder)
        verdicts = {verdict for verdict, _ in found.values()}
        status = self.status(0 if verdicts <= {*GOOD, UNSUPPORTED} else DYING_SECONDS)
        if status is not None or "Timeout" in verdicts:
            print(f"server\t{'hangs' if status is None else f'ended with status {status}'}\t"
                  f"{list(found)[-1]}", flush=True)
            self.end()
        return found

    def status(self, seconds):
        """None: it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.server.process.wait(seconds)
        return None

    def begin(self):
        if self.server:
            return
        self.folder = tempfile.TemporaryDirectory()
        self.server = Server(self.hawser, self.server_env, self.folder.name, None, ())
        self.prefix = [self.hawser, "run", "--servers", self.server.address, "--"]

    def end(self):
        if not self.server:
            return
        self.server.process.terminate()
        if self.status(END_SECONDS) is None:
            self.server.process.kill()
            self.server.process.wait()
        self.folder.cleanup()
        self.server = None


def kind_of(native, remote):
    """How two verdicts differ; None: they do not."""
    if native == remote or (native in GOOD and remote in GOOD):
        return None
    if remote in GOOD:
        return "better"
    if remote == UNSUPPORTED:
        return "lost" if native in GOOD else "other"
    return "broken" if native in (*GOOD, UNSUPPORTED) else "other"


def compare(cases, options, native, remote):
    """How many cases newly fail."""
    counts, verdicts, failing = collections.Counter(), collections.Counter(), []
    begun = time.monotonic()
    for at in range(0, len(cases), options.chunk):
        chunk = cases[at:at + options.chunk]
        a, b = native.run(chunk), remote.run(chunk)
        for case in chunk:
            kind = kind_of(a[case][0], b[case][0])
            counts[kind or "same"] += 1
            verdicts["native", a[case][0]] += 1
            verdicts["remote", b[case][0]] += 1
            if kind:
                says = f"{case}\t{a[case][0]} -> {b[case][0]}\t{b[case][1]}"
                print(f"{kind}\t{says}", flush=True)
            if kind == "broken":
                failing.append(says)
        if options.seconds and time.monotonic() - begun > options.seconds:
            break
    total = sum(counts.values())
    print(f"{total} of {len(cases)} cases: " + ", ".join(
        f"{count} {kind}" for kind, count in sorted(counts.items())))
    for side in ("native", "remote"):
        print(f"{side}: " + ", ".join(f"{count} {verdict}" for (where, verdict), count
                                      in sorted(verdicts.items()) if where == side))
    print("\n  ".join([f"{len(failing)} newly fail", *failing]))
    return len(failing)


def read_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hawser", help="B behind a server of this program's")
    parser.add_argument("--software", metavar="FIND_VULKAN", help="A on the software GPU")
    parser.add_argument("--b", metavar="PREFIX", help="the command that runs programs at B")
    parser.add_argument("--b-env", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--data", help="the folder that holds vulkan/ (default: deqp-vk's own)")
    parser.add_argument("--chunk", type=int, default=500, help="cases of a process")
    parser.add_argument("--case-seconds", type=float, default=120, help="until a case hangs")
    parser.add_argument("--seconds", type=float, help="after these no chunk is begun")
    parser.add_argument("deqp", metavar="DEQP_VK")
    parser.add_argument("cases", metavar="CASES")
    options = parser.parse_args(argv)
    if bool(options.hawser) == bool(options.b):
        parser.error("B is behind --hawser or --b")
    return options


def main(argv):
    options = read_arguments(argv)
    env = software_environment(options.software) if options.software else dict(os.environ)
    if env is None:
        sys.exit("cts.py: no software GPU here")
    with open(options.cases, encoding="utf-8") as file:
        cases = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    b_env = {**os.environ, **pairs(options.b_env)}
    native = Side([], env, options)
    with contextlib.ExitStack() as stack:
        if options.hawser:
            remote = Behind(options.hawser, env, b_env, options)
            stack.callback(remote.end)
        else:
            remote = Side(shlex.split(options.b), b_env, options)
        return 1 if compare(cases, options, native, remote) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
