"""The KV store of `hawser kvd`: values by name, in shared memory, without copies.

    with hawser_kv.Store("/tmp/hawser-kvd.sock") as store:
        store.put("name", b"bytes")                    # or anything with a buffer: numpy, torch
        with store.get("name") as value:               # None: a miss
            use(value.data)                            # a read-only memoryview of the store itself
        with store.write("other", 1 << 20) as buffer:  # a writable memoryview; stored at the end
            fill(buffer)

Only ctypes and libhawser-kv.so.0 are needed; `Value.array` gives a numpy array where numpy is installed.
Threads may share a Store; one calls at a time.
"""
import contextlib
import ctypes
import operator
import os
import threading
import weakref

__all__ = ["Error", "Store", "Value"]

OK, MISS, LOST = 0, 1, 4
_ONLY_NEW = 1
_WHY_CHARS = 256


class _Value(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t), ("lease", ctypes.c_void_p)]


class _Write(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]


_EACH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _load():
    library = ctypes.CDLL(os.environ.get("HAWSER_KV_LIBRARY", "libhawser-kv.so.0"))
    handle, name, size = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_size_t
    u32, u64, flags = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint
    value, copies = ctypes.POINTER(_Value), ctypes.POINTER(ctypes.c_uint32)
    for call, result, arguments in (
            ("open", handle, (ctypes.c_char_p, u32, ctypes.c_char_p)),
            ("close", None, (handle,)),
            ("result_name", ctypes.c_char_p, (ctypes.c_int,)),
            ("put", ctypes.c_int, (handle, *name, ctypes.c_void_p, size, u64, flags, copies)),
            ("write_start", ctypes.c_int, (handle, *name, size, u64, flags, ctypes.POINTER(_Write))),
            ("write_commit", ctypes.c_int, (handle, copies)),
            ("write_abort", ctypes.c_int, (handle,)),
            ("get", ctypes.c_int, (handle, *name, value)),
            ("check", ctypes.c_int, (handle, value)),
            ("renew", ctypes.c_int, (handle, value)),
            ("release", None, (handle, value)),
            ("exists", ctypes.c_int, (handle, *name)),
            ("delete", ctypes.c_int, (handle, *name)),
            ("list", ctypes.c_int, (handle, ctypes.POINTER(u64), _EACH, ctypes.c_void_p))):
        function = getattr(library, "hawser_kv_" + call)
        function.restype, function.argtypes = result, arguments
    return library


class Error(Exception):
    """A call that did not end in a value or a miss; `result` is a number of hawser-kv.h."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result


def _bytes(name):
    if isinstance(name, str):
        return name.encode()
    if not isinstance(name, (bytes, bytearray, memoryview)):
        raise TypeError(f"a name is str or bytes, not {type(name).__name__}")
    return bytes(name)


def _number(what, value):
    number = operator.index(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{what} is {number}: give 0 to 2**64 - 1")
    return number


class _Handle:
    """What is open: until its store is closed and no memory of it is in use any more."""

    def __init__(self, library, pointer):
        self.library, self.pointer, self.lock = library, pointer, threading.RLock()
        self.process = os.getpid()

    def is_ours(self, getpid=os.getpid):  # at the interpreter's exit the module may have no os any more
        """Not after fork: then it is the parent's."""
        return self.process == getpid()

    def __del__(self):
        if self.is_ours():
            self.library.hawser_kv_close(self.pointer)

    def release(self, raw):
        if not self.is_ours():
            return
        with self.lock:
            self.library.hawser_kv_release(self.pointer, ctypes.byref(raw))

    def memory(self, address, size):
        """Memory of the store, which stays mapped as long as anything refers to it."""
        memory = (ctypes.c_char * size).from_address(address)
        memory.handle = self
        return memory


