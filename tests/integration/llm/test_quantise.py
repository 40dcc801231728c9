"""hawser model quantise: types of every tensor, the same bytes from any number of threads, refusals."""

import json
import os
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from harness import DONE, FAILED, USAGE, Case, hawser

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
PLAIN = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "Q2_K", "Q3_K",
         "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")
SANITIZED = "HAWSER_SANITIZED" in os.environ


class Quantise(Case):
    def synth(self, name="m", *args):
        path = self.dir / name
        result = hawser("model", "synth", "-o", path, "--like", "tiny", "--type", "F32", *args)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return path

    def quantise(self, source, name, *args):
        path = self.dir / name
        result = hawser("model", "quantise", source, path, "--type", name.split(".")[0], *args)
        self.assertEqual((result.returncode, result.stderr), (DONE, ""))
        return path

    def types(self, path):
        result = hawser("model", "info", path, "--json")
        self.assertEqual(result.returncode, DONE, result.stderr)
        return {name: t["tensors"] for name, t in json.loads(result.stdout)["types"].items()}

    def refused(self, code, phrase, *args):
        before = sorted(entry.name for entry in self.dir.iterdir())
        result = hawser("model", "quantise", *args)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(phrase, result.stderr)
        self.assertEqual(sorted(entry.name for entry in self.dir.iterdir()), before)

    def test_a_type_is_that_of_every_matrix(self):
        source = self.synth("m", "--ffn", 256, "--kv-heads", 1)
        # How each type packs a block is llm-dtype's to see in a sanitizer build.
        for name in ("BF16", "Q4_0") if SANITIZED else PLAIN:
            self.assertEqual(self.types(self.quantise(source, name)), {name: 15, "F32": 5})

    def test_quantize_is_the_same(self):
        source = self.synth()
        self.expect(hawser("model", "quantize", source, self.dir / "q", "--type", "Q8_0"), DONE)
        self.assertEqual((self.dir / "q").read_bytes(), self.quantise(source, "Q8_0").read_bytes())

    @unittest.skipIf(SANITIZED, "a smaller mixture is in test_threads_do_not_show")
    def test_mixtures(self):
        source = self.synth("m", "--layers", 16, "--ffn", 256, "--kv-heads", 1)
        # 16 layers of seven matrices, and the embedding, which is the output, too.  Sensitive layers:
        # 0, 1, 4, 7, 10, 13, 14, 15.
        mixtures = (
            ("Q3_K_M", {"Q3_K": 112 - 48, "Q4_K": 48 - 3, "Q5_K": 2 + 1, "Q6_K": 1}),
            ("Q4_K_M", {"Q4_K": 112 - 16, "Q6_K": 17}),
            ("Q5_K_S", {"Q5_K": 112, "Q6_K": 1}),
            ("Q4_K_S", {"Q4_K": 112 - 4 - 2, "Q5_K": 4 + 2, "Q6_K": 1}))
        for name, expected in mixtures:
            self.assertEqual(self.types(self.quantise(source, name)), {"F32": 33, **expected}, name)

    def test_rows_that_no_block_divides_get_another_type(self):
        source = self.synth("m", "--width", 96, "--heads", 3, "--ffn", 72)
        # ffn_down has rows of 72, the others of 96.
        others = (("Q4_K", "Q5_0"), ("Q5_K", "Q5_1"), ("Q6_K", "Q8_0"), ("Q2_K", "IQ4_NL"),
                  ("Q3_K", "IQ4_NL"), ("IQ4_XS", "IQ4_NL"), ("Q8_0", "Q8_0"))
        for name, instead in others[:1] if SANITIZED else others:
            self.assertEqual(self.types(self.quantise(source, name)),
                             {instead: 13, "F16": 2, "F32": 5})

    def test_threads_do_not_show(self):
        source = self.synth()
        one = self.quantise(source, "Q4_K_M.1", "--threads", 1).read_bytes()
        self.assertEqual(one, self.quantise(source, "Q4_K_M.5", "--threads", 5).read_bytes())

    @unittest.skipIf(SANITIZED, "how exact a type is, no sanitizer sees")
    def test_the_text_survives(self):
        def text(model):
            result = hawser("llm", "--model", model, "--prompt", "And God said", "--decode_steps", "12")
            self.assertEqual(result.returncode, DONE, result.stderr)
            return result.stdout.split("\n\n")[0]

        source = ROOT / "models/kjv.gguf"
        words = text(source).split()
        for name in ("Q4_K_M",):
            found = text(self.quantise(source, name)).split()
            self.assertEqual(found[:4], words[:4], name)
            for word in found:
                self.assertRegex(word, r"^[A-Za-z'-]+[,.:;?!]*$")

    def test_what_is_there_stays_unless_told(self):
        source = self.synth()
        target = self.dir / "there"
        target.write_text("mine")
        self.refused(FAILED, "--force", source, target, "--type", "Q8_0")
        self.assertEqual(target.read_text(), "mine")
        result = hawser("model", "quantise", source, target, "--type", "Q8_0", "--force")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(sorted(entry.name for entry in self.dir.iterdir()), ["m", "there"])
        result = hawser("model", "quantise", source, source, "--type", "Q8_0", "--force")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertEqual(source.read_bytes(), target.read_bytes())

    def test_refusals(self):
        source, target = self.synth(), self.dir / "out"
        self.refused(USAGE, "--type", source, target)
        self.refused(USAGE, "Q4_K_M", source, target, "--type", "Q4_K_XXL")
        self.refused(USAGE, "quantise FROM TO", source, "--type", "Q8_0")
        self.refused(FAILED, "No such file", self.dir / "none", target, "--type", "Q8_0")
        self.refused(FAILED, "No such file", source, self.dir / "no" / "m", "--type", "Q8_0")
        small = self.quantise(source, "Q4_0")
        self.refused(FAILED, "is Q4_0 already", small, target, "--type", "Q8_0")

    def test_a_number_that_is_not_finite(self):
        source = self.synth()
        image = bytearray(source.read_bytes())
        image[-4:] = struct.pack("<f", float("nan"))
        source.write_bytes(image)
        self.refused(FAILED, "not finite", source, self.dir / "out", "--type", "Q4_K")


if __name__ == "__main__":
    unittest.main()
