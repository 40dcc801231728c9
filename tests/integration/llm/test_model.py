"""hawser model and plan: what it says of files, the files it makes, what it refuses."""

import contextlib
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, HAWSER, USAGE, Case, hawser

ARCHS = ("llama", "qwen2", "gptj", "gpt2", "qwen2moe", "granitemoe")
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K",
         "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "IQ4_NL", "IQ4_XS", "MXFP4")


class Model(Case):
    def synth(self, name, *args):
        path = self.dir / name
        result = hawser("model", "synth", "-o", path, *args)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        return path

    def info(self, path, *args):
        result = hawser("model", "info", path, "--json", *args)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        return json.loads(result.stdout)

    def refused(self, code, phrase, *args):
        result = hawser("model", *args)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(phrase, result.stderr)
        self.assertEqual(result.stdout, "")


class Shipped(Model):
    def test_it_writes_words(self):
        root = pathlib.Path(__file__).resolve().parent.parent.parent.parent
        result = hawser("llm", "--model", root / "models/kjv.gguf", "--prompt", "And God said",
                        "--decode_steps", "60")
        self.assertEqual(result.returncode, DONE, result.stderr)
        text = result.stdout.split("\n\n")[0]
        self.assertTrue(text.startswith("And God said"), text)
        words = text.split()
        self.assertGreater(len(words), 25, text)
        for word in words:
            self.assertRegex(word, r"^[A-Za-z'-]+[,.:;?!]*$")
        common = {"and", "the", "of", "that", "to", "in", "he", "shall", "unto", "for", "i", "his",
                  "a", "lord", "they", "be", "is", "him", "not", "them", "it", "with", "all"}
        self.assertGreater(sum(word.lower().strip(",.:;?!") in common for word in words),
                           len(words) // 4, text)


def in_other_words(source, path, old, new, *pairs):
    """A GGUF file of another architecture's name, with its keys and some more."""
    def skip(kind, at):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != 9:
            return at + (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)[kind]
        inner, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = skip(inner, at)
        return at

    def string(text):
        return struct.pack("<Q", len(text)) + text

    data = source.read_bytes()
    version, tensors, count = struct.unpack_from("<IQQ", data, 4)
    head, at = list(pairs), 24
    for _ in range(count):
        size = struct.unpack_from("<Q", data, at)[0]
        key, begin = data[at + 8:at + 8 + size], at + 8 + size
        at = skip(struct.unpack_from("<I", data, begin)[0], begin + 4)
        value = struct.pack("<I", 8) + string(new) if key == b"general.architecture" else data[begin:at]
        head.append(string(key.replace(old + b".", new + b".") if key.startswith(old + b".") else key) + value)
    names = at
    for _ in range(tensors):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(head)) + b"".join(head) + data[names:at]
    path.write_bytes(head + bytes(-len(head) % 32) + data[at + -at % 32:])


class TextParts(Model):
    def test_they_run_as_the_model_that_they_are(self):
        for name, arch in (("qwen3vl", "qwen3"), ("qwen3vlmoe", "qwen3moe")):
            plain, path = self.synth(f"{arch}.gguf", "--arch", arch, "--like", "tiny"), self.dir / f"{name}.gguf"
            sections = f"{name}.rope.dimension_sections".encode()
            in_other_words(plain, path, arch.encode(), name.encode(), struct.pack("<Q", len(sections)) + sections +
                           struct.pack("<IIQ4i", 9, 5, 4, 24, 20, 20, 0))
            self.assertEqual(self.info(path)["arch"], arch)
            runs = [hawser("llm", "--model", file, "--prompt_tokens", 40, "--decode_steps", 8, "--trace",
                           "--ignore-end", errors="replace") for file in (plain, path)]
            tokens = [re.search(r"^TOKENS: .*$", self.expect(run, DONE).stdout, re.M).group() for run in runs]
            self.assertEqual(*tokens)


class Strangers(Model):
    def test_an_unknown_architecture_names_what_runs_it(self):
        plain, path = self.synth("m.gguf", "--like", "tiny"), self.dir / "other.gguf"
        for name, told in ((b"deepseek2", "does not run the architecture 'deepseek2'; llama.cpp may"),
                           (b"clip", "take the file of its text part")):
            in_other_words(plain, path, b"llama", name)
            self.refused(FAILED, told, "info", path)


