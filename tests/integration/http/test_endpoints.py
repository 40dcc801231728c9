"""Every endpoint of a server's HTTP door, and what it refuses."""

import base64
import contextlib
import ctypes
import http.client
import itertools
import json
import os
import pathlib
import queue
import re
import resource
import signal
import socket
import ssl
import struct
import threading
import unittest
import urllib.parse

from families import CALLS, FAMILIES, TOOLS, written
from relays import Gate
from rig import (MODEL, NAME, TIMEOUT, Case, Process, Stream, call, connect, counter, free_port, gateway, in_threads,
                 in_two_files, narrow, service, state, text_of, wait_for, wait_ready, with_pairs,
                 with_template, worker)

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "unit/llm/templates"
PROMPT = {"prompt": "And God said", "temperature": 0, "max_tokens": 16}
KEY = "a-key-of-sixteen-or-more"
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000


@contextlib.contextmanager
def one_answer(raw):
    """A server that answers one connection with these bytes and ends it."""
    def serve():
        with listener.accept()[0] as client, contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(raw)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


class Endpoints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.front = service()
        cls.url = cls.front.url

    @classmethod
    def tearDownClass(cls):
        code, stderr = cls.front.stop()
        assert code == 0 and not stderr, (code, stderr)

    def complete(self, **fields):
        status, _, body = call(self.url, "/v1/completions", {**PROMPT, **fields})
        self.assertEqual(status, 200, body)
        return body

    def refused(self, path, body, status, param=None, **kwargs):
        got, _, answer = call(self.url, path, body, **kwargs)
        self.assertEqual(got, status, answer)
        self.assertEqual(set(answer), {"error"})
        error = answer["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param)
        self.assertTrue(error["message"])
        return error

    # ---- answers ----

    def test_models(self):
        status, _, body = call(self.url, "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(body["object"], "list")
        self.assertEqual([m["id"] for m in body["data"]], [NAME])
        self.assertEqual(call(self.url, f"/v1/models/{NAME}")[2], body["data"][0])
        for name in ("nobody", "x" * 1000):
            error = self.refused(f"/v1/models/{name}", None, 404, "model")
            self.assertEqual(error["code"], "model_not_found")
        for path in ("/v1/models/", "/v1/models?limit=1"):
            self.assertEqual(call(self.url, path)[2], body)
        self.assertEqual(call(self.url, f"/v1/models/{NAME}/")[2], body["data"][0])

    def test_completion(self):
        body = self.complete()
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["model"], NAME)
        self.assertTrue(body["id"].startswith("cmpl-"))
        (choice,) = body["choices"]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertTrue(choice["text"].startswith(" "), choice["text"])
        self.assertEqual(body["usage"]["completion_tokens"], 16)
        self.assertEqual(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"] + 16)

    def test_the_stream_is_the_answer(self):
        whole = self.complete(max_tokens=64)
        chunks = list(Stream(self.url, "/v1/completions", {
            **PROMPT, "max_tokens": 64, "stream_options": {"include_usage": True}}))
        self.assertEqual(text_of(chunks), whole["choices"][0]["text"])
        self.assertGreater(len(chunks), 4)
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"], whole["usage"])
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual({c["id"] for c in chunks}, {chunks[0]["id"]})
        self.assertTrue(all(c["usage"] is None for c in chunks[:-1]))

    def test_a_stream_of_what_json_escapes(self):
        ask = {**PROMPT, "max_tokens": 48, "grammar": r'root ::= "\"\\\n\t\r\x01\x08\x1f é"'}
        self.assertEqual(text_of(Stream(self.url, "/v1/completions", ask)),
                         '"\\\n\t\r\x01\x08\x1f é')

    def test_chat(self):
        ask = {"messages": [{"role": "user", "content": "Who was Moses?"}], "max_tokens": 12,
               "temperature": 0}
        status, _, body = call(self.url, "/v1/chat/completions", ask)
        self.assertEqual(status, 200, body)
        self.assertEqual(body["object"], "chat.completion")
        message = body["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        chunks = list(Stream(self.url, "/v1/chat/completions", ask))
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual(text_of(chunks), message["content"])
        self.assertEqual(chunks[-1]["choices"][0]["delta"], {})
        self.assertEqual(chunks[-1]["object"], "chat.completion.chunk")

    def test_seeds(self):
        hot = {"temperature": 0.9, "max_tokens": 24}
        first = self.complete(seed=5, **hot)["choices"][0]["text"]
        self.assertEqual(self.complete(seed=5, **hot)["choices"][0]["text"], first)
        self.assertNotEqual(self.complete(seed=6, **hot)["choices"][0]["text"], first)
        self.assertNotEqual(self.complete(**hot)["choices"][0]["text"],
                            self.complete(**hot)["choices"][0]["text"])

    def test_several_prompts_and_choices(self):
        body = self.complete(prompt=["And God said", "In the beginning"], n=2, temperature=0.8,
                             seed=3)
        self.assertEqual([c["index"] for c in body["choices"]], [0, 1, 2, 3])
        texts = [c["text"] for c in body["choices"]]
        self.assertEqual(len(set(texts)), 4)
        # The first choice is what a single one with that seed is.
        self.assertEqual(self.complete(temperature=0.8, seed=3)["choices"][0]["text"], texts[0])
        chunks = list(Stream(self.url, "/v1/completions",
                             {**PROMPT, "prompt": ["And God said", "In the beginning"], "n": 2,
                              "temperature": 0.8, "seed": 3}))
        self.assertEqual([text_of(chunks, i) for i in range(4)], texts)

    def test_stop_strings(self):
        whole = self.complete(max_tokens=48)["choices"][0]["text"]
        stop = whole[20:27]  # in the middle of words and tokens
        for streamed in (False, True):
            ask = {**PROMPT, "max_tokens": 48, "stop": ["no such text", stop]}
            if streamed:
                chunks = list(Stream(self.url, "/v1/completions", ask))
                text, reason = text_of(chunks), chunks[-1]["choices"][0]["finish_reason"]
            else:
                choice = self.complete(**ask)["choices"][0]
                text, reason = choice["text"], choice["finish_reason"]
            self.assertEqual(text, whole[:whole.index(stop)])
            self.assertEqual(reason, "stop")

    def test_logprobs(self):
        choice = self.complete(logprobs=3, max_tokens=8)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        self.assertEqual(len(logprobs["token_logprobs"]), 8)
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                     logprobs["top_logprobs"]):
            self.assertLessEqual(value, 0)
            self.assertEqual(max(top.values()), top[token])  # greedy takes the largest
            self.assertAlmostEqual(top[token], value, places=5)
        ask = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "temperature": 0,
               "logprobs": True, "top_logprobs": 2}
        _, _, chat = call(self.url, "/v1/chat/completions", ask)
        content = chat["choices"][0]["logprobs"]["content"]
        self.assertEqual(bytes(b for t in content for b in t["bytes"]).decode(errors="replace"),
                         chat["choices"][0]["message"]["content"])
        self.assertTrue(all(len(t["top_logprobs"]) == 2 for t in content))
        streamed = [t for c in Stream(self.url, "/v1/chat/completions", ask)
                    for choice in c["choices"] if choice.get("logprobs")
                    for t in choice["logprobs"]["content"]]
        self.assertEqual(streamed, content)

    def test_bias_and_penalties(self):
        plain = self.complete(max_tokens=1, logprobs=0)["choices"][0]
        _, _, tokens = call(self.url, "/tokenize", {"prompt": "And God said" + plain["text"]})
        banned = tokens["tokens"][-1]
        other = self.complete(max_tokens=1, logit_bias={str(banned): -100})["choices"][0]
        self.assertNotEqual(other["text"], plain["text"])
        many = self.complete(max_tokens=64)["choices"][0]["text"]
        fewer = self.complete(max_tokens=64, frequency_penalty=2, presence_penalty=2,
                              repetition_penalty=1.3)["choices"][0]["text"]
        self.assertNotEqual(many, fewer)

    def test_grammars(self):
        schema = {"type": "object", "properties": {"name": {"enum": ["Moses", "Aaron"]},
                                                   "old": {"type": "boolean"}},
                  "required": ["name", "old"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "who", "schema": schema}}
        for seed in range(3):
            answer = self.complete(response_format=form, temperature=1, seed=seed, max_tokens=300)
            got = json.loads(answer["choices"][0]["text"])
            self.assertIn(got["name"], ("Moses", "Aaron"))
            self.assertIsInstance(got["old"], bool)
        text = self.complete(grammar='root ::= "yea" | "nay"')["choices"][0]["text"]
        self.assertIn(text, ("yea", "nay"))
        for grammar in ("root ::= (", 'a ::= "b"', 'root ::= "' + "a" * (1 << 20) + '"'):
            for stream in (False, True):
                error = self.refused("/v1/completions", {**PROMPT, "grammar": grammar, "stream": stream},
                                     400, "grammar")
                self.assertIsNone(error["code"])
        form["json_schema"]["schema"] = {"$ref": "http://elsewhere"}
        self.refused("/v1/completions", {**PROMPT, "response_format": form}, 400, "response_format")

    def test_a_call_that_is_cut_off_is_left_out(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "string", "minLength": 300}}, "required": ["a"]}}}
        asked = {"messages": [{"role": "user", "content": "a"}], "tools": [tool], "tool_choice": "required"}
        for most in (1, 12, 40, 80):
            status, _, body = call(self.url, "/v1/chat/completions", {**asked, "max_tokens": most})
            choice = body["choices"][0]
            self.assertEqual((status, choice["finish_reason"]), (200, "length"))
            self.assertEqual(choice["message"], {"role": "assistant", "content": None, "refusal": None})

    def test_echo(self):
        self.assertEqual(self.complete(echo=True)["choices"][0]["text"],
                         "And God said" + self.complete()["choices"][0]["text"])
        chunks = list(Stream(self.url, "/v1/completions", {**PROMPT, "echo": True}))
        self.assertTrue(text_of(chunks).startswith("And God said"))

    def test_a_prompt_is_scored(self):
        """As evaluation tools ask: the prompt's logprobs are those that its tokens had when they were generated,
        to the bit, alone and beside others."""
        asked = [{"prompt": f"{i} And God said", "max_tokens": 150, "temperature": 1, "seed": i, "logprobs": 3,
                  "ignore_eos": True} for i in range(4)]
        first = [call(self.url, "/v1/completions", ask)[2]["choices"][0] for ask in asked]
        tokens = [call(self.url, "/tokenize", {"prompt": a["prompt"] + c["text"]})[2]["tokens"]
                  for a, c in zip(asked, first)]

        def score(i, most, **fields):
            ask = {"prompt": tokens[i], "echo": True, "max_tokens": most, "logprobs": 3, "temperature": 0, **fields}
            return self.complete(**ask)

        generated = 0
        for i, choice in enumerate(first):
            body = score(i, 0)
            got, = body["choices"]
            self.assertEqual((got["text"], got["finish_reason"]), (asked[i]["prompt"] + choice["text"], "length"))
            self.assertEqual((body["usage"]["completion_tokens"], body["usage"]["prompt_tokens"]),
                             (0, len(tokens[i])))
            scores = got["logprobs"]
            self.assertEqual({len(v) for v in scores.values()}, {len(tokens[i])})
            self.assertEqual((scores["token_logprobs"][0], scores["top_logprobs"][0]), (None, None))
            for at, offset in enumerate(scores["text_offset"]):
                token = scores["tokens"][at]
                self.assertTrue(got["text"].startswith(token, offset) or at < 2, (at, offset, token))
            # A text may be read as other tokens than it was written with: then there is nothing to compare.
            if scores["tokens"][-150:] == choice["logprobs"]["tokens"]:
                generated += 1
                for what in ("token_logprobs", "top_logprobs"):
                    self.assertEqual(scores[what][-150:], choice["logprobs"][what])
        self.assertGreater(generated, 0)
        alone = [score(i, 1)["choices"] for i in range(4)]
        self.assertEqual(alone[0][0]["logprobs"]["tokens"][:-1], score(0, 0)["choices"][0]["logprobs"]["tokens"])
        beside = [lambda a=a: self.complete(**a) and None for a in asked]
        together = in_threads([lambda i=i: score(i, 1)["choices"] for i in range(4)] + beside)
        self.assertEqual(together[:4], alone)
        stream = [c["choices"][0] for c in Stream(self.url, "/v1/completions",
                                                  {"prompt": tokens[0], "echo": True, "max_tokens": 1, "logprobs": 3,
                                                   "temperature": 0})]
        self.assertEqual("".join(c["text"] for c in stream), alone[0][0]["text"])
        for what, values in alone[0][0]["logprobs"].items():
            self.assertEqual([v for c in stream if c["logprobs"] for v in c["logprobs"][what]], values)

    def test_offsets_of_logprobs_count_characters(self):
        prompt, answer = "Ünë漢 And 😀 God", " é漢 unto 😀 thee"
        asked = {"prompt": prompt, "max_tokens": 48, "logprobs": 0, "grammar": f'root ::= "{answer}"'}
        for echo in (False, True):
            choice = self.complete(**asked, echo=echo)["choices"][0]
            self.assertEqual(choice["text"], prompt * echo + answer)
            tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
            self.assertEqual(offsets, sorted(offsets))
            for token, offset in zip(tokens, offsets):
                self.assertTrue("\ufffd" in token or choice["text"].startswith(token, offset), (token, offset))
            self.assertIn((" the", len(prompt) * echo + answer.index(" thee")), zip(tokens, offsets))

    def test_a_prompt_of_several_answers_is_scored_once(self):
        def rows(**fields):
            before = counter(self.url, "hawser_llm_prompt_rows_total")
            body = self.complete(prompt="In the beginning God created", echo=True, logprobs=2, seed=5, temperature=1,
                                 **fields)
            return body["choices"], counter(self.url, "hawser_llm_prompt_rows_total") - before

        (alone,), once = rows(max_tokens=0)
        choices, thrice = rows(max_tokens=0, n=3)
        self.assertEqual((choices, thrice), ([{**alone, "index": i} for i in range(3)], once))
        choices, _ = rows(max_tokens=8, n=2)
        self.assertEqual(choices[:1], rows(max_tokens=8)[0])
        self.assertNotEqual(choices[1]["text"], choices[0]["text"])
        for what, values in alone["logprobs"].items():
            self.assertEqual(choices[1]["logprobs"][what][:len(values)], values)

    def test_a_prompt_of_one_token_or_of_the_whole_context_is_scored(self):
        context = call(self.url, "/v1/models")[2]["data"][0]["max_model_len"]
        for count in (1, 2, context):
            body = self.complete(prompt=[5] * count, echo=True, logprobs=0, max_tokens=0, n=2)
            self.assertEqual([len(c["logprobs"]["token_logprobs"]) for c in body["choices"]], [count] * 2)
        plain = self.complete(prompt="And God said", echo=True, max_tokens=0, n=2)
        self.assertEqual([(c["text"], c["logprobs"]) for c in plain["choices"]], [("And God said", None)] * 2)
        self.refused("/v1/completions", {**PROMPT, "prompt": [5] * (context + 1), "echo": True, "max_tokens": 0},
                     400, "prompt")
        self.refused("/v1/completions", {**PROMPT, "max_tokens": 0}, 400, "max_tokens")

    def test_tokens_and_back(self):
        _, _, tokens = call(self.url, "/tokenize", {"prompt": "And God said, Let there be light"})
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        _, _, text = call(self.url, "/detokenize", {"tokens": tokens["tokens"]})
        self.assertEqual(text["prompt"], "And God said, Let there be light")
        by_tokens = self.complete(prompt=tokens["tokens"])
        self.assertEqual(by_tokens["choices"][0]["text"],
                         self.complete(prompt="And God said, Let there be light")["choices"][0]["text"])

    def embed(self, value, **fields):
        status, _, body = call(self.url, "/v1/embeddings", {"input": value, **fields})
        self.assertEqual(status, 200, body)
        self.assertEqual([d["index"] for d in body["data"]], list(range(len(body["data"]))))
        return [d["embedding"] for d in body["data"]], body["usage"]

    def test_embeddings(self):
        texts = ["And God said", "And God spoke", "nine hundred threescore and two years"]
        (said, spoke, years), usage = self.embed(texts)
        self.assertEqual({len(said), len(spoke), len(years)}, {224})
        dot = lambda a, b: sum(x * y for x, y in zip(a, b))  # noqa: E731
        self.assertAlmostEqual(dot(said, said), 1, places=5)
        self.assertGreater(dot(said, spoke), dot(said, years) + 0.05)
        tokens = [call(self.url, "/tokenize", {"prompt": t})[2]["tokens"] for t in texts]
        self.assertEqual(usage, dict.fromkeys(("prompt_tokens", "total_tokens"),
                                              sum(map(len, tokens))))
        self.assertEqual(self.embed(texts[0])[0], [said])
        self.assertEqual(self.embed(tokens[1])[0], [spoke])
        self.assertEqual(self.embed([tokens[2], tokens[0]])[0], [years, said])
        (packed,), _ = self.embed(texts[0], encoding_format="base64", dimensions=224)
        floats = struct.unpack("<224f", base64.b64decode(packed))
        self.assertEqual(floats, tuple(struct.unpack("<f", struct.pack("<f", x))[0] for x in said))
        # As many as the context holds, while texts are generated.
        long = [5] * 512
        both = in_threads([lambda: self.complete(max_tokens=64)["choices"][0]["text"]] +
                          [lambda: self.embed([long] * 3)[0]] * 2)
        self.assertEqual(both[0], self.complete(max_tokens=64)["choices"][0]["text"])
        self.assertEqual(both[1], both[2])
        self.assertEqual(both[1][0], both[1][2])

    def test_embeddings_are_refused(self):
        for value in ([], [[]], 7, [True], [["a"]], ["a"] * 2049, [99999999], None):
            self.refused("/v1/embeddings", {"input": value}, 400, "input")
        error = self.refused("/v1/embeddings", {"input": ["a", [5] * 513]}, 400, "input")
        self.assertEqual(error["code"], "context_length_exceeded")
        self.refused("/v1/embeddings", {"input": "a", "encoding_format": "x"}, 400, "encoding_format")
        self.refused("/v1/embeddings", {"input": "a", "dimensions": 16}, 400, "dimensions")

    def test_pages(self):
        for path in ("/healthz", "/health"):
            self.assertEqual(call(self.url, path)[2], {"status": "ok"})
        self.assertIn("this server: up", state(self.url))
        before = counter(self.url, "vllm:generation_tokens_total")
        self.complete()
        self.assertEqual(counter(self.url, "vllm:generation_tokens_total"), before + 16)
        self.assertEqual(counter(self.url, "hawser_http_generated_tokens_total"), before + 16)
        self.assertGreater(counter(self.url, "vllm:time_to_first_token_seconds_count"), 0)
        prompt = "In the beginning God created the heaven and the earth. " * 4
        self.complete(prompt=prompt)
        hits = counter(self.url, "vllm:prefix_cache_hits_total")
        cached = self.complete(prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        self.assertEqual(counter(self.url, "vllm:prefix_cache_hits_total"), hits + cached)
        self.assertIn("counters", call(self.url, "/json")[2])

    def test_histograms_are_by_model(self):
        """Each under our name and, where vLLM has one, under its name; both models' beside each other."""
        pairs = {"http_first_token_seconds": "time_to_first_token_seconds",
                 "http_between_tokens_seconds": "inter_token_latency_seconds",
                 "http_queue_seconds": "request_queue_time_seconds",
                 "http_text_prompt_tokens": "request_prompt_tokens",
                 "http_text_generated_tokens": "request_generation_tokens",
                 "http_text_cached_tokens": None, "llm_batch_sequences": None,
                 "llm_batch_rows": "iteration_tokens_total",
                 "llm_kv_stored_bytes": "kv_offload_store_size",
                 "llm_kv_fetched_bytes": "kv_offload_load_size"}
        with service("--model", f"two={MODEL}", "--shadow", "host", "--evict", "all@4",
                     model=f"one={MODEL}") as front:
            prompts = []

            def moved():
                """What the store finishes after a text's last step is not counted: then another is asked for."""
                prompt = f"{len(prompts)}: " + "And God said unto Noah. " * 8
                status, _, body = call(front.url, "/v1/completions",
                                       {**PROMPT, "prompt": prompt, "ignore_eos": True, "model": "two"})
                self.assertEqual(status, 200, body)
                prompts.append(body["usage"]["prompt_tokens"])
                text = call(front.url, "/metrics")[2]
                counts = re.findall(r'^hawser_llm_kv_(?:stored|fetched)_bytes_count{model_name="two"} ([1-9])', text,
                                    re.M)
                return text if len(counts) == 2 else None
            text = wait_for(moved)
        self.assertIn('\nvllm:kv_cache_usage_perc{model_name="two"} ', text)
        series = dict(re.findall(r"^((?:hawser_|vllm:)\w+\{[^}]*\}) (\S+)$", text, re.M))
        for ours, theirs in pairs.items():
            for name in [f"hawser_{ours}"] + ([f"vllm:{theirs}"] if theirs else []):
                self.assertIn(f"\n# TYPE {name} histogram\n", "\n" + text)
                self.assertEqual(series[f'{name}_count{{model_name="one"}}'], "0", name)
                count = series[f'{name}_count{{model_name="two"}}']
                self.assertEqual(series[f'{name}_bucket{{model_name="two",le="+Inf"}}'], count)
                self.assertGreater(int(count), 0, name)

        def sum_of(name):
            return float(series[f'hawser_{name}_sum{{model_name="two"}}'])
        self.assertEqual(sum_of("http_text_prompt_tokens"), sum(prompts))
        self.assertEqual(sum_of("http_text_generated_tokens"), 16 * len(prompts))
        self.assertEqual(sum_of("llm_batch_rows"), sum(prompts) + 15 * len(prompts))
        self.assertEqual(sum_of("llm_batch_sequences"),
                         int(series['hawser_llm_batch_sequences_count{model_name="two"}']))
        for which in ("stored", "fetched"):
            total = re.search(rf"^hawser_llm_kv_{which}_total (\d+)$", text, re.M)[1]
            self.assertEqual(sum_of(f"llm_kv_{which}_bytes"), float(total))

    def test_top(self):
        from harness import hawser
        self.complete()
        result = hawser("top", self.url, self.front.address, "127.0.0.1:1", "--once", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        front, worker, nobody = json.loads(result.stdout)["places"]
        self.assertGreaterEqual(front["tokens"]["generated"], 16)
        self.assertGreaterEqual(front["requests"]["answered"], 1)
        self.assertGreater(worker["tokens"]["computed"], 16)
        self.assertEqual([w["models"] for w in front["workers"] + worker["workers"]], [[NAME]] * 2)
        self.assertGreater(worker["workers"][0]["kv_pages"], 0)
        self.assertIn("cannot reach", nobody["error"])
        result = hawser("top", self.url, self.front.address, "--once")
        self.assertRegex(result.stdout, r"answered.*\n.*first token [0-9.]+/[0-9.]+ ms")
        self.assertEqual(result.stdout.count(NAME), 2)
        wrong = hawser("top", self.url, "127.0.0.1:x")
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertIn('"127.0.0.1:x" is not an address', wrong.stderr)
        nobody = hawser("top", "http://127.0.0.1:1", "--once")
        self.assertEqual(nobody.returncode, 69)
        self.assertIn("Connection refused", nobody.stdout)
        with one_answer(b"") as url:
            result = hawser("top", url.removeprefix("http://"), "--once")
            self.assertEqual(result.returncode, 69)
            self.assertIn("is it serve's --listen, and not its --http?", result.stdout)
        good = b'{"workers": [], "requests": {"answered": 7}}'
        nothing = "no gateway or server with --http answers there"
        for raw, said in [
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(good), good), "7 answered"),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + good, nothing),
                (b"HTTP/1.1 200 OK\r\n\r\n[]", nothing),
                (b'HTTP/1.1 200 OK\r\n\r\n{"error": {"message": "x"}}', nothing),
                (b'HTTP/1.1 200 OK\r\n\r\n{"error": 5, "address": 5}', nothing),
                (b'HTTP/1.1 200 OK\r\n\r\n{"error": null}', nothing),
                (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * (2 << 20), nothing),
                (b"HTTP/1.1 404 Not Found\r\n\r\n{}", nothing),
                (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "--api-key-file"),
                (b"SSH-2.0-x\r\n", nothing), (b"", nothing)]:
            with self.subTest(raw=raw[:40]), one_answer(raw) as url:
                result = hawser("top", url, "--once")
                self.assertIn(said, result.stdout)
                self.assertEqual(result.returncode, {"7 answered": 0, "--api-key-file": 77}.get(said, 69))

    def test_one_connection_for_many_requests(self):
        connection = connect(self.url)
        for _ in range(3):
            connection.request("POST", "/v1/completions", body=json.dumps(PROMPT))
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            answer.read()
        connection.close()

    # ---- refusals ----

    def test_fields_are_refused_by_name(self):
        for field, value in (("max_tokens", 0), ("temperature", "hot"), ("top_p", 2), ("n", 0),
                             ("stop", ""), ("logprobs", 99), ("stream", "yes"), ("model", 3),
                             ("logit_bias", {"99999999": 1}), ("prompt", None)):
            self.refused("/v1/completions", {**PROMPT, field: value}, 400, field)
        self.refused("/v1/chat/completions", {"messages": []}, 400, "messages")
        self.refused("/tokenize", {}, 400, "prompt")
        self.refused("/detokenize", {"tokens": [10 ** 8]}, 400, "tokens")

    def test_bodies_are_refused(self):
        self.refused("/v1/completions", None, 400, raw=b"{", method="POST")
        self.refused("/v1/completions", None, 400, raw=b"", method="POST")
        self.refused("/v1/completions", None, 400, raw=b"\xff\xfe", method="POST")
        self.refused("/v1/completions", None, 400, raw=b"[1]", method="POST")
        for body, word in ((rb'{"prompt": "\u0000"}', "u0000"), (b'{"seed": ' + b"9" * 30 + b"}", "too large")):
            error = self.refused("/v1/completions", None, 400, raw=body, method="POST")
            self.assertIn(word, error["message"])
            self.assertNotIn("not JSON", error["message"])

    def test_a_body_of_too_many_values(self):
        """Each takes far more memory than text, for as long as the request."""
        many = b'{"prompt": "a", "max_tokens": 1, "more": [' + b"{}," * 4_000_000 + b"{}]}"
        self.assertIn("too many values", self.refused("/v1/completions", None, 413, raw=many, method="POST")["message"])
        quoted = {**PROMPT, "max_tokens": 1, "more": "[{}," * 3_000_000 + '"\\'}
        self.assertEqual(call(self.url, "/v1/completions", quoted)[0], 200)

    def test_schemas_that_refer_to_themselves(self):
        def schema(node):
            return {"type": "json_schema", "json_schema": {"name": "n", "schema": {
                "$ref": "#/$defs/n", "$defs": {"n": node}}}}

        def holder(of):
            return {"type": "object", "properties": {"n": of}, "required": ["n"], "additionalProperties": False}
        itself = {"$ref": "#/$defs/n"}
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
        fine = {**chat, "response_format": schema(holder({"anyOf": [itself, {"type": "null"}]}))}
        self.assertEqual(call(self.url, "/v1/chat/completions", fine)[0], 200)
        for node in (itself, holder(itself)):
            self.refused("/v1/chat/completions", {**chat, "response_format": schema(node)}, 400, "response_format")
        tool = {"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/$defs/n",
                                                                             "$defs": {"n": holder(itself)}}}}
        self.refused("/v1/chat/completions", {**chat, "tools": [tool], "tool_choice": "required"}, 400, "tools")

    def test_unknown_things(self):
        error = self.refused("/v1/completions", {**PROMPT, "model": "gpt-4"}, 404, "model")
        self.assertEqual(error["code"], "model_not_found")
        self.assertIn(f"'{NAME}' is served", error["message"])
        message = self.refused("/v1/nothing", None, 404)["message"]
        self.assertIn("/state", message)
        self.assertNotIn("did you mean", message)

    def test_a_base_address_without_v1_or_with_two_is_told_the_path(self):
        for path, meant in (("/chat/completions", "/v1/chat/completions"), ("/completions", "/v1/completions"),
                            ("/v1/v1/messages/", "/v1/messages"), ("/models", "/v1/models")):
            for body in (None, PROMPT):
                self.assertIn(f"(did you mean {meant}?)", self.refused(path, body, 404)["message"])

    def test_a_wrong_method_is_told_the_right_ones(self):
        for path, body, methods in (("/v1/completions", None, "POST, OPTIONS"),
                                    ("/v1/completions/", None, "POST, OPTIONS"),
                                    ("/v1/models", {}, "GET, HEAD, OPTIONS"),
                                    (f"/v1/models/{NAME}", {}, "GET, HEAD, OPTIONS"),
                                    ("/metrics", {}, "GET, HEAD, OPTIONS")):
            self.refused(path, body, 405)
            self.assertEqual(call(self.url, path, body)[1]["Allow"], methods, path)
            status, headers, text = call(self.url, path, method="OPTIONS")
            self.assertEqual((status, headers["Allow"], text), (204, methods, ""))
            self.assertIsNone(headers["Access-Control-Allow-Origin"])
        self.assertIsNone(call(self.url, "/v1/nothing")[1]["Allow"])
        self.refused("/v1/nothing", None, 404, method="OPTIONS")

    def test_a_prompt_longer_than_the_context(self):
        error = self.refused("/v1/completions", {**PROMPT, "prompt": "verily " * 4000}, 400, "prompt")
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertLess(len(error["message"]), 300)

    def closing(self, head, body=b"{"):
        """What the server says to a request before it ends the connection."""
        parts = urllib.parse.urlsplit(self.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=240) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n" + body)
            answer = client.makefile("rb").read()
        return int(answer.split(b" ")[1]), json.loads(answer.split(b"\r\n\r\n")[1])["error"]["message"]

    def test_a_body_that_is_too_large(self):
        self.assertEqual(self.closing(b"Content-Length: 99999999\r\n")[0], 413)

    def test_bodies_that_are_packed_or_have_two_lengths(self):
        """None is read: whoever sees another end of it takes the rest for a request."""
        body = json.dumps(PROMPT).encode()
        length, chunked = b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n"
        for head, status, word in ((length + b"Content-Length: 3\r\n", 400, "two lengths"),
                                   (length + chunked, 400, "two lengths"),
                                   (b"Transfer-Encoding: gzip\r\n", 501, "chunked"),
                                   (length + b"Content-Encoding: gzip\r\n", 415, "gzip")):
            got, message = self.closing(head, body)
            self.assertEqual(got, status, head)
            self.assertIn(word, message)
        chunks = b"".join(b"%x\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\n\r\n"
        parts = urllib.parse.urlsplit(self.url)
        client = http.client.HTTPConnection(parts.hostname, parts.port, timeout=240)
        with contextlib.closing(client):
            for head, sent in (({"Content-Encoding": "identity"}, body), ({"Transfer-Encoding": "chunked"}, chunks)):
                client.request("POST", "/v1/completions", sent, head)
                self.assertEqual(client.getresponse().read().count(b'"finish_reason":"length"'), 1)

    def test_targets_as_a_proxy_sends_them(self):
        parts = urllib.parse.urlsplit(self.url)
        for target, word in ((f"http://{parts.netloc}/v1/models", b'"object":"list"'),
                             ("HTTPS://elsewhere/healthz?x=1", b'"status":"ok"'),
                             (f"http://{parts.netloc}", b"this server: up")):
            with socket.create_connection((parts.hostname, parts.port), timeout=240) as client:
                client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % target.encode())
                answer = client.makefile("rb").read()
            self.assertIn(b" 200 ", answer.split(b"\r\n")[0])
            self.assertIn(word, answer)

    def test_bytes_that_are_no_http(self):
        parts = urllib.parse.urlsplit(self.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=240) as client:
            client.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        self.assertEqual(self.complete()["choices"][0]["finish_reason"], "length")

    # ---- clients that leave ----

    def running(self):
        return counter(self.url, "vllm:num_requests_running") + counter(
            self.url, "vllm:num_requests_waiting")

    def test_a_client_that_leaves_frees_its_text(self):
        def leave(streamed):
            """Whether a text was under way when the client left."""
            generated = counter(self.url, "vllm:generation_tokens_total")
            left = counter(self.url, "hawser_http_texts_left_total")
            connection = connect(self.url)
            ask = {**PROMPT, "max_tokens": 5000, "n": 8, "stream": streamed, "temperature": 1,
                   "logit_bias": {}}
            connection.request("POST", "/v1/completions", body=json.dumps(ask))
            wait_for(lambda: counter(self.url, "vllm:generation_tokens_total") > generated)
            connection.close()
            wait_for(lambda: self.running() == 0)
            return counter(self.url, "hawser_http_texts_left_total") > left

        for streamed in (True, False):
            wait_for(lambda: self.running() == 0)
            wait_for(lambda: leave(streamed))
            # The worker has let the sequences go, too.
            wait_for(lambda: ", 0 running and 0 waiting" in state(self.url))

    def test_clients_that_leave_in_the_middle_of_a_request_keep_no_connection(self):
        at = urllib.parse.urlsplit(self.url)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        for part in (head[:20], head + b"{") * 10:
            with socket.create_connection((at.hostname, at.port), timeout=100) as client:
                client.sendall(part)
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(client.recv(1), b"")  # at once, not when an idle connection ends

    def raw_stream(self, ask, version, late):
        """The chunks that a client of that version gets; late: it reads nothing before all texts have ended."""
        body = json.dumps({**ask, "stream": True}).encode()
        at = urllib.parse.urlsplit(self.url)
        with narrow(self.url) if late else socket.create_connection((at.hostname, at.port), TIMEOUT) as client:
            ended = counter(self.url, "vllm:request_success_total")
            client.sendall(b"POST /v1/completions HTTP/%s\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
                version, len(body), body))
            if late:
                wait_for(lambda: counter(self.url, "vllm:request_success_total") == ended + ask["n"])
            answer = http.client.HTTPResponse(client)
            answer.begin()
            self.assertEqual(answer.status, 200)
            *events, done, rest = answer.read().decode().split("\n\n")
        self.assertEqual((done, rest), ("data: [DONE]", ""))
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def test_clients_that_read_late_and_old_ones(self):
        ask = {**PROMPT, "max_tokens": 96, "n": 6, "temperature": 1, "seed": 5, "logprobs": 5}
        whole = self.complete(**ask)
        for version, late in ((b"1.1", True), (b"1.0", False)):
            chunks = self.raw_stream(ask, version, late)
            for choice in whole["choices"]:
                self.assertEqual(text_of(chunks, choice["index"]), choice["text"])
            if late:  # what could not be written was gathered
                self.assertLess(len(chunks), whole["usage"]["completion_tokens"])

    def test_many_clients_at_a_time(self):
        alone = [self.complete(temperature=0.8, seed=i, max_tokens=24)["choices"][0]["text"]
                 for i in range(16)]
        together = in_threads([lambda i=i: self.complete(temperature=0.8, seed=i, max_tokens=24)
                               ["choices"][0]["text"] for i in range(16)])
        self.assertEqual(together, alone)


