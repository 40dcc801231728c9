"""LMCache's remote connector over the KV store of `hawser kvd`.

In LMCache's configuration, with the daemon's socket in extra_config:

    remote_url: "external://host:0/hawser_kv.lmcache/?connector_name=HawserConnector"
    extra_config: {"hawser_kv_socket": "/tmp/hawser-kvd.sock"}

A value is a line of JSON (shape, type and format of the chunk) and then the chunk.
"""
import asyncio
import contextlib
import json

import torch
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from . import LOST, Error, Store

_PREFIX = "lmcache:"


class HawserConnector(RemoteConnector):
    def __init__(self, loop, local_cpu_backend, config=None, **_):
        with_base = getattr(local_cpu_backend, "metadata", None) is not None
        if with_base:  # newer versions take what they derive chunk shapes from
            super().__init__(config, local_cpu_backend.metadata)
        self.loop = loop
        self.local_cpu_backend = local_cpu_backend
        extra = getattr(config, "extra_config", None) or {}
        self._socket = extra.get("hawser_kv_socket")
        self._store = Store(self._socket)

    def _failed(self, error):
        """A handle whose daemon has ended stays lost: the next call has another, if there is a daemon again."""
        if error.result == LOST:
            with contextlib.suppress(Error):
                self._store = Store(self._socket)

    async def exists(self, key):
        return await asyncio.to_thread(self.exists_sync, key)

    def exists_sync(self, key):
        return self._exists(key.to_string())

    def _exists(self, name):
        try:
            return self._store.exists(_PREFIX + name)
        except Error as error:
            self._failed(error)
            return False

    async def get(self, key):
        return await asyncio.to_thread(self._get, key)

    def _get(self, key):
        try:
            value = self._store.get(_PREFIX + key.to_string())
        except Error as error:
            self._failed(error)
            return None  # a cache: what cannot be had is computed again
        if value is None:
            return None
        with value:
            return self._chunk(value)

    def _chunk(self, value):
        """None where there is no memory for it, or where another program has written what is no chunk."""
        try:
            end = bytes(value.data[:4096]).index(b"\n")
            meta = json.loads(bytes(value.data[:end]))
            what = torch.Size(meta["shape"]), getattr(torch, meta["dtype"]), MemoryFormat(meta["format"])
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        chunk = self.local_cpu_backend.allocate(*what)
        if chunk is None:
            return None
        try:
            memoryview(chunk.byte_array).cast("B")[:] = value.data[end + 1:]
            value.check()
        except (ValueError, Error):  # it has another size; the lease ended while we copied
            chunk.ref_count_down()
            return None
        return chunk

    async def put(self, key, memory_obj):
        await asyncio.to_thread(self._put, key, memory_obj)

    def _put(self, key, memory_obj):
        meta = {"shape": list(memory_obj.get_shape()), "dtype": str(memory_obj.get_dtype()).split(".")[-1],
                "format": memory_obj.get_memory_format().value}
        head = json.dumps(meta).encode() + b"\n"
        chunk = memoryview(memory_obj.byte_array).cast("B")
        try:
            with self._store.write(_PREFIX + key.to_string(), len(head) + len(chunk)) as buffer:
                buffer[:len(head)] = head
                buffer[len(head):] = chunk
        except Error as error:
            self._failed(error)
            raise

    async def list(self):
        """The keys of the values that this host's daemons own."""
        return await asyncio.to_thread(self._list)

    def _list(self):
        try:
            names = self._store.names()
        except Error as error:
            self._failed(error)
            raise
        return [name[len(_PREFIX):].decode(errors="surrogateescape") for name in names
                if name.startswith(_PREFIX.encode())]

    async def close(self):
        await asyncio.to_thread(self._store.close)