class Guide(unittest.TestCase):
    def test_the_table_of_the_guide_has_every_architecture(self):
        """bench/llm/agree writes it, and not if a model failed; llama.cpp has no gptj."""
        root = pathlib.Path(__file__).resolve().parent.parent.parent.parent
        page = (root / "docs/guide/models.md").read_text()
        cases = page.partition("<!-- bench/llm/agree: cases -->")[2].partition("<!-- end -->")[0]
        types = page.partition("<!-- bench/llm/agree: types -->")[2].partition("<!-- end -->")[0]
        refused = hawser("model", "synth", "--arch", "none", "-o", "none").stderr
        archs = refused.strip().partition("is not one of ")[2].split(", ")
        self.assertIn("llama", archs)
        for arch in archs:
            self.assertTrue(f"| `{arch}` |" in cases or arch == "gptj", f"{arch} is not in the table")
        for name in TYPES[2:]:
            self.assertIn(f"\n| {name} |", types)
        self.assertNotIn("FAILED", cases + types)


class Synth(Model):
    def test_every_architecture(self):
        for arch in ARCHS:
            path = self.synth(arch, "--arch", arch, "--like", "tiny")
            found = self.info(path)
            self.assertEqual((found["format"], found["arch"]), ("GGUF v3", arch))
            self.assertEqual(found["width"], 256)
            self.assertLess(found["weight_bytes"], path.stat().st_size)

    def test_every_type(self):
        for name in TYPES:
            found = self.info(self.synth(name, "--like", "tiny", "--type", name.lower()))
            self.assertIn(name, found["types"])
            self.assertEqual(sum(t["bytes"] for t in found["types"].values()),
                             found["weight_bytes"])

    def test_the_seed_decides(self):
        first = self.synth("a", "--like", "tiny", "--seed", 5).read_bytes()
        self.assertEqual(first, self.synth("b", "--like", "tiny", "--seed", 5).read_bytes())
        self.assertNotEqual(first, self.synth("c", "--like", "tiny", "--seed", 6).read_bytes())

    def test_numbers_override_the_likeness(self):
        found = self.info(self.synth("m", "--like", "tiny", "--layers", 3, "--vocab", 300,
                                     "--context", 64))
        self.assertEqual((found["layers"], found["vocab"], found["context"]), (3, 300, 64))
        found = self.info(self.synth("n", "--layers", 1, "--width", 96, "--heads", 6,
                                     "--kv-heads", 2))
        self.assertEqual((found["head_dim"], found["kv_heads"], found["ffn"]), (16, 2, 384))
        found = self.info(self.synth("e", "--like", "tiny-moe", "--experts", 4, "--experts-used", 3))
        self.assertEqual((found["experts"], found["experts_used"]), (4, 3))
        found = self.info(self.synth("r", "--like", "tiny", "--rope", "linear", "--rope-factor", 8))
        self.assertEqual((found["rope_scale"], found["rope_original"]), (8, found["context"] // 8))

    def test_replaces_a_file_and_leaves_no_other(self):
        path = self.synth("m", "--like", "tiny")
        before = path.read_bytes()
        self.synth("m", "--like", "tiny", "--seed", 2)
        self.assertNotEqual(path.read_bytes(), before)
        self.assertEqual([entry.name for entry in self.dir.iterdir()], ["m"])

    @staticmethod
    def open_files(pid):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                yield os.readlink(f"/proc/{pid}/fd/{fd}")

    def test_killed_it_leaves_nothing(self):
        try:
            os.close(os.open(self.dir, os.O_TMPFILE | os.O_WRONLY))
        except OSError as error:
            self.skipTest(f"no file without a name here: {error}")
        process = subprocess.Popen([HAWSER, "model", "synth", "--like", "1.1b", "--type", "Q4_0",
                                    "-o", self.dir / "m.gguf"])
        here = str(self.dir.resolve())
        while not any(name.startswith(here) for name in self.open_files(process.pid)):
            self.assertIsNone(process.poll())
        process.kill()
        process.wait()
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_full_disk_is_told_before(self):
        self.refused(FAILED, "the disk has", "synth", "-o", self.dir / "m", "--type", "F32",
                     "--layers", 1024, "--width", 131072, "--heads", 1024)
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_wrong_usage(self):
        out = ("-o", self.dir / "m")
        self.refused(USAGE, "-o FILE", "synth", "--like", "tiny")
        self.refused(USAGE, "--layers", "synth", *out)
        self.refused(USAGE, "6b, tiny", "synth", "--arch", "gptj", "--like", "13b", *out)
        self.refused(USAGE, "Q6_K", "synth", "--like", "tiny", "--type", "Q8_K", *out)
        self.refused(USAGE, "--arch", "synth", "--arch", "mamba", *out)
        self.refused(USAGE, "blocks", "synth", "--layers", 1, "--width", 96, "--heads", 2,
                     "--type", "Q4_K", *out)
        self.refused(USAGE, "vocabulary", "synth", "--like", "tiny", "--vocab", 200, *out)
        self.refused(USAGE, "1 to 4 is possible", "synth", "--like", "tiny-moe", "--experts", 4,
                     "--experts-used", 5, *out)
        self.refused(USAGE, "a layer has none", "synth", "--like", "tiny", "--experts-used", 2, *out)
        self.refused(USAGE, "gpt2 has no experts", "synth", "--arch", "gpt2", "--like", "tiny", "--experts", 4,
                     *out)
        self.refused(USAGE, "--rope-factor", "synth", "--like", "tiny", "--rope", "yarn", "--rope-factor", 0, *out)
        self.refused(USAGE, "info FILE", "frobnicate")
        self.refused(USAGE, "info FILE", "info")
        self.refused(FAILED, "No such file", "synth", "--like", "tiny", "-o",
                     self.dir / "no" / "m")
        self.assertEqual(list(self.dir.iterdir()), [])


class Plan(Model):
    """hawser plan: the arithmetic, from shapes that info tells, a line and a step that are given."""

    def plan(self, path, *args):
        result = hawser("plan", path, *args)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        return result.stdout

    def test_the_arithmetic_is_that_of_the_shapes(self):
        path = self.synth("m", "--like", "tiny")
        m = self.info(path)
        width = m["width"]
        row = m["heads"] * m["head_dim"] + width + m["ffn"] + width
        sent = (m["layers"] * row + m["vocab"]) * 4 / 2
        messages = 4 * m["layers"] + 2
        # 8 Gbit: a byte takes a nanosecond.
        text = self.plan(path, "--link", "10us,8Gbit", "--step", "20ms")
        number = lambda pattern: float(re.search(pattern, text).group(1))  # noqa: E731
        self.assertEqual(number(r"the logits = (\d+)"), messages)
        self.assertAlmostEqual(number(r"20ms / 2 .* = ([\d.]+)ms"),
                               10 + messages * 0.01 + sent / 1e6, delta=0.006)
        self.assertAlmostEqual(number(r"20ms \+ 2 x .* = ([\d.]+)ms"),
                               20 + 2 * (0.01 + width * 4 / 1e6), delta=0.006)
        self.assertRegex(text, "step +20ms for 1 row on one worker, as given")
        self.assertRegex(text, "pays +tensor: .* as fast as one worker")
        rows = self.plan(path, "--link", "10us,8Gbit", "--step", "20ms", "--rows", 3)
        self.assertIn(f"one way: 3 rows x {width} x 4 B", rows)
        sent_of_3 = (3 * m["layers"] * row + m["vocab"]) * 4 / 2
        self.assertAlmostEqual(float(re.search(r"20ms / 2 .* = ([\d.]+)ms", rows).group(1)),
                               10 + messages * 0.01 + sent_of_3 / 1e6, delta=0.006)
        limit = (10e6 + 2 * width * 4 - sent) / (messages - 2) / 1e6
        self.assertAlmostEqual(number(r"below a latency of ([\d.]+)ms"), limit, delta=0.006)
        # Of more workers each share goes through the first.
        many = self.synth("many", "--like", "tiny", "--kv-heads", 4)
        text = self.plan(many, "--link", "10us,8Gbit", "--step", "20ms", "--workers", 4)
        messages, sent = 2 * 4 * m["layers"] + 2, (m["layers"] * row * 3 + m["vocab"]) * 4 * 3 / 4
        self.assertEqual(number(r"the logits = (\d+)"), messages)
        self.assertAlmostEqual(number(r"20ms / 4 .* = ([\d.]+)ms"), 5 + messages * 0.01 + sent / 1e6, delta=0.006)
        self.assertIn(f"(all-reduce): {4 * width} values", text)
        text = self.plan(path, "--link", "10ms,1Gbit", "--step", "20ms")
        self.assertIn("(hawser serve --layers)", text)
        self.assertRegex(text, "pays +layers: .*; one worker takes 20ms, so split only a model")

    def test_what_is_not_possible_is_said(self):
        path = self.synth("m", "--like", "tiny")
        text = self.plan(path, "--link", "10us,8Gbit", "--step", "20ms", "--workers", 64)
        self.assertIn("each needs one of the model's", text)
        self.assertRegex(text, "pays +neither is possible with 64 workers")
        self.assertIn("measured here (cpu), median of", self.plan(path, "--link", "10us,8Gbit"))
        for link in ("1ms", "1ms,fast", "soon,1Gbit", "1ms,0", ","):
            result = hawser("plan", path, "--link", link, "--step", "1ms")
            self.expect(result, USAGE, "write 1ms,10Gbit")
        self.expect(hawser("plan", path), USAGE, "--link LATENCY,RATE is required")
        for step in ((), ("--step", "1ms")):
            self.expect(hawser("plan", path, "--link", "1ms,1Gbit", "--rows", 257, *step), USAGE,
                        "the model has a context of 256")


class Info(Model):
    def test_says_what_a_person_needs(self):
        result = hawser("model", "info", self.synth("m", "--arch", "gptj", "--like", "tiny"))
        self.assertEqual(result.returncode, DONE)
        for phrase in ("gptj", "layers       2", "rotary, 32 of 64", "byte-level BPE (gpt-2)",
                       "KV cache     2KiB a position", "F16"):
            self.assertIn(phrase, result.stdout)

    def test_kv_and_memory_add_up(self):
        found = self.info(self.synth("m", "--like", "tiny"))
        kv = found["layers"] * 2 * found["kv_heads"] * found["head_dim"] * 2
        self.assertEqual(found["kv_bytes_per_position"], kv)
        self.assertEqual(found["memory_bytes"], found["weight_bytes"] + kv * found["context"])

    def test_llama2c_models(self):
        path = self.dir / "model.bin"
        floats = 3 * 4 + 2 * (4 + 16 + 8 + 8 + 16 + 4 + 3 * 24) + 4 + 2 * 5
        path.write_bytes(struct.pack("<7i", 4, 6, 2, 2, 1, 3, 5) + bytes(4 * floats))
        found = self.info(path)
        self.assertEqual((found["format"], found["vocab"]), ("llama2.c", 3))
        self.assertIn("name its tokenizer", found["tokenizer"])
        tokens = self.dir / "tok.bin"
        texts = (b"<unk>", b"<s>", b"</s>")
        tokens.write_bytes(struct.pack("<i", 5) + b"".join(
            struct.pack("<fi", 0, len(text)) + text for text in texts))
        self.assertIn("SentencePiece", self.info(path, "--tokenizer", tokens)["tokenizer"])
        self.refused(FAILED, "cannot open", "info", path, "--tokenizer", self.dir / "none")

    def test_files_that_are_no_models(self):
        text = self.dir / "text"
        text.write_text("this is not a model, but long enough to hold a header\n")
        self.refused(FAILED, "not a model", "info", text)
        self.refused(FAILED, "No such file", "info", self.dir / "none")
        self.refused(FAILED, "is a folder; hawser model import", "info", self.dir)
        whole = self.synth("m", "--like", "tiny").read_bytes()
        cut = self.dir / "cut"
        cut.write_bytes(whole[:len(whole) // 2])
        self.refused(FAILED, "past the file", "info", cut)
        cut.write_bytes(whole[:100])
        self.refused(FAILED, "metadata", "info", cut)

    def test_a_name_cannot_drive_the_terminal(self):
        path = self.synth("m", "--like", "tiny")
        path.write_bytes(path.read_bytes().replace(b"random weights", b"random\x1b[\xc2\x9bghts"))
        result = hawser("model", "info", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("random?[??ghts", result.stdout)
        image = path.read_bytes().replace(b"blk.0.attn_q.weight", b"blk.0.\x1b[\xc2\x9b_q.weight")
        path.write_bytes(image)
        result = hawser("model", "info", path)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("blk.0.?[??_q.weight", result.stderr)


if __name__ == "__main__":
    unittest.main()
