"""Draws the training log as an SVG picture: `python -m demo.train.plot_log`. Standard library only."""

import json
import math
from pathlib import Path

LOG = Path(__file__).with_name("log.jsonl")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 60, 30, 45
LOSS_LEAST, LOSS_MOST = 0.003, 10.0


def x_of(tokens: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * tokens / most


def y_of_loss(loss: float) -> float:
    share = math.log(min(max(loss, LOSS_LEAST), LOSS_MOST) / LOSS_LEAST) / math.log(LOSS_MOST / LOSS_LEAST)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def y_of_share(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def line(points: list[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def text(x: float, y: float, words: str, colour: str = "#333", anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


def draw(rows: list[dict]) -> str:
    most = max(row["tokens"] for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for exponent in range(-2, 2):
        y = y_of_loss(10.0**exponent)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y + 4, f"{10.0**exponent:g}", "#1f5fa8", "end"))
    for tenth in range(0, 11, 2):
        parts.append(text(WIDTH - RIGHT + 8, y_of_share(tenth / 10) + 4, f"{10 * tenth} %", "#b0472c", "start"))
    stage = ""
    for row in rows:
        if row.get("stage", stage) != stage:
            stage = row["stage"]
            x = x_of(row["tokens"], most)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#bbb" stroke-dasharray="4 3"/>')
            parts.append(f'<text x="{x + 4:.1f}" y="{TOP + 12}" fill="#777" font-size="11">{stage}</text>')
    losses = [(x_of(row["tokens"], most), y_of_loss(row["loss"])) for row in rows if "loss" in row]
    parts.append(line(losses, "#1f5fa8"))
    for kind, colour in (("agent", "#b0472c"), ("single", "#d8a13a")):
        shares = [(x_of(row["tokens"], most), y_of_share(row["check"][kind])) for row in rows if "check" in row]
        parts.append(line(shares, colour))
    for million in range(0, int(most / 1e6) + 1, 2):
        parts.append(text(x_of(million * 1e6, most), HEIGHT - BOTTOM + 18, str(million)))
    parts.append(text(WIDTH / 2, HEIGHT - 8, "million tokens"))
    parts.append(text(LEFT, TOP - 12, "loss on reply tokens (blue, left)", "#1f5fa8", "start"))
    parts.append(text(WIDTH - RIGHT, TOP - 12, "whole validation replies right: agent (red), single-turn (yellow)", "#b0472c", "end"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    rows = [json.loads(line) for line in LOG.read_text().splitlines()]
    LOG.with_suffix(".svg").write_text(draw(rows))


if __name__ == "__main__":
    main()
