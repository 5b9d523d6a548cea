"""Measures what drafts are worth: `python -m demo.eval.compare_drafts MODEL --drafts off auto mtp:steps=3,topk=1`.

Replays held-out agent conversations against a fresh server for each setting in turn, several times over (A B C A B C), and prints each
setting's decode speed and whole time as ratios to the first one of the same round: median and range. Replies must be the same in every
run. Meant for an enlarged model (demo.inflate), which speaks like the small one at the cost of a real one. Standard library only.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.eval.client import Server
from demo.rows import read_turns, write_lines
from demo.world import conversations

SEED = 1


def replies_of(report: Path) -> list[dict]:
    """Without the ids of calls, which are random."""
    replies = [json.loads(line) for line in (report / "replies.jsonl").read_text(encoding="utf-8").splitlines()]
    for reply in replies:
        for call in reply.get("tool_calls", []):
            call.pop("id", None)
    return replies


def figures_of(report: Path) -> dict[str, float]:
    turns = read_turns(report / "turns.csv")

    def total(column: str) -> float:
        return sum(float(turn[column] or 0) for turn in turns)

    decode_ms = total("total_ms") - total("ttft_ms")
    rounds = total("rounds")
    return {
        "tokens_per_s": 1000 * (total("output_tokens") - len(turns)) / decode_ms,
        "total_s": total("total_ms") / 1000,
        "tokens_per_round": total("output_tokens") / rounds if rounds else 0.0,
        "accepted": total("accepted") / max(1.0, total("drafted")),
    }


def replay(program: Path, model: Path, draft: str, bench_options: list, report: Path, options: list[str]) -> dict[str, float]:
    with Server(program, model, report.with_suffix(".log"), ["--draft", draft, *options]) as server:
        words = ["bench", "agentic", "--url", server.url, "--out", report, *bench_options]
        subprocess.run([str(word) for word in [program, *words]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return figures_of(report)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} .. {max(values):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--drafts", nargs="+", default=["off", "auto"], help="settings of --draft, the first is what others are compared with")
    parser.add_argument("--espalier", type=Path, default=Path("build/release/espalier"))
    parser.add_argument("--conversations", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replay-lengths", action="store_true", help="replies of the recorded lengths: for random weights, which no draft foresees")
    parser.add_argument("--options", default="", help="for every server, e.g. '--threads 2 --kv-type fp8'")
    arguments = parser.parse_args()
    seen: dict[str, list[dict[str, float]]] = {draft: [] for draft in arguments.drafts}
    expected = None
    n_wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = folder / "conversations.jsonl"
        episodes = conversations.episodes(SEED, "test", arguments.conversations, (2, 4))
        write_lines(dataset, (row for episode in episodes for row in episode.rows()))
        bench_options = ["--dataset", dataset, *(["--replay-lengths"] if arguments.replay_lengths else [])]
        for number in range(arguments.rounds):
            for draft in arguments.drafts:
                report = folder / f"report-{number}-{len(seen[draft])}-{arguments.drafts.index(draft)}"
                figures = replay(arguments.espalier, arguments.model, draft, bench_options, report, arguments.options.split())
                seen[draft].append(figures)
                replies = replies_of(report)
                expected = expected or replies
                n_wrong += replies != expected
                print(f"round {number + 1}, {draft}: {figures['tokens_per_s']:.1f} tokens/s, {figures['total_s']:.1f} s", file=sys.stderr, flush=True)
    base = seen[arguments.drafts[0]]
    print(f"{'draft':<36}{'decode, tokens/s':>18}{'decode, ratio':>24}{'whole time, ratio':>24}{'tokens/round':>14}{'accepted':>10}")
    for draft, runs in seen.items():
        speed = [run["tokens_per_s"] / first["tokens_per_s"] for run, first in zip(runs, base, strict=True)]
        time = [run["total_s"] / first["total_s"] for run, first in zip(runs, base, strict=True)]
        last = runs[-1]
        print(f"{draft:<36}{statistics.median(run['tokens_per_s'] for run in runs):>18.1f}{spread(speed):>24}{spread(time):>24}"
              f"{last['tokens_per_round']:>14.2f}{100 * last['accepted']:>9.0f} %")
    print("replies are the same in all runs" if n_wrong == 0 else f"replies differ in {n_wrong} runs")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
