"""Closed loops: the model's commands run in the simulated shell until it says it is done; the goal is the expert's file system."""

import json
from collections import Counter
from pathlib import Path

from demo.eval.client import Server, calls_of, is_well_formed_bash
from demo.world import conversations

SPARE_TURNS = 6  # beyond what the expert needs


def run(server: Server, split: str, seed: int, count: int, n_tasks: int, out: Path) -> dict:
    outcomes: Counter[str] = Counter()
    by_task: dict[str, list[int]] = {}
    with (out / "closed_loop.jsonl").open("w") as file:
        for episode in conversations.episodes(seed, split, count, (1, n_tasks)):
            outcome, commands = attempt(server, episode)
            outcomes[outcome] += 1
            for kind in episode.kinds:
                tally = by_task.setdefault(kind, [0, 0])
                tally[0] += outcome == "completed"
                tally[1] += 1
            row = {"conversation_id": episode.name, "tasks": episode.kinds, "outcome": outcome, "commands": commands}
            file.write(json.dumps(row) + "\n")
    return {
        "completed": round(outcomes["completed"] / count, 4),
        "runs": count,
        "failures": {name: number for name, number in sorted(outcomes.items()) if name != "completed"},
        "completed_by_task": {kind: f"{good} of {all_}" for kind, (good, all_) in sorted(by_task.items())},
    }


def attempt(server: Server, episode: conversations.Episode) -> tuple[str, list[str]]:
    """How one run ended: completed, wrong files, malformed call, no call, command failed, no end."""
    shell = episode.fresh_shell()
    messages = [{"role": "system", "content": episode.system}, {"role": "user", "content": episode.user}]
    commands: list[str] = []
    failed = False
    for _ in range(len(episode.turns) + SPARE_TURNS):
        message = server.chat(messages, [conversations.TOOL])
        if not message.get("tool_calls"):
            return "no call", commands
        if not is_well_formed_bash(message):
            return "malformed call", commands
        done = False
        messages.append({"role": "assistant", "content": message.get("content") or "", "tool_calls": message["tool_calls"]})
        for call, parsed in zip(message["tool_calls"], calls_of(message) or [], strict=True):
            command = parsed["arguments"]["command"]
            commands.append(command)
            done |= command == conversations.FINAL_COMMAND
            status, output = shell.run(command)
            failed |= status in (2, 126, 127, 128) or "No such file" in output
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": conversations.tool_text(status, output)})
        if done:
            if shell.files == episode.goal:
                return "completed", commands
            return "command failed" if failed else "wrong files", commands
    return "no end", commands
