#!/usr/bin/env python3
"""./dev demo [--json FILE] [--turns A-B]: the main job once, end to end, with what a clean clone has.

Makes a small checkpoint with random weights (fixed seed), serves it, lets the benchmark client replay two recorded agent
conversations against it, and prints what was measured. The replies are noise by construction, so their score is printed as such;
times, token counts and the share of cached tokens are real.
"""
import argparse
import csv
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("ESPALIER_BIN", ROOT / "build" / "release" / "espalier"))
WORK = ROOT / "build" / "demo"
DATASET = ROOT / "demo" / "data" / "agentic_two.jsonl"
TOKENIZER = ROOT / "tests" / "golden" / "text" / "tokenizer" / "tiny" / "tokenizer.json"
TEMPLATE = ROOT / "tests" / "golden" / "text" / "templates" / "qwen3.6.jinja"
# The small tokenizer needs about twice the tokens of the real one; the longer conversation then ends near 45,000.
CONTEXT_TOKENS = 65536
START_SECONDS_MAX = 60


class DemoError(Exception):
    pass


def call(*arguments):
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise DemoError(f"espalier {arguments[0]} {arguments[1]} ended with exit code {done.returncode}")


def make_model():
    model = WORK / "model"
    if not (model / "config.json").exists():
        print("Making a small checkpoint with random weights ...", flush=True)
        call("eval", "make-model", "--shape", "tiny", "--format", "bf16", "--out", model, "--seed", "1", "--tokenizer", TOKENIZER)
    return model


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(model, port):
    """Starts the server and waits until it is ready. Its output goes to build/demo/server.log."""
    command = [PROGRAM, "serve", model, "--host", "127.0.0.1", "--port", port, "--ctx", CONTEXT_TOKENS, "--thinking", "off",
               "--chat-template", TEMPLATE]
    with open(WORK / "server.log", "wb") as log:
        server = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return server
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    stop_server(server)
    raise DemoError("the server did not become ready:\n" + (WORK / "server.log").read_text(errors="replace")[-2000:])


def stop_server(server):
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def read_turns(report):
    with open(report / "turns.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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


def run(options):
    WORK.mkdir(parents=True, exist_ok=True)
    model = make_model()
    port = free_port()
    server = start_server(model, port)
    report = WORK / "report"
    try:
        print("Replaying two recorded agent conversations ...", flush=True)
        turns_option = ["--turns", options.turns] if options.turns else []
        call("bench", "agentic", "--url", f"http://127.0.0.1:{port}", "--dataset", DATASET, "--out", report, "--replay-lengths", *turns_option)
    finally:
        stop_server(server)
    turns = read_turns(report)
    names = list(dict.fromkeys(turn["conversation"] for turn in turns))
    whole = summarise(turns)
    print()
    print_table([(name, summarise([turn for turn in turns if turn["conversation"] == name])) for name in names] + [("all", whole)])
    print("\nThe weights are random: replies are noise of the recorded length and their IoU says nothing. Times, token counts and the"
          "\ncached share are measured on a model of tiny size; they are not the speed of a real one.")
    print(f"All figures: {report.relative_to(ROOT)}")
    if options.json:
        result = {"iou": whole["iou"], "accuracy": None, "acceptance_depth1": None, "cached_share": whole["cached_share"],
                  "tokens_per_s": whole["tokens_per_s"], "weights": "random", **{key: whole[key] for key in whole}}
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(prog="./dev demo")
    parser.add_argument("--json", metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--turns", metavar="A-B", help="only these turns of each conversation")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the server is stopped too
    try:
        run(options)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