class Value:
    """A value where it lies.  Leave it with `release`, or with the end of a `with`; else it is left when nothing
    refers to its memory any more, neither a slice of `data` nor an array."""

    def __init__(self, store, handle, raw):
        memory = handle.memory(raw.data, raw.len) if raw.len else self
        self._store, self._raw = store, raw
        self._end = weakref.finalize(memory, handle.release, raw)
        self._end.atexit = False
        self.data = memoryview(memory if raw.len else b"").cast("B").toreadonly()

    def __len__(self):
        return self._raw.len

    def __bytes__(self):
        copy = bytes(self.data)
        self.check()
        return copy

    def array(self, dtype="uint8"):
        """A read-only numpy array of the same memory."""
        import numpy
        return numpy.frombuffer(self.data, dtype=dtype)

    def check(self):
        """Raises Error if the lease ended while the bytes were read: then they may be anything."""
        self._store._call("check", ctypes.byref(self._raw))

    def renew(self):
        self._store._call("renew", ctypes.byref(self._raw))

    def release(self):
        if self.data is not None:
            with contextlib.suppress(BufferError):  # an array uses it
                self.data.release()
        self._end()
        self.data = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Store:
    """Attached to the daemons of this host."""

    def __init__(self, socket=None, timeout_ms=0):
        why = ctypes.create_string_buffer(_WHY_CHARS)
        self._library = _load()
        pointer = self._library.hawser_kv_open(os.fsencode(socket) if socket else None, timeout_ms, why)
        if not pointer:
            raise Error(-1, why.value.decode(errors="replace"))
        self._handle = _Handle(self._library, pointer)

    def _open(self):
        handle = self._handle
        if not handle:
            raise Error(-1, "the store is closed")
        if not handle.is_ours():
            raise Error(-1, "the store was opened before a fork: open it in this process")
        return handle

    def _call(self, name, *arguments, fine=(OK,)):
        handle = self._open()
        with handle.lock:
            result = getattr(self._library, "hawser_kv_" + name)(handle.pointer, *arguments)
        if result not in fine:
            raise Error(result, f"{name}: {self._library.hawser_kv_result_name(result).decode()}")
        return result

    def put(self, name, data, ttl_ms=0, only_new=False):
        """Stores a copy of anything with a contiguous buffer.  How many members have it."""
        view = memoryview(data).cast("B")
        copies, name, ttl_ms = ctypes.c_uint32(), _bytes(name), _number("ttl_ms", ttl_ms)
        if view.readonly:
            address = ctypes.c_char_p(view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view)
                                      else bytes(view))
        else:
            address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else None
        self._call("put", name, len(name), address if isinstance(address, (int, type(None)))
                   else ctypes.cast(address, ctypes.c_void_p), len(view), ttl_ms,
                   _ONLY_NEW if only_new else 0, ctypes.byref(copies))
        return copies.value

    @contextlib.contextmanager
    def write(self, name, size, ttl_ms=0, only_new=False):
        """Memory of the store to fill; stored when the block ends, not after an exception."""
        raw, name, ttl_ms, size = _Write(), _bytes(name), _number("ttl_ms", ttl_ms), _number("size", size)
        handle = self._open()
        with handle.lock:
            self._call("write_start", name, len(name), size, ttl_ms, _ONLY_NEW if only_new else 0,
                       ctypes.byref(raw))
            view = memoryview(handle.memory(raw.data, size) if size else b"").cast("B")
            try:
                yield view
                view.release()  # BufferError: somebody uses it still, and could change what is stored
            except BaseException:
                with contextlib.suppress(BufferError):
                    view.release()
                with contextlib.suppress(Error):  # what happened first is told
                    self._call("write_abort")
                raise
            self._call("write_commit", None)

    def get(self, name):
        """A Value, or None."""
        raw, name, handle = _Value(), _bytes(name), self._open()
        if self._call("get", name, len(name), ctypes.byref(raw), fine=(OK, MISS)) == MISS:
            return None
        return Value(self, handle, raw)

    def exists(self, name):
        name = _bytes(name)
        return self._call("exists", name, len(name), fine=(OK, MISS)) == OK

    def delete(self, name):
        """False: there was none."""
        name = _bytes(name)
        return self._call("delete", name, len(name), fine=(OK, MISS)) == OK

    def names(self):
        """Names (bytes) of the values that this host's daemons own, each once; other members list theirs."""
        found, cursor = set(), ctypes.c_uint64()
        each = _EACH(lambda _, name, size: found.add(ctypes.string_at(name, size)))
        while self._call("list", ctypes.byref(cursor), each, None) == OK and cursor.value:
            pass
        return sorted(found)

    def close(self):
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
