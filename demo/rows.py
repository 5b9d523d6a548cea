"""Files of rows: data sets and replies as JSON lines, turns as the benchmark client writes them. Standard library only."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path


def write_lines(path: Path, rows: Iterable[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_turns(path: Path) -> list[dict[str, str]]:
    """Of a turns.csv."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
