"""A Wayland compositor without a screen, which keeps a digest of every picture that it is shown.

    with Compositor() as compositor:
        run a program with WAYLAND_DISPLAY=compositor.path
        compositor.pictures()    of that program: [(width, height, digest), ...], in order

It knows what a program with one window needs: wl_compositor, wl_shm, xdg_wm_base.  A picture is what
a screen would show: of each commit only the damaged parts are taken over.  The X of XRGB is no pixel's.
"""
import array
import hashlib
import mmap
import os
import socket
import struct
import tempfile
import threading

ARGB, XRGB = 0, 1
GLOBALS = {1: ("wl_compositor", 4), 2: ("wl_shm", 1), 3: ("xdg_wm_base", 1)}
EVERYTHING = 2**31 - 1


class Pool:
    def __init__(self, fd, size):
        self.fd = fd
        self.map(size)

    def map(self, size):
        self.bytes = mmap.mmap(self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ)


class Buffer:
    def __init__(self, pool, offset, width, height, stride, pixels):
        self.pool, self.offset, self.stride = pool, offset, stride
        self.width, self.height, self.format = width, height, pixels

    def row(self, x, y, width):
        start = self.offset + y * self.stride + 4 * x
        return self.pool.bytes[start:start + 4 * width]


class Surface:
    def __init__(self):
        self.buffer = None      # (id, Buffer), attached since the last commit
        self.damage = []
        self.frames = []
        self.window = None      # its xdg_surface and xdg_toplevel
        self.configured = False
        self.screen, self.size = bytearray(), None

    def take_over(self, buffer):
        """What the damage covers of the buffer becomes the picture's."""
        if self.size != (buffer.width, buffer.height):
            self.size = (buffer.width, buffer.height)
            self.screen = bytearray(4 * buffer.width * buffer.height)
            self.damage = [(0, 0, EVERYTHING, EVERYTHING)]
        for x, y, width, height in self.damage:
            right, bottom = min(x + width, buffer.width), min(y + height, buffer.height)
            for line in range(y, bottom):
                at = 4 * (line * buffer.width + x)
                self.screen[at:at + 4 * (right - x)] = buffer.row(x, line, right - x)
        self.damage = []
        if buffer.format == XRGB:
            self.screen[3::4] = bytes(buffer.width * buffer.height)

    def digest(self):
        return (*self.size, hashlib.sha256(self.screen).hexdigest())


