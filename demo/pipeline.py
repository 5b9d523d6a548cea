#!/usr/bin/env python3
"""The whole way from nothing to an evaluated small model, in stages.

    python3 demo/pipeline.py                      all stages that are not done yet
    python3 demo/pipeline.py train convert        these stages

Stages: setup (own Python environment), generate (data sets for the benchmark client and statistics), tokenizer, train, mtp, convert (BF16
checkpoint), quantise (NVFP4), evaluate (BF16 and NVFP4). Every stage can be stopped and called again; train and mtp go on where they were.
Everything is written below --folder (else $ESPALIER_DEMO_FOLDER, else the user's cache), nothing into the tree. README.md has the details.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-train"
STAGES = ("setup", "generate", "tokenizer", "train", "mtp", "convert", "quantise", "evaluate")


def default_folder() -> Path:
    given = os.environ.get("ESPALIER_DEMO_FOLDER")
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(cache) if cache else Path.home() / ".cache") / "espalier-demo"


class Pipeline:
    def __init__(self, arguments: argparse.Namespace):
        self.folder: Path = arguments.folder
        self.espalier: Path = arguments.espalier
        self.arguments = arguments
        self.folder.mkdir(parents=True, exist_ok=True)

    def python(self, module: str, *words: object, may_fail: bool = False) -> None:
        """Runs a module of the demo in its environment; two threads that sleep while they wait."""
        environment = os.environ | {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "CUDA_VISIBLE_DEVICES": ""}
        command = [str(ENVIRONMENT / "bin" / "python"), "-m", module, *map(str, words)]
        result = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if result.returncode and not may_fail:
            sys.exit(f"pipeline: {module} ended with status {result.returncode}")

    def setup(self) -> None:
        if not (ENVIRONMENT / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        requirements = ROOT / "demo" / "requirements-train.txt"
        subprocess.run([str(ENVIRONMENT / "bin" / "pip"), "install", "--quiet", "--requirement", str(requirements)], check=True)

    def generate(self) -> None:
        self.python("demo.world.generate", "--out", self.folder / "data")

    def tokenizer(self) -> None:
        path = self.folder / "tokenizer.json"
        if (self.folder / "state.pt").exists():
            print(f"tokenizer: kept, {self.folder / 'state.pt'} is trained with {path}")
            return
        self.python("demo.train.tokenizer", "--out", path)

    def train(self) -> None:
        self.python("demo.train.check_model")
        late = self.arguments.tokens * 3 // 4
        words = ["--until", self.arguments.tokens, "--decay-from", late, "--quantise-from", late]
        self.python("demo.train.train", "--folder", self.folder, *words)

    def mtp(self) -> None:
        self.python("demo.train.train_mtp", "--folder", self.folder)

    def convert(self) -> None:
        self.python("demo.train.convert", "--folder", self.folder, "--out", self.folder / "bf16")

    def quantise(self) -> None:
        target = self.folder / "nvfp4"
        shutil.rmtree(target, ignore_errors=True)
        words = [self.espalier, "quantize", self.folder / "bf16", target, "--recipe", "nvfp4", "--lm-head", "yes", "--kv", "fp8"]
        words += ["--calib", self.folder / "data" / "calibration.jsonl", "--report", self.folder / "nvfp4-report.json"]
        result = subprocess.run([str(word) for word in words], check=False)
        if result.returncode:
            sys.exit(f"pipeline: {self.espalier} quantize ended with status {result.returncode}")
        self.python("demo.eval.self_test", target, "--program", self.espalier, may_fail=True)

    def evaluate(self) -> None:
        for name, options in (("bf16", ""), ("nvfp4", "--kv-type fp8 --acts ckpt")):
            model = self.folder / name
            if not (model / "config.json").exists():
                print(f"evaluate: {model} does not exist, left out")
                continue
            words = ["--out", self.folder / f"evaluation-{name}", "--espalier", self.espalier, f"--serve-options={options}"]
            self.python("demo.eval.evaluate", model, *words, may_fail=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", help=f"which ones, in this order: {' '.join(STAGES)}; default: all")
    parser.add_argument("--folder", type=Path, default=default_folder())
    parser.add_argument("--espalier", type=Path, default=ROOT / "build" / "release" / "espalier")
    parser.add_argument("--tokens", type=int, default=16_000_000, help="tokens to train the trunk on")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.stages if name not in STAGES]
    if unknown:
        parser.error(f"no stage {unknown[0]!r}; stages: {' '.join(STAGES)}")
    pipeline = Pipeline(arguments)
    for name in STAGES:
        if not arguments.stages or name in arguments.stages:
            print(f"== {name}", flush=True)
            getattr(pipeline, name)()


if __name__ == "__main__":
    main()
