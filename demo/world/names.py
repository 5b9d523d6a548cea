"""Draws names so that the three sets never share one: the split of a name is a hash of the name itself."""

import random
import zlib

from demo.world import lexicon

SPLITS = ("train", "validation", "test")


def split_of(name: str) -> str:
    """The set a name belongs to: 80 % train, 10 % validation, 10 % test."""
    bucket = zlib.crc32(name.encode()) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


class Names:
    """Distinct two-word names of one set."""

    def __init__(self, rng: random.Random, split: str):
        if split not in SPLITS:
            raise ValueError(f"split {split!r}: expected one of {SPLITS}")
        self._rng = rng
        self._split = split
        self._used: set[str] = set()

    def draw(self) -> str:
        while True:
            name = f"{self._rng.choice(lexicon.FIRST)}_{self._rng.choice(lexicon.SECOND)}"
            if name not in self._used and split_of(name) == self._split:
                self._used.add(name)
                return name

    def phrase(self) -> str:
        return self.draw().replace("_", " ")
