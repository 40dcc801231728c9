"""Anthropic's Messages API as raw HTTP: what is refused and how, stops, beginnings, streams that end early."""

import json
import signal
import unittest

from rig import Case, Stream, call, counter, gateway, service, with_template, worker

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = {"role": "user", "content": "And God said"}
ASK = {"messages": [USER], "max_tokens": 24, "temperature": 0}
TURNS = ("{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}"
         "{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}")
PLAIN = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"


def content(*blocks, role="user"):
    return {"messages": [USER, {"role": role, "content": list(blocks)}, USER]}


def events(stream):
    """Each is named by its type."""
    lines = stream.answer.read().decode().split("\n")
    stream.close()
    found = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [e["type"] for e in found]
    return found


def text_of(found):
    return "".join(e["delta"]["text"] for e in found if e["type"] == "content_block_delta")


class Messages(Case):
    def refused(self, status, kind, said, path=PATH, **fields):
        got, headers, answer = call(self.front.url, path, {**ASK, **fields})
        self.assertEqual((got, answer["type"], answer["error"]["type"]), (status, "error", kind), answer)
        self.assertIn(said, answer["error"]["message"])
        self.assertEqual(set(answer["error"]), {"type", "message"})

    def test_bad_input(self):
        with service() as self.front:
            bad = 400, "invalid_request_error"
            for said, fields in (
                    ("'max_tokens' must be given", {"max_tokens": None}), ("'max_tokens'", {"max_tokens": "1"}),
                    ("'messages' must be a list", {"messages": []}), ("'messages' must be a list", {"messages": "a"}),
                    ("'messages[0]' must have", {"messages": [3]}), ("role", {"messages": [{"role": "tool", "content": ""}]}),
                    ("'messages[0]' must have", {"messages": [{"role": "user"}]}),
                    ("'messages[1].content[0]'", content(3)), ("reads nothing but text", content({"type": "image"})),
                    ("with a string", content({"type": "text", "text": 3})),
                    ("tool_use_id", content({"type": "tool_result"})),
                    ("blocks of text", content({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]})),
                    ("'messages[1].content[1]'", content({"type": "text", "text": "a"}, {"type": "tool_use"})),
                    ("an object as its input", content({"type": "tool_use", "id": "a", "name": "b", "input": "{}"},
                                                       role="assistant")),
                    ("thinking", content({"type": "tool_result", "tool_use_id": "a"}, role="assistant")),
                    ("'system'", {"system": 3}), ("'system'", {"system": [{"type": "image"}]}),
                    ("'stop_sequences'", {"stop_sequences": [3]}), ("'temperature'", {"temperature": 3}),
                    ("'top_k'", {"top_k": "a"}), ("'thinking'", {"thinking": {"type": "perhaps"}}),
                    ("'tools'", {"tools": 3}), ("no tools of its own", {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
                    ("'tool_choice'", {"tool_choice": "auto"}), ("'tool_choice'", {"tool_choice": {"type": "required"}}),
                    ("'tools' must be", {"tool_choice": {"type": "any"}}),
                    ("'output_config.format'", {"output_config": {"format": {"type": "xml"}}}),
                    ("'output_config.format.schema'", {"output_config": {"format": {"type": "json_schema"}}}),
                    ("the answer continues", {"messages": [USER, {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]}),
                    ("context", {"messages": [{"role": "user", "content": "a " * 20000}]})):
                with self.subTest(said):
                    self.refused(*bad, said, **fields)
            self.refused(*bad, "'system'", path=COUNT, system=3)
            self.refused(404, "not_found_error", "no-such", model="no-such")
            for method, length, status, kind in (("GET", 0, 405, "invalid_request_error"),
                                                 ("POST", 0, 400, "invalid_request_error"),
                                                 ("POST", 17 << 20, 413, "request_too_large")):
                got, _, answer = call(self.front.url, PATH, method=method, headers={"Content-Length": str(length)})
                self.assertEqual((got, answer["error"]["type"]), (status, kind))

    def test_what_the_template_gets(self):
        """Shown by the number of tokens, which is that of the text."""
        with service(model=with_template(self.dir, PLAIN)) as front:
            def count(**asked):
                return call(front.url, COUNT, asked)[2]["input_tokens"]

            def tokens(text):
                return call(front.url, "/tokenize", {"prompt": text})[2]["count"]

            self.assertEqual(count(messages=[USER]), tokens("[user:And God said]"))
            self.assertEqual(count(system=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], messages=[USER]),
                             tokens("[system:a\nb][user:And God said]"))
            said = [{"type": "text", "text": "well"}, {"type": "tool_use", "id": "a", "name": "b", "input": {}}]
            back = [{"type": "tool_result", "tool_use_id": "a", "content": "sun"}, {"type": "text", "text": "go on"}]
            self.assertEqual(count(messages=[USER, {"role": "assistant", "content": said}, {"role": "user", "content": back}]),
                             tokens("[user:And God said][assistant:well][tool:sun][user:go on]"))
            self.assertEqual(count(messages=[{"role": "user", "content": "a " * 3000}]), tokens(f"[user:{'a ' * 3000}]"))
            begun = [USER, {"role": "assistant", "content": "Let there"}]
            self.assertEqual(count(messages=begun), tokens("[user:And God said]Let there"))
            answer = call(front.url, PATH, {**ASK, "messages": begun})[2]["content"][0]["text"]
            plain = call(front.url, "/v1/completions", {"prompt": "[user:And God said]Let there", "max_tokens": 24,
                                                        "temperature": 0})[2]["choices"][0]["text"]
            self.assertEqual(answer, plain)
        with service(model=with_template(self.dir, "{{ '\\0' }}And God said {{ messages[0].content }}")) as front:
            def prompt_tokens(*texts):
                roles = "user", "assistant"
                return call(front.url, COUNT, {"messages": [
                    {"role": r, "content": t} for r, t in zip(roles, texts)]})[2]["input_tokens"]

            self.assertEqual(prompt_tokens("", "Let there"), prompt_tokens("Let there"))
        thinks = with_template(self.dir, "{{ enable_thinking }}")
        with service(model=thinks) as front:
            for kind, said in (("enabled", "True"), ("disabled", "False")):
                self.assertEqual(call(front.url, COUNT, {"messages": [USER], "thinking": {"type": kind}})[2]["input_tokens"],
                                 call(front.url, "/tokenize", {"prompt": said})[2]["count"])

    def test_answers(self):
        with service(model=with_template(self.dir, PLAIN)) as front:
            whole = call(front.url, PATH, ASK)[2]
            text = whole["content"][0]["text"]
            found = events(Stream(front.url, PATH, ASK))
            self.assertEqual([e["type"] for e in found[:3]], ["message_start", "ping", "content_block_start"])
            self.assertEqual((text_of(found), found[-2]["delta"]), (text, {"stop_reason": "max_tokens", "stop_sequence": None}))
            self.assertEqual(found[-2]["usage"]["output_tokens"], 24)
            begin = found[0]["message"]
            self.assertEqual((begin["content"], begin["stop_reason"], begin["usage"]["output_tokens"]), ([], None, 0))
            for stops, stop in ((["no such text", text[9:14]], text[9:14]), ([text[9:14]], text[9:14])):
                answer = call(front.url, PATH, {**ASK, "stop_sequences": stops})[2]
                self.assertEqual((answer["content"][0]["text"], answer["stop_reason"], answer["stop_sequence"]),
                                 (text[:text.index(stop)], "stop_sequence", stop))
            shape = {"type": "object", "properties": {"name": {"enum": ["Adam", "Eve"]}}, "required": ["name"]}
            answer = call(front.url, PATH, {**ASK, "max_tokens": 99,
                                            "output_config": {"format": {"type": "json_schema", "schema": shape}}})[2]
            self.assertIn(json.loads(answer["content"][0]["text"])["name"], ["Adam", "Eve"])
            self.assertEqual(answer["stop_reason"], "end_turn")

    def test_turns_of_one_role(self):
        """A template that takes nothing but turns gets them."""
        with service(model=with_template(self.dir, TURNS)) as front:
            said = [{"role": role, "content": text} for role, text in (
                ("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e"))]
            status, _, answer = call(front.url, COUNT, {"messages": said})
            self.assertEqual((status, answer.get("input_tokens")), (200, call(
                front.url, "/tokenize", {"prompt": "[user:a\nb][assistant:c\nd][user:e]"})[2]["count"]), answer)

    def test_a_beginning_is_content(self):
        """Also where the prompt ends within reasoning, or before a header."""
        begun = [USER, {"role": "assistant", "content": "Let there"}]
        for template, before in ((PLAIN + "{{ '<think>\\n' }}{# </think> #}", "<think>\n\n</think>\n\n"),
                                 (PLAIN + ">>>{# >>>${recipient} #}", ">>>all\n")):
            with self.subTest(before), service(model=with_template(self.dir, template)) as self.front:
                asked = {**ASK, "messages": begun}
                plain = call(self.front.url, "/v1/completions", {"prompt": f"[user:And God said]{before}Let there",
                                                                 "max_tokens": 24, "temperature": 0})[2]
                answer = call(self.front.url, PATH, asked)[2]
                self.assertEqual([(b["type"], b["text"]) for b in answer["content"]],
                                 [("text", plain["choices"][0]["text"])])
                self.assertEqual(answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"],
                                 plain["usage"]["prompt_tokens"])
        self.front = service(model=with_template(self.dir, PLAIN + ">>>{# >>>${recipient} #}"))
        with self.front:
            self.refused(400, "invalid_request_error", "must end with the user's", messages=begun,
                         tools=[{"name": "f", "input_schema": {}}], tool_choice={"type": "any"})

    def test_one_call_only(self):
        """The answer ends with it, although the model would go on."""
        writes = 'root ::= "Well." ("<tool_call>{\\"name\\": \\"f\\", \\"arguments\\": {\\"a\\": 1}}</tool_call>"){2}'
        asked = {**ASK, "max_tokens": 200, "grammar": writes, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
        with service(model=with_template(self.dir, PLAIN + "{# <tool_call> #}")) as front:
            for one in (False, True):
                choice = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": one}}
                answer = call(front.url, PATH, {**asked, **choice})[2]
                self.assertEqual(([b["type"] for b in answer["content"]], answer["stop_reason"]),
                                 (["text"] + ["tool_use"] * (1 if one else 2), "tool_use"), answer)
                self.assertEqual(answer["content"][1]["input"], {"a": 1})
                begun = [e["content_block"]["type"] for e in events(Stream(front.url, PATH, {**asked, **choice}))
                         if e["type"] == "content_block_start"]
                self.assertEqual(begun, [b["type"] for b in answer["content"]])

    def test_a_call_that_is_cut_off(self):
        """A stream has begun it; a whole answer leaves it out."""
        asked = {**ASK, "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {
            "text": {"type": "string", "minLength": 99}}, "required": ["text"]}}], "tool_choice": {"type": "any"}, "max_tokens": 60}
        with service() as front:
            whole = call(front.url, PATH, asked)[2]
            self.assertEqual((whole["content"], whole["stop_reason"]), ([], "max_tokens"))
            found = events(Stream(front.url, PATH, asked))
            self.assertEqual([found[2]["content_block"]["type"], found[2]["content_block"]["input"]], ["tool_use", {}])
            self.assertEqual([e["type"] for e in found[-3:]], ["content_block_stop", "message_delta", "message_stop"])

    def test_a_worker_is_killed(self):
        """The text goes on elsewhere; where there is nobody left, the stream says so."""
        asked = {**ASK, "max_tokens": 200, "temperature": 0.8, "seed": 5}
        with worker() as first, worker() as second, \
                gateway([first, second], "--worker-wait", "500ms") as front:
            undisturbed = text_of(events(Stream(front.url, PATH, asked)))
            stream = Stream(front.url, PATH, asked)
            line = b""
            while not line.startswith(b"event: content_block_delta"):
                line = stream.answer.readline()
            first.send(signal.SIGKILL)
            begun = json.loads(stream.answer.readline()[6:])["delta"]["text"]
            stream.answer.readline()
            self.assertEqual(begun + text_of(events(stream)), undisturbed)
            self.assertEqual(counter(front.url, "hawser_http_texts_moved_total"), 1)
            stream = Stream(front.url, PATH, {**asked, "max_tokens": 400})
            second.send(signal.SIGKILL)
            last = events(stream)[-1]
            self.assertEqual((last["type"], last["error"]["type"]), ("error", "overloaded_error"))


if __name__ == "__main__":
    unittest.main()
