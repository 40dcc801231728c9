#!/usr/bin/env python3
"""The source rules that a compiler does not hold us to.

    lint.py CHECK [ROOT]   one check over the tree at ROOT: a line a problem, status 1 if any
    lint.py --list         the names of the checks

A check is a class with a rule, a `find` that yields (path, line, problem), and examples of trees
that it must refuse and must accept; selftest.py holds it to them.
"""
import collections
import os
import re
import subprocess
import sys

# layer: what its #include "..." lines may name besides itself
LAYERS = {
    "base": set(),
    "wire": {"base"},
    "rpc": {"wire", "base"},
    "venus": {"rpc", "wire", "base"},
    "page": {"rpc", "wire", "base"},
    "kv": {"rpc", "wire", "base"},
    "llm": {"page", "kv", "rpc", "wire", "base"},  # and the Vulkan loader, but never venus
    "command": {"llm", "page", "kv", "rpc", "wire", "base"},  # what subcommands share
    "serve": {"command", "venus", "llm", "page", "kv", "rpc", "wire", "base"},
    "bench": {"serve", "command", "venus", "llm", "page", "kv", "rpc", "wire", "base"},
    "cli": {"bench", "serve", "command", "venus", "llm", "page", "kv", "rpc", "wire", "base"},
    "shim": set(),  # preloaded into foreign programs: nothing of ours comes along
}
PROGRAMS = {"cli", "command", "serve", "bench", "shim"}  # layers that own a process: they may print and exit
FOLDER_FILES_MAX = 25  # past this a stranger gets lost
SRC_LINES_MAX = 1200  # past this a file holds more than one noun
# As wc -w counts: pages that are read as a whole.
WORDS_MAX = {"docs/benchmarks.md": 1500, "README.md": 1200, "docs/design/speed.md": 2950}
# Written by the build, so absent from the tree.
GENERATED = re.compile(r"(\.gen\.[ch]|\.inc|_generated\.h)$")
DATA = re.compile(r"tests/(fuzz/corpus/|golden/.*\.(txt|csv|json|xml|hex)$)")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


