"""libhawser-kv: its example, its Python module, and the connector that LMCache loads."""

import array
import asyncio
import contextlib
import enum
import functools
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import HAWSER, TIMEOUT, Case, clean_environment, lines_of

LIBRARY = pathlib.Path(os.environ["HAWSER_KV_LIBRARY"]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[3] / "src/kv"
EXAMPLE = SOURCE.parents[1] / "packaging/examples/hawser-kv.c"
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
import hawser_kv

try:
    import numpy
except ImportError:
    numpy = None


class Library(Case):
    def setUp(self):
        super().setUp()
        self.socket = str(self.dir / "kvd")
        self.start()
        self.addCleanup(self.stop)

    def start(self):
        self.kvd = subprocess.Popen([HAWSER, "kvd", "--socket", self.socket, "--blocks", "128MiB"],
                                    stdout=subprocess.PIPE, env=clean_environment())
        self.assertIn("attach at", next(lines_of(self.kvd.stdout.fileno())))

    def stop(self):
        self.kvd.terminate()
        self.kvd.stdout.close()
        self.kvd.wait(TIMEOUT)

    def test_the_example_compiles_and_runs(self):
        program = self.dir / "example"
        subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", EXAMPLE, "-o", program,
                        "-I", SOURCE / "library", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}"],
                       check=True, timeout=TIMEOUT)
        needed = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
        self.assertIn("[libhawser-kv.so.0]", needed)
        result = subprocess.run([program, self.socket], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual((result.returncode, result.stdout), (0, "hello, store (1 copy)\n"), result.stderr)
        result = subprocess.run([program, self.dir / "nobody"], capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is \"hawser kvd\" running?", result.stderr)

    def test_the_module(self):
        with hawser_kv.Store(self.socket) as store:
            self.assertIsNone(store.get("name"))
            for value in (b"bytes", bytearray(b"more"), memoryview(b"a part of it")[2:6], array.array("d", [1.5, 2]),
                          b"", os.urandom(3 << 20)):
                self.assertEqual(store.put("name", value), 1)
                with store.get("name") as got:
                    self.assertEqual(bytes(got), bytes(memoryview(value).cast("B")))
                    self.assertTrue(got.data.readonly)
                    got.renew()
            with self.assertRaises(hawser_kv.Error) as caught:
                store.put("name", b"x", only_new=True)
            self.assertIn("exists", str(caught.exception))
            with store.write("big", 1 << 20) as buffer:
                buffer[:4] = b"head"
                buffer[-4:] = b"tail"
            with store.get("big") as got:
                self.assertEqual((len(got), bytes(got.data[:4]), bytes(got.data[-4:])), (1 << 20, b"head", b"tail"))
                if numpy:
                    self.assertEqual(got.array("uint32").shape, (1 << 18,))
            with self.assertRaises(ZeroDivisionError), store.write("aborted", 10):
                1 / 0
            self.assertFalse(store.exists("aborted"))
            store.put("short", b"x", ttl_ms=1)
            end = time.monotonic() + TIMEOUT
            while store.exists("short"):  # past its end it is there still, and does not count
                self.assertLess(time.monotonic(), end)
            self.assertTrue(store.exists(b"big"))
            self.assertTrue(store.delete("big"))
            self.assertFalse(store.delete("big"))
            with self.assertRaises(hawser_kv.Error) as caught:
                store.put("huge", bytearray((64 << 20) - 7))
            self.assertIn("too large", str(caught.exception))
        with self.assertRaises(hawser_kv.Error):
            store.exists("name")
        with self.assertRaises(hawser_kv.Error) as caught:
            hawser_kv.Store(str(self.dir / "nobody"))
        self.assertIn("hawser kvd", str(caught.exception))

    def test_names_are_those_of_the_values_there(self):
        with hawser_kv.Store(self.socket) as store:
            self.assertEqual(store.names(), [])
            names = [b"", b"\0\xff", b"x" * 4096, *(b"%d" % i for i in range(300))]
            for name in names:
                store.put(name, b"x" * 100)
            store.put(b"1", b"again", ttl_ms=1000000)
            store.put(b"gone", b"x")
            store.delete(b"gone")
            self.assertEqual(store.names(), sorted(names))
        with self.assertRaisesRegex(hawser_kv.Error, "closed"):
            store.names()

    def test_bad_arguments_are_refused(self):
        with hawser_kv.Store(self.socket) as store:
            for name in (5, None, 1.5, ["a"]):
                with self.assertRaisesRegex(TypeError, "a name is str or bytes"):
                    store.put(name, b"x")
            for ttl in (-1, 1 << 64):
                with self.assertRaisesRegex(ValueError, "ttl_ms is"):
                    store.put("name", b"x", ttl_ms=ttl)
            with self.assertRaisesRegex(ValueError, "size is -1"), store.write("name", -1):
                pass
            with self.assertRaises(TypeError):
                store.put("name", b"x", ttl_ms=1.5)
            self.assertIsNone(store.get("name"))

    def test_values_last_as_long_as_their_memory_is_used(self):
        store = hawser_kv.Store(self.socket)
        store.put("name", b"bytes")
        store.put("empty", b"")
        for _ in range(2200):  # more than a daemon has leases
            self.assertEqual(bytes(store.get("name")) + bytes(store.get("empty")), b"bytes")
        released = store.get("name")
        data = released.data
        released.release()
        with self.assertRaisesRegex(ValueError, "released"):
            bytes(data)
        for use in (released.check, released.renew):
            with self.assertRaisesRegex(hawser_kv.Error, "refused"):
                use()
        value, part = store.get("name"), store.get("name").data[1:3]
        array = store.get("name").array() if numpy else b"bytes"
        write = store.write("other", 10)
        buffer = write.__enter__()
        store.close()
        with self.assertRaisesRegex(hawser_kv.Error, "closed"):
            bytes(value)
        buffer[0] = 1
        self.assertEqual((bytes(value.data), bytes(part), bytes(array)), (b"bytes", b"yt", b"bytes"))
        value.release()
        with self.assertRaisesRegex(hawser_kv.Error, "closed"):
            write.__exit__(None, None, None)

    def test_memory_stays_mapped_under_who_uses_it(self):
        store = hawser_kv.Store(self.socket)
        store.put("name", b"bytes" * 1000)
        with store.get("name") as value:
            part, array = value.data[:5], value.array() if numpy else None
        with store.write("other", 5) as buffer:
            kept = buffer[1:]
        del value, buffer
        store.close()
        store = None
        gc.collect()
        kept[0] = 1
        self.assertEqual((len(bytes(part)), kept[0]), (5, 1))
        if numpy:
            self.assertEqual(array.nbytes, 5000)

    def test_a_write_whose_memory_is_used_still_is_none(self):
        with hawser_kv.Store(self.socket) as store:
            with self.assertRaises(BufferError), store.write("name", 5) as buffer:
                kept = pickle.PickleBuffer(buffer)  # as an array does
            self.assertFalse(store.exists("name"))
            del kept
            with store.write("name", 5) as buffer:
                buffer[:] = b"bytes"
            self.assertEqual(bytes(store.get("name")), b"bytes")

    def test_a_child_leaves_what_it_inherits(self):
        store = hawser_kv.Store(self.socket)
        store.put("name", b"bytes")
        held, released, dropped = (store.get("name") for _ in range(3))
        child = os.fork()
        if child == 0:
            try:
                released.release()
                del dropped
                store.exists("name")
            except hawser_kv.Error as error:
                store.close()
                del store, held
                os._exit(0 if "before a fork" in str(error) else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        for _ in range(100):  # its requests would lie in the same memory, under the same numbers
            self.assertEqual(bytes(held), b"bytes")
            self.assertTrue(store.exists("name"))
        held.renew()

    def test_the_connector_is_what_lmcache_calls(self):
        torch, format_ = stand_in()
        from hawser_kv.lmcache import HawserConnector
        backend = Backend()
        config = types.SimpleNamespace(extra_config={"hawser_kv_socket": self.socket})

        async def use():
            connector = HawserConnector(loop=asyncio.get_running_loop(), local_cpu_backend=backend, config=config)
            key, other = Key("model@1@0@abcdef"), Key("other")
            chunk = Chunk((2, 3, 4), torch.bfloat16, format_.KV_2LTD, os.urandom(48))
            self.assertFalse(await connector.exists(key))
            self.assertIsNone(await connector.get(key))
            await connector.put(key, chunk)
            await connector.put(key, chunk)
            self.assertTrue(await connector.exists(key))
            self.assertTrue(connector.exists_sync(key))
            got = await connector.get(key)
            self.assertEqual((got.shape, got.dtype, got.format, bytes(got.byte_array)),
                             (chunk.shape, chunk.dtype, chunk.format, bytes(chunk.byte_array)))
            with hawser_kv.Store(self.socket) as others:
                others.put("not LMCache's", b"x")
                others.put(b"lmcache:of another process", b"x")
                others.put(b"lmcache:\xff", b'{"shape": [1], "dtype": "none", "format": 1}\n')
                others.put("lmcache:short", bytes(others.get("lmcache:" + key.to_string()))[:-1])
            self.assertEqual(await connector.list(), [key.to_string(), "of another process", "short", "\udcff"])
            for foreign in ("of another process", "short"):
                self.assertIsNone(await connector.get(Key(foreign)))
            backend.full = True
            self.assertIsNone(await connector.get(key))
            self.assertFalse(await connector.exists(other))
            await connector.close()
        asyncio.run(use())


    def test_the_connector_goes_on_with_another_daemon(self):
        torch, format_ = stand_in()
        from hawser_kv.lmcache import HawserConnector
        config = types.SimpleNamespace(extra_config={"hawser_kv_socket": self.socket})
        key, chunk = Key("key"), Chunk((2, 3, 4), torch.bfloat16, format_.KV_2LTD, os.urandom(48))

        async def use():
            connector = HawserConnector(loop=asyncio.get_running_loop(), local_cpu_backend=Backend(), config=config)
            await connector.put(key, chunk)
            for first in (connector.get, connector.exists, connector.put, connector.list):
                self.stop()
                self.assertFalse(await connector.exists(key))  # there is none
                self.start()
                with contextlib.suppress(hawser_kv.Error):  # a put tells
                    await (first(key, chunk) if first == connector.put else first() if first == connector.list
                           else first(key))
                await connector.put(key, chunk)
                self.assertEqual(bytes((await connector.get(key)).byte_array), bytes(chunk.byte_array))
            await connector.close()
        asyncio.run(use())


class Key:
    def __init__(self, text):
        self.text = text

    def to_string(self):
        return self.text


class Chunk:
    """A MemoryObj, as far as connectors see one."""

    def __init__(self, shape, dtype, format_, data):
        self.shape, self.dtype, self.format, self.byte_array = shape, dtype, format_, bytearray(data)

    def get_shape(self):
        return self.shape

    def get_dtype(self):
        return self.dtype

    def get_memory_format(self):
        return self.format

    def ref_count_down(self):
        pass


class Backend:
    full = False

    def allocate(self, shape, dtype, format_):
        size = 2
        for n in shape:
            size *= n
        return None if self.full else Chunk(shape, dtype, format_, bytes(size))


@functools.cache
def stand_in():
    """The names that the connector imports of torch and LMCache, with the interface that is documented."""
    import abc

    class RemoteConnector(abc.ABC):
        @abc.abstractmethod
        async def exists(self, key): ...

        @abc.abstractmethod
        def exists_sync(self, key): ...

        @abc.abstractmethod
        async def get(self, key): ...

        @abc.abstractmethod
        async def put(self, key, memory_obj): ...

        @abc.abstractmethod
        async def list(self): ...

        @abc.abstractmethod
        async def close(self): ...

    class MemoryFormat(enum.Enum):
        UNDEFINED = 0
        KV_2LTD = 1

    class dtype:
        def __str__(self):
            return "torch.bfloat16"

    torch = types.ModuleType("torch")
    torch.Size, torch.bfloat16 = tuple, dtype()
    modules = {"torch": torch}
    path = "lmcache.v1.storage_backend.connector.base_connector".split(".")
    for i in range(len(path)):
        modules[".".join(path[:i + 1])] = types.ModuleType(path[i])
    modules[".".join(path)].RemoteConnector = RemoteConnector
    modules["lmcache.v1.memory_management"] = types.ModuleType("memory_management")
    modules["lmcache.v1.memory_management"].MemoryFormat = MemoryFormat
    sys.modules.update(modules)
    return torch, MemoryFormat


if __name__ == "__main__":
    unittest.main()
