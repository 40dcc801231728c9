"""Relays that know frames (src/rpc/endpoint/frame.h): what a worker says is cut or kept back at a certain one."""

import contextlib

from rig import Relay


class FrameRelay(Relay):
    """Of each connection it passes all that the worker sends up to a frame, and closes it there."""
    PUSH, REPLY, WITHOUT_LENGTH, STREAM, FIRST = 3, 4, (7, 8, 9, 10), 0x10, 0x20

    def _carry(self, here, there, pair, state):
        if here is pair[0]:
            super()._carry(here, there, pair, state)
            return
        far, pushed, ends = here.makefile("rb"), False, False
        try:
            while not ends:
                kind, frame = self.message(far)
                pushed |= kind == self.PUSH
                ends = self.ends(kind, frame, pushed)
                if not frame:
                    break
                if not ends:
                    self.give(there, kind, frame)
        except OSError:
            pass
        self.cuts += ends
        self._end(pair)

    def ends(self, _kind, _frame, _pushed):
        return False

    def give(self, there, _kind, frame):
        there.sendall(frame)

    def message(self, far):
        """The next handshake message (of kind 0) or frame; b"" where the connection ends."""
        head = far.read(1)
        if head == b"H":
            head += far.read(7)
            return 0, head + far.read(int.from_bytes(head[6:8], "little"))

        def varint():
            nonlocal head
            value = shift = 0
            while True:
                byte = far.read(1)
                if not byte:
                    return 0
                head += byte
                value |= (byte[0] & 127) << shift
                shift += 7
                if byte[0] < 128:
                    return value

        if not head:
            return 0, b""
        kind, flags, length = head[0] & 15, head[0] & 0xf0, 0
        if flags & self.STREAM:
            varint()
        if kind not in self.WITHOUT_LENGTH:
            length = varint()
        if kind != 6:
            varint()  # id, method or value
        if kind == 1 or kind == 5:
            varint()  # method, code
        if flags & self.FIRST:
            varint()
        return kind, head + far.read(length)


class Gate(FrameRelay):
    """Keeps frames of a kind back: a text that needs one of them has not ended, however long it takes."""
    ROW_BYTES = 256  # those of a stage's rows have as many at least

    def __init__(self, test, address, kind, least=0):
        super().__init__(test, address)
        self.kind, self.least = kind, least
        self.left = None  # frames that pass until it closes
        self.kept = {}  # by connection, on which it stays closed

    def close(self, after, held):
        """held, a queue, is given the gate when it keeps something."""
        self.left, self.held = after, held

    def open(self):
        with self.lock:
            self.left = None
            for there, frames in self.kept.items():
                with contextlib.suppress(OSError):  # it has been closed
                    there.sendall(b"".join(frames))
            self.kept.clear()

    def lose(self):
        """What it keeps and what comes on these connections; others are open."""
        with self.lock:
            self.left = None

    def give(self, there, kind, frame):
        with self.lock:
            if kind == self.kind and len(frame) >= self.least:
                if self.left == 0 and there not in self.kept:
                    self.kept[there] = []
                    self.held.put(self)
                if there in self.kept:
                    self.kept[there].append(frame)
                    return
                self.left = self.left and self.left - 1
            there.sendall(frame)
