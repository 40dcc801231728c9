"""What clients of OpenAI's interface send that its reference leaves open: LangChain, LlamaIndex, Open WebUI, agents,
proxies, and programs that write HTTP by hand."""

import contextlib
import http.client
import json
import pathlib
import resource
import signal
import socket
import threading
import unittest
import urllib.parse

from rig import NAME, Stream, call, counter, service, text_of, wait_for

CHAT = {"messages": [{"role": "user", "content": "Who was Moses?"}], "max_tokens": 6, "temperature": 0}
PROMPT = {"prompt": "And God said", "max_tokens": 6, "temperature": 0}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "strict": True, "parameters": {
    "type": "object", "properties": {}, "required": [], "additionalProperties": False}}}


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.front = service("--max-requests", 16)
        cls.url = cls.front.url

    @classmethod
    def tearDownClass(cls):
        code, stderr = cls.front.stop()
        assert code == 0 and not stderr, (code, stderr)

    def ask(self, path, body):
        status, _, answer = call(self.url, path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def chat(self, **fields):
        return self.ask("/v1/chat/completions", {**CHAT, **fields})

    def complete(self, **fields):
        return self.ask("/v1/completions", {**PROMPT, **fields})

    # ---- fields ----

    def assert_same(self, got, expected):
        self.assertEqual((got["choices"], got["usage"]["prompt_tokens"]),
                         (expected["choices"], expected["usage"]["prompt_tokens"]))

    def test_fields_that_say_nothing_here(self):
        plain = self.chat()
        nothing = dict.fromkeys((
            "stop", "n", "seed", "top_p", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty",
            "logit_bias", "user", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stream",
            "stream_options", "max_completion_tokens", "functions", "function_call", "modalities", "audio",
            "grammar", "model"))
        others = {"user": "u", "store": True, "metadata": {"a": "b"}, "reasoning_effort": "low", "verbosity": "low",
                  "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "prediction": None,
                  "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "functions": [], "stop": [],
                  "modalities": ["text"], "response_format": {"type": "text"}, "logprobs": False, "top_logprobs": 0,
                  "chat_template_kwargs": {}, "model": NAME}
        for fields in (nothing, others):
            self.assert_same(self.chat(**fields), plain)
        nothing = dict.fromkeys(("suffix", "best_of", "logprobs", "echo", "stop", "n", "stream_options"))
        for fields in (nothing, {"suffix": "", "best_of": 1, "n": 1, "echo": False}):
            self.assert_same(self.complete(**fields), self.complete())

    def test_lengths(self):
        """-1 is llama.cpp's and LM Studio's word for all; null is as if it were left out."""
        to_the_end = self.chat(max_tokens=None)["choices"]
        for fields in ({"max_tokens": -1}, {"max_tokens": None, "max_completion_tokens": -1}):
            self.assertEqual(self.chat(**fields)["choices"], to_the_end)
        self.assertEqual(self.chat(max_tokens=-1, max_completion_tokens=6)["choices"], self.chat()["choices"])
        self.assertGreater(self.complete(max_tokens=-1)["usage"]["completion_tokens"], 16)
        self.assertEqual(self.complete(max_tokens=None)["usage"]["completion_tokens"], 16)
        for wrong in (-2, -1.5, "6"):
            self.assertEqual(call(self.url, "/v1/completions", {**PROMPT, "max_tokens": wrong})[0], 400)

    def test_messages(self):
        """The same conversation, however it is written."""
        def said(*messages, **fields):
            return self.chat(messages=list(messages), **fields)

        def user(content, **more):
            return {"role": "user", "content": content, **more}

        plain = said(user("Who was Moses?"))
        self.assert_same(said(user([{"type": "text", "text": "Who was Moses?"}])), plain)
        self.assert_same(said(user([{"type": "text", "text": "Who was"}, {"type": "text", "text": "Moses?"}])),
                         said(user("Who was\nMoses?")))  # a line each, as vLLM and llama.cpp have it
        self.assert_same(said(user("Who was Moses?", name="bob")), plain)
        self.assertEqual(said({"role": "developer", "content": "Be brief."}, user("Hi"))["choices"][0]["finish_reason"],
                         "length")
        result = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
        calls = {"role": "assistant", "tool_calls": [CALL]}
        first = said(user("a"), {**calls, "content": None}, result, tools=[TOOL])
        for content in ({"content": ""}, {"content": []}, {}):
            self.assert_same(said(user("a"), {**calls, **content}, result, tools=[TOOL]), first)
        self.assert_same(said(user("a"), {**calls, "content": None},
                              {**result, "content": [{"type": "text", "text": "ok"}]}, tools=[TOOL]), first)
        # What a server answered comes back with all its members.
        echo = {"role": "assistant", "content": "b", "refusal": None, "audio": None, "annotations": [],
                "function_call": None, "tool_calls": None, "reasoning_content": "c"}
        self.assert_same(said(user("a"), echo, user("c")),
                         said(user("a"), {"role": "assistant", "content": "b", "tool_calls": []}, user("c")))

    def test_streams_of_several_answers_with_logprobs(self):
        asked = {**CHAT, "n": 2, "temperature": 1, "seed": 4, "logprobs": True, "top_logprobs": 2}
        whole = self.ask("/v1/chat/completions", asked)
        chunks = list(Stream(self.url, "/v1/chat/completions", {**asked, "stream_options": {"include_usage": True}}))
        for choice in whole["choices"]:
            mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
            self.assertEqual(text_of(chunks, choice["index"]), choice["message"]["content"])
            self.assertEqual([t for c in mine if c["logprobs"] for t in c["logprobs"]["content"]],
                             choice["logprobs"]["content"])
            self.assertEqual(mine[0]["delta"]["role"], "assistant")
            self.assertEqual([c["finish_reason"] for c in mine if c["finish_reason"]], [choice["finish_reason"]])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])

    def test_responses(self):
        asked = {"input": CHAT["messages"], "temperature": 0, "max_output_tokens": 6, "metadata": {"a": "b"}}
        whole = self.ask("/v1/responses", {**asked, "top_logprobs": 2})
        message, = whole["output"]
        chat = self.chat(logprobs=True, top_logprobs=2)["choices"][0]
        self.assertEqual((message["content"][0]["text"], message["content"][0]["logprobs"]),
                         (chat["message"]["content"], chat["logprobs"]["content"]))
        self.assertEqual((whole["metadata"], whole["status"], whole["previous_response_id"]),
                         ({"a": "b"}, "incomplete", None))
        lines = self.talk(self.post({**asked, "stream": True, "top_logprobs": 2}, "/v1/responses",
                                    "Connection: close\r\n")).decode().split("\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        self.assertEqual([line[7:].rstrip() for line in lines if line.startswith("event: ")], [e["type"] for e in events])
        deltas = [e for e in events if e["type"] == "response.output_text.delta"]
        self.assertEqual("".join(e["delta"] for e in deltas), chat["message"]["content"])
        self.assertEqual([entry for e in deltas for entry in e["logprobs"]], chat["logprobs"]["content"])
        ended = events[-1]["response"]
        for answer in (whole, ended):
            for name in ("id", "created_at", "usage"):
                self.assertTrue(answer.pop(name))
            answer["output"][0].pop("id")
        self.assertEqual((events[-1]["type"], ended), ("response.incomplete", whole))

    def test_prompts(self):
        tokens = call(self.url, "/tokenize", {"prompt": "And God said"})[2]["tokens"]
        plain = self.complete()["choices"][0]
        for prompt in (["And God said"], tokens, [tokens], ["And God said", tokens]):
            choices = self.complete(prompt=prompt)["choices"]
            self.assertEqual(choices, [{**plain, "index": i} for i in range(len(choices))])
        self.assertEqual(len(choices), 2)
        for field, value in (("suffix", "x"), ("best_of", 3)):
            status, _, body = call(self.url, "/v1/completions", {**PROMPT, field: value})
            self.assertEqual((status, body["error"]["param"]), (400, field))

    # ---- HTTP ----

    def paths(self, *paths):
        return {path: call(self.url, path, CHAT if "chat" in path else None)[0] for path in paths}

    def test_paths(self):
        there = ("/v1/chat/completions/", "//v1/chat/completions", "/v1//chat/completions?api-version=1", "/v1/models/",
                 "/v1//models", f"/v1/models//{NAME}", f"/v1/models/{NAME}/", "/v1/models/k%6av", "//healthz//")
        self.assertEqual(self.paths(*there), dict.fromkeys(there, 200))
        for path, body in (("/v1", None), ("/v1/", None), ("/v1/modelsx", None), ("/v1/mod", None),
                           ("/v1/responses/resp_1", None), ("/v1/messages/batches", CHAT), ("/v1/rerank", {}), ("/v1/score", {}),
                           ("/api/chat", CHAT), ("/api/tags", None), ("/props", None)):
            status, headers, answer = call(self.url, path, body)
            self.assertEqual((status, headers["Content-Type"]), (404, "application/json"))
            self.assertIn("/v1/chat/completions", answer["error"]["message"])

    def talk(self, *pieces, timeout=240):
        """All that the server answers to these bytes until it closes; it is asked to in the last request."""
        at = urllib.parse.urlsplit(self.url)
        with socket.create_connection((at.hostname, at.port), timeout=timeout) as client:
            for piece in pieces:
                client.sendall(piece)
            return client.makefile("rb").read()

    @staticmethod
    def post(body, path="/v1/chat/completions", head=""):
        data = json.dumps(body).encode()
        return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n{head}\r\n".encode() + data

    def test_requests_that_do_not_wait_for_answers(self):
        last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answers = self.talk(self.post(CHAT) + self.post({**CHAT, "stream": True}) + self.post(PROMPT, "/v1/completions") +
                            last)
        kinds = [b'"object":"chat.completion"', b"data: [DONE]", b'"object":"text_completion"', b'"status":"ok"']
        places = [answers.find(kind) for kind in kinds]
        self.assertNotIn(-1, places)
        self.assertEqual(places, sorted(places))
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK\r\n"), 4)

    def test_a_body_that_waits_for_leave(self):
        close = "Expect: 100-continue\r\nConnection: close\r\n"
        head, body = self.post(CHAT, head=close).split(b"\r\n\r\n")
        at = urllib.parse.urlsplit(self.url)
        with socket.create_connection((at.hostname, at.port), timeout=240) as client:
            client.sendall(head + b"\r\n\r\n")
            answers = client.makefile("rb")
            self.assertEqual((answers.readline(), answers.readline()), (b"HTTP/1.1 100 Continue\r\n", b"\r\n"))
            client.sendall(body)
            self.assertIn(b" 200 OK", answers.readline())
            self.assertIn(b'"chat.completion"', answers.read())
        # One that is refused anyway is not sent.
        for path, length, status in (("/v1/nothing", 9, b"404"), ("/v1/models", 9, b"405"),
                                     ("/v1/chat/completions", 99999999, b"413"), ("/v1/nothing", 99999999, b"404")):
            answer = self.talk(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{close}\r\n".encode())
            self.assertTrue(answer.startswith(b"HTTP/1.1 " + status), answer)
            self.assertIn(b'{"error":{"message":', answer)

    def test_an_answer_is_named_in_its_head(self):
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", PROMPT)):
            _, headers, answer = call(self.url, path, body)
            self.assertEqual(headers["x-request-id"], answer["id"])
            stream = Stream(self.url, path, body)
            self.assertEqual(stream.answer.headers["x-request-id"], list(stream)[0]["id"])
        self.assertIsNone(call(self.url, "/v1/models")[1]["x-request-id"])

    def test_heads(self):
        for path, status in (("/v1/models", 200), ("/healthz", 200), ("/", 200), ("/v1/chat/completions", 405),
                             ("/v1/nothing", 404)):
            answer = self.talk(f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            self.assertTrue(answer.startswith(f"HTTP/1.1 {status} ".encode()) and answer.endswith(b"\r\n\r\n"), answer)
            self.assertRegex(answer, rb"Content-Length: [1-9]")

    def test_offers_of_other_protocols(self):
        """A server may ignore them; HTTP/2 without an offer is refused in HTTP/1.1."""
        for offer in ("h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", "websocket"):
            head = f"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: {offer}\r\n"
            answer = self.talk(self.post(CHAT, head=head))
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
            self.assertIn(b'"object":"chat.completion"', answer)
        self.assertTrue(self.talk(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 505 "))

    def test_what_is_declared_as_the_body_does_not_matter(self):
        for kind in ("application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded"):
            status, _, body = call(self.url, "/v1/chat/completions", CHAT, headers={"Content-Type": kind})
            self.assertEqual((status, body["object"]), (200, "chat.completion"))

    def test_deep_and_wide_bodies(self):
        nested = b"[" * (5 << 20)
        for raw, word in ((b'{"a":' + nested, "depth"), (b'{"messages":' + b'{"a":' * (2 << 20), "depth"),
                          (json.dumps({**CHAT, "messages": CHAT["messages"] * 200000}).encode(), "4096"),
                          (json.dumps({**CHAT, "tools": [{"type": "function", "function": {"name": f"f{i}"}}
                                                         for i in range(50000)], "tool_choice": "required"}).encode(),
                           "too large")):
            status, _, body = call(self.url, "/v1/chat/completions", raw=raw, method="POST")
            self.assertEqual(status, 400, body)
            self.assertIn(word, body["error"]["message"])
            self.assertLess(len(body["error"]["message"]), 400)
        self.chat(unknown=[str(i) for i in range(1 << 20)])

    def test_connections_that_ask_nothing(self):
        """Browsers and pools keep connections, and some never finish a head: others are answered beside them."""
        at = urllib.parse.urlsplit(self.url)
        with contextlib.ExitStack() as many:
            for i in range(400):
                client = many.enter_context(socket.create_connection((at.hostname, at.port), timeout=240))
                client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost" if i % 2 else b"")
            self.assertEqual(self.chat()["object"], "chat.completion")
            # One of them goes on where it was.
            body = self.post(CHAT, head="Connection: close\r\n")
            client.sendall(body[len(b"POST /v1/chat/completions HTTP/1.1\r\nHost"):])
            self.assertIn(b'"chat.completion"', client.makefile("rb").read())

    def test_a_connection_is_used_again_after_refusals(self):
        at = urllib.parse.urlsplit(self.url)
        with contextlib.closing(http.client.HTTPConnection(at.hostname, at.port, timeout=240)) as client:
            client.connect()
            first = client.sock
            for path, body, status in (("/v1/nothing", "{}", 404), ("/v1/models", "{}", 405),
                                       ("/v1/chat/completions", "{", 400), ("/v1/completions", json.dumps(PROMPT), 200)):
                client.request("POST", path, body)
                answer = client.getresponse()
                self.assertEqual((answer.status, answer.read()[:1]), (status, b"{"))
                self.assertIs(client.sock, first, "the server kept it")

    def test_nothing_is_left(self):
        wait_for(lambda: counter(self.url, "vllm:num_requests_running") == 0)


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


class SlowClients(unittest.TestCase):
    """Those that send or read a byte now and then take neither connections nor memory from others."""

    @staticmethod
    def connect(front, *pieces, receive=None):
        client = socket.socket()
        if receive:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        at = urllib.parse.urlsplit(front.url)
        client.settimeout(240)
        client.connect((at.hostname, at.port))
        for piece in pieces:
            client.sendall(piece)
        return client

    def test_connections(self):
        """More than the server takes (--max-requests and 1024 others) wait within a head or a body."""
        many = 1100
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limits[1] < many + 100:
            self.skipTest("too few files may be open")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], many + 100), limits[1]))
        parts = [(), (HEAD,), (HEAD + b"Content-Length: 99\r\n\r\n{",)]
        with service("--max-requests", 1) as front, contextlib.ExitStack() as open_ones:
            slow = [open_ones.enter_context(self.connect(front, *parts[i % 3])) for i in range(many)]
            self.assertEqual(call(front.url, "/v1/completions", PROMPT)[0], 200)
            self.assertEqual(slow[0].recv(1), b"", "the oldest gave way")
            slow[-1].sendall(b"x" * 99 if (many - 1) % 3 == 2 else b"GET / HTTP/1.0\r\n\r\n")
            self.assertIn(b"HTTP/1.1 ", slow[-1].recv(99), "the newest did not")
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def drip(self, client, byte):
        """Sends until the server has closed."""
        never = threading.Event()
        try:
            while True:
                client.sendall(byte)
                never.wait(0.05)
        except OSError:
            return

    def test_heads_and_bodies(self):
        with service("--client-timeout", "1s") as front:
            drips = [(), (HEAD,), (HEAD + b"Content-Length: 99999\r\n\r\n{",),
                     (HEAD + b"Transfer-Encoding: chunked\r\n\r\n",)]
            bytes_ = [b"P", b"x", b" ", b"1\r\n \r\n"]
            with contextlib.ExitStack() as stack:
                clients = [stack.enter_context(self.connect(front, *pieces)) for pieces in drips]
                threads = [threading.Thread(target=self.drip, args=each) for each in zip(clients, bytes_)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(240)
                    self.assertFalse(thread.is_alive(), "the server kept it")
            self.assertEqual(call(front.url, "/v1/completions", PROMPT)[0], 200)

    def test_a_reader(self):
        """One that does not read a long stream: its texts end, its place is free, and then it is closed."""
        ask = {**PROMPT, "max_tokens": 256, "n": 8, "temperature": 1, "logprobs": 20, "stream": True}
        with service("--client-timeout", "1s", "--max-requests", 1) as front:
            files = pathlib.Path(f"/proc/{front.process.pid}/fd")
            call(front.url, "/v1/completions", PROMPT)
            before = len(list(files.iterdir()))
            with self.connect(front, Clients.post(ask, "/v1/completions"), receive=4096) as client:
                client.recv(1)
                wait_for(lambda: counter(front.url, "vllm:num_requests_running") == 0)
                self.assertEqual(call(front.url, "/v1/completions", PROMPT)[0], 200)
                wait_for(lambda: len(list(files.iterdir())) <= before)

    def test_bodies_together(self):
        """Large bodies that never end are bounded together; small ones are answered beside them."""
        part = HEAD + b"Content-Length: 16000000\r\n\r\n" + b" " * 15_900_000
        with service() as front, contextlib.ExitStack() as stack:
            def ask():
                return call(front.url, "/v1/completions", raw=b" " * 15_900_000, method="POST")

            for _ in range(18):
                stack.enter_context(self.connect(front, part))
            wait_for(lambda: ask()[0] == 503)
            self.assertEqual(ask()[1]["Retry-After"], "1")
            self.assertEqual(call(front.url, "/v1/completions", PROMPT)[0], 200)
            stack.close()
            wait_for(lambda: ask()[0] == 400)


if __name__ == "__main__":
    signal.alarm(600)
    unittest.main()
