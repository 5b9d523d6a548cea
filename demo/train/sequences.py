"""Training sequences: conversations of the world as token ids with a mark on every token the model has to produce.

Several replies share one prompt: an agent conversation marks every assistant turn, a set of functions answers several requests.
Assistant turns have either their reasoning or the empty block of "thinking off", at random, so one sequence trains both.
`Stage` is one step of the curriculum: which mixture, how long, with or without the constant part of the tools message.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from tokenizers import Tokenizer

from demo.world import conversations, functions, render
from demo.world.names import Names

POOL = 8  # batches made together and sorted by length, so that a batch's sequences are about equally long


@dataclass(frozen=True)
class Stage:
    name: str
    until: int  # tokens of training at which the next stage begins
    n_tasks: tuple[int, int]
    share_single: float  # part of the tokens in single-turn requests
    share_short: float  # part of the sequences without the constant instructions
    n_requests: tuple[int, int]  # requests that share one set of functions
    share_thinking: float = 0.3
    is_bare: bool = False  # copying first: no system message, only the first turns, one or two functions
    is_step: bool = False  # shorter still: one reply, the user's words and the last results; no functions declared
    first_weight: float = 1.0  # of a reply's first token, which decides between calling and refusing
    share_drill: float = 0.0  # part of the sequences that only ask to repeat names and numbers


STAGES = (
    Stage("single steps", 1_400_000, (1, 1), 0.4, 1.0, (1, 1), 0.2, is_bare=True, is_step=True, share_drill=0.4),
    Stage("copying", 2_400_000, (1, 1), 0.4, 1.0, (2, 4), is_bare=True, share_drill=0.1),
    Stage("one task", 4_500_000, (1, 1), 0.5, 1.0, (3, 5), first_weight=5.0),
    Stage("two tasks", 10_000_000, (1, 2), 0.55, 0.8, (2, 5), first_weight=5.0),
    Stage("many tasks", 12_000_000, (1, 4), 0.5, 0.6, (1, 4), first_weight=3.0),
    Stage("as served", 1 << 60, (1, 4), 0.5, 0.1, (1, 2), first_weight=2.0),
)


def stage_at(tokens: int) -> Stage:
    return next(stage for stage in STAGES if tokens < stage.until)


class Encoder:
    def __init__(self, path: str):
        self._tokenizer = Tokenizer.from_file(path)
        self.vocab_size = self._tokenizer.get_vocab_size()
        self._cached = lru_cache(maxsize=20_000)(lambda text: tuple(self._tokenizer.encode(text).ids))

    def ids(self, text: str) -> tuple[int, ...]:
        return self._cached(text)

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def sequence(self, segments: list[render.Segment]) -> tuple[np.ndarray, np.ndarray]:
        """Ids and, for each, whether the model has to produce it."""
        ids: list[int] = []
        marks: list[bool] = []
        for segment in segments:
            encoded = self.ids(segment.text)
            ids.extend(encoded)
            marks.extend([segment.is_reply] * len(encoded))
        return np.array(ids, np.int64), np.array(marks, bool)


def agent_segments(
    rng: random.Random, episode: conversations.Episode, is_short: bool, share_thinking: float, is_bare: bool = False
) -> list[render.Segment]:
    system = "" if is_bare else render.system_text([conversations.TOOL], episode.system, is_short)
    segments = [render.Segment(system, False), render.Segment(render.user_text(episode.user), False)]
    for turn in episode.turns[: 3 if is_bare else None]:
        reasoning = turn.reasoning if rng.random() < share_thinking else None
        segments += render.reply_segments(reasoning, render.turn_body(turn.commands))
        if turn.results:
            segments.append(render.Segment(render.results_text(turn.results), False))
    return segments


def step_segments(rng: random.Random, episode: conversations.Episode, share_thinking: float) -> list[render.Segment]:
    """One turn of a conversation after the task and the results of the turn before."""
    number = rng.randrange(len(episode.turns))
    segments = [render.Segment(render.user_text(episode.user), False)]
    if number:
        segments.append(render.Segment(render.results_text(episode.turns[number - 1].results), False))
    turn = episode.turns[number]
    reasoning = turn.reasoning if rng.random() < share_thinking else None
    return segments + render.reply_segments(reasoning, render.turn_body(turn.commands))


DRILL_FORMS = {
    "plain": " {}", "path": " ./{}", "file": " ./data/{}.txt", "quoted": " '{}'", "string": ' "{}"', "pattern": " s/{}/", "value": "={}", "line": "\n{}"
}  # fmt: skip


def drill_segments(rng: random.Random, split: str) -> list[render.Segment]:
    """Repeat a few names and numbers, in order, in the form that the user asks for: nothing but copying, in every reply token."""
    names = Names(rng, split)
    items: list[str] = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.random()
        name = names.draw()
        if kind < 0.2:
            name = str(rng.randint(1, 999) / rng.choice((1, 1, 10)))
        items.append(name.replace("_", " ") if kind > 0.75 else name)
    asked = rng.choice(list(DRILL_FORMS))
    shown = "".join(rng.choice(list(DRILL_FORMS.values())).format(item) for item in items)
    reply = "".join(DRILL_FORMS[asked].format(item) for item in items)
    return [render.Segment(render.user_text(f"Repeat as {asked}:{shown}"), False), *render.reply_segments(None, reply)]


def single_segments(rng: random.Random, all_functions: list[functions.Function], split: str, stage: Stage) -> list[render.Segment]:
    """Several requests for one set of functions. As a server renders it only the last reply has an empty reasoning block; here all."""
    weights = {"simple": 1, "multiple": 1, "parallel": 4, "parallel_multiple": 3, "irrelevance": 1}
    n_tools = rng.randint(1, 2 if stage.is_bare else 4)
    tools = rng.sample(all_functions, n_tools)
    is_short = rng.random() < stage.share_short
    system = "" if stage.is_step else render.system_text([tool.tool() for tool in tools], "", is_short)
    segments = [render.Segment(system, False)]
    for _ in range(rng.randint(*stage.n_requests)):
        category = "simple" if stage.is_step else rng.choices(list(weights), weights=list(weights.values()))[0]
        row = functions.request(rng, tools, split, category)
        segments.append(render.Segment(render.user_text(row["messages"][0]["content"]), False))
        reasoning = None
        if rng.random() < stage.share_thinking:
            reasoning = functions.reasoning(row)
        body = render.calls_text(row["calls"]) if row["calls"] else functions.REFUSAL
        segments += render.reply_segments(reasoning, body)
    return segments


class Stream:
    """Batches by number, the same for the same seed: a pool of sequences is made, sorted by length and cut into `POOL` batches."""

    def __init__(self, encoder: Encoder, seed: int, batch_tokens: int, split: str = "train"):
        self._encoder = encoder
        self._seed = seed
        self._batch_tokens = batch_tokens
        self._split = split
        self._functions = functions.catalogue(split)

    def pool(self, number: int, stage: Stage) -> list[tuple[np.ndarray, np.ndarray]]:
        """`POOL` batches (ids, marks), each [n, length], padded with zeros on the right."""
        rng = random.Random(f"{self._split} {self._seed} {number}")
        sequences: list[tuple[np.ndarray, np.ndarray]] = []
        counts = [0, 0]
        budget = self._batch_tokens * POOL
        while sum(counts) < budget:
            is_single = counts[1] < stage.share_single * sum(counts)
            sequence = self._encoder.sequence(self._segments(rng, stage, is_single))
            sequences.append(sequence)
            counts[is_single] += len(sequence[0])
        sequences.sort(key=lambda sequence: len(sequence[0]))
        batches: list[tuple[np.ndarray, np.ndarray]] = []
        group: list[tuple[np.ndarray, np.ndarray]] = []
        done = 0
        for sequence in sequences:
            group.append(sequence)
            done += len(sequence[0])
            if done >= budget * (len(batches) + 1) / POOL:
                batches.append(_padded(group))
                group = []
        if group:
            batches.append(_padded(group))
        rng.shuffle(batches)
        return batches

    def _segments(self, rng: random.Random, stage: Stage, is_single: bool) -> list[render.Segment]:
        if rng.random() < stage.share_drill:
            return drill_segments(rng, self._split)
        if is_single:
            return single_segments(rng, self._functions, self._split, stage)
        episode = conversations.Episode(rng, self._split, rng.randint(*stage.n_tasks), "", may_look=not stage.is_bare)
        if stage.is_step:
            return step_segments(rng, episode, stage.share_thinking)
        return agent_segments(rng, episode, rng.random() < stage.share_short, stage.share_thinking, stage.is_bare)


def _padded(group: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    length = -(-max(len(ids) for ids, _ in group) // 16) * 16
    ids = np.zeros((len(group), length), np.int64)
    marks = np.zeros((len(group), length), bool)
    for row, (sequence, marked) in enumerate(group):
        ids[row, : len(sequence)] = sequence
        marks[row, : len(marked)] = marked
    return ids, marks
