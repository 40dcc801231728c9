"""Programs that want one GPU at the same time get their shares of it.

Work that was done is counted, never time: a busy machine does less of everybody's.
"""

import json
import os
import signal

import support
from support import GpuCase, hawser, until

STARTED = 8    # submissions after which a program is well under way
COUNTED = 800  # submissions of all programs: dozens of time slices
TOKENS = {"team": "t" * 32, "guest": "g" * 32}


def count(program):
    program.say("count")
    return int(program.next_line())


class Share(GpuCase):
    def tenants(self, **extra):
        """A file of the two, with what is said of each."""
        path = self.dir / "tenants"
        path.write_text("# who may come\n\n" + "".join(
            f"{name} {token} {extra.get(name, '')}\n" for name, token in TOKENS.items()))
        path.chmod(0o600)
        return path

    def token(self, tenant):
        """A file of it."""
        token = self.dir / tenant
        token.write_text({**TOKENS, "own": "o" * 32}[tenant])
        token.chmod(0o600)
        return token

    def busy(self, server, tenant, many=1):
        """Programs of a tenant, all of them at work."""
        token = self.token(tenant)
        programs = [self.program("share", "busy", servers=[server],
                                 env={"VENUS_TOKEN_FILE": str(token)}) for _ in range(many)]
        for program in programs:
            until(lambda program=program: count(program) >= STARTED, "it works")
        return programs

    def share_of(self, programs, others):
        """In what all of them do from now on."""
        first = {program: count(program) for program in programs + others}

        def done(some):
            return sum(count(program) - first[program] for program in some)
        until(lambda: done(programs + others) >= COUNTED, "work is done")
        mine = done(programs)
        return mine / (mine + done(others))

    def usage(self, server, **env):
        """GPU time as hawser top has it."""
        result = hawser("top", server.addresses[0], "--once", "--json", env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["places"][0]["gpu"]

    def test_a_tenant_with_many_sessions_has_one_share(self):
        server = self.serve("s", "--tenants", self.tenants())
        greedy, sessions = self.busy(server, "team", 4), server.sessions()
        modest = self.busy(server, "guest")
        self.assertGreater(self.share_of(modest, greedy), 0.35)  # a fifth without time slices
        # Sessions that are stopped, whatever they hold, stop nobody.
        for pid in sessions:
            os.kill(pid, signal.SIGSTOP)
        before = count(modest[0])
        until(lambda: count(modest[0]) >= before + COUNTED, "it goes on")

    def test_weights(self):
        server = self.serve("s", "--tenants", self.tenants(team="weight=8 max-memory=1GiB"),
                            "--token-file", self.token("own"))
        team, guest = self.busy(server, "team"), self.busy(server, "guest")
        self.assertGreater(self.share_of(team, guest), 0.65)  # a half without them
        # Who has the server's own token is told of all, a tenant of itself.
        own = self.usage(server, VENUS_TOKEN_FILE=str(self.token("own")))
        self.assertEqual([(t["name"], t["sessions"]) for t in own["tenants"]],
                         [("own", 0), ("team", 1), ("guest", 1)])
        self.assertEqual(own["tenants"][0]["seconds"], 0)
        self.assertGreater(own["tenants"][1]["seconds"], own["tenants"][2]["seconds"])
        self.assertGreater(own["tenants"][2]["seconds"], 0)
        told = self.usage(server, VENUS_TOKEN_FILE=str(self.token("guest")))
        self.assertEqual([t["name"] for t in told["tenants"]], ["guest"])

    def test_time_that_is_not_measured(self):
        server = self.serve("s", "--metrics", "127.0.0.1:0")
        usage = self.usage(server)
        self.assertEqual(usage, {"measured": False, "tenants": [
            {"name": "own", "sessions": 0, "seconds": None, "part": None}]})
        shown = hawser("top", server.addresses[0], "--once").stdout
        self.assertIn("GPU time: not measured without time slices", shown)

    def test_what_is_no_file_of_tenants(self):
        path = self.dir / "tenants"
        for text, cause in (("", "there is no tenant"),
                            ("team short", "line 1: a name has at most 63 characters"),
                            (f"a {'t' * 16}\nb {'t' * 16}\n", "line 2: its name or token"),
                            (f"own {'t' * 16}", "line 1: its name"),
                            (f"a {'t' * 16} weight=0", "line 1: a weight is a number from 1"),
                            (f"a {'t' * 16} max-memory=lots", "line 1: max-memory is a size"),
                            (f"a {'t' * 16} colour=red", "line 1: it is not NAME TOKEN")):
            path.write_text(text)
            path.chmod(0o600)
            result = hawser("serve", "--no-devices", "--tenants", path)
            self.assertEqual(result.returncode, 1, text)
            self.assertIn(cause, result.stderr)


if __name__ == "__main__":
    support.main()
