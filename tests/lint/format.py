#!/usr/bin/env python3
"""format.py [ROOT]: every C file is as .clang-format says.

Status 1 and the names of the files that are not; 77 (skipped) without clang-format 14, whose
output the tree is held to: other releases lay some lines out differently.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import lint

VERSION = 14  # Debian 12's


def find_formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if re.search(rf"version {VERSION}\.", said.stdout):
                return path
    return None


def main(argv):
    formatter = find_formatter()
    if not formatter:
        print(f"skipped: clang-format {VERSION} is not installed")
        return 77
    tree = lint.Tree(argv[1] if len(argv) > 1 else ".")
    paths = tree.select("", lint.C_FILES)
    if not paths:
        print(f"{tree.root}: nothing to check", file=sys.stderr)
        return 1
    command = [formatter, "--dry-run", "--Werror", "--ferror-limit=1", "--style=file"]

    def check(some):
        return subprocess.run([*command, *some], cwd=tree.root, capture_output=True, text=True, check=False)

    cores = os.cpu_count() or 1
    shares = [paths[i::cores] for i in range(min(cores, len(paths)))]
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        results = list(pool.map(check, shares))
    said = "".join(result.stderr for result in results)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error:", said, re.M)))
    for path in wrong:
        print(f"{path}: not formatted; run tools/format")
    failed = any(result.returncode for result in results)
    if failed and not wrong:
        sys.stderr.write(said)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
