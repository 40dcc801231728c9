"""What the tests of the HTTP front share: workers, gateways, requests, streams.

Answers are read as raw HTTP, so that what is tested is the bytes that a client gets.
"""

import http.client
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import HAWSER, TIMEOUT, Case, Relay, Server, clean_environment, free_port, hawser, lines_of  # noqa: E402

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models" / "kjv.gguf"
NAME = "kjv"


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def with_template(folder, template, renamed=()):
    """The model with a chat template, as a file in the folder; renamed: (token, name) that become control
    tokens."""
    return with_pairs(folder, {"tokenizer.chat_template": struct.pack("<I", 8) + string(template)}, renamed)


def with_pairs(folder, more, renamed=()):
    """The model with other metadata, as a file in the folder; more: by key, types and values as GGUF writes
    them."""
    pairs, tensors = read_model()
    pairs = {key: value[:4] + changed(key, value[4:], dict(renamed)) for key, value in pairs.items()}
    return write_model(pathlib.Path(folder) / f"{NAME}.gguf", {**pairs, **more}, tensors)


def in_two_files(folder):
    """The model as two files in the folder, of which the second has the embedding; the path of the first."""
    pairs, tensors = read_model()
    tensors.sort(key=lambda tensor: tensor[0] == "token_embd.weight")
    half = len(tensors) // 2
    paths = [pathlib.Path(folder) / f"{NAME}-0000{i}-of-00002.gguf" for i in (1, 2)]
    for i, own, part in ((0, pairs, tensors[:half]), (1, {}, tensors[half:])):
        write_model(paths[i], {**own, "split.no": struct.pack("<IH", 2, i), "split.count": struct.pack("<IH", 2, 2),
                               "split.tensors.count": struct.pack("<Ii", 5, len(tensors))}, part)
    return paths[0]


def read_model():
    """The metadata, types and values by key, and the tensors: (name, dimensions and type, data)."""
    data = MODEL.read_bytes()
    _, count, pair_count = struct.unpack_from("<IQQ", data, 4)
    pairs, tensors, at = {}, [], 24
    for _ in range(pair_count):
        begin = at + 8
        at = begin + struct.unpack_from("<Q", data, at)[0]
        end = skip_value(data, struct.unpack_from("<I", data, at)[0], at + 4)
        pairs[data[begin:at].decode()] = data[at:end]
        at = end
    for _ in range(count):
        begin = at + 8
        at = begin + struct.unpack_from("<Q", data, at)[0]
        shape = at + 8 + 8 * struct.unpack_from("<I", data, at)[0]
        tensors.append((data[begin:at].decode(), data[at:shape], struct.unpack_from("<Q", data, shape)[0]))
        at = shape + 8
    data = data[at + -at % 32:]
    ends = sorted([offset for _, _, offset in tensors] + [len(data)])
    return pairs, [(name, shape, data[offset:ends[ends.index(offset) + 1]]) for name, shape, offset in tensors]


def write_model(path, pairs, tensors):
    head, at = b"", 0
    for name, shape, data in tensors:
        head += string(name) + shape + struct.pack("<Q", at)
        at += len(data) + -len(data) % 32
    head = b"".join([b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs)),
                     *(string(key) + value for key, value in pairs.items()), head])
    path.write_bytes(b"".join([head, bytes(-len(head) % 32), *(data + bytes(-len(data) % 32) for _, _, data in tensors)]))
    return path


def skip_value(data, kind, at):
    """Where a value of GGUF's metadata ends."""
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == 9:
        inner, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = skip_value(data, inner, at)
        return at
    return at + (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)[kind]


def changed(key, value, renamed):
    """The vocabulary with control tokens instead of some others."""
    if not renamed or key not in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
        return value
    inner, count = struct.unpack_from("<IQ", value)
    items, at = [], 12
    for token in range(count):
        end = skip_value(value, inner, at)
        name = renamed.get(token)
        new = None if name is None else string(name) if inner == 8 else struct.pack("<i", 3)
        items.append(new or value[at:end])
        at = end
    return value[:12] + b"".join(items)


