"""Clients that people have from npm, kept in a folder of the build."""

import pathlib
import shutil
import subprocess
import sys

SKIP = 77


def install_or_skip(folder, package):
    """Ends the test where node, npm or the network is missing; package: NAME@VERSION."""
    missing = install(pathlib.Path(folder), package)
    if missing:
        print(f"skipped: {missing}")
        sys.exit(SKIP)


def install(folder, package):
    """Why the package is not there; None when it is."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node or npm is not installed"
    if (folder / "node_modules" / package.rsplit("@", 1)[0] / "package.json").exists():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts",
                                 "--fetch-retries", "1", "--fetch-retry-mintimeout", "1000",
                                 "--prefix", str(folder), package], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "npm took more than two minutes"
    return None if result.returncode == 0 else f"npm: {result.stderr.strip()[-300:]}"


def run_node(folder, script, *args):
    """Runs the script with the folder's packages: node looks for them beside it."""
    beside = pathlib.Path(folder) / script.name
    shutil.copy(script, beside)
    return subprocess.run(["node", beside, *args], capture_output=True, text=True, timeout=120)