class Tree:
    """The files of a checkout: what git tracks or would track, or all files where git is absent."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.paths = sorted(path for path in self._list() if self._is_ours(path))

    def _is_ours(self, path):
        full = os.path.join(self.root, path)
        return os.path.isfile(full) and not os.path.islink(full)

    def _list(self):
        if os.path.exists(os.path.join(self.root, ".git")):
            command = ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard", "-z"]
            result = subprocess.run(command, capture_output=True, check=False)
            if result.returncode == 0:
                return set(os.fsdecode(result.stdout).split("\0")) - {""}
        return self._walk()

    def _walk(self):
        found = set()
        for folder, subfolders, names in os.walk(self.root):
            subfolders[:] = [name for name in subfolders
                             if not name.startswith((".", "build", "__pycache__"))]
            relative = os.path.relpath(folder, self.root)
            found |= {os.path.normpath(os.path.join(relative, name)) for name in names}
        return found

    def select(self, prefix="", suffixes=("",)):
        return [path for path in self.paths if path.startswith(prefix) and path.endswith(suffixes)]

    def text(self, path):
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read().decode("utf-8", "replace")

    def lines(self, path):
        return enumerate(self.text(path).splitlines(), 1)

    def is_text(self, path):
        with open(os.path.join(self.root, path), "rb") as file:
            return b"\0" not in file.read(8192)

    def prose(self):
        """Every text file that people write: corpora and golden vectors are data."""
        return [path for path in self.paths if not DATA.match(path) and self.is_text(path)]


C_FILES = (".c", ".h")
# Comments, strings and character constants of C.
C_NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code_lines(text):
    """Lines of C with comments and literals blanked, so that only code is matched."""
    blank = C_NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return enumerate(blank.splitlines(), 1)


def find_calls(tree, paths, pattern, problem):
    for path in paths:
        for number, line in code_lines(tree.text(path)):
            match = pattern.search(line)
            if match:
                yield path, number, problem.format(match.group("name"))


class Layers:
    """src/ includes in one direction only (DESIGN: base, wire, rpc, then the rest)."""

    refuses = [
        {"src/base/a.c": '#include "wire/b.h"\n'},
        {"src/wire/a.c": '#include "rpc/b.h"\n'},
        {"src/rpc/a.c": '  #  include "cli/b.h"\n'},
        {"src/llm/a.c": '#include "venus/client/b.h"\n'},
        {"src/serve/a.c": '#include "bench/b.h"\n'},
        {"src/bench/rpc/a.c": '#include "cli/b.h"\n'},
        {"src/kv/a.c": '#include "page/b.h"\n'},
        {"src/shim/a.c": '#include "base/b.h"\n'},
        {"src/base/a.c": '#include "../wire/b.h"\n'},
        {"src/unknown/a.c": "int x;\n"},
        {"src/a.c": "int x;\n"},
    ]
    accepts = [{
        "src/wire/a.c": '#include "base/b.h"\n#include "wire/c.h"\n#include <stdio.h>\n',
        "src/llm/a.c": '#include "page/b.h"\n#include "kv/c.h"\n#include <vulkan/vulkan.h>\n',
        "src/cli/a.c": '#include "venus/b.h"\n',
        "src/shim/a.c": '#include "probe_int.spv.inc"\n',
    }]

    def find(self, tree):
        for path in tree.select("src/", C_FILES):
            layer = path.split("/")[1] if path.count("/") > 1 else None
            if layer not in LAYERS:
                yield path, 1, f"not in a known layer ({', '.join(LAYERS)})"
                continue
            for number, line in tree.lines(path):
                match = INCLUDE.match(line)
                problem = match and self.judge(layer, match.group(1))
                if problem:
                    yield path, number, problem

    @staticmethod
    def judge(layer, target):
        if GENERATED.search(target) and "/" not in target:
            return None
        other = target.split("/")[0]
        if other not in LAYERS or "/" not in target:
            return f'"{target}" does not begin with a layer; write it as "{layer}/..."'
        if other != layer and other not in LAYERS[layer]:
            allowed = ", ".join(sorted(LAYERS[layer])) or "no other layer"
            return f'{layer} may not include "{target}"; it sees {allowed}'
        return None


class Includes:
    """What a quoted #include names is there."""

    refuses = [
        {"src/base/a.c": '#include "base/missing.h"\n'},
        {"tests/unit/base/a.c": '#include "helper.h"\n'},
    ]
    accepts = [{
        "src/base/a.c": '#include "base/b.h"\n#include "vk.gen.h"\n#include "base/c.h"\n',
        "src/base/b.h": "",
        "src/base/c.h.in": "",
        "tests/unit/base/a.c": '#include "helper.h"\n#include "base/b.h"\n',
        "tests/unit/base/helper.h": "",
    }]

    def find(self, tree):
        paths = set(tree.paths)
        for path in tree.select("", C_FILES):
            for number, line in tree.lines(path):
                match = INCLUDE.match(line)
                if match and not self.exists(paths, path, match.group(1)):
                    yield path, number, f'there is no "{match.group(1)}"'

    @staticmethod
    def exists(paths, path, target):
        if GENERATED.search(target):
            return True
        places = (os.path.dirname(path), "src", "tests")
        candidates = [os.path.normpath(os.path.join(place, target)) for place in places]
        return any(name in paths or name + ".in" in paths for name in candidates)


class Headers:
    """A header opens with a comment that names it, then its guard."""

    GOOD = "/* base/a.h - purpose. */\n#ifndef HAWSER_BASE_A_H\n#define HAWSER_BASE_A_H\n#endif\n"
    refuses = [
        {"src/base/a.h": GOOD.replace("base/a.h", "base/b.h")},
        {"src/base/a.h": "/* Purpose. */\n" + GOOD.split("\n", 1)[1]},
        {"src/base/a.h": "/* base/a.h - purpose. */\nint x;\n"},
        {"src/base/a.h": GOOD.replace("#define HAWSER_BASE_A_H", "#define HAWSER_BASE_B_H")},
        {"src/base/a.h": GOOD.replace("BASE_A_H", "WIRE_A_H")},
        {"src/base/a.h": "/* base/a.h - purpose. */\n#pragma once\n"},
    ]
    accepts = [{"src/base/a.h": GOOD, "src/base/b-c.h": GOOD.replace("base/a.h", "base/b-c.h")
                .replace("BASE_A_H", "BASE_B_C_H")}]

    def find(self, tree):
        for path in tree.select("src/", (".h",)):
            name = path[len("src/"):]
            text = tree.text(path)
            if not text.startswith(f"/* {name} - "):
                yield path, 1, f'must open with "/* {name} - purpose"'
            guard = "HAWSER_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
            code = re.sub(r"/\*.*?\*/", "", text, count=1, flags=re.S).lstrip()
            if not code.startswith(f"#ifndef {guard}\n#define {guard}\n"):
                yield path, 1, f"the guard after the comment must be {guard}"


