"""Folders as models are published, made of a GGUF file of `hawser model synth`.

Reads GGUF and writes safetensors, config.json and tokenizer.json by the formats' own definitions, with
nothing of the importer: names, the order of rows in a head, transposed matrices."""

import json
import pathlib
import struct

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
           12: "<d"}
TYPES = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values[0]

    def text(self):
        size = self.take("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("<I"), self.take("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.take(SCALARS[kind])


def read_gguf(path):
    """Metadata, and tensors as (type, dims, bytes); dims[0] is contiguous."""
    r = Reader(pathlib.Path(path).read_bytes())
    assert r.data[:4] == b"GGUF"
    r.at = 8
    tensor_count, pair_count = r.take("<Q"), r.take("<Q")
    pairs = {}
    for _ in range(pair_count):
        key = r.text()
        pairs[key] = r.value(r.take("<I"))
    places = []
    for _ in range(tensor_count):
        name = r.text()
        dims = [r.take("<Q") for _ in range(r.take("<I"))]
        places.append((name, dims, r.take("<I"), r.take("<Q")))
    begin = (r.at + 31) // 32 * 32
    tensors = {}
    for name, dims, kind, offset in places:
        name_of, size = TYPES[kind]
        for dim in dims:
            size *= dim
        tensors[name] = (name_of, dims, r.data[begin + offset:begin + offset + size])
    return pairs, tensors


def rows_of(dims, data):
    rows = dims[1] if len(dims) > 1 else dims[0]
    size = len(data) // rows
    return [data[i * size:(i + 1) * size] for i in range(rows)]


def halves(dims, data, heads):
    """Adjacent pairs of rows of a head become halves."""
    rows = rows_of(dims, data)
    each = len(rows) // heads
    return b"".join(rows[h * each + i] for h in range(heads)
                    for i in [*range(0, each, 2), *range(1, each, 2)])


def transposed(dims, data, size):
    width, rows = dims
    return b"".join(data[(r * width + i) * size:(r * width + i + 1) * size]
                    for i in range(width) for r in range(rows))


LLAMA = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
         "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
GPTJ = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "output": "lm_head",
        "attn_norm": "ln_1", "attn_q": "attn.q_proj", "attn_k": "attn.k_proj", "attn_v": "attn.v_proj",
        "attn_output": "attn.out_proj", "ffn_up": "mlp.fc_in", "ffn_down": "mlp.fc_out"}
GPT2 = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
NAMES = {"llama": (LLAMA, "model.layers"), "qwen2": (LLAMA, "model.layers"),
         "gptj": (GPTJ, "transformer.h"), "gpt2": (GPT2, "h")}


def publish_name(arch, name):
    names, layers = NAMES[arch]
    parts = name.split(".")
    if parts[0] == "blk":
        return f"{layers}.{parts[1]}.{names[parts[2]]}.{parts[3]}"
    return f"{names[parts[0]]}.{parts[1]}"


def publish_tensor(arch, pairs, name, tensor):
    kind, dims, data = tensor
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(name.split(".")[-2])
    if arch == "llama" and heads:
        data = halves(dims, data, pairs[f"{arch}.attention.{heads}"])
    shape = dims[::-1]
    if arch == "gpt2" and name.startswith("blk.") and len(dims) == 2:
        data, shape = transposed(dims, data, len(data) // (dims[0] * dims[1])), dims
    return publish_name(arch, name), (kind, shape, data)


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text +
                                   b"".join(data for _, _, data in tensors.values()))


def config_of(arch, pairs, tensors):
    def of(key):
        return pairs[f"{arch}.{key}"]

    common = {"model_type": arch, "vocab_size": len(pairs["tokenizer.ggml.tokens"]),
              "bos_token_id": pairs["tokenizer.ggml.bos_token_id"],
              "eos_token_id": pairs["tokenizer.ggml.eos_token_id"]}
    if arch in ("llama", "qwen2"):
        return {**common, "num_hidden_layers": of("block_count"), "hidden_size": of("embedding_length"),
                "max_position_embeddings": of("context_length"),
                "intermediate_size": of("feed_forward_length"),
                "num_attention_heads": of("attention.head_count"),
                "num_key_value_heads": of("attention.head_count_kv"),
                "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
                "rope_theta": of("rope.freq_base"), "rope_scaling": None,
                "tie_word_embeddings": "output.weight" not in tensors}
    return {**common, "n_layer": of("block_count"), "n_embd": of("embedding_length"),
            "n_positions": of("context_length"), "n_inner": of("feed_forward_length"),
            "n_head": of("attention.head_count"),
            "layer_norm_epsilon": of("attention.layer_norm_epsilon"),
            **({"rotary_dim": of("rope.dimension_count")} if arch == "gptj" else {})}


QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def tokenizer_of(pairs):
    """The last tokens that are not normal are added ones; merges as pairs, as newer files have them."""
    tokens, types = pairs["tokenizer.ggml.tokens"], pairs["tokenizer.ggml.token_type"]
    pre = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    if pairs["tokenizer.ggml.pre"] == "qwen2":
        pre = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}
    return {"version": "1.0", "normalizer": None, "pre_tokenizer": pre, "post_processor": None,
            "added_tokens": [{"id": i, "content": tokens[i], "special": True}
                             for i, kind in enumerate(types) if kind == 3],
            "model": {"type": "BPE",
                      "vocab": {text: i for i, text in enumerate(tokens) if types[i] == 1},
                      "merges": [merge.split(" ") for merge in pairs["tokenizer.ggml.merges"]]}}


def publish(source, folder, files=1):
    """A folder of the model; in several safetensors files with an index when files is more than 1."""
    pairs, tensors = read_gguf(source)
    arch = pairs["general.architecture"]
    folder = pathlib.Path(folder)
    folder.mkdir()
    published = dict(publish_tensor(arch, pairs, name, t) for name, t in tensors.items())
    (folder / "config.json").write_text(json.dumps(config_of(arch, pairs, tensors)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_of(pairs)))
    if files == 1:
        write_safetensors(folder / "model.safetensors", published)
        return folder
    index, names = {}, list(published)
    for i in range(files):
        some = names[i::files]
        name = f"model-{i + 1:05}-of-{files:05}.safetensors"
        write_safetensors(folder / name, {key: published[key] for key in some})
        index.update({key: name for key in some})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder
