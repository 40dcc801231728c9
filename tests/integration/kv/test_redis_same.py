"""What a user types at redis-cli, at kvd --resp and at a Redis beside it: the replies are the same, or say what is not
supported."""

import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import TIMEOUT, lines_of
from test_resp import RespDoor

SAME = """
PING | PING hello | ECHO x | GET none | STRLEN none | TTL none | PTTL none | TYPE none | EXISTS none | DEL none
SET a 1 | GET a | SET a two | GET a | STRLEN a | TYPE a | TTL a | PTTL a | EXISTS a a none | GETRANGE a 0 -1
GETRANGE a -2 -1 | GETRANGE a 2 1 | GETRANGE a 0 99 | GETRANGE none 0 -1 | GETRANGE a x 1 | GETRANGE a 0
SET a three NX | SET b one NX | GET b | SETNX a x | SETNX c x | GET c | SETEX e 100 v | TTL e | GET e | PSETEX p 100000 v
TTL p | SET e v EX 50 | TTL e | SET e v PX 50000 | TTL e | SET e v | TTL e | SET e v EXAT 99999999999 | GET e
SET e v PXAT 99999999999999 | GET e | SET e v EX 0 | SET e v EX -1 | SET e v EX x | SET e v EX | SET e v PX 1 EX 1
SET e v NOSUCH | SETEX e 0 v | SETEX e x v | PSETEX e 0 v | SET e v EX 9223372036854775807 | SETEX e 9223372036854775807 v
MSET x 1 y 2 | MGET x none y | MSET x | MSET x 1 y | MGET | DEL x none y | UNLINK b c | EXISTS x y b c | DBSIZE
SET | GET | GET a b | DEL | EXISTS | STRLEN | TTL | TYPE | SCAN | ECHO | SELECT 0 | SELECT x
KEYS a | KEYS n?ne | KEYS [a]* | KEYS \\a | SCAN 0 MATCH a COUNT 1000 | SCAN 0 COUNT 1000 MATCH zz | SCAN x | SCAN 0 COUNT 0
SCAN 0 COUNT x | SCAN 0 NOSUCH | SCAN 0 COUNT 1000 TYPE list | CLIENT GETNAME | CLIENT SETNAME me | CLIENT GETNAME
CONFIG GET save | CONFIG GET appendonly | CONFIG GET nosuch | CONFIG GET sav? | CONFIG GET timeout
MULTI | SET m 1 | GET m | MGET m none a | SETEX e 0 v | STRLEN m | DEL m | EXEC | GET m | EXEC | DISCARD | MULTI | MULTI
SET m 2 | DISCARD | GET m | MULTI | EXEC | MULTI | SET m 3 | GET | EXEC | GET m | MULTI x | MULTI | NOSUCH | EXEC | EXEC
MULTI | PING | ECHO x | HELLO 9 | CLIENT GETNAME | SET m 5 XY | EXEC
GETRANGE a -9223372036854775808 9223372036854775807 | GETRANGE a -9223372036854775809 1 | GETRANGE a -0 1 | SET e v EX 010
GETRANGE a 0 -99 | GETRANGE a -99 -50 | GETRANGE a -1 -2 | GETRANGE a 1 -99 | SUBSTR a 0 0 | SUBSTR a 0 | MEMORY USAGE none
EXPIRETIME a | PEXPIRETIME none | SET e v PXAT 99999999999499 | EXPIRETIME e | PEXPIRETIME e | SET e v PXAT 99999999999500
EXPIRETIME e | SET e v PX 4611686018427387904 | GET e | SET e v PX 9223372036854775807 | SET e v EX 9223372036854776
AUTH x | AUTH default x | AUTH other x | HELLO x | HELLO 3 AUTH | HELLO 3 NOSUCH | CLUSTER SLOTS | CLUSTER INFO | CLUSTER
COMMAND DOCS nosuch | CLIENT NO-EVICT on | HELLO 9 | NOSUCH | CLIENT SETNAME me
MULTI | SET m 4 | RESET | EXEC | GET m | CLIENT GETNAME | GET none | QUIT
"""
# Redis does something; here an error says that it is not supported.
REFUSED = """
SELECT 1 | SET a v XX | SET a v GET | SET a v KEEPTTL | APPEND a x | INCR n | DECRBY n 2 | EXPIRE a 10 | PERSIST a | GETSET a 1
GETDEL a | GETEX a | OBJECT ENCODING a | WATCH a | WAIT 0 0 | SUBSCRIBE x | LPUSH l 1 | HSET h f v | ZADD z 1 m | EVAL x 0
CONFIG SET save x | CLIENT LIST | FLUSHALL | RENAME a b | COPY a b | DEBUG SLEEP 0 | SETRANGE a 0 x | RANDOMKEY | XADD s * f v
"""


