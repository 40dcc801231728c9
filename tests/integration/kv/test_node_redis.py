"""npm's redis package against kvd --resp, in RESP2 and RESP3; redis_client.mjs says what is asked."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import HAWSER, TIMEOUT, Case, clean_environment, lines_of
from npm import install_or_skip, run_node

FOLDER = os.environ["HAWSER_REDIS_DIR"]
TOKEN = "0123456789abcdef0123456789abcdef"


class NodeRedis(Case):
    def test_client(self):
        token = self.dir / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        daemon = subprocess.Popen([HAWSER, "kvd", "--socket", self.dir / "kvd", "--blocks", "256MiB", "--resp",
                                   "127.0.0.1:0", "--token-file", token], stdout=subprocess.PIPE,
                                  env=clean_environment())
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        address = next(lines_of(daemon.stdout.fileno())).split(" at ")[1]
        result = run_node(FOLDER, pathlib.Path(__file__).resolve().parent / "redis_client.mjs", address, TOKEN)
        self.assertEqual((result.returncode, result.stdout), (0, "done\n"), result.stderr)
        daemon.terminate()
        self.assertEqual(daemon.wait(TIMEOUT), 0)


if __name__ == "__main__":
    install_or_skip(FOLDER, "redis@5")
    unittest.main()
