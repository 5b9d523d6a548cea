"""Recorded conversations replayed with `espalier bench agentic`: well-formed calls, IoU; and how many drafts of the MTP head hold."""

import json
from pathlib import Path

from demo.eval.client import Server, ids_of, is_well_formed_bash, output_of
from demo.eval.npy import rows_of
from demo.rows import write_lines
from demo.world import conversations, render

N_PROMPTS = 40  # whose replies are drafted
N_TOKENS = 24
STEPS = 3


def run(server: Server, split: str, seed: int, count: int, n_tasks: int, out: Path) -> dict:
    episodes = conversations.episodes(seed, split, count, (1, n_tasks))
    dataset = out / "replay.jsonl"
    write_lines(dataset, (row for episode in episodes for row in episode.rows()))
    words = ["--url", server.url, "--dataset", dataset, "--out", out / "replay", "--json"]
    result = json.loads(output_of(server.program, "bench", "agentic", *words))
    good, exact, n_replies = 0, 0, 0
    for episode in episodes:
        rows = episode.rows()
        messages = conversations.messages_of(rows)
        position = 2
        for turn in episode.turns:
            message = server.chat(messages[:position], [conversations.TOOL])
            good += is_well_formed_bash(message)
            made = [json.loads(call["function"]["arguments"]).get("command") for call in message.get("tool_calls") or []]
            exact += made == turn.commands
            n_replies += 1
            position += 1 + len(turn.results)
    return {
        "iou": result["iou"],
        "well_formed": round(good / n_replies, 5),
        "exact": round(exact / n_replies, 4),
        "replies": n_replies,
        "conversations": count,
    }


def acceptance(program: Path, model: Path, split: str, seed: int, out: Path, n_prompts: int = N_PROMPTS) -> dict:
    """Share of replies' tokens that the MTP head drafts right at depth 1, 2 and 3, each given that the earlier ones held."""
    if json.loads((model / "config.json").read_text())["mtp_num_hidden_layers"] == 0:
        return {}
    held, tried = [0] * STEPS, [0] * STEPS
    episodes = conversations.episodes(seed + 1, split, n_prompts, (1, 2))
    for number, episode in enumerate(episodes):
        text = prompt_text(episode, number % len(episode.turns))
        ids = ids_of(program, model, text)
        path = out / "prompt.json"
        path.write_text(json.dumps(ids))
        reply = json.loads(output_of(program, "eval", "greedy", model, "--ids", path, "-n", N_TOKENS))
        for start in range(0, len(reply) - STEPS, STEPS + 1):
            path.write_text(json.dumps(ids + reply[:start]))
            drafts = _drafts(program, model, path, reply[start], out / "drafts.npy")
            for depth in range(STEPS):
                tried[depth] += 1
                if drafts[depth] != reply[start + 1 + depth]:
                    break
                held[depth] += 1
    return {f"depth_{depth + 1}": round(held[depth] / tried[depth], 4) for depth in range(STEPS) if tried[depth]}


def prompt_text(episode: conversations.Episode, n_turns: int) -> str:
    """What a server renders before turn `n_turns` (from 0), thinking off."""
    text = render.system_text([conversations.TOOL], episode.system) + render.user_text(episode.user)
    for turn in episode.turns[:n_turns]:
        text += "".join(segment.text for segment in render.reply_segments(turn.reasoning, render.turn_body(turn.commands)))
        text += render.results_text(turn.results)
    return text + "<|im_start|>assistant\n" + render.NO_THINKING


def _drafts(program: Path, model: Path, ids: Path, following: int, out: Path) -> list[int]:
    """The ids the MTP head drafts after `following`."""
    output_of(program, "eval", "mtp", model, "--ids", ids, "--next", following, "--steps", STEPS, "--out", out)
    return argmax_rows(out.with_name("drafts.draft.npy"))


def argmax_rows(path: Path) -> list[int]:
    return [max(range(len(row)), key=row.__getitem__) for row in rows_of(path)]
