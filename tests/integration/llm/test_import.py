"""hawser model import: a published folder becomes the file that the same weights were taken from."""

import json
import pathlib
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import DONE, FAILED, HAWSER, USAGE, Case, hawser
from published import publish, read_gguf, write_safetensors

ARCHS = ("llama", "qwen2", "gptj", "gpt2")
PROMPT = "Over 1234 hedges, it's the fox's turn;\n\n  dogs bark."


class Import(Case):
    def synth(self, arch, *args):
        path = self.dir / f"{arch}.gguf"
        result = hawser("model", "synth", "-o", path, "--arch", arch, "--like", "tiny", *args)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return path

    def run_import(self, folder, *args):
        result = hawser("model", "import", folder, *args)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))

    def refused(self, phrase, *args, code=FAILED):
        before = sorted(str(p) for p in self.dir.rglob("*"))
        result = hawser("model", "import", *args)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(phrase, result.stderr)
        self.assertEqual(sorted(str(p) for p in self.dir.rglob("*")), before)

    def edit(self, path, change):
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    def same_model(self, source, made):
        pairs, tensors = read_gguf(source)
        got_pairs, got_tensors = read_gguf(made)
        self.assertEqual(sorted(got_tensors), sorted(tensors))
        for name, tensor in tensors.items():
            self.assertEqual(got_tensors[name], tensor, name)
        for key, value in pairs.items():
            if key.startswith("tokenizer.") or key.endswith(("_count", "_length")):
                self.assertEqual(got_pairs.get(key, value), value, key)

    def text(self, model):
        """What random weights write is no UTF-8."""
        result = subprocess.run([HAWSER, "llm", "--model", model, "--prompt", PROMPT,
                                 "--decode_steps", "8"], capture_output=True, timeout=60)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout.split(b"\n\nprefill")[0]

    def test_every_architecture_becomes_what_it_was(self):
        for arch in ARCHS:
            for kind in ("F32", "BF16"):
                source = self.synth(arch, "--type", kind)
                folder = publish(source, self.dir / f"{arch}-{kind}")
                made = self.dir / f"{arch}-{kind}-made.gguf"
                self.run_import(folder, made)
                self.same_model(source, made)
            self.assertEqual(self.text(made), self.text(source))

    def test_several_files_and_the_name_beside(self):
        source = self.synth("llama")
        folder = publish(source, self.dir / "many", files=3)
        self.run_import(str(folder) + "/")
        self.same_model(source, self.dir / "many.gguf")
        self.refused("--force", folder)
        self.run_import(folder, "--force")
        (folder / "model-00002-of-00003.safetensors").unlink()
        self.refused("model-00002-of-00003.safetensors", folder, self.dir / "out")

    def test_added_tokens_templates_and_fillers(self):
        folder = publish(self.synth("qwen2"), self.dir / "m")

        def change(tokenizer):
            vocab = tokenizer["model"]["vocab"]
            last = [text for text, i in vocab.items() if i >= 500]
            for text in last:
                del vocab[text]
            tokenizer["added_tokens"].append({"id": 500, "content": "<|im_start|>", "special": True})
            tokenizer["added_tokens"].append({"id": 501, "content": "<think>", "special": False})
        self.edit(folder / "tokenizer.json", change)
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"add_bos_token": True, "chat_template": [{"name": "tool_use", "template": "no"},
                                                      {"name": "default", "template": "{{ x }}"}]}))
        self.run_import(folder, self.dir / "a")
        pairs, _ = read_gguf(self.dir / "a")
        self.assertEqual(pairs["tokenizer.ggml.tokens"][500:503], ["<|im_start|>", "<think>", "[PAD502]"])
        self.assertEqual(pairs["tokenizer.ggml.token_type"][500:503], [3, 4, 5])
        self.assertEqual(pairs["tokenizer.chat_template"], "{{ x }}")
        self.assertTrue(pairs["tokenizer.ggml.add_bos_token"])
        (folder / "chat_template.jinja").write_text("{{ y }}\n")
        self.run_import(folder, self.dir / "b")
        self.assertEqual(read_gguf(self.dir / "b")[0]["tokenizer.chat_template"], "{{ y }}\n")

    def test_llama_3_scaling_becomes_factors(self):
        folder = publish(self.synth("llama"), self.dir / "m")
        self.edit(folder / "config.json", lambda c: c.update(rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}))
        self.run_import(folder, self.dir / "a")
        kind, dims, data = read_gguf(self.dir / "a")[1]["rope_freqs.weight"]
        factors = struct.unpack(f"<{dims[0]}f", data)
        self.assertEqual((kind, dims, factors[0], factors[-1]), ("F32", [32], 1.0, 8.0))
        self.assertEqual(sorted(factors), list(factors))
        self.assertTrue(any(1 < f < 8 for f in factors))

    def test_what_is_not_read_is_named(self):
        folder = publish(self.synth("llama"), self.dir / "m")
        config, tokenizer = folder / "config.json", folder / "tokenizer.json"
        good = {path: path.read_text() for path in (config, tokenizer)}
        for path, change, phrase in (
                (config, lambda c: c.update(model_type="mamba"), "model_type mamba"),
                (config, lambda c: c.pop("hidden_size"), "lacks the number hidden_size"),
                (config, lambda c: c.update(hidden_size=-1), "hidden_size is -1"),
                (config, lambda c: c.update(hidden_size=128), "tensor"),
                (config, lambda c: c.update(num_hidden_layers=3), "layers.2."),
                (config, lambda c: c.update(num_hidden_layers=1), "no place"),
                (config, lambda c: c.update(num_hidden_layers=1 << 40), "num_hidden_layers"),
                (config, lambda c: c.update(rope_scaling={"rope_type": "su"}), "rope scaling su"),
                (tokenizer, lambda t: t["model"].update(type="Unigram"), "Unigram"),
                (tokenizer, lambda t: t["model"].update(byte_fallback=True), "SentencePiece"),
                (tokenizer, lambda t: t["model"].update(vocab={"a": 1 << 40}), "no number below"),
                (tokenizer, lambda t: t["model"].update(merges=[]), "merges"),
                (tokenizer, lambda t: t["model"].update(merges=[["a"]]), "merge 0"),
                (tokenizer, lambda t: t.update(pre_tokenizer={"type": "Metaspace"}), "Metaspace"),
                (tokenizer, lambda t: t.update(normalizer={"type": "Lowercase"}), "Lowercase")):
            self.edit(path, change)
            self.refused(phrase, folder, self.dir / "out")
            path.write_text(good[path])
        config.write_text("{")
        self.refused("config.json: line", folder, self.dir / "out")
        config.write_text("[]")
        self.refused("no JSON object", folder, self.dir / "out")
        config.unlink()
        self.refused("config.json", folder, self.dir / "out")

    def test_damaged_weights(self):
        folder = publish(self.synth("llama"), self.dir / "m")
        path = folder / "model.safetensors"
        image = path.read_bytes()
        for damaged, phrase in (
                (image[:5], "length of its header"),
                (struct.pack("<Q", 1 << 60) + image[8:], "more than the file holds"),
                (image[:-1], "leaves the file"),
                (image.replace(b'"data_offsets": [0,', b'"data_offsets": [8,', 1), "its shape makes"),
                (image.replace(b'"shape": [', b'"shape": [9', 1), "its shape makes"),
                (image.replace(b'"dtype": "F16"', b'"dtype": "F99"', 1), "dtype F99"),
                (b"\x10" + bytes(7) + b"[" * 16, "the header")):
            path.write_bytes(damaged)
            self.refused(phrase, folder, self.dir / "out")
        write_safetensors(path, {"model.norm.weight": ("I64", [256], bytes(2048))})
        self.refused("lack tensor", folder, self.dir / "out")
        path.unlink()
        self.refused("neither model.safetensors nor", folder, self.dir / "out")
        index = folder / "model.safetensors.index.json"
        for text, phrase in (('{"weight_map": {"a": "../../etc/passwd"}}', "has no file"),
                             ('{"weight_map": {"a": "b.safetensors"}}', "b.safetensors"),
                             ("{}", "no weight_map")):
            index.write_text(text)
            self.refused(phrase, folder, self.dir / "out")

    def test_names_of_a_hub_and_folders_are_explained(self):
        result = hawser("llm", "--model", "EleutherAI/gpt-j-6B", "--prompt", "x")
        self.assertEqual(result.returncode, FAILED)
        for word in ("config.json", "tokenizer.json", "safetensors", "hawser model import"):
            self.assertIn(word, result.stderr)
        self.refused("config.json", "EleutherAI/gpt-j-6B")
        folder = publish(self.synth("llama"), self.dir / "m")
        result = hawser("model", "info", folder)
        self.assertIn(f"hawser model import {folder}", result.stderr)

    def test_wrong_usage(self):
        self.refused("import FOLDER", code=USAGE)
        self.refused("--type", self.dir, "--type", "Q8_0", code=USAGE)


if __name__ == "__main__":
    unittest.main()
