"""Statistics of a set of recorded conversations (rows of the benchmark): predictability of replies, lengths of replies and results.

`python -m demo.eval.trace_statistics --dataset FILE --tokenizer tokenizer.json [--conversations N]`; without --dataset, of the world's test set.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from demo.world import conversations, predictability, render


def groups(rows: Iterator[dict]) -> Iterator[list[dict]]:
    group: list[dict] = []
    for row in rows:
        if group and row["conversation_id"] != group[0]["conversation_id"]:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def measure(all_rows: Iterator[list[dict]], tokenizer: Tokenizer) -> dict:
    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    replies: list[int] = []
    results: list[int] = []

    def turns(rows: list[dict]) -> Iterator[tuple[list[int], list[int]]]:
        new: list[int] = []
        for row in rows:
            if row["role"] == "user":
                new += ids(render.system_text(row["tools"], row["system"].strip()) + render.user_text(row["content"]))
            elif row["role"] == "tool":
                text = ids(render.results_text([result["content"] for result in row["tool_results"]]))
                results.append(len(text))
                new += text
            else:
                calls = [
                    {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])} for call in row["tool_calls"]
                ]
                body = render.calls_text(calls)
                head = ids("<|im_start|>assistant\n" + render.NO_THINKING)
                reply = ids(body + render.END)
                replies.append(len(reply))
                yield new + head, reply
                # The history then holds the recorded turn. Head and empty block stay in the index: a handful of tokens more.
                new = ids(f"{row['reasoning_content'].strip()}\n</think>\n\n{body}{render.END}\n")

    shares = predictability.of_conversations(turns(rows) for rows in all_rows)
    return {
        "suffix_percent": shares.percent(),
        "reply_tokens": {"mean": round(statistics.mean(replies), 1), "median": statistics.median(replies)},
        "result_tokens": {"mean": round(statistics.mean(results), 1), "median": statistics.median(results)},
        "replies": len(replies),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, help="rows of the benchmark as JSON lines")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=4, help="most tasks in one conversation of the world")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.dataset:
        with arguments.dataset.open() as file:
            all_rows = list(groups(json.loads(line) for line in file))[: arguments.conversations]
    else:
        episodes = conversations.episodes(arguments.seed, "test", arguments.conversations, (1, arguments.tasks))
        all_rows = [episode.rows() for episode in episodes]
    print(json.dumps(measure(iter(all_rows), Tokenizer.from_file(str(arguments.tokenizer)))))


if __name__ == "__main__":
    main()
