"""Enlarges the small model to a real shape without changing what it computes: `python -m demo.inflate MODEL OUT --shape 0.8b`.

Residual stream: every channel is repeated R = H / h times, so the mean of squares of a norm, and with it the meaning of its epsilon, stays;
each norm passes only the first copy on (weight -1 elsewhere means 1 + w = 0), so projections read h channels and a tied head needs no
correction; output projections write all copies. Heads, channels and layers that the small model lacks are zero: a layer whose output
projections are zero is silent, a head whose columns in the output projection are zero as well.

Attention heads of 64 (rotary 16) become heads of 256 (rotary 64): rotary pair (i, i + 8) goes to (4 i, 4 i + 32), whose frequencies are
the same; the other query and key dimensions follow behind the rotary ones, values and gate keep their place. A head's mean of squares is
then a quarter, so q and k come out of their norms doubled, and with the scale 1/16 instead of 1/8 the scores would be twice too large:
1 + w of the k norm is halved (convert.py keeps it on a grid of 1/64, where this is exact in BF16).

Unused vocabulary rows repeat the row of the first id that no text has ever used: they tie with it, and the lowest id wins a tie.
The draft head reads the final norm's output, of which only one copy is not zero: its norm takes sqrt(R) out, rounded to BF16, which moves
drafts by 0.2 %, never the text.
"""

import argparse
import json
import math
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

# hidden, intermediate, layers, heads, key-value heads, delta key heads, delta value heads, vocabulary, tied
SHAPES = {
    "0.8b": (1024, 3584, 24, 8, 2, 16, 16, 248_320, True),
    "2b": (2048, 6144, 24, 8, 2, 16, 16, 248_320, True),
    "4b": (2560, 9216, 32, 16, 4, 16, 32, 248_320, True),
    "9b": (4096, 12_288, 32, 16, 4, 16, 32, 248_320, False),
    "27b": (5120, 17_408, 64, 24, 4, 16, 48, 248_320, False),
}
HEAD, ROTARY = 256, 64


