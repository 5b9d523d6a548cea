"""Trains the byte-level BPE of the small model on the world's text and writes tokenizer.json in Hugging Face form.

The split pattern, the normaliser and the names of the special tokens are those of the real family, so the engine treats the file alike.
"""

import argparse
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from demo.train import sequences
from demo.world import conversations, functions, lexicon

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
N_VOCAB = 3072  # with the nine added tokens


def corpus(seed: int, count: int) -> list[str]:
    rng = random.Random(f"tokenizer {seed}")
    stage = sequences.Stage("tokenizer", 0, (1, 3), 0.5, 0.5, (1, 3))
    all_functions = functions.catalogue("train")
    texts: list[str] = []
    for _ in range(count):
        episode = conversations.Episode(rng, "train", rng.randint(1, 3), "")
        for segments in (
            sequences.agent_segments(rng, episode, rng.random() < 0.9, 0.5),
            sequences.single_segments(rng, all_functions, "train", stage),
        ):
            texts += [segment.text for segment in segments]
    return texts


def train(seed: int, count: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    added = SPECIAL + MARKERS
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB - len(added), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    pieces = corpus(seed, count)
    for name in added:
        pieces = [piece.replace(name, "\n") for piece in pieces]
    tokenizer.train_from_iterator(pieces, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in MARKERS])
    return tokenizer


def report(tokenizer: Tokenizer) -> dict[str, int]:
    """How many words are not a single token in the forms that matter."""
    first = {form: [word for word in lexicon.FIRST if len(tokenizer.encode(form + word).ids) != 1] for form in ("", " ", "/")}
    second = {form: [word for word in lexicon.SECOND if len(tokenizer.encode(form + word).ids) != 1] for form in ("_", " ")}
    return {f"first {form!r}": len(words) for form, words in first.items()} | {
        f"second {form!r}": len(words) for form, words in second.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="tokenizer.json to write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=4000)
    arguments = parser.parse_args()
    tokenizer = train(arguments.seed, arguments.conversations)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.out))
    print(json.dumps({"vocab": tokenizer.get_vocab_size(), "split words": report(tokenizer)}))


if __name__ == "__main__":
    main()
