"""Evaluates a model of the world on the held-out test set through `espalier serve`: `python -m demo.eval.evaluate MODEL --out DIR`.

Everything is greedy, thinking off, over HTTP. Agent turns are replayed by `espalier bench agentic` (well-formedness, IoU); requests for
one function call are scored by the rules of the accuracy phase (subset of single_turn.py); closed loops run the model's own commands in the
simulated shell. Writes DIR/report.json and prints it. Standard library only.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from demo.eval import closed_loop, replay, single_turn
from demo.eval.client import Server

GATES = {
    "well_formed": 0.995, "iou": 0.85, "closed_loop": 0.80, "single_turn": 0.90, "single_turn_category": 0.80, "irrelevance": 0.90,
    "acceptance_depth_1": 0.85, "acceptance_depth_3": 0.75,
}  # fmt: skip


def verdicts(report: dict) -> dict[str, bool]:
    """Which of the issue's figures hold; a figure that was not measured is not listed."""
    single = report["single_turn"]
    held = {
        "well_formed": report["replay"]["well_formed"] >= GATES["well_formed"],
        "iou": report["replay"]["iou"] >= GATES["iou"],
        "closed_loop": report["closed_loop"]["completed"] >= GATES["closed_loop"],
        "single_turn": single["overall"] >= GATES["single_turn"],
        "single_turn_category": min(single["categories"].values()) >= GATES["single_turn_category"],
        "irrelevance": single["categories"]["irrelevance"] >= GATES["irrelevance"],
    }
    for depth in (1, 3):
        share = report.get("acceptance", {}).get(f"depth_{depth}")
        if share is not None:
            held[f"acceptance_depth_{depth}"] = share >= GATES[f"acceptance_depth_{depth}"]
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--espalier", type=Path, default=Path("build/release/espalier"))
    parser.add_argument("--seed", type=int, default=1, help="of the test set")
    parser.add_argument("--split", default="test")
    parser.add_argument("--conversations", type=int, default=50, help="replayed, and as many closed loops")
    parser.add_argument("--requests", type=int, default=40, help="single-turn requests in each category")
    parser.add_argument("--tasks", type=int, default=2, help="most tasks in one conversation")
    parser.add_argument("--serve-options", default="", help="further options of `espalier serve`, e.g. '--kv-type fp8'")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    options = arguments.serve_options.split()
    with Server(arguments.espalier, arguments.model, arguments.out / "server.log", options) as server:
        report = {
            "model": str(arguments.model),
            "replay": replay.run(server, arguments.split, arguments.seed, arguments.conversations, arguments.tasks, arguments.out),
            "single_turn": single_turn.run(server, arguments.split, arguments.seed, arguments.requests, arguments.out),
            "closed_loop": closed_loop.run(server, arguments.split, arguments.seed, arguments.conversations, arguments.tasks, arguments.out),
        }
    report["acceptance"] = replay.acceptance(arguments.espalier, arguments.model, arguments.split, arguments.seed, arguments.out)
    report["held"] = verdicts(report)
    text = json.dumps(report, indent=1)
    (arguments.out / "report.json").write_text(text + "\n")
    print(text)
    return 0 if all(report["held"].values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        sys.exit(f"evaluate: {error}")