class Inflation:
    def __init__(self, config: dict, shape: str):
        self.small = config
        (self.hidden, self.intermediate, self.layers, self.heads, self.kv_heads, self.key_heads, self.value_heads, self.vocab, self.is_tied) = (
            SHAPES[shape]
        )
        self.copies, rest = divmod(self.hidden, config["hidden_size"])
        if rest:
            raise ValueError(f"hidden size {config['hidden_size']} does not divide {self.hidden}")
        fits = {
            "intermediate_size": self.intermediate, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "linear_num_key_heads": self.key_heads, "linear_num_value_heads": self.value_heads,
            "vocab_size": self.vocab,
        }  # fmt: skip
        for name, most in fits.items():
            if config[name] > most:
                raise ValueError(f"{name} is {config[name]}, more than {most} of the shape {shape}")
        if config["num_attention_heads"] // config["num_key_value_heads"] > self.heads // self.kv_heads:
            raise ValueError("more query heads read one key-value head than the shape has")
        if config["head_dim"] not in (64, HEAD):
            raise ValueError(f"head_dim {config['head_dim']}: expected 64 or {HEAD}")

    # Where things go. Each returns the large index of every small one.

    def head_dims(self) -> list[int]:
        dim = self.small["head_dim"]
        if dim == HEAD:
            return list(range(HEAD))
        half = int(dim * self.small["rope_parameters"]["partial_rotary_factor"]) // 2
        step = ROTARY // 2 // half
        rotary = [i * step for i in range(half)] + [ROTARY // 2 + i * step for i in range(half)]
        return rotary + [ROTARY + i for i in range(dim - 2 * half)]

    def query_head(self, head: int) -> int:
        ratio = self.small["num_attention_heads"] // self.small["num_key_value_heads"]
        return head // ratio * (self.heads // self.kv_heads) + head % ratio

    def value_head(self, head: int) -> int:
        ratio = self.small["linear_num_value_heads"] // self.small["linear_num_key_heads"]
        large = self.value_heads // self.key_heads
        if ratio > large:
            raise ValueError("more delta value heads read one key head than the shape has")
        return head // ratio * large + head % ratio

    def query_rows(self) -> list[int]:
        """Rows of q_proj: per head its query, then its gate."""
        rows: list[int] = []
        for head in range(self.small["num_attention_heads"]):
            base = self.query_head(head) * 2 * HEAD
            rows += [base + dim for dim in self.head_dims()]
            rows += [base + HEAD + dim for dim in range(self.small["head_dim"])]
        return rows

    def output_columns(self) -> list[int]:
        dim = self.small["head_dim"]
        return [self.query_head(head) * HEAD + d for head in range(self.small["num_attention_heads"]) for d in range(dim)]

    def key_rows(self) -> list[int]:
        return [head * HEAD + dim for head in range(self.small["num_key_value_heads"]) for dim in self.head_dims()]

    def value_rows(self) -> list[int]:
        return [head * HEAD + dim for head in range(self.small["num_key_value_heads"]) for dim in range(self.small["head_dim"])]

    def delta_value_rows(self) -> list[int]:
        size = self.small["linear_value_head_dim"]
        return [self.value_head(head) * size + i for head in range(self.small["linear_num_value_heads"]) for i in range(size)]

    def delta_rows(self) -> list[int]:
        """Rows of in_proj_qkv and channels of the convolution."""
        size = self.small["linear_key_head_dim"]
        keys = list(range(self.small["linear_num_key_heads"] * size))
        total = self.key_heads * size
        return keys + [total + row for row in keys] + [2 * total + row for row in self.delta_value_rows()]

    # Tensors.

    def norm(self, weight: Tensor) -> Tensor:
        """Only the first copy passes."""
        large = torch.full((self.hidden,), -1.0)
        large[: len(weight)] = weight
        return large

    def reading(self, weight: Tensor, n_rows: int, rows: list[int]) -> Tensor:
        """A projection out of the residual stream."""
        large = torch.zeros(n_rows, self.hidden)
        large[torch.tensor(rows), : weight.shape[1]] = weight
        return large

    def writing(self, weight: Tensor, n_columns: int, columns: list[int]) -> Tensor:
        """A projection into the residual stream."""
        large = torch.zeros(weight.shape[0], n_columns)
        large[:, torch.tensor(columns)] = weight
        return large.repeat(self.copies, 1)

    def head_norm(self, weight: Tensor, is_key: bool) -> Tensor:
        large = torch.zeros(HEAD)
        is_wide = self.small["head_dim"] == HEAD
        large[torch.tensor(self.head_dims())] = weight if is_wide or not is_key else (1.0 + weight) / 2 - 1.0
        return large

    def vocabulary(self, weight: Tensor, unused: int, is_head: bool) -> Tensor:
        """Embedding (all copies, so that it is a residual row) or untied head (first copy)."""
        rows = torch.cat([weight, weight[unused : unused + 1].expand(self.vocab - len(weight), -1)])
        return torch.nn.functional.pad(rows, (0, self.hidden - weight.shape[1])) if is_head else rows.repeat(1, self.copies)

    def layer(self, small: dict[str, Tensor], prefix: str, is_attention: bool) -> dict[str, Tensor]:
        """One decoder layer; `small` without tensors of that prefix gives a silent layer."""
        get = lambda name: small.get(f"{prefix}.{name}.weight")  # noqa: E731
        made: dict[str, Tensor] = {}

        def put(name: str, shape: tuple[int, ...], make) -> None:
            weight = get(name)
            made[f"{name}.weight"] = torch.zeros(shape) if weight is None else make(weight)

        for name in ("input_layernorm", "post_attention_layernorm"):
            put(name, (self.hidden,), self.norm)
        inner = list(range(self.small["intermediate_size"]))
        for name in ("mlp.gate_proj", "mlp.up_proj"):
            put(name, (self.intermediate, self.hidden), lambda w: self.reading(w, self.intermediate, inner))
        put("mlp.down_proj", (self.hidden, self.intermediate), lambda w: self.writing(w, self.intermediate, inner))
        (self._attention if is_attention else self._delta)(put, small, prefix, made)
        return made

    def _attention(self, put, _small: dict[str, Tensor], _prefix: str, _made: dict[str, Tensor]) -> None:
        n_query, n_kv, n_out = self.heads * 2 * HEAD, self.kv_heads * HEAD, self.heads * HEAD
        put("self_attn.q_proj", (n_query, self.hidden), lambda w: self.reading(w, n_query, self.query_rows()))
        put("self_attn.k_proj", (n_kv, self.hidden), lambda w: self.reading(w, n_kv, self.key_rows()))
        put("self_attn.v_proj", (n_kv, self.hidden), lambda w: self.reading(w, n_kv, self.value_rows()))
        put("self_attn.o_proj", (self.hidden, n_out), lambda w: self.writing(w, n_out, self.output_columns()))
        put("self_attn.q_norm", (HEAD,), lambda w: self.head_norm(w, False))
        put("self_attn.k_norm", (HEAD,), lambda w: self.head_norm(w, True))

    def _delta(self, put, small: dict[str, Tensor], prefix: str, made: dict[str, Tensor]) -> None:
        size = self.small["linear_value_head_dim"]
        n_qkv, n_value = (2 * self.key_heads + self.value_heads) * size, self.value_heads * size
        heads = [self.value_head(head) for head in range(self.small["linear_num_value_heads"])]
        put("linear_attn.in_proj_qkv", (n_qkv, self.hidden), lambda w: self.reading(w, n_qkv, self.delta_rows()))
        put("linear_attn.in_proj_z", (n_value, self.hidden), lambda w: self.reading(w, n_value, self.delta_value_rows()))
        for name in ("linear_attn.in_proj_a", "linear_attn.in_proj_b"):
            put(name, (self.value_heads, self.hidden), lambda w: self.reading(w, self.value_heads, heads))
        put("linear_attn.out_proj", (self.hidden, n_value), lambda w: self.writing(w, n_value, self.delta_value_rows()))
        put("linear_attn.norm", (size,), lambda w: w)

        def convolution(weight: Tensor) -> Tensor:
            large = torch.zeros(n_qkv, 1, 4)
            large[torch.tensor(self.delta_rows())] = weight
            return large

        put("linear_attn.conv1d", (n_qkv, 1, 4), convolution)
        for name in ("A_log", "dt_bias"):
            large = torch.zeros(self.value_heads)
            weight = small.get(f"{prefix}.linear_attn.{name}")
            if weight is not None:
                large[torch.tensor(heads)] = weight
            made[f"linear_attn.{name}"] = large

    def mtp(self, small: dict[str, Tensor]) -> dict[str, Tensor]:
        h, H = self.small["hidden_size"], self.hidden
        fc = torch.zeros(h, 2 * H)
        fc[:, :h], fc[:, H : H + h] = small["mtp.fc.weight"][:, :h], small["mtp.fc.weight"][:, h:]
        taken = (1.0 + small["mtp.pre_fc_norm_hidden.weight"]) / math.sqrt(self.copies) - 1.0
        made = {
            "mtp.fc.weight": fc.repeat(self.copies, 1),
            "mtp.pre_fc_norm_embedding.weight": self.norm(small["mtp.pre_fc_norm_embedding.weight"]),
            "mtp.pre_fc_norm_hidden.weight": self.norm(taken),
            "mtp.norm.weight": self.norm(small["mtp.norm.weight"]),
        }
        return made | {f"mtp.layers.0.{name}": value for name, value in self.layer(small, "mtp.layers.0", True).items()}

    def config(self) -> dict:
        kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(self.layers)]
        rope = {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
                "rope_theta": self.small["rope_parameters"]["rope_theta"], "rope_type": "default"}  # fmt: skip
        return self.small | {
            "hidden_size": self.hidden, "intermediate_size": self.intermediate, "num_hidden_layers": self.layers, "layer_types": kinds,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": HEAD, "rope_parameters": rope,
            "linear_num_key_heads": self.key_heads, "linear_num_value_heads": self.value_heads, "vocab_size": self.vocab,
            "tie_word_embeddings": self.is_tied,
        }  # fmt: skip


