"""python -m demo.eval.self_test MODEL [--program FILE]: writes MODEL/self_test.json, which `espalier serve` checks before it serves.

{"prompt": [ids], "reply": [ids]}: a held-out turn and the greedy reply to it. Every instruction set, format of activations and format of
keys and values has to give these very tokens, so a reply with a close decision in it is refused.
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

ROOT = Path(__file__).resolve().parents[2]
SEED = 6
TURN = 1  # a prompt with a tool's result in it
N_TOKENS = 24
LEAST_MARGIN = 4.0  # logits between the first and the second choice; NVFP4 and FP8 move them by a few tenths


def margins(program: Path, model: Path, prompt: list[int], reply: list[int], folder: Path) -> list[float]:
    """What each token of the reply is ahead of the next best one; negative where it is not the best."""
    ids, out = folder / "ids.json", folder / "logits.npy"
    ids.write_text(json.dumps(prompt + reply[:-1]))
    output_of(program, "eval", "logits", model, "--ids", ids, "--out", out)
    rows = rows_of(out)[len(prompt) - 1 :]
    return [row[token] - max(value for other, value in enumerate(row) if other != token) for row, token in zip(rows, reply)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "espalier")
    options = parser.parse_args()
    program, model = options.program, options.model
    episode = conversations.episodes(SEED, "test", 1, (2, 2))[0]
    prompt = ids_of(program, model, prompt_text(episode, TURN))
    with tempfile.TemporaryDirectory() as name:
        ids = Path(name) / "prompt.json"
        ids.write_text(json.dumps(prompt))
        reply = json.loads(output_of(program, "eval", "greedy", model, "--ids", ids, "-n", N_TOKENS))
        least = min(margins(program, model, prompt, reply, Path(name)))
    if least < LEAST_MARGIN:
        print(f"self_test: the closest decision of this reply is {least:.2f} logits, wanted {LEAST_MARGIN}: take another SEED", file=sys.stderr)
        return 1
    (model / "self_test.json").write_text(json.dumps({"prompt": prompt, "reply": reply}) + "\n")
    print(f"{len(prompt)} tokens of prompt, {len(reply)} of reply; closest decision {least:.2f} logits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
