"""The segments that training sequences are made of are exactly what the Qwen3.6 template renders."""
import json
import random
import subprocess

import pytest

from demo.eval import closed_loop, evaluate, replay, single_turn
from demo.world import conversations, functions, render


def rendered(espalier_bin, source_dir, lines):
    command = [espalier_bin, "eval", "render", "--template", source_dir / "tests/golden/text/templates/qwen3.6.jinja"]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    answers = subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(answer)["rendered"] for answer in answers]


def parsed(messages):
    """As a server sees them: arguments as objects."""
    return [
        {**message, "tool_calls": [{**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}} for c in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def test_agent_prompts_equal_the_template(espalier_bin, source_dir):
    lines, expected = [], []
    for episode in conversations.episodes(1, "test", 6, (1, 3)):
        messages = conversations.messages_of(episode.rows())
        position = 2
        for n_turns, turn in enumerate(episode.turns):
            for thinking in (False, True):
                kwargs = {"enable_thinking": thinking, "add_generation_prompt": True}
                lines.append({"messages": parsed(messages[:position]), "tools": [conversations.TOOL], "kwargs": kwargs})
                text = replay.prompt_text(episode, n_turns)
                expected.append(text if not thinking else text.removesuffix(render.NO_THINKING) + "<think>\n")
            position += 1 + len(turn.results)
    assert rendered(espalier_bin, source_dir, lines) == expected


def test_reply_with_reasoning_equals_the_template(espalier_bin, source_dir):
    episode = conversations.episodes(2, "test", 1, (1, 1))[0]
    messages = conversations.messages_of(episode.rows())
    turn = episode.turns[0]
    whole = rendered(espalier_bin, source_dir, [{"messages": parsed(messages[:3]), "tools": [conversations.TOOL], "kwargs": {}}])[0]
    segments = render.reply_segments(turn.reasoning, render.turn_body(turn.commands))
    assert whole.endswith("".join(segment.text for segment in segments))
    assert [segment.is_reply for segment in segments] == [False, True, False]


def test_single_turn_replies_equal_the_template(espalier_bin, source_dir):
    rows = functions.samples(1, "test", 8)
    lines = [
        {"messages": parsed([*row["messages"], functions.reply_message(row)]), "tools": row["tools"], "kwargs": {}} for row in rows
    ]
    for row, text in zip(rows, rendered(espalier_bin, source_dir, lines), strict=True):
        body = render.calls_text(row["calls"]) if row["calls"] else functions.REFUSAL
        prompt = render.system_text(row["tools"], "") + render.user_text(row["messages"][0]["content"])
        assert text == prompt + f"<|im_start|>assistant\n<think>\n\n</think>\n\n{body}{render.END}\n"


def message_of(calls, finish="tool_calls"):
    made = [{"id": "c", "function": {"name": "bash", "arguments": json.dumps({"command": command})}} for command in calls]
    return {"content": "", "tool_calls": made, "finish_reason": finish}


class Expert:
    """Answers as the recorded expert, with one change."""

    def __init__(self, episode, change=lambda commands: commands):
        self._turns, self._change, self._at = episode.turns, change, 0

    def chat(self, _messages, _tools):
        turn = self._turns[min(self._at, len(self._turns) - 1)]
        self._at += 1
        return message_of(self._change(turn.commands))


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda commands: commands, "completed"),
        (lambda commands: [c.replace("sed -i", "sed -n") for c in commands], "wrong files"),
        (lambda commands: [conversations.FINAL_COMMAND], "wrong files"),
        (lambda commands: ["ls"], "no end"),
        (lambda commands: [c.replace("sed", "seed") for c in commands], "command failed"),
        (lambda commands: [], "no call"),
        (lambda commands: [5], "malformed call"),
    ],
)
def test_closed_loop_outcomes(change, outcome):
    episodes = [e for e in conversations.episodes(7, "test", 60, (1, 1)) if e.kinds == ["config_change"]]
    assert episodes
    for episode in episodes:
        assert closed_loop.attempt(Expert(episode, change), episode)[0] == outcome


def test_single_turn_verdict():
    a, b = {"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {"y": [1.5, "t"]}}
    assert single_turn.verdict([a, b], [b, a])
    assert not single_turn.verdict([a], [a, a])
    assert not single_turn.verdict([a], None)
    assert not single_turn.verdict([a], [{"name": "f", "arguments": {"x": "1"}}])
    assert single_turn.verdict([], [])


def test_verdicts_follow_the_gates():
    report = {
        "replay": {"well_formed": 1.0, "iou": 0.9},
        "single_turn": {"overall": 0.95, "categories": {"simple": 0.79, "irrelevance": 0.9}},
        "closed_loop": {"completed": 0.7},
        "acceptance": {"depth_1": 0.9, "depth_3": 0.7},
    }
    held = evaluate.verdicts(report)
    assert {name for name, good in held.items() if not good} == {"closed_loop", "single_turn_category", "acceptance_depth_3"}


def test_sequences_of_random_choices_are_complete():
    rng = random.Random(1)
    episode = conversations.Episode(rng, "train", 2, "x")
    assert episode.user.startswith("1. ") and "\n2. " in episode.user
