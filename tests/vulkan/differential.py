#!/usr/bin/env python3
"""Runs Vulkan programs in two places and compares what they say, byte for byte.

    differential.py [OPTIONS] PROGRAM [CASE]...    all cases of PROGRAM, or those named

A is native: this environment, or with --software the one that find-vulkan gives.  B is A once more
(do two runs agree?), or with --b a command that runs programs elsewhere, in this environment:

    differential.py --software tools/find-vulkan --b 'hawser run --' --modes plain,sync vkt-memory

With --hawser B is behind a server that this script starts, with A's drivers.

Each case is a process of its own on either side; with --together, one process runs all that are valid, at A
and in each mode of B.  Standard output and exit status must be equal;
a case that A skips (77) is skipped, one that only B skips has failed.  With --sanitized, A is not run:
B must end well or skip, and no sanitizer may have a finding, in B or at the server.  With --validate
Khronos' validation layer must have nothing to say: at the server, which sees all that reaches a GPU, or
without --hawser in A.  Speaks TAP; status 1 if a case failed.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SKIPPED = 77
CRASHED = "its session died with signal"
SANITIZER = "Sanitizer"  # how each of them begins its report; UBSan's summary does
STARVING = "VKT_STARVING"  # tests/vulkan/starving.h
# Meson has glibc fill memory at malloc() and free(), so that a read of memory nobody wrote changes a result.  A
# software GPU allocates for each workgroup, which then takes up to a quarter of its time.
FILLS = "MALLOC_PERTURB_"
RUN_SECONDS = 240  # the slowest case needs two on an idle machine

# How B may be asked to work: what it sets in the environment of the remote driver.
MODES = {
    "plain": {},
    "sync": {"VENUS_SYNC": "1"},
    "userfaultfd": {"VENUS_TRACK": "userfaultfd"},
    "mprotect": {"VENUS_TRACK": "mprotect"},
    "compare": {"VENUS_TRACK": "compare"},
    "compare_packed": {"VENUS_TRACK": "compare", "VENUS_COMPRESS": "1"},
    "sync_mprotect": {"VENUS_SYNC": "1", "VENUS_TRACK": "mprotect"},
    "late": {"VENUS_EARLY_FENCE": "0"},
    "references_off": {"VENUS_PERF": "no_references"},
    "visible": {"VENUS_HOST_VISIBLE_DEVICE_MEMORY": "1"},
    # As with a GPU whose memory the server's CPU does not cache: pages are fetched.
    "fetch": {"VENUS_FETCH": "all"},
    "fetch_visible": {"VENUS_FETCH": "all", "VENUS_HOST_VISIBLE_DEVICE_MEMORY": "1"},
    "fetch_sync": {"VENUS_FETCH": "all", "VENUS_SYNC": "1"},
    "fetch_compare": {"VENUS_FETCH": "all", "VENUS_TRACK": "compare"},
    # What the server does not read back by itself is fetched when the program touches it.
    "on_touch": {"VENUS_INVALIDATE_ON_WAIT": "0"},
    "capped": {"VENUS_INVALIDATE_MAX_BYTES": "5000"},
    "capped_mprotect": {"VENUS_INVALIDATE_MAX_BYTES": "0", "VENUS_TRACK": "mprotect"},
    "listed_late": {"VENUS_INVALIDATE_HANDLES": "0xffffff", "VENUS_EARLY_FENCE": "0"},
    "stripes": {"VENUS_UPLOAD_STRIPES": "3"},
    "stripes_late_visible": {"VENUS_UPLOAD_STRIPES": "1", "VENUS_EARLY_FENCE": "0",
                           "VENUS_HOST_VISIBLE_DEVICE_MEMORY": "1"},
    "stripes_fetch": {"VENUS_UPLOAD_STRIPES": "8", "VENUS_FETCH": "all"},
    # The first fills the server's cache, the second finds there what it sends.
    "uploads": {"VENUS_UPLOAD_CACHE": "1"},
    "uploads_again": {"VENUS_UPLOAD_CACHE": "1"},
    "uploads_visible": {"VENUS_UPLOAD_CACHE": "1", "VENUS_HOST_VISIBLE_DEVICE_MEMORY": "1"},
    "uploads_fetch": {"VENUS_UPLOAD_CACHE": "1", "VENUS_FETCH": "all"},
    "uploads_mprotect": {"VENUS_UPLOAD_CACHE": "1", "VENUS_TRACK": "mprotect"},
}

NO_STRIPES = b"uploads use one connection"  # what the driver says when it does without: nothing was tried then

LAYER = "VK_LAYER_KHRONOS_validation"
LAYER_MANIFEST = "VkLayer_khronos_validation.json"
LAYER_FOLDERS = ["/etc/vulkan/explicit_layer.d", "/usr/local/share/vulkan/explicit_layer.d",
                 "/usr/share/vulkan/explicit_layer.d"]
# Performance advice is left out: programs use slow ways on purpose.
LAYER_SETTINGS = """khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.log_filename = {log}
"""

# What the layer says of itself: on a busy machine its own thread is too late to see a semaphore, and it
# calls that a bug of its own.
LAYER_EXCUSED = ("UNASSIGNED-VkSemaphore-state-timeout",)

Outcome = collections.namedtuple("Outcome", "status out err")
# result: "ok", "skip" or "not ok"; words: why
Verdict = collections.namedtuple("Verdict", "result words")


class Side:
    """A place where programs run: a command in front of them and an environment."""

    def __init__(self, prefix, env):
        self.prefix = prefix
        self.env = env

    def run(self, program, case, extra=None):
        return self.run_all(program, [case], extra)

    def run_all(self, program, cases, extra=None):
        seconds = RUN_SECONDS * len(cases)
        try:
            done = subprocess.run([*self.prefix, program, *cases], env={**self.env, **(extra or {})},
                                  stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            return Outcome(f"no end within {seconds} s", late.stdout or b"", late.stderr or b"")
        return Outcome(done.returncode, done.stdout, done.stderr)

    def run_together(self, program, cases, extra):
        """{case: its outcome} of one process that runs them in turn.  Its status is that of the last case that it
        began: those behind it were not reached."""
        if len(cases) < 2:
            return {case: self.run(program, case, extra) for case in cases}
        done = self.run_all(program, cases, extra)
        outcomes = dict.fromkeys(cases, Outcome("nothing: it was not reached", b"", done.err))
        parts = re.split(rb"^== (.*)\n", done.out, flags=re.MULTILINE)[1:]
        for name, out in zip(parts[0::2], parts[1::2]):
            outcome = Outcome(done.status if name == parts[-2] else 0, out, done.err)
            if outcome.status == 0 and last_line(outcome).startswith("skip: "):
                outcome = outcome._replace(status=SKIPPED)
            outcomes[text(name)] = outcome
        return outcomes


class Once:
    """A side that runs a case once in its own environment and remembers how it went."""

    def __init__(self, side):
        self.side = side
        self.outcomes = {}

    def begin(self, program, cases):
        """One process runs all cases that are valid."""
        if not self.outcomes:
            for case, outcome in self.side.run_together(program, valid(cases), {}).items():
                self.outcomes[program, case] = outcome

    def run(self, program, case, extra=None):
        if extra is not None:
            return self.side.run(program, case, extra)
        if (program, case) not in self.outcomes:
            self.outcomes[program, case] = self.side.run(program, case)
        return self.outcomes[program, case]


def valid(cases):
    return [name for name, invalid in cases.items() if not invalid]


def findings(log):
    """The layer's log, whose messages begin in the first column, without what is excused."""
    kept, excused = [], False
    for line in log.strip().splitlines():
        if line and not line[0].isspace():
            excused = line.startswith(LAYER_EXCUSED)
        if not excused:
            kept.append(line)
    return "\n".join(kept)


