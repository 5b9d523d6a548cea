"""What the golden tests share: unpacked reference data, running `espalier eval`, and the limits of the comparison (model/README.md)."""
import json
import subprocess
import tarfile

import numpy as np


class Reference:
    """Unpacks checkpoints and reference files on first use: reference(name) -> (checkpoint folder, gold folder)."""

    def __init__(self, data, root):
        self.data = data
        self.root = root

    def __call__(self, name):
        if not (self.root / "ckpt" / name).exists():
            for archive, target in ((self.data / "ckpt" / f"{name}.tar.xz", "ckpt"), (self.data / f"gold_{name}.tar.xz", "gold")):
                with tarfile.open(archive) as file:
                    file.extractall(self.root / target)
        return self.root / "ckpt" / name, self.root / "gold" / name

    def tokens(self, name, key):
        """Prompt ids; quantised checkpoints share those of the one they were made from."""
        _, gold = self(name.split("-")[0])
        return json.loads((gold / "tokens.json").read_text())[key]


class Evaluate:
    """evaluate(command, checkpoint, ids, *options): runs `espalier eval` (float32 activations unless options say otherwise)."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    def run(self, *line):
        done = subprocess.run([str(part) for part in (self.program, "eval", *line)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __call__(self, command, checkpoint, ids, *options):
        ids_file = self.folder / "ids.json"
        ids_file.write_text(json.dumps(ids))
        acts = [] if "--acts" in options else ["--acts", "a32"]
        return self.run(command, checkpoint, "--ids", ids_file, *acts, *options)

    def logits(self, checkpoint, ids, *options):
        self("logits", checkpoint, ids, "--out", self.folder / "logits.npy", *options)
        return np.load(self.folder / "logits.npy")

    def linear(self, checkpoint, module, x, *options):
        np.save(self.folder / "x.npy", x.astype(np.float32))
        self.run("linear", checkpoint, "--module", module, "--in", self.folder / "x.npy", "--out", self.folder / "y.npy", *options)
        return np.load(self.folder / "y.npy")


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kl_mean(want, got):
    want, got = log_softmax(want.astype(np.float64)), log_softmax(got.astype(np.float64))
    return (np.exp(want) * (want - got)).sum(-1).mean()


def relative_rms(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert got.shape == want.shape
    return np.sqrt(((got - want) ** 2).mean() / (want**2).mean())


def check_logits(got, want):
    got = got.astype(np.float64).reshape(-1, want.shape[-1])
    want = want.astype(np.float64).reshape(-1, want.shape[-1])
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    difference = np.abs(got - want)
    assert difference.max() <= 1e-3
    assert np.sqrt((difference**2).mean()) <= 1e-4
    top = np.sort(want, -1)
    clear = top[:, -1] - top[:, -2] >= 2e-3
    assert (got.argmax(-1) == want.argmax(-1))[clear].all()
    assert kl_mean(want, got) <= 1e-6


def check_close(got, want):
    assert got.shape == want.shape
    difference = np.abs(got.astype(np.float64) - want)
    assert difference.max() <= 3e-4
    assert np.sqrt((difference**2).mean()) <= 5e-5