class Names:
    """A file that a comment of src/ names is there."""

    COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
    FILE = re.compile(r"(?<![\w./<-])(?:[\w-]+/)*[\w-]+\.(?:c|h|py|md|comp|glsl)\b")
    FOREIGN = {"llama2.c", "sysexits.h"}  # files of others that comments explain
    refuses = [
        {"src/base/a.c": "/* a.c - as gone.h says. */\n"},
        {"src/base/a.c": "int x; // see docs/gone.md\n"},
    ]
    accepts = [{"src/base/a.c": "/* base/a.c - see a.c, vk.gen.h and llama2.c's format. */\n"}]

    def find(self, tree):
        ends = {"/".join(parts[-n:]) for parts in (path.split("/") for path in tree.paths)
                for n in range(1, len(parts) + 1)} | self.FOREIGN
        for path in tree.select("src/", C_FILES):
            text = tree.text(path)
            for comment in self.COMMENT.finditer(text):
                for match in self.FILE.finditer(comment.group()):
                    if match.group() not in ends and not GENERATED.search(match.group()):
                        line = text.count("\n", 0, comment.start() + match.start()) + 1
                        yield path, line, f"there is no {match.group()}"


class Length:
    """A source file holds one noun, and a page that is read as a whole stays short."""

    refuses = [{"src/base/a.c": "int x;\n" * (SRC_LINES_MAX + 1)}] + \
              [{path: "word\n" * (words + 1)} for path, words in WORDS_MAX.items()]
    accepts = [{"src/base/a.c": "int x;\n" * SRC_LINES_MAX}] + \
              [{path: "word\n" * words} for path, words in WORDS_MAX.items()]

    def find(self, tree):
        for path in tree.select("src/", C_FILES):
            count = len(tree.text(path).splitlines())
            if count > SRC_LINES_MAX:
                yield path, count, f"{count} lines, at most {SRC_LINES_MAX}"
        for path in set(WORDS_MAX) & set(tree.paths):
            count = len(tree.text(path).split())
            if count > WORDS_MAX[path]:
                yield path, 1, f"{count} words, at most {WORDS_MAX[path]}"


class Rooms:
    """A folder of src/ holds what a reader can survey."""

    refuses = [{f"src/base/a{number}.c": "int x;\n" for number in range(FOLDER_FILES_MAX + 1)}]
    accepts = [{**{f"src/base/a{number}.c": "int x;\n" for number in range(FOLDER_FILES_MAX)},
                "src/base/b/c.c": "int x;\n"}]

    def find(self, tree):
        folders = collections.Counter(os.path.dirname(path)
                                      for path in tree.select("src/", C_FILES))
        for folder, count in folders.items():
            if count > FOLDER_FILES_MAX:
                yield folder, 1, f"{count} source files, at most {FOLDER_FILES_MAX}"


class Quiet:
    """A library writes no stdout and never exits; _exit in a forked child is fine."""

    CALL = re.compile(r"(?<![\w.>])(?P<name>printf|vprintf|puts|putchar|exit|abort|stdout)\b")
    refuses = [
        {"src/base/a.c": 'void f(void) { printf("x"); }\n'},
        {"src/rpc/a.c": "void f(void) { exit(1); }\n"},
        {"src/wire/a.c": "void f(void) { fputs(x, stdout); }\n"},
        {"src/kv/a.c": "void f(void) {\n    abort();\n}\n"},
    ]
    accepts = [{
        "src/base/a.c": '/* exit(1) */ // printf("x")\nint f(void) { snprintf(b, n, "exit(1)"); }\n',
        "src/rpc/a.c": "void f(void) { _exit(1); fprintf(stderr, s); ops->abort(x); }\n",
        "src/cli/a.c": 'void f(void) { printf("x"); exit(1); }\n',
        "src/base/b.h": "void f(const char *s) __attribute__((format(__printf__, 1, 2)));\n"
                        "#define P(a, b) __attribute__((format(printf, a, b)))\n",
    }]

    def find(self, tree):
        for path in tree.select("src/", C_FILES):
            if path.split("/")[1] in PROGRAMS:
                continue
            for number, line in code_lines(tree.text(path)):
                match = self.CALL.search(re.sub(r"format\s*\(\s*printf", "", line))
                if match:
                    yield path, number, f"{match.group('name')} in a library layer"