def text(data):
    return data.decode("utf-8", "backslashreplace")


def last_line(outcome):
    return (text(outcome.out).strip().splitlines() or [""])[-1]


def first_difference(a, b):
    """None when the outcomes are equal; otherwise where they part, in words."""
    if a.out != b.out:
        ours, theirs = text(a.out).splitlines(), text(b.out).splitlines()
        for number in range(max(len(ours), len(theirs)) + 1):
            pair = [lines[number] if number < len(lines) else "(nothing)" for lines in (ours, theirs)]
            if pair[0] != pair[1]:
                return f"line {number + 1}:\nA: {pair[0]}\nB: {pair[1]}\nB says: {text(b.err)}"
        return "line ends differ"
    if a.status != b.status:
        return f"A ended with {a.status}, B with {b.status}: {text(b.err)}"
    return None


def judge(a, b):
    if a.status == SKIPPED:
        return Verdict("skip", last_line(a).removeprefix("skip: "))
    if a.status != 0:
        return Verdict("not ok", f"A ended with {a.status}: {text(a.err)}")
    difference = first_difference(a, b)
    return Verdict("not ok", difference) if difference else Verdict("ok", "")


class Modes:
    """B in each of some modes; in those of together, one process runs all cases that are valid."""

    def __init__(self, b, modes, together):
        self.b, self.modes, self.together = b, modes, together
        self.outcomes = {}

    def begin(self, program, cases):
        for mode in self.modes:
            if mode in self.together:
                for case, outcome in self.b.run_together(program, valid(cases), MODES[mode]).items():
                    self.outcomes[mode, case] = outcome

    def run(self, program, case, mode):
        return self.outcomes.get((mode, case)) or self.b.run(program, case, MODES[mode])


