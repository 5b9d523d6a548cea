"""python -m demo.eval.picture TURNS.csv CONVERSATION OUT.svg: what each turn of a replayed conversation had to read, and what it found.

TURNS.csv is written by `espalier bench agentic` (build/demo/report/turns.csv after ./dev demo).
"""

import sys
from pathlib import Path

from demo.rows import read_turns

WIDTH, HEIGHT = 760, 250
LEFT, TOP, BOTTOM = 58, 34, 40
FOUND, READ = "#c9d8c5", "#2f6b3c"


def bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def drawing(turns: list[tuple[int, int]]) -> str:
    """turns: prompt tokens and those of them that were found in the cache."""
    top = max(prompt for prompt, _ in turns)
    scale = (HEIGHT - TOP - BOTTOM) / top
    step = (WIDTH - LEFT - 10) / len(turns)
    floor = HEIGHT - BOTTOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#333">',
             '<rect width="100%" height="100%" fill="#fff"/>']
    for tokens in range(0, top + 1, 200):
        y = floor - tokens * scale
        parts += [f'<path d="M{LEFT} {y:.1f}H{WIDTH - 10}" stroke="#e4e4e4"/>', text(LEFT - 8, y + 4, str(tokens), "end")]
    for number, (prompt, cached) in enumerate(turns):
        x = LEFT + number * step + step * 0.15
        parts.append(bar(x, floor - cached * scale, step * 0.7, cached * scale, FOUND))
        parts.append(bar(x, floor - prompt * scale, step * 0.7, (prompt - cached) * scale, READ))
        parts.append(text(x + step * 0.35, floor + 16, str(number + 1), "middle"))
    parts += [text(LEFT, HEIGHT - 6, "turn of one agent conversation"), bar(LEFT, 10, 12, 12, FOUND),
              text(LEFT + 18, 20, "prompt tokens found in the cache"), bar(LEFT + 250, 10, 12, 12, READ),
              text(LEFT + 268, 20, "prompt tokens computed")]
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    source, conversation, out = sys.argv[1:]
    rows = read_turns(Path(source))
    turns = [(int(row["prompt_tokens"]), int(row["cached_tokens"])) for row in rows if row["conversation"] == conversation]
    if not turns:
        print(f"picture: {source} has no conversation {conversation}", file=sys.stderr)
        return 1
    Path(out).write_text(drawing(turns), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