class Sleeps:
    """Tests wait for events, not for time to pass."""

    CALL = re.compile(r"(?<![\w.>])(?P<name>sleep|usleep|nanosleep|clock_nanosleep)\s*\(")
    SCRIPT = re.compile(r"^[^#]*?(?P<name>\btime\.sleep\s*\(|(?:^|[;&|]|\b(?:do|then)\b)\s*sleep\s+[\d$.])")
    refuses = [
        {"tests/unit/base/a.c": "void f(void) { sleep(1); }\n"},
        {"tests/unit/base/a.c": "void f(void) { nanosleep (&t, 0); }\n"},
        {"tests/integration/a.py": "import time\ntime." + "sleep(1)\n"},
        {"tests/integration/a.sh": "while :; do sle" + "ep 1; done\n"},
    ]
    accepts = [{
        "tests/unit/base/a.c": "/* no sleep(1) here */ void f(void) { deep_sleep(1); }\n",
        "tests/integration/a.sh": "# sle" + "ep 1 would be wrong\nasleep 1\n",
        "src/rpc/a.c": "void f(void) { nanosleep(&t, 0); }\n",
    }]

    def find(self, tree):
        problem = "{} in a test: wait for the event itself"
        yield from find_calls(tree, tree.select("tests/", C_FILES), self.CALL, problem)
        for path in tree.select("tests/", (".py", ".sh")):
            for number, line in tree.lines(path):
                if self.SCRIPT.search(line):
                    yield path, number, problem.format("sleep")


class Hygiene:
    """No tabs (but in makefiles), no trailing space, no machine's own paths, no bare reminders."""

    MARK = "TO" + "DO"
    HOME = re.compile(r"(?<![\w.$}])/(?:home|root|Users)/(?!\.\.\.)\w")
    REMINDER = re.compile(rf"\b(?:{MARK}|FIX" + r"ME|XX" + r"X)\b(?!\([^)]+\): \S)")
    refuses = [
        {"src/base/a.c": "\tint x;\n"},
        {"tools/a": "#!/bin/sh\n\techo\n"},
        {"src/base/a.c": "int x; \n"},
        {"docs/a.md": "see /ho" + "me/someone/hawser\n"},
        {"src/base/a.c": f"/* {MARK}: later */\n"},
        {"src/base/a.c": f"/* {MARK} */\n"},
        {"src/base/a.c": "int x;"},
    ]
    accepts = [{
        "Makefile": "all:\n\ttrue\n",
        "debian/rules": "all:\n\ttrue\n",
        "src/base/a.c": f"/* {MARK}(UCX 1.15 in Debian): drop the copy */\n",
        "docs/a.md": "see $HOME/hawser, build/root/usr and mesa/root/x\n",
        "tests/fuzz/corpus/dec/a": "\t",
        "tests/golden/wire/a.txt": "name \n",
    }]

    def find(self, tree):
        for path in tree.prose():
            text = tree.text(path)
            if text and not text.endswith("\n"):
                yield path, text.count("\n") + 1, "the last line has no end"
            for number, line in enumerate(text.split("\n"), 1):
                for problem in self.judge(path, line):
                    yield path, number, problem

    def judge(self, path, line):
        if "\t" in line and not path.endswith(("Makefile", "debian/rules")) and path != ".gitmodules":
            yield "a tab"
        if line != line.rstrip():
            yield "trailing space"
        if self.HOME.search(line):
            yield "a path of somebody's machine"
        if self.REMINDER.search(line):
            yield f"{self.MARK} without what it waits for: write {self.MARK}(reason): what"


CHECKS = {cls.__name__.lower(): cls()
          for cls in (Layers, Includes, Headers, Names, Length, Rooms, Quiet, Sleeps, Hygiene)}


def main(argv):
    if argv[1:] == ["--list"]:
        print("\n".join(CHECKS))
        return 0
    if len(argv) not in (2, 3) or argv[1] not in CHECKS:
        print(f"usage: lint.py {'|'.join(CHECKS)} [ROOT]", file=sys.stderr)
        return 2
    tree = Tree(argv[2] if len(argv) == 3 else ".")
    if not tree.select("src/", C_FILES):
        print(f"{tree.root}: no sources to check", file=sys.stderr)
        return 1
    problems = list(CHECKS[argv[1]].find(tree))
    for path, line, problem in problems:
        print(f"{path}:{line}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
