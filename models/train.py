#!/usr/bin/env python3
"""Trains the small model that ships here, and writes it as GGUF.

    bible -f gen1:1-rev22:21 > kjv.txt          (Debian's bible-kjv; the text is in the public domain)
    models/train.py kjv.txt models/kjv.gguf [--minutes 8] [--seed 1]

A llama of 4 million parameters with a byte-level BPE vocabulary of its own, both learnt from that text.
Needs PyTorch and a GPU; some minutes of one make it write sentences.  Weights are stored as Q8_0,
norms as F32.  The last lines say how well it predicts verses that it was not trained on.
"""
import argparse
import collections
import math
import re
import struct
import sys
import time

import numpy as np

VOCAB = 1536
WIDTH, LAYERS, HEADS, KV_HEADS, FFN, CONTEXT = 224, 6, 7, 7, 608, 512
EPS, ROPE_BASE = 1e-5, 10000.0
END = "<|end|>"
# As GPT-2 cuts text, for text that is ASCII.
PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


# ---- text ----

def chapters(path):
    """The text of each chapter, a verse a line, without the references."""
    found = collections.OrderedDict()
    with open(path, encoding="ascii") as lines:
        for line in lines:
            where, _, verse = line.strip().partition(" ")
            found.setdefault(where.rpartition(":")[0], []).append(verse)
    return ["\n".join(verses) + "\n" for verses in found.values()]


def byte_names():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + len(names) - len(plain))
    return names


class Tokenizer:
    """Byte-level BPE, learnt from a text."""

    def __init__(self, text, size):
        names = byte_names()
        self.tokens = [names[b] for b in sorted(names, key=lambda b: ord(names[b]))]
        self.merges = []
        words = {tuple(names[b] for b in word.encode()): count
                 for word, count in collections.Counter(PIECES.findall(text)).items()}
        while len(self.tokens) < size - 1:
            pairs = collections.Counter()
            for word, count in words.items():
                for pair in zip(word, word[1:]):
                    pairs[pair] += count
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            self.merges.append(best)
            self.tokens.append(best[0] + best[1])
            words = {self._merge(word, best): count for word, count in words.items()}
        self.tokens.append(END)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.names = names
        self.rank = {pair: i for i, pair in enumerate(self.merges)}
        self.cache = {}

    @staticmethod
    def _merge(word, pair):
        out, i = [], 0
        while i < len(word):
            if word[i:i + 2] == pair:
                out.append(pair[0] + pair[1])
                i += 2
            else:
                out.append(word[i])
                i += 1
        return tuple(out)

    def _encode_piece(self, piece):
        if piece not in self.cache:
            word = tuple(self.names[b] for b in piece.encode())
            while len(word) > 1:
                best = min(zip(word, word[1:]), key=lambda pair: self.rank.get(pair, math.inf))
                if best not in self.rank:
                    break
                word = self._merge(word, best)
            self.cache[piece] = [self.ids[token] for token in word]
        return self.cache[piece]

    def encode(self, text):
        return [i for piece in PIECES.findall(text) for i in self._encode_piece(piece)]


# ---- the file ----

U32, F32, STRING, ARRAY, BOOL = 4, 6, 8, 9, 7
TYPE_F32, TYPE_Q8_0 = 0, 8


def text_bytes(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(kind, value):
    if kind == STRING:
        return text_bytes(value)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def q8_0(matrix):
    blocks = matrix.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    quants = np.round(blocks / np.where(scale == 0, 1, scale)).astype(np.int8)
    return b"".join(np.float16(s[0]).tobytes() + q.tobytes() for s, q in zip(scale, quants))


def write_gguf(path, tokenizer, weights):
    pairs = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "Hawser's King James"),
        ("llama.block_count", U32, LAYERS),
        ("llama.context_length", U32, CONTEXT),
        ("llama.embedding_length", U32, WIDTH),
        ("llama.feed_forward_length", U32, FFN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, EPS),
        ("llama.rope.dimension_count", U32, WIDTH // HEADS),
        ("llama.rope.freq_base", F32, ROPE_BASE),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokenizer.tokens)),
        # 1: normal, 3: control
        ("tokenizer.ggml.token_type", ARRAY,
         (5, [3 if token == END else 1 for token in tokenizer.tokens])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, [f"{a} {b}" for a, b in tokenizer.merges])),
        ("tokenizer.ggml.bos_token_id", U32, len(tokenizer.tokens) - 1),
        ("tokenizer.ggml.eos_token_id", U32, len(tokenizer.tokens) - 1),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
    ]
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(pairs)))
    for key, kind, value in pairs:
        out += text_bytes(key) + struct.pack("<I", kind)
        if kind == ARRAY:
            of, items = value
            out += struct.pack("<IQ", of, len(items))
            out += b"".join(text_bytes(i) if of == STRING else struct.pack("<i", i) for i in items)
        else:
            out += value_bytes(kind, value)
    data = bytearray()
    for name, matrix in weights.items():
        whole = matrix.ndim == 2
        out += text_bytes(name) + struct.pack("<I", matrix.ndim)
        out += b"".join(struct.pack("<Q", dim) for dim in reversed(matrix.shape))
        out += struct.pack("<IQ", TYPE_Q8_0 if whole else TYPE_F32, len(data))
        data += q8_0(matrix) if whole else matrix.astype(np.float32).tobytes()
        data += bytes(-len(data) % 32)
    out += bytes(-len(out) % 32)
    with open(path, "wb") as file:
        file.write(out + data)