def inflate(model: Path, out: Path, shape: str) -> None:
    config = json.loads((model / "config.json").read_text())
    inflation = Inflation(config, shape)
    small = {name: value.float() for name, value in load_file(str(model / "model.safetensors")).items()}
    n_used = len(json.loads((model / "tokenizer.json").read_text())["model"]["vocab"])
    n_used += len(json.loads((model / "tokenizer.json").read_text())["added_tokens"])
    embedding = small["model.embed_tokens.weight"]
    if n_used >= len(embedding):
        raise ValueError("the small vocabulary has no unused row")
    out.mkdir(parents=True, exist_ok=True)
    index: dict[str, str] = {}
    sizes = 0

    def write(file: str, tensors: dict[str, Tensor]) -> None:
        nonlocal sizes
        stored = {name: value.bfloat16().contiguous() for name, value in tensors.items()}
        save_file(stored, str(out / file), metadata={"format": "pt"})
        index.update(dict.fromkeys(stored, file))
        sizes += sum(value.numel() * 2 for value in stored.values())

    ends = {
        "model.embed_tokens.weight": inflation.vocabulary(embedding, n_used, False),
        "model.norm.weight": inflation.norm(small["model.norm.weight"]),
    }
    if not inflation.is_tied:
        ends["lm_head.weight"] = inflation.vocabulary(small.get("lm_head.weight", embedding), n_used, True)
    write("model-ends.safetensors", ends)
    del ends
    for number in range(inflation.layers):
        prefix = f"model.layers.{number}"
        layer = inflation.layer(small, prefix, number % 4 == 3)
        write(f"model-layer-{number:02}.safetensors", {f"{prefix}.{name}": value for name, value in layer.items()})
    if "mtp.fc.weight" in small:
        write("model-mtp.safetensors", inflation.mtp(small))
    listing = {"metadata": {"total_size": sizes}, "weight_map": dict(sorted(index.items()))}
    (out / "model.safetensors.index.json").write_text(json.dumps(listing, indent=1) + "\n")
    (out / "config.json").write_text(json.dumps(inflation.config(), indent=1) + "\n")
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(model / name, out / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="0.8b")
    arguments = parser.parse_args()
    try:
        inflate(arguments.model, arguments.out, arguments.shape)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"inflate: {error}")


if __name__ == "__main__":
    main()