class Client:
    """One connection: objects by id, and a method for each request that matters."""

    def __init__(self, connection, shown):
        self.connection, self.shown = connection, shown
        self.objects = {1: ("wl_display", None)}
        self.fds, self.data, self.out, self.serial = [], b"", b"", 0

    def serve(self):
        while True:
            fds = array.array("i")
            data, extra, _flags, _address = self.connection.recvmsg(65536, socket.CMSG_SPACE(4 * 28))
            for _level, _kind, passed in extra:
                fds.frombytes(passed[:len(passed) - len(passed) % 4])
            self.fds += fds
            if not data:
                return
            self.data += data
            while len(self.data) >= 8:
                target, word = struct.unpack_from("<II", self.data)
                size = word >> 16
                if len(self.data) < size:
                    break
                body, self.data = self.data[8:size], self.data[size:]
                kind, state = self.objects.get(target, ("gone", None))
                handler = getattr(self, f"{kind}_{word & 0xffff}", None)
                if handler:
                    handler(target, state, body)
            self.flush()

    def send(self, target, event, body=b""):
        self.out += struct.pack("<II", target, (8 + len(body)) << 16 | event) + body

    def flush(self):
        """At once: programs take what they read first for all that there is."""
        out, self.out = self.out, b""
        try:
            self.connection.sendall(out)
        except BrokenPipeError:
            pass  # the program has ended

    def forget(self, target):
        self.objects.pop(target, None)
        self.send(1, 1, struct.pack("<I", target))

    def destroyed(self, target, _state, _body):
        self.forget(target)

    wl_buffer_0 = wl_region_0 = xdg_wm_base_0 = xdg_surface_0 = xdg_toplevel_0 = destroyed
    wl_shm_pool_1 = wl_surface_0 = destroyed

    # wl_display: sync, get_registry

    def wl_display_0(self, _target, _state, body):
        (callback,) = struct.unpack("<I", body)
        self.send(callback, 0, struct.pack("<I", 0))
        self.forget(callback)

    def wl_display_1(self, _target, _state, body):
        (registry,) = struct.unpack("<I", body)
        self.objects[registry] = ("wl_registry", None)
        for name, (interface, version) in GLOBALS.items():
            text = interface.encode() + b"\0"
            padded = text + bytes(-len(text) % 4)
            self.send(registry, 0, struct.pack("<II", name, len(text)) + padded
                      + struct.pack("<I", version))

    def wl_registry_0(self, _target, _state, body):
        (name,) = struct.unpack_from("<I", body)
        (made,) = struct.unpack("<I", body[-4:])
        self.objects[made] = (GLOBALS[name][0], None)
        if GLOBALS[name][0] == "wl_shm":
            for pixels in (ARGB, XRGB):
                self.send(made, 0, struct.pack("<I", pixels))

    # wl_compositor: create_surface, create_region

    def wl_compositor_0(self, _target, _state, body):
        self.objects[struct.unpack("<I", body)[0]] = ("wl_surface", Surface())

    def wl_compositor_1(self, _target, _state, body):
        self.objects[struct.unpack("<I", body)[0]] = ("wl_region", None)

    # wl_shm and its pools: create_pool, create_buffer, resize

    def wl_shm_0(self, _target, _state, body):
        made, size = struct.unpack("<Ii", body)
        self.objects[made] = ("wl_shm_pool", Pool(self.fds.pop(0), size))

    def wl_shm_pool_0(self, _target, pool, body):
        made, *rest = struct.unpack("<IiiiiI", body)
        self.objects[made] = ("wl_buffer", Buffer(pool, *rest))

    def wl_shm_pool_2(self, _target, pool, body):
        pool.map(struct.unpack("<i", body)[0])

    # wl_surface: attach, damage, frame, commit, damage_buffer

    def wl_surface_1(self, _target, surface, body):
        (buffer,) = struct.unpack_from("<I", body)
        surface.buffer = (buffer, self.objects[buffer][1]) if buffer else None

    def wl_surface_2(self, _target, surface, body):
        surface.damage.append(struct.unpack("<iiii", body))

    wl_surface_9 = wl_surface_2

    def wl_surface_3(self, _target, surface, body):
        surface.frames.append(struct.unpack("<I", body)[0])

    def wl_surface_6(self, _target, surface, _body):
        if surface.window and not surface.configured:
            surface.configured = True
            self.configure(surface, 0, 0)
        if surface.buffer:
            number, buffer = surface.buffer
            surface.buffer = None
            surface.take_over(buffer)
            self.send(number, 0)
            size = self.shown(surface.digest())
            if size:
                self.configure(surface, *size)
        for callback in surface.frames:
            self.send(callback, 0, struct.pack("<I", 0))
            self.forget(callback)
        surface.frames = []

    # xdg_wm_base: get_xdg_surface; xdg_surface: get_toplevel

    def xdg_wm_base_2(self, _target, _state, body):
        made, surface = struct.unpack("<II", body)
        self.objects[made] = ("xdg_surface", self.objects[surface][1])

    def xdg_surface_1(self, target, surface, body):
        (made,) = struct.unpack("<I", body)
        self.objects[made] = ("xdg_toplevel", surface)
        surface.window = (target, made)

    def configure(self, surface, width, height):
        xdg_surface, toplevel = surface.window
        self.serial += 1
        self.send(toplevel, 0, struct.pack("<iiI", width, height, 0))
        self.send(xdg_surface, 0, struct.pack("<I", self.serial))


class Compositor:
    def __init__(self, resize_after=None, size=None):
        """After so many pictures the window gets that size."""
        self.resize_after, self.size = resize_after, size
        self.found, self.failures = [], []
        self.served = threading.Semaphore(0)

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="hawser-wl-")
        self.path = os.path.join(self.folder, "wayland")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        os.unlink(self.path)
        os.rmdir(self.folder)

    def accept(self):
        """One connection after the other: a program at a time."""
        while True:
            try:
                connection, _address = self.listener.accept()
            except OSError:
                return
            with connection:
                try:
                    Client(connection, self.shown).serve()
                except ConnectionResetError:
                    pass  # it ended with events unread
                except Exception as error:  # a thread's own would be lost
                    self.failures.append(error)
            self.served.release()

    def shown(self, digest):
        self.found.append(digest)
        return self.size if len(self.found) == self.resize_after else None

    def pictures(self):
        """Of the program that has ended."""
        self.served.acquire()
        if self.failures:
            raise self.failures[0]
        found, self.found = self.found, []
        return found
