"""OpenAI's client for JavaScript against the front: completions, chats, tools, streams, an abort."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from rig import NAME, call, counter, service, wait_for, with_template

FOLDER = pathlib.Path(os.environ["HAWSER_OPENAI_DIR"])
PACKAGE = "openai@4"
SKIP = 77
TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "unit/llm/templates"
SCRIPT = pathlib.Path(__file__).resolve().parent / "openai_client.mjs"


def install():
    """Why the package is not there; None when it is.  It is kept in the build folder."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node or npm is not installed"
    if (FOLDER / "node_modules" / "openai" / "package.json").exists():
        return None
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        result = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-save",
                                 "--ignore-scripts", "--prefix", str(FOLDER), PACKAGE],
                                capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "npm took more than two minutes"
    return None if result.returncode == 0 else f"npm: {result.stderr.strip()[-300:]}"


class OpenAI(unittest.TestCase):
    def test_client(self):
        script = FOLDER / SCRIPT.name  # node looks for packages beside the script
        shutil.copy(SCRIPT, script)
        with tempfile.TemporaryDirectory() as folder, \
                service(model=with_template(folder, (TEMPLATES / "chatml_tools.jinja").read_text())) as front:
            result = subprocess.run(["node", script, front.url + "/v1", NAME], capture_output=True,
                                    text=True, timeout=120)
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
            self.assertEqual(got["bad_request"], {"status": 400, "param": "temperature"})
            self.assert_tools(got)
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


if __name__ == "__main__":
    missing = install()
    if missing:
        print(f"skipped: {missing}")
        sys.exit(SKIP)
    unittest.main()
