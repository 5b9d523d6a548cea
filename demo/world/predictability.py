"""How well the next token of a reply is predicted by what went before in the conversation: right, wrong or silent.

The predictor is a suffix index over 3-grams: every earlier place where the last three tokens occurred is extended backwards as far as it
matches (64 at most), and votes for the token that followed with the square of its length, the newest place twice. Silent = no place.
Speculation without a draft model lives from these shares, so the world is tuned to those of the real trace.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GRAM = 3
MOST_PLACES = 64
MOST_LENGTH = 64


@dataclass
class Shares:
    right: int = 0
    wrong: int = 0
    silent: int = 0

    def percent(self) -> dict[str, float]:
        total = max(1, self.right + self.wrong + self.silent)
        return {name: round(100 * value / total, 1) for name, value in vars(self).items()}


class SuffixIndex:
    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._tokens)

    def append(self, token: int) -> None:
        if len(self._tokens) >= GRAM:
            self._places[tuple(self._tokens[-GRAM:])].append(len(self._tokens))
        self._tokens.append(token)

    def truncate(self, length: int) -> None:
        while len(self._tokens) > length:
            self._tokens.pop()
            if len(self._tokens) >= GRAM:
                self._places[tuple(self._tokens[-GRAM:])].pop()

    def predict(self) -> int | None:
        tokens = self._tokens
        if len(tokens) < GRAM:
            return None
        places = self._places.get(tuple(tokens[-GRAM:]), [])[-MOST_PLACES:]
        votes: Counter[int] = Counter()
        for place in places:
            length = GRAM
            while length < min(MOST_LENGTH, place) and tokens[place - 1 - length] == tokens[-1 - length]:
                length += 1
            votes[tokens[place]] += length * length * (2 if place == places[-1] else 1)
        return votes.most_common(1)[0][0] if votes else None


def add_reply(index: SuffixIndex, reply: Sequence[int], shares: Shares) -> None:
    """Counts a reply after what the index holds; the index is left as it was."""
    length = len(index)
    for token in reply:
        guess = index.predict()
        if guess is None:
            shares.silent += 1
        elif guess == token:
            shares.right += 1
        else:
            shares.wrong += 1
        index.append(token)
    index.truncate(length)


def of_conversations(conversations: Iterable[Iterable[tuple[Sequence[int], Sequence[int]]]]) -> Shares:
    """Each conversation is a list of (text before the reply that is new since the last one, reply)."""
    shares = Shares()
    for turns in conversations:
        index = SuffixIndex()
        for prompt, reply in turns:
            for token in prompt:
                index.append(token)
            add_reply(index, reply, shares)
    return shares
