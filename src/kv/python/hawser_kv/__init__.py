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
import os
import threading

__all__ = ["Error", "Store", "Value"]

OK, MISS = 0, 1
_ONLY_NEW = 1
_WHY_CHARS = 256


class _Value(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t), ("lease", ctypes.c_void_p)]


class _Write(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]


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
            ("delete", ctypes.c_int, (handle, *name))):
        function = getattr(library, "hawser_kv_" + call)
        function.restype, function.argtypes = result, arguments
    return library


class Error(Exception):
    """A call that did not end in a value or a miss; `result` is a number of hawser-kv.h."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result


def _bytes(name):
    return name.encode() if isinstance(name, str) else bytes(name)


def _view(address, size, writable):
    view = memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else memoryview(b"")
    return view if writable else view.toreadonly()


class Value:
    """A value where it lies.  Leave it with `release`, or with the end of a `with`."""

    def __init__(self, store, raw):
        self._store, self._raw = store, raw
        self.data = _view(raw.data, raw.len, False)

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
        if self._raw is not None:
            self._store._release(self._raw)
        self._raw = self.data = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Store:
    """Attached to the daemons of this host."""

    def __init__(self, socket=None, timeout_ms=0):
        why = ctypes.create_string_buffer(_WHY_CHARS)
        self._library = _load()
        self._lock = threading.RLock()
        self._handle = self._library.hawser_kv_open(os.fsencode(socket) if socket else None, timeout_ms, why)
        if not self._handle:
            raise Error(-1, why.value.decode(errors="replace"))

    def _call(self, name, *arguments, fine=(OK,)):
        with self._lock:
            if not self._handle:
                raise Error(-1, "the store is closed")
            result = getattr(self._library, "hawser_kv_" + name)(self._handle, *arguments)
        if result not in fine:
            raise Error(result, f"{name}: {self._library.hawser_kv_result_name(result).decode()}")
        return result

    def _release(self, raw):
        with self._lock:
            if self._handle:
                self._library.hawser_kv_release(self._handle, ctypes.byref(raw))

    def put(self, name, data, ttl_ms=0, only_new=False):
        """Stores a copy of anything with a contiguous buffer.  How many members have it."""
        view = memoryview(data).cast("B")
        copies, name = ctypes.c_uint32(), _bytes(name)
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
        raw, name = _Write(), _bytes(name)
        with self._lock:
            self._call("write_start", name, len(name), size, ttl_ms, _ONLY_NEW if only_new else 0,
                       ctypes.byref(raw))
            view = _view(raw.data, size, True)
            try:
                yield view
            except BaseException:
                self._call("write_abort")
                raise
            finally:
                view.release()
            self._call("write_commit", None)

    def get(self, name):
        """A Value, or None."""
        raw, name = _Value(), _bytes(name)
        if self._call("get", name, len(name), ctypes.byref(raw), fine=(OK, MISS)) == MISS:
            return None
        return Value(self, raw)

    def exists(self, name):
        name = _bytes(name)
        return self._call("exists", name, len(name), fine=(OK, MISS)) == OK

    def delete(self, name):
        """False: there was none."""
        name = _bytes(name)
        return self._call("delete", name, len(name), fine=(OK, MISS)) == OK

    def close(self):
        with self._lock:
            handle, self._handle = self._handle, None
        if handle:
            self._library.hawser_kv_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
