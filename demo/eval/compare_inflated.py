"""Compares an enlarged model with the small one it was made from: `python -m demo.eval.compare_inflated SMALL LARGE`.

Greedy replies to held-out prompts must be the same ids; where they part, the small model's two best logits must be closer than 0.1 (the
order of additions differs between the shapes). Every such place is listed. Standard library only.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from demo.eval.client import ids_of, output_of
from demo.eval.npy import rows_of
from demo.eval.replay import prompt_text
from demo.world import conversations

MARGIN = 0.1


def margin_after(program: Path, model: Path, ids: list[int], options: list[str], folder: Path) -> tuple[float, list[int]]:
    """Distance of the two best logits after `ids`, and the two ids."""
    (folder / "ids.json").write_text(json.dumps(ids))
    output_of(program, "eval", "logits", model, "--ids", folder / "ids.json", "--positions", "last", "--out", folder / "logits.npy", *options)
    logits = rows_of(folder / "logits.npy")[-1]
    best = sorted(range(len(logits)), key=lambda i: -logits[i])[:2]
    return logits[best[0]] - logits[best[1]], best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("small", type=Path)
    parser.add_argument("large", type=Path)
    parser.add_argument("--espalier", type=Path, default=Path("build/release/espalier"))
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--options", default="", help="for both models, e.g. '--acts ckpt --kv-type fp8'")
    arguments = parser.parse_args()
    options = arguments.options.split()
    n_same, n_close, n_wrong = 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, episode in enumerate(conversations.episodes(5, "test", arguments.prompts, (1, 2))):
            text = prompt_text(episode, number % len(episode.turns))
            ids = ids_of(arguments.espalier, arguments.small, text)
            (folder / "prompt.json").write_text(json.dumps(ids))
            words = ["--ids", folder / "prompt.json", "-n", arguments.tokens, *options]
            small, large = (json.loads(output_of(arguments.espalier, "eval", "greedy", m, *words)) for m in (arguments.small, arguments.large))
            if small == large:
                n_same += 1
                continue
            place = next(i for i, (a, b) in enumerate(zip(small, large, strict=True)) if a != b)
            margin, best = margin_after(arguments.espalier, arguments.small, ids + small[:place], options, folder)
            n_close += margin < MARGIN
            n_wrong += margin >= MARGIN
            print(f"prompt {number}: token {place} is {small[place]} and {large[place]}; best {best}, margin {margin:.4f}", flush=True)
    print(f"{n_same} the same, {n_close} part where the margin is below {MARGIN}, {n_wrong} part elsewhere")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
