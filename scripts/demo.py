#!/usr/bin/env python3
"""./dev demo [--json FILE] [--full]: the main job once, end to end, with what a clean clone has.

Serves the built-in model, lets the benchmark client replay agent conversations that the model has not seen and ask single-turn
requests for function calls, and prints what was measured.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # not scripts/, where this file would hide the package
from demo.eval import replay  # noqa: E402
from demo.eval.client import Server, output_of  # noqa: E402
from demo.rows import read_turns, write_lines  # noqa: E402
from demo.world import conversations, functions  # noqa: E402

PROGRAM = Path(os.environ.get("ESPALIER_BIN", ROOT / "build" / "release" / "espalier"))
WORK = ROOT / "build" / "demo"
MODEL = ROOT / "demo" / "model"
SEED = 1
# Conversations, most tasks in one, requests in each category, prompts whose replies are drafted.
SIZES = {"short": (4, 4, 20, 10), "full": (50, 2, 40, 40)}


class DemoError(Exception):
    pass


def call(*arguments):
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise DemoError(f"espalier {arguments[0]} {arguments[1]} ended with exit code {done.returncode}")


def measure_accuracy(url, report):
    """{"overall", "subsets"} as shares."""
    result = json.loads(output_of(PROGRAM, "bench", "bfcl", "--url", url, "--dataset", WORK / "requests.jsonl", "--out", report, "--json"))
    return {"overall": result["overall"] / 100, "subsets": {name: value / 100 for name, value in result["breakdown"]["subset_scores"].items()}}


def write_test_set(n_conversations, n_tasks, n_requests):
    """Held-out data, the same in every run: names and values that no training text contains."""
    episodes = conversations.episodes(SEED, "test", n_conversations, (min(2, n_tasks), n_tasks))
    write_lines(WORK / "conversations.jsonl", [row for episode in episodes for row in episode.rows()])
    write_lines(WORK / "requests.jsonl", functions.samples(SEED, "test", n_requests))


def total(turns, column):
    return sum(float(turn[column] or 0) for turn in turns)


def summarise(turns):
    """What the table and the JSON show of some turns."""
    prompt = total(turns, "prompt_tokens")
    decode_s = (total(turns, "total_ms") - total(turns, "ttft_ms")) / 1000
    ttft = [float(turn["ttft_ms"]) for turn in turns if turn["ttft_ms"]]
    scores = [float(turn["iou"]) for turn in turns if turn["iou"]]
    return {
        "turns": len(turns),
        "prompt_tokens": int(prompt),
        "cached_tokens": int(total(turns, "cached_tokens")),
        "new_tokens": int(total(turns, "new_tokens")),
        "output_tokens": int(total(turns, "output_tokens")),
        "cached_share": total(turns, "cached_tokens") / prompt if prompt else 0.0,
        # The first token of a reply belongs to ttft.
        "tokens_per_s": max(0.0, total(turns, "output_tokens") - len(turns)) / decode_s if decode_s > 0 else 0.0,
        "ttft_ms_median": statistics.median(ttft) if ttft else None,
        "ttft_ms_max": max(ttft) if ttft else None,
        "iou": statistics.fmean(scores) if scores else None,
    }


def shown(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def print_table(rows):
    titles = ("conversation", "turns", "prompt tok", "cached", "new tok", "output tok", "ttft median", "ttft max", "tok/s", "IoU")
    cells = [titles]
    for name, row in rows:
        cells.append((name, shown(row["turns"], 0), shown(row["prompt_tokens"], 0), f"{100 * row['cached_share']:.1f} %",
                      shown(row["new_tokens"], 0), shown(row["output_tokens"], 0), shown(row["ttft_ms_median"], 0) + " ms",
                      shown(row["ttft_ms_max"], 0) + " ms", shown(row["tokens_per_s"], 0), shown(row["iou"], 3)))
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles))]
    for line in cells:
        print("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(line, widths))).rstrip())


def print_accuracy(accuracy):
    print("\nsingle-turn requests: " + ", ".join(
        f"{name} {100 * value:.0f} %" for name, value in accuracy["subsets"].items()) + f"; overall {100 * accuracy['overall']:.1f} %")


def run(options):
    WORK.mkdir(parents=True, exist_ok=True)
    n_conversations, n_tasks, n_requests, n_drafted = SIZES["full" if options.full else "short"]
    write_test_set(n_conversations, n_tasks, n_requests)
    report = WORK / "report"
    with Server(PROGRAM, options.model, WORK / "server.log", []) as server:
        print(f"Replaying {n_conversations} agent conversations that the model has not seen ...", flush=True)
        call("bench", "agentic", "--url", server.url, "--dataset", WORK / "conversations.jsonl", "--out", report)
        print(f"Asking {n_requests * len(functions.CATEGORIES)} single-turn requests for function calls ...", flush=True)
        accuracy = measure_accuracy(server.url, report)
        memory = server.peak_memory_mib()
    print("Drafting replies with the multi-token prediction head ...", flush=True)
    acceptance = replay.acceptance(PROGRAM, options.model, "test", SEED, WORK, n_drafted)
    turns = read_turns(report / "turns.csv")
    names = list(dict.fromkeys(turn["conversation"] for turn in turns))
    whole = summarise(turns)
    print()
    shown_names = names if len(names) <= 8 else []
    print_table([(name, summarise([turn for turn in turns if turn["conversation"] == name])) for name in shown_names] + [("all", whole)])
    print_accuracy(accuracy)
    print("drafts accepted: " + (", ".join(f"{name.replace('_', ' ')} {100 * share:.0f} %" for name, share in acceptance.items()) or "no head")
          + f"; peak memory of the server {memory:.0f} MiB")
    print("\nThe built-in model is tiny and knows one small world: its scores show that the path is right, not what a real model can do;\n"
          "its speed is not that of a real one.")
    print(f"All figures: {report.relative_to(ROOT)}")
    if options.json:
        result = {**whole, "accuracy": accuracy["overall"], "accuracy_by_category": accuracy["subsets"],
                  "acceptance_depth1": acceptance.get("depth_1"), "acceptance": acceptance, "peak_memory_mib": memory}
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(prog="./dev demo")
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--full", action="store_true", help="the whole test set, as in docs/PERFORMANCE.md")
    parser.add_argument("--model", type=Path, default=MODEL, help="another model of the world, e.g. a newly trained one")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is stopped too
    try:
        run(options)
    except (DemoError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
