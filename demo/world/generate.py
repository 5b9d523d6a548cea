"""Writes the data sets of the world: `python -m demo.world.generate --out DIR`. Standard library only.

DIR/agent-SPLIT.jsonl are conversations for `espalier bench agentic`, DIR/single-SPLIT.jsonl requests for `espalier bench bfcl`,
DIR/calibration.jsonl whole chats of the training set for `espalier quantize --calib`.
"""

import argparse
from pathlib import Path

from demo.rows import write_lines
from demo.world import conversations, functions, names


def calibration(seed: int, count: int) -> list[dict]:
    """Chats {"messages", "tools"}: agent conversations, and requests with their replies, in turn."""
    agents = conversations.episodes(seed, "train", count, (1, 2))
    requests = functions.samples(seed, "train", count // len(functions.CATEGORIES))
    chats = [{"messages": conversations.messages_of(episode.rows()), "tools": [conversations.TOOL]} for episode in agents]
    return chats + [{"messages": [*row["messages"], functions.reply_message(row)], "tools": row["tools"]} for row in requests]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--requests", type=int, default=40, help="in each category")
    parser.add_argument("--tasks", type=int, default=2, help="most tasks in one conversation")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    chats = calibration(arguments.seed + 1, 40)
    write_lines(arguments.out / "calibration.jsonl", chats)
    for split in names.SPLITS:
        episodes = conversations.episodes(arguments.seed, split, arguments.conversations, (1, arguments.tasks))
        rows = [row for episode in episodes for row in episode.rows()]
        write_lines(arguments.out / f"agent-{split}.jsonl", rows)
        requests = functions.samples(arguments.seed, split, arguments.requests)
        write_lines(arguments.out / f"single-{split}.jsonl", requests)
        print(f"{split}: {len(episodes)} conversations, {len(requests)} requests")


if __name__ == "__main__":
    main()
