"""A display without a screen, for tests: Xvfb, and what it shows.

    display.py [--no-shm] COMMAND [ARGUMENT...]    runs COMMAND on a display of its own

With --no-shm the display shares no memory with its clients, as one across a network.  The status is the command's; without Xvfb "1..0 # SKIP" is printed, which TAP understands.
"""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

WIDTH, HEIGHT = 800, 700
STOP_SECONDS = 20


class Display:
    """Xvfb with one screen of depth 24, up when the constructor returns."""

    def __init__(self, *options):
        self.folder = tempfile.mkdtemp(prefix="hawser-x-")
        ready, told = os.pipe()
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["Xvfb", "-displayfd", str(told), "-screen", "0", f"{WIDTH}x{HEIGHT}x24",
                 "-fbdir", self.folder, "-nolisten", "tcp", "-noreset",
                 *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[told])
        os.close(told)
        with os.fdopen(ready, "rb") as end:
            self.name = ":" + end.readline().decode().strip()
        if self.name == ":":
            words = pathlib.Path(self.folder, "log").read_text(encoding="utf-8", errors="replace")
            self.stop()
            raise AssertionError(f"Xvfb did not start: {words}")

    def picture(self):
        """(width, height, bytes) of the screen, B G R x."""
        data = pathlib.Path(self.folder, "Xvfb_screen0").read_bytes()
        words = struct.unpack(">25I", data[:100])  # an xwd file
        header, width, height, stride, colors = (words[i] for i in (0, 4, 5, 12, 19))
        start = header + 12 * colors
        rows = (data[start + y * stride:start + y * stride + 4 * width] for y in range(height))
        return width, height, b"".join(rows)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def is_here():
    return shutil.which("Xvfb") is not None


def main(argv):
    if not is_here():
        print("1..0 # SKIP no Xvfb")
        return 0
    options = []
    if argv[0] == "--no-shm":
        options = ["-extension", "MIT-SHM"]
        argv = argv[1:]
    with Display(*options) as display:
        return subprocess.run(argv, env={**os.environ, "DISPLAY": display.name},
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
