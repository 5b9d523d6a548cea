"""Agent conversations in the benchmark's own message rows: a user row, then assistant and tool rows in turn.

`Episode` is one conversation to be: file system, instruction, expert. It makes the recorded rows, and it judges a closed loop: the
goal is reached when the files are those the expert leaves behind.
"""

import copy
import json
import random
from dataclasses import dataclass, field

from demo.world.names import Names
from demo.world.shell import Shell
from demo.world.tasks import KINDS, Site, Task

SYSTEM = "You are an agent in a shell. Use the tool bash. Do the tasks in order, then run: echo COMPLETE"
LOOK_FIRST = " Start with ls and git log."
FINAL_COMMAND = "echo COMPLETE"
TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a bash command",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command"}},
            "required": ["command"],
        },
    },
}


def tool_text(status: int, output: str) -> str:
    return f"<returncode>{status}</returncode>\n<output>\n{output}</output>"


@dataclass
class Turn:
    reasoning: str
    commands: list[str]
    results: list[str] = field(default_factory=list)


class Episode:
    def __init__(self, rng: random.Random, split: str, n_tasks: int, name: str, may_look: bool = True):
        self.name = name
        self.shell = Shell()
        site = Site(rng, Names(rng, split), self.shell)
        for _ in range(rng.randint(1, 3)):
            site.distractor()
        kinds = rng.sample(list(KINDS), n_tasks)
        self.tasks: list[Task] = [KINDS[kind](site) for kind in kinds]
        self.look_first = may_look and rng.random() < 0.3
        self.goal, self.turns = self._record()

    @property
    def kinds(self) -> list[str]:
        return [task.kind for task in self.tasks]

    @property
    def system(self) -> str:
        return SYSTEM + (LOOK_FIRST if self.look_first else "")

    @property
    def user(self) -> str:
        if len(self.tasks) == 1:
            return self.tasks[0].instruction
        return "\n".join(f"{number}. {task.instruction}" for number, task in enumerate(self.tasks, 1))

    def fresh_shell(self) -> Shell:
        return copy.deepcopy(self.shell)

    def _record(self) -> tuple[dict[str, str], list[Turn]]:
        shell = self.fresh_shell()
        turns: list[Turn] = []

        def perform(reasoning: str, commands: list[str]) -> list[str]:
            outputs = [shell.run(command) for command in commands]
            turns.append(Turn(reasoning, commands, [tool_text(status, text) for status, text in outputs]))
            return [text for _, text in outputs]

        if self.look_first:
            perform("Look around first.", ["ls", "git log"])
        for task in self.tasks:
            expert = task.expert()
            step = next(expert, None)
            while step is not None:
                outputs = perform(*step)
                try:
                    step = expert.send(outputs)
                except StopIteration:
                    step = None
        turns.append(Turn("All is done.", [FINAL_COMMAND]))
        return shell.files, turns

    def rows(self) -> list[dict]:
        """The conversation as lines of the benchmark's data set (workload: user, then assistant and tool rows)."""
        user = {"role": "user", "content": self.user, "system": self.system, "tools": [TOOL]}
        rows = [user]
        n_calls = 0
        for turn in self.turns:
            calls = [_call(n_calls + i, command) for i, command in enumerate(turn.commands)]
            rows.append({"role": "assistant", "reasoning_content": turn.reasoning, "tool_calls": calls})
            if turn.results:
                results = [{"tool_call_id": call["id"], "content": text} for call, text in zip(calls, turn.results, strict=True)]
                rows.append({"role": "tool", "tool_results": results, "delay_seconds": 0.0})
            n_calls += len(calls)
        return [{"conversation_id": self.name, "turn": number, **row} for number, row in enumerate(rows, 1)]


def _call(number: int, command: str) -> dict:
    arguments = json.dumps({"command": command})
    return {"id": f"functions.bash:{number}", "type": "function", "function": {"name": "bash", "arguments": arguments}}


def messages_of(rows: list[dict]) -> list[dict]:
    """The chat messages a client makes of the rows (system, user, assistant, tool), as the benchmark's client does."""
    messages: list[dict] = []
    for row in rows:
        if row["role"] == "user":
            messages.append({"role": "system", "content": row["system"]})
            messages.append({"role": "user", "content": row["content"]})
        elif row["role"] == "assistant":
            messages.append({key: row[key] for key in ("role", "tool_calls", "reasoning_content")})
        else:
            for result in row["tool_results"]:
                messages.append({"role": "tool", "content": result["content"], "tool_call_id": result["tool_call_id"]})
    return messages


def episodes(seed: int, split: str, count: int, n_tasks: tuple[int, int]) -> list[Episode]:
    rng = random.Random(f"agent {split} {seed}")
    return [Episode(rng, split, rng.randint(*n_tasks), f"{split}_{number}") for number in range(count)]
