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


def ask(url, path, body):
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
        json.loads(text)
    return answer.status


class Memory(Case):
    def test_a_gateway_without_memory_goes_on(self):
        preload = {"LD_PRELOAD": os.environ["HAWSER_FAILING_ALLOCATIONS"]}
        with worker() as w, Process("gateway", "--servers", w.address, "--http", "127.0.0.1:0", "--worker-wait",
                                    "500ms", env=preload) as front:
            wait_for(lambda: ": up," in state(front.url))
            asked = {"prompt": "And God said", "temperature": 0, "max_tokens": 8}
            before = call(front.url, "/v1/completions", asked)[2]["choices"]
            front.send(signal.SIGUSR2)
            statuses = {ask(front.url, path, body) for _ in range(8) for path, body in ASKED}
            self.assertIsNone(front.process.poll())
            front.send(signal.SIGUSR2)
            self.assertIn(503, statuses)
            self.assertLessEqual(statuses, {None, 200, 400, 404, 503})
            wait_for(lambda: call(front.url, "/healthz")[0] == 200)
            self.assertEqual(call(front.url, "/v1/completions", asked)[2]["choices"], before)
            self.assertEqual(front.stop()[0], 0)


if __name__ == "__main__":
    unittest.main()
