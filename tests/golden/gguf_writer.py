"""Writes GGUF files for tests from Hugging Face folders of the qwen3_5 family, by the published layout (ggml's docs/gguf.md) and
llama.cpp's conventions: norms as 1 + w, ssm_a as -exp(A_log), value heads of a key head apart instead of side by side."""
import json
import math
import re
import struct

import numpy as np

U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
ALIGNMENT = 32
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30, "NVFP4": 40}
PACK = {U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}

BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
OTHER = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "mtp.fc.weight": "blk.{n}.nextn.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": "blk.{n}.nextn.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "blk.{n}.nextn.hnorm.weight",
    "mtp.norm.weight": "blk.{n}.nextn.shared_head_norm.weight",
}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    return string(item) if kind == STRING else struct.pack(PACK[kind], item)


def entry(key, kind, item):
    """One metadata entry; a list makes an array."""
    if isinstance(item, list):
        body = struct.pack("<IIQ", ARRAY, kind, len(item)) + b"".join(value(kind, one) for one in item)
    else:
        body = struct.pack("<I", kind) + value(kind, item)
    return string(key) + body


def write_file(path, metadata, tensors):
    """metadata: [(key, kind, value)]; tensors: [(name, type name, shape as in numpy, bytes)]."""
    infos, data = b"", bytearray()
    for name, type_name, shape, body in tensors:
        infos += string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        infos += struct.pack("<IQ", TYPES[type_name], len(data))
        data += body + b"\0" * (-len(body) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(entry(*item) for item in metadata) + infos
    path.write_bytes(head + b"\0" * (-len(head) % ALIGNMENT) + data)


def read_tensors(folder):
    """{normalised name: array} of a folder: BF16 and F32 as float32, codes and E4M3 scales as bytes; visual tensors left out."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, info in json.loads(data[8 : 8 + size]).items():
            name = re.sub(r"^(model\.|language_model\.)*", "", name)
            if name == "__metadata__" or name.startswith("visual."):
                continue
            begin, end = (8 + size + offset for offset in info["data_offsets"])
            if info["dtype"] == "BF16":
                values = (np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(data[begin:end], {"F32": "<f4", "U8": "u1", "F8_E4M3": "u1"}[info["dtype"]])
            tensors[name] = values.reshape(info["shape"])
    return tensors


def bf16(values):
    """Exact for values that came from BF16; else rounded to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def q8_0(values):
    """Blocks of 32: an F16 step (largest magnitude / 127) and 32 signed bytes."""
    blocks = values.reshape(-1, 32)
    step = np.abs(blocks).max(1) / 127
    codes = np.rint(np.divide(blocks, step[:, None], out=np.zeros_like(blocks), where=step[:, None] > 0))
    return np.concatenate([step.astype("<f2").view(np.uint8).reshape(-1, 2), codes.astype(np.int8).view(np.uint8)], 1).tobytes()


def values_of_q8_0(data):
    blocks = np.frombuffer(data, np.uint8).reshape(-1, 34)
    step = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    return (step * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)).astype("<f4")


def q4_0(values):
    """Blocks of 32: an F16 step (the value of largest magnitude is code -8) and 16 bytes of two codes."""
    blocks = values.reshape(-1, 32)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    step = largest / -8
    codes = np.clip(np.floor(np.divide(blocks, step, out=np.zeros_like(blocks), where=step != 0) + 8.5), 0, 15).astype(np.uint8)
    packed = codes[:, :16] | codes[:, 16:] << 4
    return np.concatenate([step.astype("<f2").view(np.uint8).reshape(-1, 2), packed], 1).tobytes()


ENCODE = {"F32": lambda values: values.astype("<f4").tobytes(), "F16": lambda values: values.astype("<f2").tobytes(),
          "BF16": bf16, "Q8_0": q8_0, "Q4_0": q4_0}