def commands(text):
    for line in text.strip().splitlines():
        for command in line.split(" | "):
            yield command.split()


@unittest.skipUnless(shutil.which("redis-server"), "redis-server is not installed (Debian: redis-server)")
class Same(RespDoor):
    def setUp(self):
        super().setUp()
        path = self.dir / "redis.sock"
        server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", self.dir],
                                  stdout=subprocess.PIPE)

        def stop():
            server.terminate()
            server.wait(TIMEOUT)
            server.stdout.close()

        self.addCleanup(stop)
        lines = lines_of(server.stdout.fileno())
        while "ready to accept" not in next(lines).lower():
            pass
        self.their_address, self.our_address = f"unix:{path}", self.start("--resp", f"unix:{self.dir}/kvd.resp")
        self.ours = self.connect(self.our_address)

    @staticmethod
    def shown(reply):
        if isinstance(reply, list):
            return [Same.shown(one) for one in reply]
        return f"error: {reply}" if isinstance(reply, ValueError) else reply

    def test_replies_are_those_of_redis(self):
        for resp3 in (False, True):
            self.ours, self.theirs = self.connect(self.our_address), self.connect(self.their_address)
            for client in (self.ours, self.theirs):
                self.assertEqual(client("HELLO", 3 if resp3 else 2)[:2], [b"server", b"redis"])
                client("DEL", "a", "b", "c", "m", "x", "y")
            for command in commands(SAME):
                with self.subTest(command=" ".join(command), resp3=resp3):
                    if command[0] == "DBSIZE":
                        for client in (self.ours, self.theirs):
                            client("DEL", "e", "p")
                    theirs, ours = self.shown(self.theirs(*command)), self.shown(self.ours(*command))
                    if command == ["NOSUCH"]:
                        theirs, ours = theirs.split(",")[0], ours.split(",")[0]
                    self.assertEqual(ours, theirs)

    def test_values_that_end_are_counted(self):
        theirs = self.connect(self.their_address)
        counts = []
        for command in commands("SET a 1 | SETEX b 1000 1 | SET c 1 PX 1000000 | MSET d 1 e 1 | SET b 2 | SET a 2 EX 1000 |"
                                " DEL c | SET a 3 PXAT 99999999999999 | SETNX a 4 | SET g 1 EX 1000 NX | SET d 2"):
            with self.subTest(command=" ".join(command)):
                shown = []
                for client in (theirs, self.ours):
                    client(*command)
                    shown.append(client("INFO", "keyspace").split(b",avg_ttl")[0])
                self.assertEqual(shown[1], shown[0])
                counts.append(shown[1])
        self.assertTrue(counts[-1].endswith(b"db0:keys=5,expires=2"), counts)

    def test_what_is_not_supported_says_so(self):
        self.assertEqual(self.ours("SET", "a", "1"), "OK")
        for command in commands(REFUSED):
            with self.subTest(command=" ".join(command)):
                self.assertIsInstance(self.ours(*command), ValueError)
        self.assertEqual(self.ours("GET", "a"), b"1")


    def test_the_python_client(self):
        """redis-py, Debian's python3-redis, where it is installed."""
        try:
            import redis
        except ImportError:
            self.skipTest("no redis-py")
        ours, theirs = (redis.Redis(unix_socket_path=a[5:], socket_timeout=TIMEOUT)
                        for a in (self.our_address, self.their_address))
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)

        def use(r):
            yield r.ping(), r.set("k", b"\0value"), r.get("k"), r.set("k", "x", nx=True), r.set("t", 1, ex=100), r.ttl("t")
            yield r.mset({"m1": 1, "m2": 2}), r.mget("m1", "none", "m2"), r.exists("m1", "none"), r.strlen("k"), r.type("k")
            yield r.getrange("k", 1, 3), sorted(r.scan_iter(match="m*", count=5)), sorted(r.keys("m*")), r["k"], "k" in r
            pipe = r.pipeline(transaction=False)
            for i in range(100):
                pipe.set(f"p{i}", i).get(f"p{i}")
            yield pipe.execute(), r.pipeline().set("p", 1).get("p").execute(), r.dbsize(), r.delete("m1", "none"), r.unlink("m2"), r.info()["redis_mode"]
            yield r.client_setname("me"), r.client_getname(), r.config_get("save"), r.echo("x"), r.setnx("k", 1)

        self.assertEqual(list(use(ours)), list(use(theirs)))
        for refused in (lambda: ours.expire("k", 1), lambda: ours.set("k", 1, xx=True)):
            with self.assertRaises(redis.ResponseError) as raised:
                refused()
            self.assertRegex(str(raised.exception), "unknown command|kvd's SET has no")


if __name__ == "__main__":
    unittest.main()