class Compare(Modes):
    """B against A.  In modes that are validated another checker runs valid cases."""

    def __init__(self, a, b, modes, validated=(), together=()):
        super().__init__(b, [mode for mode in modes if mode not in validated], together)
        self.a, self.all_modes = a, modes

    def begin(self, program, cases):
        if self.together:
            self.a.begin(program, cases)
        super().begin(program, cases)

    def check(self, program, case, invalid):
        native = self.a.run(program, case)
        for mode in self.all_modes if invalid else self.modes:
            remote = self.run(program, case, mode)
            verdict = judge(native, remote)
            if verdict.result == "ok" and NO_STRIPES in remote.err:
                verdict = Verdict("not ok", text(remote.err))
            if verdict.result == "skip":
                return verdict
            if verdict.result == "not ok":
                return verdict._replace(words=f"mode {mode}: {verdict.words}")
        return Verdict("ok", "")


class Sanitized(Modes):
    """B alone: what it says was compared in a build without sanitizers."""

    def __init__(self, b, server, modes, together=()):
        super().__init__(b, modes, together)
        self.server, self.seen = server, 0

    def check(self, program, case, _invalid):
        for mode in self.modes:
            done = self.run(program, case, mode)
            words = self.server.words()
            said = text(done.err) + words[self.seen:]
            self.seen = len(words)
            if done.status not in (0, SKIPPED) or SANITIZER in said or CRASHED in said:
                return Verdict("not ok", f"mode {mode}: ended with {done.status}:\n{said}")
            if done.status == SKIPPED:
                return Verdict("skip", last_line(done).removeprefix("skip: "))
        return Verdict("ok", "")


