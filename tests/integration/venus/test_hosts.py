"""Programs that fork, catch signals and have the kernel write into mapped memory, with every method
of finding what they wrote."""

import support
from support import GpuCase

METHODS = ["userfaultfd", "mprotect", "compare"]


class Hosts(GpuCase):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def check(self, case):
        for method in METHODS:
            with self.subTest(method=method):
                self.run_program("hosts", case, servers=[self.server],
                                 env={"VENUS_TRACK": method})
        self.server.wait_sessions(0)
        self.assertEqual(self.server.log(), "")

    def test_forks(self):
        self.check("forks")

    def test_forks_while_working(self):
        self.check("forks-while-working")

    def test_exits_without_a_word(self):
        """The driver says goodbye: the server has nothing to log, as for a client that died."""
        self.check("exits")

    def test_a_handler_installed_before(self):
        self.check("handler-before")

    def test_a_handler_installed_after(self):
        self.check("handler-after")

    def test_system_calls(self):
        self.check("system-calls")


if __name__ == "__main__":
    support.main()
