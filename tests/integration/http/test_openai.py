"""OpenAI's client for JavaScript against the front: completions, chats, tools, streams, an abort."""

import json
import os
import pathlib
import tempfile
import unittest

from families import CALLS, FAMILIES, TOOLS
from rig import NAME, call, counter, service, wait_for, with_template
from npm import install_or_skip, run_node  # rig has told where

# The oldest that people still have, and the newest; each in a folder of its own.
FOLDERS = {version: pathlib.Path(os.environ["HAWSER_OPENAI_DIR"]) / version for version in ("4", "7")}
TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "unit/llm/templates"
SCRIPT = pathlib.Path(__file__).resolve().parent / "openai_client.mjs"
TOOLS_SCRIPT = SCRIPT.with_name("openai_tools.mjs")


class OpenAI(unittest.TestCase):
    def test_clients(self):
        for version, folder in FOLDERS.items():
            with self.subTest(version):
                self.check(folder)

    def test_calls_of_families(self):
        package = list(FOLDERS.values())[-1]
        for name, (template, control, grammar, thought) in FAMILIES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, \
                    service(model=with_template(folder, template, control)) as front:
                asked = {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS, "max_tokens": 300,
                         "grammar": grammar}
                result = run_node(package, TOOLS_SCRIPT, front.url + "/v1", NAME, json.dumps(asked))
                self.assertEqual(result.returncode, 0, result.stderr)
                for got in json.loads(result.stdout):
                    made = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in got["tool_calls"]]
                    self.assertEqual((got["content"], got.get("reasoning_content") or None, made, got["finish_reason"]),
                                     ("Well.", thought, CALLS, "tool_calls"))

    def check(self, package):
        with tempfile.TemporaryDirectory() as folder, \
                service(model=with_template(folder, (TEMPLATES / "chatml_tools.jinja").read_text())) as front:
            result = run_node(package, SCRIPT, front.url + "/v1", NAME)
            self.assertEqual(result.returncode, 0, result.stderr)
            got = json.loads(result.stdout)
            prompt = {"prompt": "And God said", "temperature": 0, "max_tokens": 32}
            expected = call(front.url, "/v1/completions", prompt)[2]["choices"][0]["text"]
            self.assertEqual(got["models"], [NAME])
            self.assertEqual(got["completion"], expected)
            self.assertEqual(got["completion_stream"], expected)
            self.assertEqual(got["chat"], got["chat_stream"])
            self.assertEqual(got["usage"]["completion_tokens"], 16)
            self.assertEqual([len(v) for v in got["embeddings"]], [224, 224])
            self.assertEqual(got["embeddings"], got["embedding_numbers"])
            self.assertEqual(got["not_found"], {"status": 404, "code": "model_not_found"})
            self.assertTrue(got["request_id"].startswith("chatcmpl-"))
            self.assertEqual(got["bad_request"], {"status": 400, "param": "temperature"})
            self.assert_tools(got)
            self.assert_responses(got)
            self.assertTrue(got["aborted"])
            wait_for(lambda: counter(front.url, "vllm:num_requests_running") == 0)
            self.assertGreaterEqual(counter(front.url, "hawser_http_texts_left_total"), 1)

    def assert_tools(self, got):
        self.assertEqual(got["call"]["finish_reason"], "tool_calls")
        self.assertIsNone(got["call"]["message"]["content"])
        self.assertEqual(len(got["call_plain"]), 1)
        self.assertEqual(got["call_stream"], got["call_plain"])
        self.assertEqual(got["call_finish"], "tool_calls")
        self.assertGreaterEqual(got["call_deltas"], 2)  # the name, then arguments
        arguments = json.loads(got["call_plain"][0]["function"]["arguments"])
        self.assertEqual(got["call_plain"][0]["function"]["name"] == "get_weather", "city" in arguments)
        self.assertIn("length", [cut["finish_reason"] for cut in got["cut"]])
        for cut in got["cut"]:
            calls = [json.loads(c["function"]["arguments"]) for c in cut["calls"] or []]
            self.assertEqual((cut["finish_reason"], cut["reason"], len(calls)),
                             ("tool_calls", "tool_calls", 1) if calls else ("length", "length", 0))
            self.assertEqual((cut["content"], cut["streamed"]), (None, ""))
        named, = (c["function"] for c in got["named"])
        self.assertEqual((named["name"], json.loads(named["arguments"])), ("noop", {}))
        self.assertGreaterEqual(got["run"]["turns"], 1, got)
        self.assertEqual(got["run"]["messages"][:3], ["user", "assistant", "tool"])
        self.assertIsNone(got["after"]["calls"])
        self.assertEqual(got["free"]["content"], "So. ")
        self.assertEqual([c["function"]["name"] for c in got["free"]["calls"]], ["noop"])
        self.assertIn(got["shaped"]["name"], ["Adam", "Eve"])
        self.assertLessEqual(got["shaped"]["age"], 999)
        self.assertEqual(got["tools_refused"], [[400, "tools"], [400, "tool_choice"], [400, "tool_choice"],
                                                [400, "tools"]])

    def assert_responses(self, got):
        whole, stream = got["response"], got["response_stream"]
        self.assertEqual((whole["object"], whole["status"], whole["incomplete_details"], whole["store"]),
                         ("response", "incomplete", {"reason": "max_output_tokens"}, False))
        self.assertEqual(whole["output_text"], got["chat"])
        self.assertEqual({name: whole["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")},
                         {"input_tokens": got["usage"]["prompt_tokens"], "output_tokens": 16,
                          "total_tokens": got["usage"]["total_tokens"]})
        self.assertEqual((whole["instructions"], whole["max_output_tokens"], whole["tools"]), ("Be brief.", 16, []))
        self.assert_events(stream, ["output_item.added", "content_part.added", "output_text.delta", "output_text.done",
                                    "content_part.done", "output_item.done", "incomplete"])
        self.assertEqual((stream["text"], stream["final"]["output"][0]["content"][0]["text"]), (got["chat"],) * 2)
        called, = got["response_call"]
        expected = got["call_plain"][0]["function"]
        self.assertEqual((called["type"], called["status"], called["name"]),
                         ("function_call", "completed", expected["name"]))
        stream = got["response_call_stream"]
        self.assert_events(stream, ["output_item.added", "function_call_arguments.delta",
                                    "function_call_arguments.done", "output_item.done", "completed"])
        self.assertEqual(stream["args"], called["arguments"])
        self.assertEqual([i["arguments"] for i in stream["final"]["output"]], [called["arguments"]])
        self.assertEqual([i["type"] for i in got["response_after"]["output"]], ["message"])
        stream = got["response_free"]
        self.assertEqual([i["type"] for i in stream["final"]["output"]], ["message", "function_call"])
        self.assertEqual((stream["text"], stream["args"], stream["final"]["status"]), ("So. ", "{}", "completed"))
        self.assertIn(got["response_shaped"]["output_parsed"]["name"], ["Adam", "Eve"])
        self.assertEqual((got["response_cut"]["last"]["status"], got["response_cut"]["last"]["output"]),
                         ("incomplete", []))
        self.assertEqual(got["responses_refused"], [
            [400, "previous_response_id"], [400, "input"], [400, "input"], [400, "tools"], [400, "tool_choice"],
            [400, "max_output_tokens"], [400, "background"], [400, "input"], [400, "text.format"], [404, "model"]])

    def assert_events(self, stream, expected):
        """The kinds in order, each as often as it comes in a row; all are numbered."""
        kinds = [kind for i, kind in enumerate(stream["types"]) if i == 0 or stream["types"][i - 1] != kind]
        self.assertEqual(kinds, [f"response.{kind}" for kind in ["created", "in_progress", *expected]])
        self.assertEqual(stream["numbers"], list(range(len(stream["numbers"]))))


if __name__ == "__main__":
    for version, folder in FOLDERS.items():
        install_or_skip(folder, f"openai@{version}")
    unittest.main()
