"""Anthropic's client for JavaScript against the front: messages, streams, tools, keys, an abort."""

import itertools
import json
import os
import pathlib
import unittest

from families import CALLS
from rig import NAME, Case, call, service, wait_for, with_template
from npm import install_or_skip, run_node  # rig has told where

# One that people had for long, and the newest; each in a folder of its own.
FOLDERS = {version: pathlib.Path(os.environ["HAWSER_ANTHROPIC_DIR"]) / version for version in ("0.39", "1")}
SCRIPT = pathlib.Path(__file__).resolve().parent / "anthropic_client.mjs"
TEMPLATE = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{# <tool_call> </think> #}"
KEY = "a-key-for-the-test-only"
GRAMMAR = ('root ::= "<think>Hm.</think>Well.<tool_call>{\\"name\\": \\"get_weather\\", \\"arguments\\": '
           '{\\"city\\": \\"Rom\\", \\"days\\": 3}}</tool_call><tool_call>{\\"name\\": \\"noop\\", \\"arguments\\": '
           '{}}</tool_call>"')


def runs(kinds):
    return [kind for kind, _ in itertools.groupby(kinds)]


class Anthropic(Case):
    def test_clients(self):
        keys = self.dir / "keys"
        keys.write_text(KEY + "\n")
        keys.chmod(0o600)
        for version, folder in FOLDERS.items():
            with self.subTest(version), service("--api-key-file", keys,
                                                model=with_template(self.dir, TEMPLATE)) as front:
                result = run_node(folder, SCRIPT, front.url, NAME, KEY, GRAMMAR)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.check(json.loads(result.stdout), front.url)

    def check(self, got, url):
        headers = {"Authorization": f"Bearer {KEY}"}
        chat = call(url, "/v1/chat/completions", {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who was Moses?"}],
            "temperature": 0, "max_tokens": 16}, headers=headers)[2]
        content = [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
        whole = got["whole"]
        self.assertEqual((whole["type"], whole["role"], whole["model"], whole["stop_reason"], whole["stop_sequence"]),
                         ("message", "assistant", NAME, "max_tokens", None))
        self.assertTrue(whole["id"].startswith("msg_"))
        for answer in (whole, got["stream"]["final"], got["blocks"], {"content": got["bearer"]}):
            self.assertEqual([{k: b[k] for k in ("type", "text")} for b in answer["content"]], content)
        for usage in (whole["usage"], got["stream"]["final"]["usage"]):
            self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], chat["usage"]["prompt_tokens"])
            self.assertEqual(usage["output_tokens"], 16)
        self.assertEqual(got["count"]["input_tokens"], chat["usage"]["prompt_tokens"])
        self.assertEqual(runs(got["stream"]["kinds"]), [
            "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
            "message_stop"])
        used, = got["call"]["content"]
        self.assertEqual((used["type"], used["name"], got["call"]["stop_reason"]), ("tool_use", "get_weather", "tool_use"))
        self.assertEqual(set(used["input"]), {"city", "days"})
        final = got["call_stream"]["final"]
        self.assertEqual(([b["input"] for b in final["content"]], final["stop_reason"]), ([used["input"]], "tool_use"))
        self.assertEqual([b["type"] for b in got["after"]["content"]], ["text"])
        for answer in (got["parts"], got["parts_stream"]["final"]):
            thought, text, *calls = answer["content"]
            self.assertEqual((thought["type"], thought["thinking"], text["text"]), ("thinking", "Hm.", "Well."))
            self.assertEqual([(c["name"], c["input"]) for c in calls], CALLS)
            self.assertEqual(answer["stop_reason"], "tool_use")
        block = ["content_block_start", "content_block_delta", "content_block_stop"]
        self.assertEqual(runs(got["parts_stream"]["kinds"]),
                         ["message_start", *(block * 4), "message_delta", "message_stop"])
        bad = [400, "invalid_request_error", "BadRequestError"]
        self.assertEqual(got["refused"], [bad, bad, bad, [404, "not_found_error", "NotFoundError"], bad, bad])
        self.assertEqual(got["stranger"], "AuthenticationError")
        self.assertTrue(got["aborted"])
        wait_for(lambda: "requests under way: 0 " in call(url, "/", headers=headers)[2])


if __name__ == "__main__":
    for version, folder in FOLDERS.items():
        install_or_skip(folder, f"@anthropic-ai/sdk@{version}")
    unittest.main()
