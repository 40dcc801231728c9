"""A gateway that gets no memory: it refuses what it cannot do, and goes on."""

import http.client
import json
import os
import signal
import unittest

from rig import Case, Process, call, connect, state, wait_for, worker

MESSAGES = [{"role": "user", "content": "Who was Noah?"}]
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
ASKED = [
    ("/v1/completions", {"prompt": "And God said", "max_tokens": 8, "logprobs": 3, "n": 3, "stop": ["Noah"]}),
    ("/v1/completions", {"prompt": "And God said", "max_tokens": 8, "echo": True, "logprobs": 2, "stream": True}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, "stream": True}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, "tools": [{"type": "function", "function": FUNCTION}],
                              "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, "response_format": {"type": "json_object"}}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8}),
    ("/v1/responses", {"input": "Who was Noah?", "max_output_tokens": 8, "stream": True}),
    ("/v1/embeddings", {"input": ["a", "b"]}),
    ("/tokenize", {"prompt": "Noah"}), ("/detokenize", {"tokens": [5, 6, 7]}),
    ("/v1/models", None), ("/state?map=1", None), ("/metrics", None), ("/json", None), ("/", None),
]
# What each 200 has is all there.
PARTS = [{"type": "text", "text": "And God said unto Noah. " * 20}] * 40
SAME = [
    ("/tokenize", {"prompt": "And God said unto Noah. " * 100}),
    ("/v1/embeddings", {"input": ["a", "b"] * 32}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": PARTS},
                                                {"role": "assistant", "content": PARTS}]}),
]


def ask(url, path, body, want=None):
    """The status, or None where the connection ended or the client gave up; what is said to be JSON is."""
    connection = connect(url, timeout=5)
    try:
        connection.request("POST" if body else "GET", path, body=json.dumps(body) if body else None)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if answer.headers.get("Content-Type") == "application/json":
        told = json.loads(text)
        if want is not None and answer.status == 200:
            assert told == want, (path, text)
    return answer.status


def choices(url, asked):
    """None without an answer."""
    try:
        status, _, answer = call(url, "/v1/completions", asked)
    except (OSError, http.client.HTTPException):
        return None
    return answer["choices"] if status == 200 and isinstance(answer, dict) else None


class Memory(Case):
    def test_a_gateway_without_memory_goes_on(self):
        preload = {"LD_PRELOAD": os.environ["HAWSER_FAILING_ALLOCATIONS"]}
        with worker() as w, Process("gateway", "--servers", w.address, "--http", "127.0.0.1:0", "--worker-wait",
                                    "500ms", env=preload) as front:
            wait_for(lambda: ": up," in state(front.url))
            asked = {"prompt": "And God said", "temperature": 0, "max_tokens": 8}
            before = choices(front.url, asked)
            same = [(path, body, call(front.url, path, body)[2]) for path, body in SAME]
            front.send(signal.SIGUSR2)
            statuses = {ask(front.url, *of) for _ in range(8) for of in ASKED + same}
            self.assertIsNone(front.process.poll())
            front.send(signal.SIGUSR2)
            self.assertIn(503, statuses)
            self.assertLessEqual(statuses, {None, 200, 400, 404, 503})
            # The signal may come behind the first requests.
            wait_for(lambda: choices(front.url, asked) == before)
            self.assertEqual(front.stop()[0], 0)


if __name__ == "__main__":
    unittest.main()