class Doors(Case):
    def test_the_first_request_may_name_the_last_of_many_models(self):
        names = [f"m{i}" for i in range(12)]
        models = [word for name in names[1:] for word in ("--model", f"{name}={MODEL}")]
        for path, body, expected in (("/v1/completions", {**PROMPT, "model": names[-1]}, 200),
                                     ("/v1/completions", PROMPT, 400), ("/v1/models", None, 200)):
            with worker("--http", "127.0.0.1:0", *models, model=f"{names[0]}={MODEL}") as front:
                status, _, answer = call(front.url, path, body)
            self.assertEqual(status, expected, answer)
            if path == "/v1/models":
                self.assertEqual([m["id"] for m in answer["data"]], names)

    def test_a_name_that_is_no_utf_8_is_served_under_one_that_is(self):
        with service(model=os.fsdecode(b"m\xe9\n=") + str(MODEL)) as front:
            self.assertEqual([m["id"] for m in call(front.url, "/v1/models")[2]["data"]], ["m??"])
            for ask in (PROMPT, {**PROMPT, "model": "m??"}):
                status, _, answer = call(front.url, "/v1/completions", ask)
                self.assertEqual((status, answer["model"]), (200, "m??"), answer)

    def test_one_sequence_at_a_time(self):
        """The front is one client: its texts wait for each other, and all are answered."""
        ask = {**PROMPT, "temperature": 1, "n": 3, "stream": True}
        with service("--max-sequences", 1) as front:
            chosen = [c["index"] for chunk in Stream(front.url, "/v1/completions", ask) for c in chunk["choices"]]
        self.assertEqual(set(chosen), {0, 1, 2})
        self.assertEqual(chosen, sorted(chosen))
        self.expect(self.hawser("serve", "--max-sequences", 0), 2, "--max-sequences", "from 1 to 1024")

    def test_a_drained_server_completes_its_texts_and_refuses_others_at_once(self):
        ask = {**PROMPT, "max_tokens": 400, "temperature": 1, "seed": 3}
        with service("--worker-wait", "3600s") as front:
            whole = call(front.url, "/v1/completions", ask)[2]["choices"][0]["text"]
            stream = Stream(front.url, "/v1/completions", ask)
            chunks = iter(stream)
            first = next(chunks)
            drain = self.expect(self.hawser("drain", front.address), 0)
            self.assertEqual(drain.stdout, "drains: 0 texts are given back\n")
            for path, body in (("/v1/completions", ask), ("/v1/embeddings", {"input": "a"})):
                status, headers, answer = call(front.url, path, body)
                self.assertEqual((status, headers["Retry-After"]), (503, "1"))
                self.assertIn("drains", answer["error"]["message"])
            self.assertEqual(text_of([first, *chunks]), whole)
            wait_for(lambda: call(front.url, "/healthz")[0] == 503)
            self.expect(self.hawser("drain", "--undo", front.address), 0)
            wait_ready(front.url)
            self.assertEqual(call(front.url, "/v1/completions", ask)[2]["choices"][0]["text"], whole)

    def test_a_worker_that_is_named_twice_is_one(self):
        with worker() as one, Process("gateway", "--servers", f"{one.address},{one.address}", "--http",
                                      "127.0.0.1:0") as front:
            wait_for(lambda: ": up," in state(front.url))
            self.assertEqual(state(front.url).count("\nworker "), 1)
            self.assertIn("twice; it is one worker", front.stop()[1])

    def test_more_kv_memory_than_there_is(self):
        self.expect(self.hawser("serve", "--no-devices", "--model", MODEL, "--kv-memory", "100TiB"), 2,
                    "--kv-memory: this machine has ", " of memory and swap")

    def test_a_server_that_is_starved_does_not_lose_itself(self):
        """Its thread that answers does not run for longer than a gateway waits for a worker."""
        ask = {**PROMPT, "max_tokens": 400, "temperature": 1, "seed": 3}
        trace = ctypes.CDLL(None, use_errno=True).ptrace
        trace.argtypes = (ctypes.c_long,) * 4
        with service() as front:
            whole = call(front.url, "/v1/completions", ask)[2]["choices"][0]["text"]
            chunks = iter(Stream(front.url, "/v1/completions", ask))
            first, pid = next(chunks), front.process.pid
            if trace(PTRACE_ATTACH, pid, 0, 0):
                self.skipTest("threads of another process cannot be stopped here")
            os.waitpid(pid, WALL)
            threading.Event().wait(6)
            self.assertEqual(trace(PTRACE_DETACH, pid, 0, 0), 0)
            self.assertEqual(text_of([first, *chunks]), whole)
            self.assertRegex(state(front.url), ": up, .* lost 0 times")

    def test_a_front_that_stops_finishes_texts(self):
        ask = {**PROMPT, "max_tokens": 400, "temperature": 1, "seed": 3}
        patient = "--stop-timeout", "4m"  # under a sanitizer, or beside other work, a text takes longer than 10 s
        with worker() as busy, service(*patient) as alone:
            whole = call(alone.url, "/v1/completions", ask)[2]["choices"][0]["text"]
            for front in (alone, gateway([busy], *patient)):
                stream = Stream(front.url, "/v1/completions", ask, late=True)
                chunks = iter(stream)
                first = next(chunks)
                front.send(signal.SIGTERM)
                wait_for(lambda: call(front.url, "/healthz")[0] == 503)
                status, headers, answer = call(front.url, "/v1/completions", PROMPT)
                self.assertEqual((status, headers["Retry-After"]), (503, "1"))
                self.assertIn("the server stops", answer["error"]["message"])
                self.assertEqual(text_of([first, *chunks]), whole)
                stream.close()
                wait_for(lambda: front.process.poll() is not None)
                self.assertEqual(front.stop()[0], 0)

    def test_a_front_that_stops_tells_those_that_wait(self):
        asks = [("/v1/completions", PROMPT), ("/v1/completions", {**PROMPT, "stream": True}),
                ("/v1/embeddings", {"input": "a"})]
        with worker() as busy:
            front = gateway([busy], "--stop-timeout", "0")
            busy.send(signal.SIGSTOP)

            def stop():
                wait_for(lambda: f"requests under way: {len(asks)} " in state(front.url))
                return front.stop()

            *answers, (code, _) = in_threads([lambda ask=ask: call(front.url, *ask) for ask in asks] + [stop])
            self.assertEqual(code, 0)
            for status, headers, answer in answers:
                self.assertEqual((status, headers["Retry-After"]), (503, "1"))
                self.assertIn("the server stops", answer["error"]["message"])

    def test_a_front_that_stops_ends_streams(self):
        for path, ask, end in (("/v1/completions", PROMPT, lambda e: e["error"]["message"]),
                               ("/v1/responses", {"input": "a"}, lambda e: e["response"]["error"]["message"]),
                               ("/v1/messages", {"messages": [{"role": "user", "content": "a"}]},
                                lambda e: e["error"]["message"])):
            with worker() as busy:
                gate, held = Gate(self, busy.address, Gate.PUSH), queue.Queue()
                front = gateway([gate], "--stop-timeout", "0")
                gate.close(1, held)
                stream = Stream(front.url, path, {**ask, "max_tokens": -1})
                held.get(timeout=TIMEOUT)
                self.assertEqual(front.stop()[0], 0)
                last = [line for line in stream.answer if line.startswith(b"data: ")][-1]
                stream.close()
                self.assertIn("the server stops", end(json.loads(last[6:])))

    def test_files_that_are_open_at_a_time(self):
        """A server takes what it may have, and says which limit is too low, and how to raise it."""
        def limited(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        asked = ("gateway", "--servers", "127.0.0.1:1", "--http", "127.0.0.1:0")
        with Process(*asked, preexec_fn=limited(64, 4096)) as front:
            limits = pathlib.Path(f"/proc/{front.process.pid}/limits").read_text()
            self.assertRegex(limits, r"Max open files +4096 +4096")
            self.assertNotIn("ulimit", front.stop()[1])
        with Process(*asked, preexec_fn=limited(64, 64)) as front:
            said = front.stop()[1]
            self.assertIn("at most 64 files may be open, too few for --max-requests 256", said)
            self.assertIn("1344 with ulimit -n, or LimitNOFILE=", said)
        with worker(preexec_fn=limited(32, 32)) as busy:
            host, port = busy.address.rsplit(":", 1)
            with contextlib.ExitStack() as many:
                for _ in range(32):
                    many.enter_context(socket.create_connection((host, int(port)), timeout=240))
                said = ""
                while "turned away" not in said:
                    said = busy.process.stderr.readline().decode()
            self.assertIn("Too many open files; raise this process's limit: ulimit -n, or LimitNOFILE=", said)

    def test_keys_and_limits(self):
        keys = self.dir / "api"
        keys.write_text(KEY + "\n")
        keys.chmod(0o600)
        bearer = {"Authorization": f"Bearer {KEY}"}
        with service("--api-key-file", keys, "--max-requests-per-key", 1) as front:
            self.assertEqual(call(front.url, "/v1/models")[0], 401)
            self.assertEqual(call(front.url, "/metrics")[0], 401)
            self.assertEqual(call(front.url, "/v1/models", headers={"Authorization": "Bearer x"})[0],
                             401)
            self.assertEqual(call(front.url, "/v1/models", headers=bearer)[0], 200)

            def second():
                """Of a key's second request; or of the next one, if the first was answered before it came."""
                with contextlib.closing(connect(front.url)) as connection:
                    connection.request("POST", "/v1/completions", headers=bearer, body=json.dumps(
                        {**PROMPT, "max_tokens": 5000, "stream": True}))
                    connection.getresponse().read(1)
                    status, headers, _ = call(front.url, "/v1/completions", PROMPT, headers=bearer)
                return status, headers["Retry-After"]

            wait_for(lambda: second() == (429, "1"))
            wait_for(lambda: call(front.url, "/v1/completions", PROMPT, headers=bearer)[0] == 200)

    def test_pages_of_other_origins(self):
        keys = self.dir / "api"
        keys.write_text(KEY + "\n")
        keys.chmod(0o600)
        key = {"Authorization": f"Bearer {KEY}"}
        asks = {"Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}

        def ask(front, origin, path, body=None, **kwargs):
            _, headers, _ = call(front.url, path, body, **{"headers": {"Origin": origin, **kwargs.pop("more", {})},
                                                           **kwargs})
            return headers

        def assert_preflight(headers, origin):
            self.assertEqual(headers["Access-Control-Allow-Origin"], origin)
            self.assertEqual(headers["Access-Control-Allow-Methods"], "POST, OPTIONS")
            self.assertEqual(headers["Access-Control-Allow-Headers"], asks["Access-Control-Request-Headers"])
            self.assertIsNone(headers["Access-Control-Allow-Credentials"])

        friend, path = "https://chat.example", "/v1/chat/completions"
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
        with service("--api-key-file", keys, "--cors", f"{friend},http://localhost:3000", "--cors",
                     "app://obsidian.md") as front:
            for origin in (friend, "app://obsidian.md"):
                assert_preflight(ask(front, origin, path, method="OPTIONS", more=asks), origin)
                for body in (chat, {**chat, "stream": True}, {"messages": 3}):
                    self.assertEqual(ask(front, origin, path, body, more=key)["Access-Control-Allow-Origin"], origin)
                # A page sees why it is refused, and reads the state.
                for what in ("/v1/models", "/metrics", "/nothing", "/"):
                    self.assertEqual(ask(front, origin, what)["Access-Control-Allow-Origin"], origin)
            for origin in ("https://evil.example", "http://chat.example", "https://chat.example.evil", "null", ""):
                for headers in (ask(front, origin, path, method="OPTIONS", more=asks),
                                ask(front, origin, path, chat, more=key)):
                    self.assertEqual([v for k, v in headers.items() if k.startswith("Access-Control")], [])
                    self.assertEqual(headers["Vary"], "Origin")
            self.assertEqual(front.stop()[1].count("a page of https://evil.example may not read answers; --cors "
                                                   "https://evil.example lets it"), 1)
        with service("--api-key-file", keys, "--cors", "*") as front:
            assert_preflight(ask(front, "https://any.example", path, method="OPTIONS", more=asks), "*")
            self.assertEqual(ask(front, "null", path, chat, more=key)["Access-Control-Allow-Origin"], "*")
        with worker() as back, gateway([back], "--cors", "*") as front:
            assert_preflight(ask(front, "https://any.example", path, method="OPTIONS", more=asks), "*")
            self.assertIn("every page", front.stop()[1])
        for wrong in ("chat.example", "https://chat.example/", "https://", "http://a/b", "https://*.example"):
            self.assertIn("is no origin", self.refused(2, "gateway", "--servers", "127.0.0.1:1", "--cors", wrong))

    def test_one_key_does_not_starve_another(self):
        keys = self.dir / "keys"
        keys.write_text(f"{KEY}-many\n{KEY}-one\n")
        keys.chmod(0o600)

        def ask(key, **fields):
            connection = connect(front.url)
            connection.request("POST", "/v1/completions", json.dumps({**PROMPT, **fields}).encode(),
                               {"Authorization": f"Bearer {KEY}-{key}"})
            return connection

        def answer(key, **fields):
            return call(front.url, "/v1/completions", {**PROMPT, **fields},
                        headers={"Authorization": f"Bearer {KEY}-{key}"})[::2]

        with service("--api-key-file", keys, "--max-requests-per-key", 101, "--max-tokens-per-key",
                     500, "--http", "127.0.0.1:0") as front:
            waits = lambda: self.figure(front.url, "http_texts_waiting")  # noqa: E731
            runs = lambda: self.figure(front.url, "http_texts_running")  # noqa: E731
            ended = lambda: sum(self.figure(front.url, f"http_texts_{end}_total") for end in ("full", "stopped"))  # noqa: E731

            def beside_many():
                """What one key's texts and the requests of another are told; None if texts ended meanwhile."""
                before = ended()
                with contextlib.ExitStack() as many:
                    for _ in range(100):
                        many.enter_context(contextlib.closing(ask("many", max_tokens=400)))
                    wait_for(lambda: runs() + waits() == 100 or ended() > before)
                    seen = [runs(), waits(), answer("one", max_tokens=4)[0], waits()]
                    seen.append(answer("many", prompt=[5] * 101)[1].get("error"))  # the others have 4 each
                    many.enter_context(contextlib.closing(ask("many", max_tokens=400)))
                    wait_for(lambda: runs() + waits() == 101 or ended() > before + 1)
                    seen.append(answer("many")[1].get("error"))
                    valid = ended() == before + 1
                wait_for(lambda: runs() == 0 and waits() == 0)
                return valid and seen

            *seen, tokens, requests = wait_for(beside_many)
            # 75 of 100 places of the only worker are 48; the others wait, though it has 64.
            self.assertEqual(seen, [48, 52, 200, 52])
            self.assertEqual((tokens["code"], requests["code"]), ("too_many_tokens", "too_many_requests"))
            # No waiting helps one that is above the limit alone.
            status, body = answer("many", prompt=[[5] * 251, [5] * 250])
            self.assertEqual((status, body["error"]["code"]), (400, "too_many_tokens"))

    @staticmethod
    def figure(url, name):
        headers = {"Authorization": f"Bearer {KEY}-one"}
        text = call(url, "/metrics", headers=headers)[2]
        return sum(int(line.split()[-1]) for line in text.splitlines()
                   if line.startswith(f"hawser_{name}{{"))

    def test_tls(self):
        keys, _ = self.keys()
        with Process("serve", "--no-devices", "--model", MODEL, "--listen", f"unix:{self.dir}/s",
                     "--http", "127.0.0.1:0", "--cert", keys / "server.crt", "--key",
                     keys / "server.key") as front:
            self.assertTrue(front.url.startswith("https://"))
            parts = urllib.parse.urlsplit(front.url)
            context = ssl.create_default_context(cafile=str(keys / "server.crt"))
            with socket.create_connection((parts.hostname, parts.port), timeout=240) as plain, \
                    context.wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertIn(b" 200 ", client.makefile("rb").read().split(b"\r\n")[0])
            seen = self.hawser("top", front.url, "--once", "--ca", keys / "server.crt")
            self.assertEqual(seen.returncode, 0, seen.stdout)
            self.assertIn(NAME, seen.stdout)
            stranger = self.hawser("top", front.url, "--once")
            self.assertEqual(stranger.returncode, 77)
            self.assertIn("--ca FILE", stranger.stdout)

    def test_top_says_once_what_it_cannot_read_and_why_it_is_refused(self):
        self.assertIn("token file", self.refused(1, "top", "127.0.0.1:1", "--token-file", self.dir / "none"))
        for name in ("one", "two"):
            (self.dir / name).write_text(f"{KEY}-{name}\n")
            (self.dir / name).chmod(0o600)
        with service("--api-key-file", self.dir / "one", "--token-file", self.dir / "one") as front:
            for args, said in (((front.url,), "it asks for an API key"),
                               ((front.url, "--api-key-file", self.dir / "two"), "does not know the first key"),
                               ((front.address, "--token-file", self.dir / "two"), "wrong token")):
                with self.subTest(args=args):
                    result = self.hawser("top", "--once", *args)
                    self.assertEqual((result.returncode, result.stderr), (77, ""))
                    self.assertIn(said, result.stdout)

    def refused(self, code, *args):
        result = self.hawser(*args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    @staticmethod
    def hawser(*args):
        from harness import hawser
        return hawser(*args)

    def test_what_a_door_refuses(self):
        # Before the model is looked at: loading one takes minutes.
        serve = ("serve", "--no-devices", "--listen", f"unix:{self.dir}/s", "--model",
                 self.dir / "no-such-model")
        self.assertIn("no password", self.refused(77, *serve, "--metrics", "0.0.0.0:0"))
        self.assertIn("--api-key-file", self.refused(77, *serve, "--http", "0.0.0.0:0"))
        self.assertIn("host:port", self.refused(2, *serve, "--http", f"unix:{self.dir}/h"))
        self.assertIn("cannot resolve \"nowhere.invalid\"", self.refused(2, *serve, "--http",
                                                                       "nowhere.invalid"))
        self.assertIn("0.0.0.0:8000 is not on this host",
                      self.refused(77, "gateway", "--servers", "127.0.0.1:1", "--http", "0.0.0.0"))
        self.assertIn("127.0.0.1:8009", self.refused(2, *serve, "--http", "8009"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.assertIn("choose another port",
                          self.refused(1, "gateway", "--servers", "127.0.0.1:1", "--http",
                                       f"127.0.0.1:{taken.getsockname()[1]}"))
        self.assertIn("--model", self.refused(2, "serve", "--no-devices", "--listen",
                                              f"unix:{self.dir}/s", "--http", "127.0.0.1:0"))
        self.assertIn("--api-key-file", self.refused(1, *serve, "--http", "127.0.0.1:0",
                                                     "--api-key-file", self.dir / "none"))
        self.assertIn("--api-key-file", self.refused(77, "gateway", "--servers", "127.0.0.1:1",
                                                     "--http", "0.0.0.0:0"))
        self.assertIn("go together", self.refused(2, "gateway", "--servers", "127.0.0.1:1", "--cert",
                                                  "x", "--http", "127.0.0.1:0"))

    def test_a_gateway_that_starts_before_the_worker_of_its_machine(self):
        """The token of this user is made by whoever comes first."""
        home = {"XDG_STATE_HOME": str(self.dir)}
        address = f"127.0.0.1:{free_port()}"
        with Process("gateway", "--servers", address, "--http", "127.0.0.1:0", env=home) as front:
            with worker(listen=address, env=home):
                wait_ready(front.url)
        with Process("gateway", "--servers", address, "--http", "127.0.0.1:0", "--token-file", "none",
                     env={"XDG_STATE_HOME": str(self.dir / "other")}):
            self.assertFalse((self.dir / "other").exists())

    def test_a_model_in_two_files(self):
        """The front has the first one's header, which does not hold the embedding."""
        with service(model=in_two_files(self.dir)) as front, gateway([front]) as other, service() as whole:
            said = [call(at.url, "/v1/completions", PROMPT)[2]["choices"] for at in (front, other, whole)]
        self.assertEqual(said[:2], said[2:] * 2)

    def test_a_text_that_ends_with_its_last_token(self):
        """A model that asks for eos after a text: its row is the embedding of one that pools the last."""
        numbers = {"tokenizer.ggml.eos_token_id": 1500, "llama.pooling_type": 3}
        more = {key: struct.pack("<II", 4, number) for key, number in numbers.items()}
        more["tokenizer.ggml.add_eos_token"] = struct.pack("<IB", 7, 1)
        with service(model=with_pairs(self.dir, more)) as front:
            def ask(path, key, value, **fields):
                return call(front.url, path, {key: value, **fields})[2]

            tokens = ask("/tokenize", "prompt", "And God said")["tokens"]
            self.assertNotIn(1500, tokens)
            whole = [tokens + [1500], tokens]
            end, without = (d["embedding"] for d in ask("/v1/embeddings", "input", whole)["data"])
            self.assertNotEqual(end, without)
            self.assertEqual(ask("/v1/embeddings", "input", "And God said")["data"][0]["embedding"], end)
            for asked, count in (({"prompt": "And God said"}, 1), ({"prompt": tokens}, 0)):
                used = ask("/v1/completions", "max_tokens", 1, **asked)["usage"]["prompt_tokens"]
                self.assertEqual(used, len(tokens) + count)
            user = [{"role": "user", "content": "And God said"}]
            chat = ask("/v1/chat/completions", "messages", user, max_tokens=1)["usage"]["prompt_tokens"]
        with service(model=with_pairs(self.dir, {})) as front:
            self.assertEqual(ask("/v1/chat/completions", "messages", user, max_tokens=1)["usage"]["prompt_tokens"], chat)

    def test_a_gateway_without_workers_says_so(self):
        with Process("gateway", "--servers", f"unix:{self.dir}/none", "--http", "127.0.0.1:0") as front:
            self.assertEqual(call(front.url, "/healthz")[0], 503)
            self.assertEqual(call(front.url, "/v1/completions", PROMPT)[0], 503)
            self.assertIn("down", state(front.url))
            self.assertIn("No such file", call(front.url, "/state")[2]["workers"][0]["why"])
            # The path is longer than its column.
            self.assertRegex(self.hawser("top", front.url, "--once").stdout,
                             rf"{self.dir}/none +down .*\n    cannot reach .*No such file")


class Tools(Case):
    """A vocabulary in which what opens a call is a control token, as Mistral's."""

    def test_reasoning(self):
        """What the model writes between the marks of its template is told apart from the answer."""
        template = ("{{ messages[-1].content }}{% if thinks %}<think>\n{% else %}<think></think>{% endif %}"
                    "{% for tool in tools or [] %}<tool_call>{% endfor %}")
        ask = {"messages": [{"role": "user", "content": "And God said"}], "temperature": 0, "max_tokens": 40}
        path = "/v1/chat/completions"

        def said(**fields):
            whole = call(front.url, path, {**ask, **fields})[2]
            self.assertIn("choices", whole)
            chunks = list(Stream(front.url, path, {**ask, **fields}))
            deltas = [c["choices"][0]["delta"] for c in chunks]
            message = whole["choices"][0]["message"]
            thought = "".join(d.get("reasoning_content", "") for d in deltas) or None
            self.assertEqual((text_of(chunks), thought), (message["content"] or "", message.get("reasoning_content")))
            return message["content"], thought, whole["usage"]["completion_tokens_details"]["reasoning_tokens"]

        with service(model=with_template(self.dir, template, {1500: "</think>", 1501: "<think>"})) as front:
            plain = said()
            self.assertEqual(plain[1:], (None, 0))
            opened = {"chat_template_kwargs": {"thinks": True}}
            content, thought, count = said(**opened)
            self.assertEqual((content, count), ("", 40))
            self.assertEqual(thought, said(**opened, reasoning_format="none")[0].strip())
            self.assertEqual(said(**opened, max_tokens=3, logit_bias={"1500": 100}), ("", None, 1))
            for text, parts in (("<think>\\n a\\nb \\n</think>\\n\\n c </think>d", (" c </think>d".lstrip(), "a\nb")),
                                ("<think></think>c", ("c", None)), ("<thin>c", ("<thin>c", None)),
                                (" \\n<think>a</think >b", ("", "a</think >b")), ("c<think>a</think>", ("c<think>a</think>", None))):
                self.assertEqual(said(grammar=f'root ::= "{text}"')[:2], parts)
                self.assertEqual(said(grammar=f'root ::= "{text}"', **opened)[:2], parts)
            self.assertEqual(said(grammar='root ::= <[1501]> "a" <[1500]> "c"')[:2], ("c", "a"))
            tools = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto"}
            text = '<think>a</think>\\n<tool_call>{\\"name\\": \\"f\\", \\"arguments\\": {}}</tool_call>'
            asked = {**ask, **tools, "max_tokens": 200, "grammar": f'root ::= "{text}"'}
            message = call(front.url, path, asked)[2]["choices"][0]["message"]
            self.assertEqual((message["content"], message["reasoning_content"], len(message["tool_calls"])), (None, "a", 1))
            self.check_reasoning_items(front, asked)

    def test_families(self):
        """Calls as models of several families write them."""
        path = "/v1/chat/completions"
        for name, (template, control, grammar, thought) in FAMILIES.items():
            with self.subTest(name), service(model=with_template(self.dir, template, control)) as front:
                asked = {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS, "max_tokens": 300,
                         "grammar": grammar}
                choice, = call(front.url, path, asked)[2]["choices"]
                message = choice["message"]
                made = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]]
                self.assertEqual((message["content"], message.get("reasoning_content"), made, choice["finish_reason"]),
                                 ("Well.", thought, CALLS, "tool_calls"))
                chunks = list(Stream(front.url, path, asked))
                deltas = [c["choices"][0]["delta"] for c in chunks]
                self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas) or None, thought)
                self.assertEqual(text_of(chunks), "Well.")
                arguments = {}
                for part in (c for d in deltas for c in d.get("tool_calls", [])):
                    arguments[part["index"]] = arguments.get(part["index"], "") + part["function"]["arguments"]
                self.assertEqual(list(map(json.loads, arguments.values())), [a for _, a in CALLS])
                forced = {**asked, "tool_choice": "required", "temperature": 0, "grammar": None}
                message = call(front.url, path, forced)[2]["choices"][0]["message"]
                self.assertEqual((message["content"], message.get("reasoning_content")), (None, None))
                self.assertIn(message["tool_calls"][0]["function"]["name"], dict(CALLS))

    def test_messages_of_an_answer(self):
        """Marks between messages of an answer are no content, with tools and without."""
        template, control, _, _ = FAMILIES["gpt-oss"]
        thought, final = (1500, "analysis", 1501, "Hm.", 1503, 1502, "assistant"), (1500, "final", 1501, "So.")
        said = (1500, "commentary", 1501, "Well.", 1503, 1502, "assistant")
        with service(model=with_template(self.dir, template, control)) as front:
            for parts, content, reasoning in (
                    (thought + final, "So.", "Hm."), (final, "So.", None), (thought + said + final, "Well.So.", "Hm."),
                    (thought + said + thought + final, "Well.So.", "Hm.\n\nHm."), (("So <|cha",), "So <|cha", None)):
                for tools in ({}, {"tools": TOOLS}):
                    asked = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 99, "grammar": written(*parts)}
                    asked.update(tools)
                    message = call(front.url, "/v1/chat/completions", asked)[2]["choices"][0]["message"]
                    self.assertEqual((message["content"], message.get("reasoning_content")), (content, reasoning))
                    chunks = list(Stream(front.url, "/v1/chat/completions", asked))
                    self.assertEqual(text_of(chunks), content)

    def check_reasoning_items(self, front, asked):
        """The same as items of the Responses API, whole and streamed."""
        tool = {"type": "function", "name": "f"}
        asked = {"input": "a", "grammar": asked["grammar"], "tools": [tool], "temperature": 0}
        whole = call(front.url, "/v1/responses", asked)[2]
        self.assertEqual([i["type"] for i in whole["output"]], ["reasoning", "function_call"])
        self.assertEqual(whole["output"][0]["content"], [{"type": "reasoning_text", "text": "a"}])
        stream = Stream(front.url, "/v1/responses", asked)
        events = [json.loads(line[6:]) for line in stream.answer if line.startswith(b"data: ")]
        stream.close()
        kinds = [key.removeprefix("response.") for key, _ in itertools.groupby(e["type"] for e in events)]
        self.assertEqual(kinds, [
            "created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta",
            "reasoning_text.done", "content_part.done", "output_item.done", "output_item.added",
            "function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed"])
        self.assertEqual([key for key, _ in itertools.groupby(e["output_index"] for e in events if "output_index" in e)],
                         [0, 1])
        self.assertEqual([i["type"] for i in events[-1]["response"]["output"]], ["reasoning", "function_call"])

    def test_a_mark_that_is_a_control_token_opens_a_call(self):
        template = (TEMPLATES / "brackets.jinja").read_text()
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Jericho"]}}, "required": ["city"],
            "additionalProperties": False}}}]
        asked = {"messages": [{"role": "user", "content": "Weather?"}], "tools": tools, "max_tokens": 200,
                 "temperature": 0}
        with service(model=with_template(self.dir, template, {1500: "[TOOL_CALLS]"})) as front:
            forced = {**asked, "tool_choice": "required", "parallel_tool_calls": False, "logprobs": True}
            choice, = call(front.url, "/v1/chat/completions", forced)[2]["choices"]
            made, = choice["message"]["tool_calls"]
            self.assertEqual(made["function"]["name"], "get_weather")
            self.assertEqual(json.loads(made["function"]["arguments"]), {"city": "Jericho"})
            self.assertEqual(choice["logprobs"]["content"][0]["bytes"], [], "not the control token")
            parts = [c["choices"][0] for c in Stream(front.url, "/v1/chat/completions", forced)]
            told = [(p["logprobs"] or {}).get("content", []) for p in parts]
            self.assertEqual(sum(told, []), choice["logprobs"]["content"])
            self.assertGreater(sum(map(bool, told)), 1, "as they come")
            self.assertEqual([i for i, p in enumerate(parts) if "content" in p["delta"]], [0])
            again = [*asked["messages"], choice["message"],
                     {"role": "tool", "tool_call_id": made["id"], "content": "sun"}]
            status, _, body = call(front.url, "/v1/chat/completions",
                                   {**asked, "messages": again, "tool_choice": "none", "max_tokens": 4})
            self.assertEqual(status, 200, body)
            free = {**asked, "grammar": 'root ::= <[1500]> "[{\\"name\\": \\"get_weather\\"}]"'}
            chunks = list(Stream(front.url, "/v1/chat/completions", free))
            deltas = [d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", [])]
            self.assertEqual(deltas[0]["function"], {"name": "get_weather", "arguments": ""})
            self.assertEqual("".join(d["function"]["arguments"] for d in deltas), "{}")
            self.assertEqual(text_of(chunks), "")


if __name__ == "__main__":
    signal.alarm(1200)
    unittest.main()
