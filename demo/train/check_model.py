"""Compares the training model with the reference data of tests/golden/model: `python -m demo.train.check_model`."""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from demo.train.model import Model, Mtp, Shape

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "model"


def load_checkpoint(folder: Path) -> tuple[Model, Mtp]:
    """A model of this file's shape from a Hugging Face checkpoint folder."""
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    rope = config["rope_parameters"]
    shape = Shape(
        **{name: config[name] for name in Shape.__annotations__ if name in config and name != "rope_theta"},
        rotary_dim=int(config["head_dim"] * rope["partial_rotary_factor"]),
        rope_theta=rope["rope_theta"],
        is_tied=config["tie_word_embeddings"],
    )
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(str(file))
    trunk = {}
    draft = {}
    for name, value in tensors.items():
        if name.startswith("mtp."):
            draft[name[4:]] = value.float()
        elif "visual" not in name:
            trunk[name.replace("model.language_model.", "").removeprefix("model.")] = value.float()
    model, mtp = Model(shape), Mtp(shape)
    model.load_state_dict(trunk)
    mtp.load_state_dict(draft)
    return model, mtp


def difference(name: str, found: np.ndarray, expected: np.ndarray, limit: float) -> bool:
    worst = float(np.abs(found - expected).max())
    print(f"{name}: max difference {worst:.2e} (limit {limit:g})")
    return worst <= limit


def check(name: str, folder: Path) -> bool:
    for archive in (GOLDEN / "ckpt" / f"{name}.tar.xz", GOLDEN / f"gold_{name}.tar.xz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    files = {path.name: path for path in folder.rglob("*") if path.is_file()}
    model, mtp = load_checkpoint(files["config.json"].parent)
    tokens = json.loads(files["tokens.json"].read_text())
    good = True
    with torch.no_grad():
        for length in ("len1", "len5", "len65"):
            logits = model(torch.tensor([tokens[length]]))[0].numpy()
            good &= difference(f"{name} {length}", logits, np.load(files[f"logits_{length}.npy"]), 1e-3)
        if "logits_last_len700.npy" in files:
            logits = model(torch.tensor([tokens["len700"]]))[0, -1].numpy()
            good &= difference(f"{name} len700", logits, np.load(files["logits_last_len700.npy"]), 1e-3)
        prompt = tokens["mtp_prompt"]
        hidden = model.hidden(torch.tensor([prompt]))
        first = json.loads(files["mtp.json"].read_text())
        following = prompt[1:] + [int(model.head(hidden)[0, -1].argmax())]
        logits = model.head(mtp(model.embed_tokens(torch.tensor([following])), hidden))[0].numpy()
        good &= difference(f"{name} mtp ({', '.join(first)})", logits, np.load(files["mtp_prefill_logits.npy"]), 1e-3)
    return good


def main() -> int:
    good = True
    for name in ("tiny_a", "tiny_b"):
        with tempfile.TemporaryDirectory() as folder:
            good &= check(name, Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