class Process:
    """A program that prints "answering on URL" when it is ready."""

    def __init__(self, *args, env=None, **kwargs):
        self.process = subprocess.Popen([HAWSER, *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=clean_environment(env), **kwargs)
        self.lines = []
        self.url = None
        ready = "listening on " if args[0] == "serve" else "answering on "
        for line in lines_of(self.process.stdout.fileno()):
            self.lines.append(line)
            if line.startswith("answering on "):
                self.url = line.removeprefix("answering on ")
            if line.startswith("listening on "):
                self.address = line.removeprefix("listening on ").split(", ")[0]
            if line.startswith(ready):
                return
        _, stderr = self.process.communicate(timeout=TIMEOUT)
        raise AssertionError(f"{args[0]} ended with {self.process.returncode}: {stderr.decode()}")

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        try:
            _, stderr = self.process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        assert b"Sanitizer" not in stderr, stderr.decode()
        return self.process.returncode, stderr.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def worker(*args, listen="127.0.0.1:0", model=MODEL, **kwargs):
    """A worker without an HTTP door."""
    return Process("serve", "--no-devices", "--model", model, "--threads", 1, "--kv-memory",
                   "64MiB", "--listen", listen, *args, **kwargs)


def service(*args, model=MODEL):
    """A worker with its own HTTP door, and a model that it knows."""
    front = worker("--http", "127.0.0.1:0", *args, model=model)
    wait_ready(front.url)
    return front


def gateway(workers, *args):
    """Over running workers, all of them known."""
    front = Process("gateway", "--servers", ",".join(w.address for w in workers), "--http",
                    "127.0.0.1:0", *args)
    try:
        wait_for(lambda: state(front.url).count(": up,") == len(workers))
    except BaseException:
        front.stop()
        raise
    return front


def wait_for(condition):
    """Looks again until it holds; TIMEOUT only bounds how long a failure takes."""
    never = threading.Event()
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        never.wait(0.02)
    raise AssertionError("it did not come to pass in time")


def connect(url, timeout=TIMEOUT):
    parts = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


def call(url, path, body=None, method=None, headers=None, raw=None):
    """(status, headers, decoded body)"""
    connection = connect(url)
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    connection.request(method or ("GET" if data is None else "POST"), path, body=data,
                       headers=headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    if "json" in answer.headers.get("Content-Type", ""):
        return answer.status, answer.headers, json.loads(text)
    return answer.status, answer.headers, text


def wait_ready(url):
    wait_for(lambda: call(url, "/healthz")[0] == 200)


def state(url):
    return call(url, "/")[2]


def counter(url, name):
    """The sum over all series of a metric."""
    text = call(url, "/metrics")[2]
    found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)
    assert found, f"no {name} in the metrics"
    return sum(map(float, found))


def narrow(url):
    """A socket that takes little until it is read; the server keeps less for it, too."""
    at = urllib.parse.urlsplit(url)
    client = socket.socket()
    client.settimeout(TIMEOUT)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    client.connect((at.hostname, at.port))
    return client


class Stream:
    """A streamed answer, read event by event."""

    def __init__(self, url, path, body, late=False):
        """late: a long answer does not end before it is read."""
        self.connection = connect(url)
        if late:
            self.connection.sock = narrow(url)
            body = {**body, "logprobs": 20}
        self.connection.request("POST", path, body=json.dumps({**body, "stream": True}).encode())
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.headers["Content-Type"].startswith("text/event-stream")

    def __iter__(self):
        """Yields the decoded chunks up to [DONE]."""
        event = []
        while True:
            line = self.answer.readline()
            if not line:
                raise AssertionError("the stream ended without [DONE]")
            line = line.rstrip(b"\n")
            if line.startswith(b"data: "):
                event.append(line[6:])
                continue
            assert line == b"", line
            data, event = b"\n".join(event), []
            if data == b"[DONE]":
                self.connection.close()
                return
            chunk = json.loads(data)
            if "error" in chunk:
                raise AssertionError(chunk["error"])
            yield chunk

    def close(self):
        self.connection.close()


def text_of(chunks, index=0):
    parts = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                parts.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
    return "".join(parts)


def in_threads(functions):
    """Their results, in order; the first exception, if any."""
    results = [None] * len(functions)

    def run(i, function):
        try:
            results[i] = (function(), None)
        except BaseException as problem:  # noqa: BLE001 (told below)
            results[i] = (None, problem)

    threads = [threading.Thread(target=run, args=(i, f)) for i, f in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, problem in results:
        if problem:
            raise problem
    return [value for value, _ in results]


__all__ = ["Case", "MODEL", "NAME", "Process", "Relay", "Server", "Stream", "TIMEOUT", "call", "connect", "counter",
           "free_port", "gateway", "hawser", "in_threads", "narrow", "service", "state", "text_of", "wait_for",
           "wait_ready", "with_template", "worker"]
