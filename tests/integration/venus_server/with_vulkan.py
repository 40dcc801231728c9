#!/usr/bin/env python3
"""Runs a program in the environment of a software Vulkan driver.

    with_vulkan.py FIND_VULKAN SOFTGPU_DIR PROGRAM ARGS...

SOFTGPU_DIR is for find-vulkan where HAWSER_SOFTGPU_DIR is not set.  Status 77, which Meson reads as
skipped, where no driver works.
"""
import os
import subprocess
import sys


def main(argv):
    find_vulkan, softgpu_dir, *program = argv[1:]
    os.environ.setdefault("HAWSER_SOFTGPU_DIR", softgpu_dir)
    found = subprocess.run([find_vulkan, "--software", "--env"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, check=False)
    if found.returncode == 1:
        print("no software Vulkan driver here:", found.stderr.strip())
        return 77
    os.execv(find_vulkan, [find_vulkan, "--software", "--", *program])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