# ---- the model ----

def make_model(torch):
    from torch import nn
    from torch.nn import functional as F
    head = WIDTH // HEADS

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weight

    def turn(x, angles):
        """Pairs (2i, 2i + 1), as the file format's llama has them."""
        even, odd = x[..., ::2], x[..., 1::2]
        cos, sin = angles
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn_norm, self.ffn_norm = Norm(), Norm()
            self.attn_q = nn.Linear(WIDTH, WIDTH, bias=False)
            self.attn_k = nn.Linear(WIDTH, KV_HEADS * head, bias=False)
            self.attn_v = nn.Linear(WIDTH, KV_HEADS * head, bias=False)
            self.attn_output = nn.Linear(WIDTH, WIDTH, bias=False)
            self.ffn_gate = nn.Linear(WIDTH, FFN, bias=False)
            self.ffn_up = nn.Linear(WIDTH, FFN, bias=False)
            self.ffn_down = nn.Linear(FFN, WIDTH, bias=False)
            self.drop = nn.Dropout(0.1)

        def forward(self, x, angles):
            n, t, _ = x.shape
            h = self.attn_norm(x)
            q, k, v = (f(h).view(n, t, -1, head).transpose(1, 2)
                       for f in (self.attn_q, self.attn_k, self.attn_v))
            h = F.scaled_dot_product_attention(turn(q, angles), turn(k, angles), v, is_causal=True)
            x = x + self.drop(self.attn_output(h.transpose(1, 2).reshape(n, t, WIDTH)))
            h = self.ffn_norm(x)
            return x + self.drop(self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token_embd = nn.Embedding(VOCAB, WIDTH)
            self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
            self.output_norm = Norm()
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids):
            at = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)
            rates = ROPE_BASE ** (-torch.arange(0, head, 2, device=ids.device) / head)
            angles = torch.outer(at, rates)
            x = self.token_embd(ids)
            for block in self.blk:
                x = block(x, (angles.cos(), angles.sin()))
            return F.linear(self.output_norm(x), self.token_embd.weight)

    return Model()


def train(ids, held_out, minutes, seed):
    """The weights by the file format's names."""
    import torch
    from torch.nn import functional as F
    torch.manual_seed(seed)
    model = make_model(torch).cuda()
    data, test = (torch.tensor(part, device="cuda") for part in (ids, held_out))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1, betas=(0.9, 0.95), weight_decay=0.1)
    begin, step = time.monotonic(), 0

    def loss_of(part, at):
        rows = torch.stack([part[i:i + CONTEXT + 1] for i in at])
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(rows[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())

    def test_loss():
        model.eval()
        with torch.no_grad():
            loss = loss_of(test, range(0, len(test) - CONTEXT - 1, CONTEXT)).item()
        model.train()
        return loss

    while (done := (time.monotonic() - begin) / (60 * minutes)) < 1:
        rate = 3e-3 * min(1, (step + 1) / 200) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss = loss_of(data, torch.randint(len(data) - CONTEXT - 1, (64,)).tolist())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimiser.step()
        if step % 500 == 0:
            print(f"step {step}: {loss.item():.3f}, held out {test_loss():.3f}", file=sys.stderr)
        step += 1
    print(f"{step} steps, held out {test_loss():.3f} nats a token", file=sys.stderr)
    weights = {}
    for name, value in model.state_dict().items():
        name = name if name.endswith(".weight") else f"{name}.weight"
        weights[name] = value.float().cpu().numpy()
    return weights


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("text")
    p.add_argument("output")
    p.add_argument("--minutes", type=float, default=8)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    texts = chapters(o.text)
    tokenizer = Tokenizer("".join(texts), VOCAB)
    end = tokenizer.ids[END]
    coded = [[end, *tokenizer.encode(text)] for text in texts]
    held = coded[::40]
    ids = [i for n, chapter in enumerate(coded) if n % 40 for i in chapter]
    print(f"{len(ids)} tokens, {sum(map(len, held))} held out", file=sys.stderr)
    write_gguf(o.output, tokenizer, train(ids, [i for c in held for i in c], o.minutes, o.seed))


if __name__ == "__main__":
    main()