class Validate:
    """A against A under the validation layer, which must stay silent.

    A case that is invalid on purpose is compared with a plain second run instead."""

    def __init__(self, a, folder):
        self.a = a
        self.log = pathlib.Path(folder, "validation.log")
        settings = pathlib.Path(folder, "vk_layer_settings.txt")
        settings.write_text(LAYER_SETTINGS.format(log=self.log), encoding="utf-8")
        self.env = {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_SETTINGS_PATH": str(folder)}

    def begin(self, program, cases):
        """Each case is a process of its own."""

    def check(self, program, case, invalid):
        native = self.a.run(program, case)
        if invalid:
            return judge(native, self.a.run(program, case, {}))
        self.log.unlink(missing_ok=True)
        verdict = judge(native, self.a.run(program, case, self.env))
        if verdict.result == "not ok":
            return verdict
        if not self.log.exists():
            return Verdict("not ok", "the validation layer did not load")
        said = findings(self.log.read_text(encoding="utf-8", errors="replace"))
        return Verdict("not ok", f"the validation layer says:\n{said}") if said else verdict


class Each:
    """What several checkers find: the first that is not content decides."""

    def __init__(self, *checkers):
        self.checkers = checkers

    def begin(self, program, cases):
        for checker in self.checkers:
            checker.begin(program, cases)

    def check(self, program, case, invalid):
        verdict = Verdict("ok", "")
        for checker in self.checkers:
            verdict = checker.check(program, case, invalid)
            if verdict.result != "ok":
                break
        return verdict


class Server:
    """A server on a socket of its own, with the environment of A."""

    def __init__(self, hawser, env, folder, listen, options):
        self.log = pathlib.Path(folder, "server.log")
        said = pathlib.Path(folder, "server.out")
        ready, told = os.pipe()
        with open(self.log, "wb") as log, open(said, "wb") as out:
            self.process = subprocess.Popen(
                [hawser, "serve", "--no-devices", "--listen", listen or f"unix:{folder}/gpu",
                 "--ready-fd", str(told), *options], env=env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=log, pass_fds=[told])
        os.close(told)
        with os.fdopen(ready, "rb") as end:
            if not end.read():
                sys.exit(f"differential.py: the server did not start: {self.words()}")
        self.address = said.read_text(encoding="utf-8").rpartition("listening on ")[2].strip()

    def words(self):
        return self.log.read_text(encoding="utf-8", errors="replace").strip()

    def stop(self):
        self.process.terminate()
        self.process.wait(RUN_SECONDS)


class ValidatedServer:
    """B behind a server with the validation layer, which must have nothing to say; but not for cases that
    are invalid on purpose."""

    def __init__(self, a, b, server, together):
        self.compare, self.server, self.seen = Compare(a, b, ["plain"], together=together), server, 0

    def begin(self, program, cases):
        self.compare.begin(program, cases)

    def check(self, program, case, invalid):
        if invalid:
            return Verdict("ok", "")
        verdict = self.compare.check(program, case, invalid)
        words = self.server.words()
        said = [line for line in words[self.seen:].splitlines()
                if "validation: " in line
                and not any(excuse in line for excuse in ("Performance Warning", *LAYER_EXCUSED))]
        self.seen = len(words)
        if said and verdict.result != "not ok":
            return Verdict("not ok", "the validation layer at the server says:\n" + "\n".join(said))
        return verdict


def layer_is_installed():
    folders = os.environ.get("VK_LAYER_PATH", "").split(":") + LAYER_FOLDERS
    return any(folder and os.path.exists(os.path.join(folder, LAYER_MANIFEST)) for folder in folders)


def list_cases(program):
    """{name: why it is invalid, or ""}"""
    lines = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
    return {name: reason for name, _, reason in (line.partition(" ") for line in lines.splitlines())}


def software_environment(find_vulkan):
    """The environment of the software GPU, or None where there is none."""
    done = subprocess.run([find_vulkan, "--software", "--", "env", "-0"], capture_output=True,
                          check=False)
    if done.returncode != 0:
        sys.stderr.write(text(done.stderr))
        return None
    entries = (entry.partition("=") for entry in text(done.stdout).split("\0") if entry)
    return {name: value for name, _, value in entries}


def report(number, name, verdict):
    words = verdict.words.strip().splitlines()
    if verdict.result == "skip":
        print(f"ok {number} - {name} # SKIP {words[0] if words else ''}", flush=True)
        return
    print(f"{verdict.result} {number} - {name}", flush=True)
    for line in words:
        print(f"# {line}", flush=True)


def run_cases(program, wanted, checker):
    """How many failed."""
    known = list_cases(program)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"differential.py: {program} has no case {', '.join(unknown)}")
    names = wanted or list(known)
    subject = os.path.basename(program)
    failed = 0
    print(f"1..{len(names)}", flush=True)
    checker.begin(program, {name: known[name] for name in names})
    for number, name in enumerate(names, 1):
        verdict = checker.check(program, name, known[name])
        failed += verdict.result == "not ok"
        report(number, f"{subject} {name}", verdict)
    return failed


def pairs(words):
    for word in words:
        if "=" not in word:
            sys.exit(f"differential.py: not NAME=VALUE: {word}")
    return dict(word.split("=", 1) for word in words)