def tiled(array, n_key, n_value, begin, width):
    """Rows of Hugging Face's order (value heads of a key head side by side) in the file's (head s belongs to key head s % n_key)."""
    heads = array[begin:].reshape(n_key, n_value // n_key, width, -1)
    return np.concatenate([array[:begin], heads.swapaxes(0, 1).reshape(array[begin:].shape)])


def stored_values(name, values, config):
    """The values of a tensor as the file has them."""
    n_key, n_value = config["linear_num_key_heads"], config["linear_num_value_heads"]
    width = config["linear_value_head_dim"]
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight") or "layernorm" in name or "pre_fc_norm" in name:
        return values + np.float32(1)
    if name.endswith(".A_log"):
        values = np.array([-math.exp(float(one)) for one in values], np.float32)
    if name.endswith(".conv1d.weight"):
        values = values.reshape(values.shape[0], -1)
    if name.endswith((".A_log", ".dt_bias", ".in_proj_a.weight", ".in_proj_b.weight")):
        return tiled(values, n_key, n_value, 0, 1)
    if name.endswith(".in_proj_z.weight"):
        return tiled(values, n_key, n_value, 0, width)
    if name.endswith((".in_proj_qkv.weight", ".conv1d.weight")):
        return tiled(values, n_key, n_value, 2 * n_key * config["linear_key_head_dim"], width)
    if name.endswith(".out_proj.weight"):
        return np.ascontiguousarray(tiled(np.ascontiguousarray(values.T), n_key, n_value, 0, width).T)
    return values


def nvfp4(name, packed, scales, config):
    """(shape, bytes) from ModelOpt's codes (the even value in the low half) and scales: blocks of 64, per 16 values j with j + 8."""
    codes = stored_values(name, np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1), config)
    narrow = dict(config, linear_value_head_dim=config["linear_value_head_dim"] // 16)
    scales = stored_values(name, scales, narrow if name.endswith(".out_proj.weight") else config)
    groups = codes.reshape(-1, 4, 16)
    body = groups[..., :8] | groups[..., 8:] << 4
    return codes.shape, np.concatenate([scales.reshape(-1, 4), body.reshape(-1, 32)], 1).astype(np.uint8).tobytes()


def gguf_name(name, n_layers):
    if name in OTHER:
        return OTHER[name].format(n=n_layers)
    if name.startswith("mtp.layers.0."):
        return f"blk.{n_layers}.{BLOCK[name.removeprefix('mtp.layers.0.')]}"
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{BLOCK[rest]}"


def text_config(folder):
    config = json.loads((folder / "config.json").read_text())
    return config.get("text_config", config)


def config_metadata(config, n_mtp, eos):
    rope = config["rope_parameters"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    numbers = {
        "block_count": config["num_hidden_layers"] + n_mtp, "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"], "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
        "rope.dimension_count": int(config["head_dim"] * rope["partial_rotary_factor"]), "full_attention_interval": 4,
        "ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": key_dim, "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": config["linear_num_value_heads"], "ssm.inner_size": config["linear_num_value_heads"] * value_dim,
        "nextn_predict_layers": n_mtp,
    }
    entries = [("general.architecture", STRING, "qwen35")] + [(f"qwen35.{key}", U32, number) for key, number in numbers.items()]
    entries.append(("qwen35.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]))
    entries.append(("qwen35.rope.freq_base", F32, rope["rope_theta"]))
    entries.append(("tokenizer.ggml.eos_token_id", U32, eos))
    return entries


def tokenizer_metadata(folder, vocab, pre="qwen35"):
    """The tokenizer.json of a folder as metadata, and its chat template. Rows of the embedding without a token are unused."""
    source = json.loads((folder / "tokenizer.json").read_text())
    tokens, types = [f"[PAD{i}]" for i in range(vocab)], [5] * vocab
    for name, token in source["model"]["vocab"].items():
        tokens[token], types[token] = name, 1
    for added in source["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], 3 if added["special"] else 4
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in source["model"]["merges"]]
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, pre), ("tokenizer.ggml.tokens", STRING, tokens),
            ("tokenizer.ggml.token_type", I32, types), ("tokenizer.ggml.merges", STRING, merges),
            ("tokenizer.ggml.add_bos_token", BOOL, 0),
            ("tokenizer.chat_template", STRING, (folder / "chat_template.jinja").read_text())]


def convert(folder, matrices="BF16"):
    """(metadata, tensors) of a folder; matrices of the layers, the embedding and the head in the type given, the rest in F32. Matrices
    in NVFP4 stay so, with their second-level scales beside them; scales of keys and values have no place in the file."""
    config = text_config(folder)
    tensors = read_tensors(folder)
    n_layers = config["num_hidden_layers"]
    n_mtp = int("mtp.fc.weight" in tensors)
    generation = folder / "generation_config.json"
    eos = (json.loads(generation.read_text()) if generation.exists() else config)["eos_token_id"]
    metadata = config_metadata(config, n_mtp, eos[0] if isinstance(eos, list) else eos)
    out = []
    for name, values in tensors.items():
        stem, _, leaf = name.rpartition(".")
        if leaf in ("weight_scale", "k_scale", "v_scale"):
            continue
        if leaf in ("weight_scale_2", "input_scale"):
            scale = gguf_name(f"{stem}.weight", n_layers).removesuffix("weight") + {"weight_scale_2": "scale"}.get(leaf, leaf)
            out.append((scale, "F32", (1,), values.tobytes()))
            continue
        if values.dtype == np.uint8:
            shape, body = nvfp4(name, values, tensors[f"{stem}.weight_scale"], config)
            out.append((gguf_name(name, n_layers), "NVFP4", shape, body))
            continue
        stored = stored_values(name, values, config)
        is_matrix = stored.ndim == 2 and not name.endswith(".conv1d.weight")
        kind = matrices if is_matrix else "F32"
        out.append((gguf_name(name, n_layers), kind, stored.shape, ENCODE[kind](stored)))
    return metadata, out


def write_split(prefix, metadata, tensors, n_parts):
    """prefix-00001-of-0000n.gguf and so on; returns the paths. Only the first part has the model's metadata."""
    paths = []
    for part in range(n_parts):
        own = [("split.no", U16, part), ("split.count", U16, n_parts), ("split.tensors.count", I32, len(tensors))]
        path = prefix.with_name(f"{prefix.name}-{part + 1:05d}-of-{n_parts:05d}.gguf")
        write_file(path, (metadata if part == 0 else []) + own, tensors[part::n_parts])
        paths.append(path)
    return paths
