"""hawser model import: a published folder becomes the file that the same weights were taken from."""

import json
import pathlib
import resource
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import DONE, FAILED, HAWSER, USAGE, Case, hawser
from published import (publish, read_gguf, sentencepiece, values_of_mx, write_safetensors)

# What is published as: the architecture and what `model synth` is asked for.
KINDS = {"llama": ("llama", "tiny"), "mixtral": ("llama", "tiny-moe"), "qwen2": ("qwen2", "tiny"),
         "gptj": ("gptj", "tiny"), "gpt2": ("gpt2", "tiny"),
         "qwen3": ("qwen3", "tiny", "--rope", "yarn"), "qwen3moe": ("qwen3moe", "tiny"),
         "gemma2": ("gemma2", "tiny"), "gemma3": ("gemma3", "tiny", "--rope", "linear"),
         "phi3": ("phi3", "tiny", "--rope", "longrope"), "olmoe": ("olmoe", "tiny"),
         "mistral3": ("mistral3", "tiny", "--rope", "yarn"), "granite": ("granite", "tiny"),
         "starcoder2": ("starcoder2", "tiny"), "qwen2moe": ("qwen2moe", "tiny"),
         "granitemoe": ("granitemoe", "tiny"), "granitemoe-shared": ("granitemoe", "tiny-shared")}
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
            if tensor[0] == "MXFP4" and "_exps" not in name:
                tensor = ("F32", tensor[1], struct.pack(f"<{len(tensor[2]) // 17 * 32}f",
                                                        *values_of_mx(tensor[2])))
            self.assertEqual(got_tensors[name], tensor, name)
        for key, value in pairs.items():
            if key != "general.name" and isinstance(value, float):
                self.assertAlmostEqual(got_pairs.get(key, value), value, msg=key, places=6)
            elif key != "general.name":
                self.assertEqual(got_pairs.get(key, value), value, key)

    def text(self, model):
        """What random weights write is no UTF-8."""
        result = subprocess.run([HAWSER, "llm", "--model", model, "--prompt", PROMPT,
                                 "--decode_steps", "8"], capture_output=True, timeout=240)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result.stdout.split(b"\n\nprefill")[0]

    def test_every_architecture_becomes_what_it_was(self):
        for i, (kind, (arch, like, *more)) in enumerate(KINDS.items()):
            source = self.dir / f"{kind}.gguf"
            result = hawser("model", "synth", "-o", source, "--arch", arch, "--like", like, "--type",
                            "BF16" if i % 2 else "F32", *more)
            self.assertEqual(result.returncode, DONE, result.stderr)
            made = self.dir / f"{kind}-made.gguf"
            self.run_import(publish(source, self.dir / kind, kind=kind if kind == "mixtral" else None), made)
            self.same_model(source, made)
            self.assertEqual(self.text(made), self.text(source), kind)

    def test_experts_in_mxfp4_keep_their_bits(self):
        source = self.synth("gpt-oss", "--layers", "2", "--type", "MXFP4", "--rope", "yarn")
        made = self.dir / "made.gguf"
        folder = publish(source, self.dir / "m")
        self.run_import(folder, made)
        self.same_model(source, made)
        self.text(made)
        self.edit(folder / "config.json", lambda c: c.update(layer_types=["full_attention"] * 2))
        self.refused("layer 0 is of type full_attention", folder, self.dir / "out")

    def test_the_text_part_of_a_model_that_sees(self):
        source = self.synth("gemma3")
        folder = publish(source, self.dir / "m")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(
            {"model_type": "gemma3", "eos_token_id": config.pop("eos_token_id"), "text_config": config}))
        image = (folder / "model.safetensors").read_bytes()
        size = struct.unpack_from("<Q", image)[0]
        header = json.loads(image[8:8 + size])
        named = {f"language_model.{name}" if name != "__metadata__" else name: entry
                 for name, entry in header.items()}
        named["vision_tower.x"] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        text = json.dumps(named).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + image[8 + size:])
        self.run_import(folder, self.dir / "made")
        self.same_model(source, self.dir / "made")

    def spm_folder(self):
        """A model with a vocabulary of SentencePiece's kind, in both of its files."""
        folder = publish(self.synth("llama"), self.dir / "spm")
        made = ["\u2581t", "he", "\u2581the", "in", "\u2581\u2581", "er", "ing", "\u2581d", "og", "\u2581dog"]
        letters = sorted(set("".join(made)) | set("ox,;.12'sfurnbkOvghtidel"))
        pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3)]
        pieces += [(f"<0x{i:02X}>", 0, 6) for i in range(256)]
        pieces += [(text, -i, 1) for i, text in enumerate(made)]
        pieces += [(letter, -100 - i, 1) for i, letter in enumerate(letters)]
        pieces += [("\u2581\u2581\u2581", 0, 4)]
        (folder / "tokenizer.model").write_bytes(sentencepiece(pieces))
        vocab = {text: i for i, (text, _, _) in enumerate(pieces)}
        merges = [[text[:at], text[at:]] for text in made for at in range(1, len(text))
                  if text[:at] in vocab and text[at:] in vocab]
        tokenizer = {"added_tokens": [{"id": i, "content": text, "special": kind != 4}
                                      for i, (text, _, kind) in enumerate(pieces) if kind in (2, 3, 4)],
                     "normalizer": {"type": "Sequence", "normalizers": [
                         {"type": "Prepend", "prepend": "\u2581"},
                         {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                     "pre_tokenizer": None,
                     "post_processor": {"type": "TemplateProcessing", "single": [
                         {"SpecialToken": {"id": "<s>", "type_id": 0}}]},
                     "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>",
                               "vocab": vocab, "merges": merges}}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.edit(folder / "config.json", lambda c: c.update(bos_token_id=1, eos_token_id=2))
        return folder, pieces

    def test_sentencepiece_vocabularies(self):
        folder, pieces = self.spm_folder()
        model, tokenizer = folder / "tokenizer.model", folder / "tokenizer.json"
        both, from_json, alone = (self.dir / name for name in ("both", "json", "model"))
        self.run_import(folder, both)
        image, text = model.read_bytes(), tokenizer.read_text()
        model.unlink()
        self.run_import(folder, from_json)
        model.write_bytes(image)
        tokenizer.unlink()
        self.run_import(folder, alone)
        got = [read_gguf(path)[0] for path in (both, from_json, alone)]
        count = len(pieces)
        for pairs in got:
            self.assertEqual(pairs["tokenizer.ggml.model"], "llama")
            self.assertEqual(pairs["tokenizer.ggml.tokens"][:count],
                             [text.replace("\u2581", " ") if kind == 4 else text for text, _, kind in pieces])
            self.assertEqual(pairs["tokenizer.ggml.token_type"][:count + 1], [k for _, _, k in pieces] + [5])
            self.assertTrue(pairs["tokenizer.ggml.add_bos_token"])
            self.assertTrue(pairs["tokenizer.ggml.add_space_prefix"])
            self.assertEqual(pairs["tokenizer.ggml.unknown_token_id"], 0)
        self.assertEqual(got[0]["tokenizer.ggml.scores"][:count], [score for _, score, _ in pieces])
        self.assertEqual(self.text(both), self.text(from_json))
        self.assertEqual(self.text(both), self.text(alone))
        for damaged, phrase in ((image[:-3], "cut off"), (image[:-1] + b"\x80", "normalizer_spec"), (b"", "no pieces"),
                                (sentencepiece(pieces, algorithm=1), "other than BPE"),
                                (sentencepiece(pieces, joins_blanks=1), "one blank for several"),
                                (sentencepiece([("", 0, 1)]), "piece 0"),
                                (sentencepiece([("a", float("nan"), 1)]), "piece 0"),
                                (sentencepiece([("a", 0, 1)] * 513), "no number below 512")):
            model.write_bytes(damaged)
            self.refused(phrase, folder, self.dir / "out")
        model.unlink()
        for change, phrase in (
                (lambda t: t.update(normalizer={"type": "NFKC"}), "normalizer NFKC"),
                (lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"}]}),
                 "step 0 of its pre_tokenizer"),
                (lambda t: t["model"].update(merges=[["a", "zz"]]), "merge 0 makes no token")):
            tokenizer.write_text(text)
            self.edit(tokenizer, change)
            self.refused(phrase, folder, self.dir / "out")

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
                (config, lambda c: c.update(rope_scaling={"rope_type": "ntk"}), "rope scaling ntk"),
                (config, lambda c: c.update(hidden_act="gelu"), "hidden_act is not silu"),
                (tokenizer, lambda t: t["model"].update(type="Unigram"), "Unigram"),
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
        self.refused("download config.json, tokenizer.json", "EleutherAI/gpt-j-6B", self.dir / "out")

    def test_a_large_model_takes_little_memory(self):
        """Within less than one of its tensors."""
        if b"__asan_init" in pathlib.Path(HAWSER).read_bytes():
            self.skipTest("a sanitizer takes more than the model")
        source = self.dir / "large.gguf"
        hawser("model", "synth", "-o", source, "--layers", 1, "--width", 512, "--heads", 4, "--ffn", 8192,
               "--vocab", 300, "--type", "F32")
        limit = 12 << 20
        self.assertGreater(512 * 8192 * 4, limit)
        result = hawser("model", "import", publish(source, self.dir / "m"), self.dir / "made",
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))

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
