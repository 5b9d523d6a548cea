"""Writes the trained state as a Hugging Face checkpoint folder that `espalier serve` loads: `python -m demo.train.convert --out DIR`.

BF16 weights, the official chat template, the world's tokenizer; the MTP head if it has been trained (mtp.pt).
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from demo.train.model import Shape
from demo.train.train import default_folder

TEMPLATE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "text" / "templates" / "qwen3.6.jinja"
CONTEXT = 32_768


def config(shape: Shape, stop_id: int, has_mtp: bool) -> dict:
    third = shape.rotary_dim // 6
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": stop_id,
        "full_attention_interval": 4,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "layer_types": ["full_attention" if shape.is_attention(i) else "linear_attention" for i in range(shape.num_hidden_layers)],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": shape.linear_key_head_dim,
        "linear_num_key_heads": shape.linear_num_key_heads,
        "linear_num_value_heads": shape.linear_num_value_heads,
        "linear_value_head_dim": shape.linear_value_head_dim,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": CONTEXT,
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": int(has_mtp),
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": shape.num_attention_heads,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_key_value_heads": shape.num_key_value_heads,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [shape.rotary_dim // 2 - 2 * third, third, third],
            "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
            "rope_theta": shape.rope_theta,
            "rope_type": "default",
        },
        "tie_word_embeddings": shape.is_tied,
        "vocab_size": shape.vocab_size,
    }


def stored(name: str, value: torch.Tensor) -> torch.Tensor:
    """BF16; the k norm on a grid of 1/64, so that half of 1 + w is a BF16 number as well (inflate.py needs it)."""
    if name.endswith("k_norm.weight"):
        value = (value * 64).round() / 64
    return value.bfloat16().contiguous()


def convert(folder: Path, out: Path) -> None:
    state = torch.load(folder / "state.pt", weights_only=True)
    shape = Shape(**state["shape"])
    tensors = {name if name.startswith("lm_head") else f"model.{name}": stored(name, value) for name, value in state["model"].items()}
    mtp = folder / "mtp.pt"
    if mtp.exists():
        tensors |= {f"mtp.{name}": stored(name, value) for name, value in torch.load(mtp, weights_only=True)["model"].items()}
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text_end, turn_end = (tokenizer.token_to_id(name) for name in ("<|endoftext|>", "<|im_end|>"))
    (out / "config.json").write_text(json.dumps(config(shape, text_end, mtp.exists()), indent=1) + "\n")
    generation = {"eos_token_id": [turn_end, text_end], "pad_token_id": text_end, "do_sample": False}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")
    shutil.copy(folder / "tokenizer.json", out / "tokenizer.json")
    shutil.copy(TEMPLATE, out / "chat_template.jinja")
    note = {"tokens_trained": state["tokens"], "replies_tokens_trained": state["marked"], "steps": state["step"]}
    (out / "training.json").write_text(json.dumps(note, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=default_folder())
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    convert(arguments.folder, arguments.out)
    print(f"{arguments.out}: written")


if __name__ == "__main__":
    main()
