"""Trains anew from the seed for a while and compares the losses with the log in the tree: `python -m demo.train.reproduce`.

Ends with status 1 when a loss differs by more than 1 % (the log was written with one thread; more threads round differently).
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.train.train import default_folder

LOG = Path(__file__).with_name("log.jsonl")
TOLERANCE = 0.01


def losses(path: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--tokenizer", type=Path, default=default_folder() / "tokenizer.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(arguments.tokenizer, Path(folder) / "tokenizer.json")
        command = [sys.executable, "-m", "demo.train.train", "--folder", folder, "--threads", "1", "--log-steps", "10"]
        subprocess.run([*command, "--until", str(arguments.tokens)], check=True)
        anew = losses(Path(folder) / "train.jsonl")
    logged = losses(LOG)
    worst = 0.0
    for step in sorted(anew.keys() & logged.keys()):
        difference = abs(anew[step] / logged[step] - 1)
        worst = max(worst, difference)
        print(f"step {step}: {anew[step]:.5f}, logged {logged[step]:.5f}, {100 * difference:.2f} %")
    print(f"largest difference {100 * worst:.2f} %, allowed {100 * TOLERANCE:.0f} %")
    return 0 if anew.keys() & logged.keys() and worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
