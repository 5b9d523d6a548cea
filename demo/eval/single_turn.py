"""Single-turn requests: one reply each, compared with the expected calls.

The verdict is stricter than the accuracy phase's: names, argument names, JSON types and values must be exactly those expected; the order
of calls is free, and the reply has to end by itself. `espalier bench bfcl` reads the data set written here (single_turn.jsonl) as well.
"""

import json
from pathlib import Path

from demo.eval.client import Server, calls_of
from demo.rows import write_lines
from demo.world import functions


def run(server: Server, split: str, seed: int, per_category: int, out: Path) -> dict:
    right = dict.fromkeys(functions.CATEGORIES, 0)
    rows = functions.samples(seed, split, per_category)
    write_lines(out / "single_turn.jsonl", rows)
    with (out / "single_turn_replies.jsonl").open("w") as file:
        for row in rows:
            message = server.chat(row["messages"], row["tools"])
            good = message["finish_reason"] != "length" and verdict(row["calls"], calls_of(message))
            right[row["subset"]] += good
            file.write(json.dumps({"id": row["sample_id"], "right": good, "reply": message}) + "\n")
    return {
        "overall": round(sum(right.values()) / len(rows), 4),
        "categories": {name: round(number / per_category, 4) for name, number in right.items()},
        "requests": len(rows),
    }


def verdict(expected: list[dict], found: list[dict] | None) -> bool:
    def key(call: dict) -> str:
        return json.dumps([call["name"], call["arguments"]], sort_keys=True)

    return found is not None and sorted(map(key, expected)) == sorted(map(key, found))