def read_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--software", metavar="FIND_VULKAN", help="A on the software GPU")
    parser.add_argument("--softgpu-dir", help="HAWSER_SOFTGPU_DIR where that is not set")
    parser.add_argument("--vkprobe-dir", help="HAWSER_VKPROBE_DIR")
    parser.add_argument("--b", metavar="PREFIX", help="the command that runs programs at B")
    parser.add_argument("--b-env", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--modes", default="plain", help=f"of B: {','.join(MODES)}")
    parser.add_argument("--hawser", help="B behind a server of this program's")
    parser.add_argument("--listen", metavar="ADDR", help="of that server; a Unix socket of its own")
    parser.add_argument("--validate", action="store_true", help="B under the validation layer")
    parser.add_argument("--together", action="store_true", help="one process of B runs several cases")
    parser.add_argument("--sanitized", action="store_true", help="B alone, with --hawser")
    parser.add_argument("--starving", metavar="LIBRARY", help="what lets sessions run out of memory")
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args(argv)
    options.modes = options.modes.split(",")
    if not set(options.modes) <= set(MODES):
        parser.error(f"modes are {', '.join(MODES)}")
    if options.b and (options.validate or options.hawser):
        parser.error("--b says where B is: not with --validate or --hawser")
    return options


def starve(library, folder, a_env, b_env):
    """For the server's environment; the program finds the file that both share in its own."""
    if not library:
        return {}
    shared = pathlib.Path(folder, "starving")
    shared.write_bytes(b"\xff" * 8 + bytes(4096 - 8))  # no allocation fails yet
    b_env[STARVING] = str(shared)
    return {STARVING: str(shared),
            "LD_PRELOAD": ":".join(filter(None, [a_env.get("LD_PRELOAD"), os.path.abspath(library)]))}


def validate_native(a, folder):
    if layer_is_installed():
        return Validate(a, folder)
    print("# no validation layer here: native against native only")
    return Compare(a, a, ["plain"])


def run_behind_server(options, a, program):
    """How many cases failed."""
    hawser = os.path.abspath(options.hawser)
    b_env = {**os.environ, **pairs(options.b_env)}
    servers = []
    with contextlib.ExitStack() as stack:
        def start(*serve_options, env=a.env):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            server_env = {**env, **starve(options.starving, folder, env, b_env)}
            server = Server(hawser, server_env, folder, options.listen, serve_options)
            stack.callback(server.stop)
            servers.append(server)
            return server, Side([hawser, "run", "--servers", server.address, "--"], b_env)

        if options.sanitized:
            server, b = start()
            together = options.modes if options.together else ()
            return run_cases(program, options.cases, Sanitized(b, server, options.modes, together))
        validates = options.validate and layer_is_installed()
        # Every valid case has a session with filled memory: the one that is validated, where there is one.
        plain_env = {name: value for name, value in a.env.items() if name != FILLS or not validates}
        native = Once(Side(a.prefix, plain_env))
        together = options.modes if options.together else []
        b = start(env=plain_env)[1]
        checkers = [Compare(native, b, options.modes, ["plain"] if validates else [], together)]
        if validates:
            server, b = start("--validate")
            checkers.append(ValidatedServer(native, b, server, together))
        failed = run_cases(program, options.cases, Each(*checkers))
        for line in [line for server in servers for line in server.words().splitlines()] if failed else []:
            print(f"# server: {line}", flush=True)
        return failed


def main(argv):
    options = read_arguments(argv)
    if options.softgpu_dir:
        os.environ.setdefault("HAWSER_SOFTGPU_DIR", options.softgpu_dir)
    if options.vkprobe_dir:
        os.environ["HAWSER_VKPROBE_DIR"] = options.vkprobe_dir
    native = software_environment(options.software) if options.software else dict(os.environ)
    if native is None:
        print("1..0 # SKIP no software GPU here")
        return 0
    program = os.path.abspath(options.program)
    a = Side([], native)
    if options.hawser:
        return 1 if run_behind_server(options, a, program) else 0
    if options.validate:
        with tempfile.TemporaryDirectory() as folder:
            return 1 if run_cases(program, options.cases, validate_native(a, folder)) else 0
    b_env = {**(dict(os.environ) if options.b else native), **pairs(options.b_env)}
    b = Side(shlex.split(options.b or ""), b_env)
    return 1 if run_cases(program, options.cases, Compare(a, b, options.modes)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
