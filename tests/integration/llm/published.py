"""Folders as models are published, made of a GGUF file of `hawser model synth`.

Reads GGUF and writes safetensors, config.json and tokenizer.json by the formats' own definitions, with
nothing of the importer: names, the order of rows in a head, transposed matrices."""

import json
import pathlib
import struct

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
           12: "<d"}
TYPES = {8: ("Q8_0", 32, 34), 0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 39: ("MXFP4", 32, 17)}
MX_VALUES = (0, .5, 1, 1.5, 2, 3, 4, 6)


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
        name_of, block, size = TYPES[kind]
        for dim in dims:
            size *= dim
        size //= block
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
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
GPTJ = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "output": "lm_head",
        "attn_norm": "ln_1", "attn_q": "attn.q_proj", "attn_k": "attn.k_proj", "attn_v": "attn.v_proj",
        "attn_output": "attn.out_proj", "ffn_up": "mlp.fc_in", "ffn_down": "mlp.fc_out"}
GPT2 = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
GEMMA = {**LLAMA, "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
         "post_ffw_norm": "post_feedforward_layernorm"}
NAMES = {"gptj": GPTJ, "gpt2": GPT2, "gemma2": GEMMA, "gemma3": GEMMA,
         "mixtral": {**LLAMA, "ffn_gate_inp": "block_sparse_moe.gate"},
         "qwen2moe": {**LLAMA, "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
                      "ffn_up_shexp": "mlp.shared_expert.up_proj",
                      "ffn_down_shexp": "mlp.shared_expert.down_proj",
                      "ffn_gate_inp_shexp": "mlp.shared_expert_gate"},
         "granitemoe": {**LLAMA, "ffn_gate_inp": "block_sparse_moe.router.layer",
                        "ffn_down_exps": "block_sparse_moe.output_linear",
                        "ffn_down_shexp": "shared_mlp.output_linear"},
         "phi3": {**LLAMA, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
         "starcoder2": {**LLAMA, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
         "gpt-oss": {**LLAMA, "post_attention_norm": "post_attention_layernorm",
                     "ffn_gate_inp": "mlp.router"}}
LAYERS = {"gptj": "transformer.h", "gpt2": "h"}
EXPERTS = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}
IN_PAIRS = ("llama", "mixtral", "granite", "granitemoe", "mistral3")
MODEL_TYPES = {"qwen3moe": "qwen3_moe", "gemma3": "gemma3_text", "mistral3": "ministral3",
               "gpt-oss": "gpt_oss", "qwen2moe": "qwen2_moe"}


def publish_name(kind, name):
    names = NAMES.get(kind, LLAMA)
    parts = name.split(".")
    if parts[0] != "blk":
        return f"{names[parts[0]]}.{parts[1]}"
    layer = f"{LAYERS.get(kind, 'model.layers')}.{parts[1]}."
    if parts[2] == "attn_sinks":
        return layer + "self_attn.sinks"
    return f"{layer}{names[parts[2]]}.{parts[3]}"


def values_of_mx(data):
    out = []
    for at in range(0, len(data), 17):
        scale = 2.0 ** (data[at] - 127)
        nibbles = [b & 15 for b in data[at + 1:at + 17]] + [b >> 4 for b in data[at + 1:at + 17]]
        out += [(-scale if n & 8 else scale) * MX_VALUES[n & 7] for n in nibbles]
    return out


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def minus_one(data):
    return floats([x - 1 for (x,) in struct.iter_unpack("<f", data)])


def split_experts(kind, name, tensor):
    """One tensor of all experts as one of each."""
    dtype, dims, data = tensor
    _, layer, what, ending = name.split(".")
    each = len(data) // dims[2]
    folder, names = ("block_sparse_moe", MIXTRAL) if kind == "mixtral" else ("mlp", EXPERTS)
    for e in range(dims[2]):
        yield (f"model.layers.{layer}.{folder}.experts.{e}.{names[what.split('_')[1]]}.{ending}",
               (dtype, [dims[1], dims[0]], data[e * each:(e + 1) * each]))


def interleave(a, b):
    return b"".join(x for pair in zip(a, b, strict=True) for x in pair)


def chunks(data, size):
    return [data[at:at + size] for at in range(0, len(data), size)]


def mx_published(blocks):
    """Scales, and bytes that hold neighbours."""
    out = []
    for block in blocks:
        nibbles = [b & 15 for b in block[1:]] + [b >> 4 for b in block[1:]]
        out.append(bytes(nibbles[2 * i] | nibbles[2 * i + 1] << 4 for i in range(16)))
    return b"".join(out), bytes(block[0] for block in blocks)


def publish_oss_experts(tensors, layer):
    """gate and up in one tensor, row by row in turn."""
    base, out = f"model.layers.{layer}.mlp.experts.", {}
    kind, (width, rows, experts), gate = tensors[f"blk.{layer}.ffn_gate_exps.weight"]
    assert kind == "MXFP4"
    size = width // 32 * 17
    for name, rows, data in (
            ("gate_up_proj", 2 * rows, interleave(chunks(gate, size), chunks(
                tensors[f"blk.{layer}.ffn_up_exps.weight"][2], size))),
            ("down_proj", width, tensors[f"blk.{layer}.ffn_down_exps.weight"][2])):
        blocks, scales = mx_published(chunks(data, 17))
        shape = [experts, rows, len(scales) // experts // rows]
        out[f"{base}{name}_blocks"] = ("U8", [*shape, 16], blocks)
        out[f"{base}{name}_scales"] = ("U8", shape, scales)
    gate, up, down = (tensors[f"blk.{layer}.ffn_{which}_exps.bias"][2] for which in ("gate", "up", "down"))
    both = interleave(chunks(gate, 4), chunks(up, 4))
    out[base + "gate_up_proj_bias"] = ("F32", [experts, len(both) // 4 // experts], both)
    out[base + "down_proj_bias"] = ("F32", [experts, len(down) // 4 // experts], down)
    return out


def publish_joined(gate_name, out_name, tensors):
    """gate above up, in each matrix of a stack."""
    kind, dims, gate = tensors[gate_name]
    up = tensors[gate_name.replace("_gate_", "_up_")][2]
    size = len(gate) // (dims[2] if len(dims) > 2 else 1)
    shape = [*dims[2:], 2 * dims[1], dims[0]]
    return {out_name: (kind, shape, interleave(chunks(gate, size), chunks(up, size)))}


def publish_tensor(kind, pairs, name, tensor):
    dtype, dims, data = tensor
    arch = pairs["general.architecture"]
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}.get(name.split(".")[-2])
    if dtype == "MXFP4":
        dtype, data = "F32", floats(values_of_mx(data))
    if kind in IN_PAIRS and heads:
        data = halves(dims, data, pairs[f"{arch}.attention.{heads}"])
    if kind in ("gemma2", "gemma3") and "norm" in name:
        data = minus_one(data)
    if name.endswith("inp_shexp.weight"):
        dims = [*dims, 1]
    shape = dims[::-1]
    if kind == "gpt2" and name.startswith("blk.") and len(dims) == 2:
        data, shape = transposed(dims, data, len(data) // (dims[0] * dims[1])), dims
    return publish_name(kind, name), (dtype, shape, data)


def publish_tensors(kind, pairs, tensors):
    out = {}
    for name, tensor in tensors.items():
        if name.startswith("rope_"):
            continue
        if kind == "granitemoe" and ("_gate_" in name or "_up_" in name) and "_inp" not in name:
            if "_gate_" in name:
                part = "block_sparse_moe" if "_exps" in name else "shared_mlp"
                out.update(publish_joined(
                    name, f"model.layers.{name.split('.')[1]}.{part}.input_linear.weight", tensors))
        elif "_exps." not in name or kind == "granitemoe":
            out.update([publish_tensor(kind, pairs, name, tensor)])
        elif kind != "gpt-oss":
            out.update(split_experts(kind, name, tensor))
        elif "gate_exps.weight" in name:
            out.update(publish_oss_experts(tensors, name.split(".")[1]))
    return out


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text +
                                   b"".join(data for _, _, data in tensors.values()))


def scaling_of(arch, pairs, tensors):
    """rope_scaling of config.json."""
    kind = pairs.get(f"{arch}.rope.scaling.type")
    old = pairs.get(f"{arch}.rope.scaling.original_context_length")
    if kind is None:
        return None
    scaling = {"rope_type": kind, **({"original_max_position_embeddings": old} if old else {})}
    if kind != "longrope":
        return {**scaling, "factor": pairs[f"{arch}.rope.scaling.factor"]}
    lists = {f"{which}_factor": [x for (x,) in struct.iter_unpack("<f", tensors[
        f"rope_factors_{which}.weight"][2])] for which in ("long", "short")}
    return {**scaling, **lists, "attention_factor": pairs[f"{arch}.rope.scaling.attn_factor"]}


# A key of config.json, and that of GGUF; left out where the file has none.
SETTINGS = {"num_hidden_layers": "block_count", "hidden_size": "embedding_length",
            "max_position_embeddings": "context_length", "intermediate_size": "feed_forward_length",
            "num_attention_heads": "attention.head_count", "head_dim": "attention.key_length",
            "num_key_value_heads": "attention.head_count_kv",
            "rms_norm_eps": "attention.layer_norm_rms_epsilon",
            "norm_epsilon": "attention.layer_norm_epsilon", "rope_theta": "rope.freq_base",
            "rope_local_base_freq": "rope.freq_base_swa", "sliding_window": "attention.sliding_window",
            "num_experts_per_tok": "expert_used_count", "num_experts": "expert_count",
            "num_local_experts": "expert_count", "moe_intermediate_size": "expert_feed_forward_length",
            "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
            "shared_intermediate_size": "expert_shared_feed_forward_length",
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
            "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale", "attention_multiplier": "attention.scale"}


def config_of(kind, pairs, tensors):
    arch = pairs["general.architecture"]

    def of(key):
        return pairs[f"{arch}.{key}"]

    model_type = MODEL_TYPES.get(kind, kind)
    if kind == "granitemoe" and f"{arch}.expert_shared_feed_forward_length" in pairs:
        model_type = "granitemoeshared"
    common = {"model_type": model_type, "vocab_size": len(pairs["tokenizer.ggml.tokens"]),
              "bos_token_id": pairs["tokenizer.ggml.bos_token_id"],
              "eos_token_id": pairs["tokenizer.ggml.eos_token_id"]}
    if kind in ("gptj", "gpt2"):
        return {**common, "n_layer": of("block_count"), "n_embd": of("embedding_length"),
                "n_positions": of("context_length"), "n_inner": of("feed_forward_length"),
                "n_head": of("attention.head_count"), "activation_function": "gelu_new",
                "layer_norm_epsilon": of("attention.layer_norm_epsilon"),
                **({"rotary_dim": of("rope.dimension_count")} if kind == "gptj" else {})}
    settings = {ours: of(theirs) for ours, theirs in SETTINGS.items() if f"{arch}.{theirs}" in pairs}
    scaling = scaling_of(arch, pairs, tensors)
    if kind in ("gemma2", "gemma3"):
        settings.update(query_pre_attn_scalar=of("attention.key_length"),
                        hidden_activation="gelu_pytorch_tanh")
    else:
        settings.update(hidden_act="gelu_pytorch_tanh" if kind == "starcoder2" else "silu",
                        tie_word_embeddings="output.weight" not in tensors)
    if kind in ("qwen2moe", "qwen3moe", "olmoe"):
        settings["norm_topk_prob"] = kind == "qwen3moe"
    if kind == "phi3":
        settings["partial_rotary_factor"] = of("rope.dimension_count") / of("attention.key_length")
    if kind == "mistral3":
        return {**common, **settings, "rope_parameters": {
            **(scaling or {"rope_type": "default"}), "rope_theta": settings.pop("rope_theta"),
            "llama_4_scaling_beta": of("attention.temperature_scale")}}
    return {**common, **settings, "rope_scaling": scaling}


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


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def sentencepiece(pieces, algorithm=2, joins_blanks=0):
    """tokenizer.model: pieces are (text, score, type)."""
    out = b"".join(message(1, message(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) +
                           varint(3 << 3) + varint(kind)) for text, score, kind in pieces)
    return (out + message(2, varint(3 << 3) + varint(algorithm) + varint(99 << 3 | 1) + bytes(8)) +
            message(3, message(1, b"identity") + varint(4 << 3) + varint(joins_blanks)))


def publish(source, folder, files=1, kind=None):
    """A folder of the model; in several safetensors files with an index when files is more than 1.
    kind: mixtral, else the file's architecture."""
    pairs, tensors = read_gguf(source)
    kind = kind or pairs["general.architecture"]
    folder = pathlib.Path(folder)
    folder.mkdir()
    published = publish_tensors(kind, pairs, tensors)
    (folder / "config.json").write_text(json.dumps(config_of(kind, pairs, tensors)))
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
