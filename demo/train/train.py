"""Trains the trunk: `python -m demo.train.train`; the same command goes on where it was stopped.

Everything lives in one folder (--folder, else $ESPALIER_DEMO_FOLDER, else the user's cache): tokenizer.json, state.pt, train.jsonl.
Stopping is safe at any minute: the state is replaced whole, at most --save-seconds of work are lost (none on SIGTERM), and a stopped
process (SIGSTOP) simply goes on. The batches depend on the seed and the step alone, so a rerun repeats the losses.
"""

import argparse
import fcntl
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from demo.train import sequences
from demo.train.model import Model, QuantisableLinear, Shape
from demo.train.optimizer import Optimizer


def default_folder() -> Path:
    given = os.environ.get("ESPALIER_DEMO_FOLDER")
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(cache) if cache else Path.home() / ".cache") / "espalier-demo"


def lock(folder: Path, name: str) -> object:
    """Held while the returned file is open: two trainers must not write one folder."""
    file = (folder / f"{name}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{folder}: another trainer (perhaps a stopped one) works here; end it first")
    return file


def padded_vocab(size: int) -> int:
    return -(-size // 64) * 64


@torch.no_grad()
def relate_spellings(model: Model, encoder: sequences.Encoder) -> None:
    """Starts tokens that spell one word (" amber", "/amber", "_amber") near each other: copying a name often changes its form."""
    size = model.embed_tokens.weight.shape[1]
    shared: dict[str, torch.Tensor] = {}
    for token in range(encoder.vocab_size):
        spelt = encoder.decode([token])
        word = spelt.lstrip(" /_'\"=.(:-")
        if len(word) < 2 or not word.isalpha():
            continue
        parts = [shared.setdefault(key, torch.randn(size)) for key in (word, "form " + spelt[: len(spelt) - len(word)])]
        model.embed_tokens.weight[token] = 0.1 * (0.8 * parts[0] + 0.6 * parts[1])


class Run:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.folder: Path = arguments.folder
        self.encoder = sequences.Encoder(str(self.folder / "tokenizer.json"))
        torch.manual_seed(arguments.seed)
        shape = Shape(
            padded_vocab(self.encoder.vocab_size), arguments.hidden, arguments.intermediate, num_hidden_layers=arguments.layers
        )
        self.step, self.tokens, self.marked = 0, 0, 0
        saved = torch.load(self.folder / "state.pt", weights_only=True) if (self.folder / "state.pt").exists() else None
        if saved:
            shape = Shape(**saved["shape"])
            self.step, self.tokens, self.marked = saved["step"], saved["tokens"], saved["marked"]
        self.model = Model(shape)
        if not saved:
            relate_spellings(self.model, self.encoder)
        self.optimizer = Optimizer(self.model)
        if saved:
            self.model.load_state_dict(saved["model"])
            self.optimizer.load(saved["optimizer"])
        self.stream = sequences.Stream(self.encoder, arguments.seed, arguments.batch_tokens)
        self.is_stopping = False
        self.pool_number = -1  # the pool whose batches are at hand
        self.hidden = torch.compile(self.model.hidden, dynamic=True) if arguments.compile else self.model.hidden

    def save(self) -> None:
        state = {
            "shape": self.model.shape.as_dict(), "step": self.step, "tokens": self.tokens, "marked": self.marked,
            "model": self.model.state_dict(), "optimizer": self.optimizer.state(),
        }  # fmt: skip
        temporary = self.folder / "state.pt.new"
        torch.save(state, temporary)
        temporary.replace(self.folder / "state.pt")

    def log(self, row: dict) -> None:
        with (self.folder / "train.jsonl").open("a") as file:
            file.write(json.dumps({"tokens": self.tokens, "step": self.step, **row}) + "\n")

    def loss(self, ids: torch.Tensor, marks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the marked tokens, and which of them the model would have produced."""
        wanted = marks[:, 1:].flatten().nonzero()[:, 0]
        is_first = (marks[:, 1:] & ~marks[:, :-1]).flatten()[wanted]
        targets = ids[:, 1:].flatten()[wanted]
        rows = wanted // (ids.shape[1] - 1) * ids.shape[1] + wanted % (ids.shape[1] - 1)
        logits = self.model.head(self.hidden(ids, rows))
        weights = 1.0 + (sequences.stage_at(self.tokens).first_weight - 1.0) * is_first
        losses = F.cross_entropy(logits, targets, reduction="none")
        return (losses * weights).sum() / weights.sum(), logits.argmax(-1) == targets

    def rate(self) -> float:
        """Warm-up over 20 steps, then constant, then linear to 5 % between --decay-from and --until."""
        start, end = self.arguments.decay_from, self.arguments.until
        left = 1.0 if self.tokens < start else max(0.05, (end - self.tokens) / max(1, end - start))
        return min(1.0, (self.step + 1) / 20) * left

    def train(self) -> None:
        saved_at = time.monotonic()
        tallied_at, tally, n_tally, hits, n_marked, n_tokens = saved_at, 0.0, 0, 0, 0, 0
        while self.tokens < self.arguments.until and not self.is_stopping:
            pool, index = divmod(self.step, sequences.POOL)
            if index == 0 or self.pool_number != pool:
                batches = self.stream.pool(pool, sequences.stage_at(self.tokens))
                self.pool_number = pool
            ids, marks = (torch.from_numpy(array) for array in batches[index % len(batches)])
            QuantisableLinear.is_quantised = self.tokens >= self.arguments.quantise_from and self.step % 2 == 1
            loss, right = self.loss(ids, marks)
            QuantisableLinear.is_quantised = False
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step(self.rate())
            self.step += 1
            self.tokens += ids.numel()
            self.marked += right.numel()
            tally, n_tally, hits, n_marked, n_tokens = (
                tally + loss.item(), n_tally + 1, hits + int(right.sum()), n_marked + right.numel(), n_tokens + ids.numel()
            )  # fmt: skip
            if n_tally == self.arguments.log_steps:
                now = time.monotonic()
                speed = n_tokens / (now - tallied_at)
                stage = sequences.stage_at(self.tokens).name
                self.log({
                    "stage": stage, "loss": round(tally / n_tally, 5), "right": round(hits / n_marked, 5), "rate": round(self.rate(), 4),
                    "tokens_per_s": round(speed),
                })  # fmt: skip
                tallied_at, tally, n_tally, hits, n_marked, n_tokens = now, 0.0, 0, 0, 0, 0
            if self.step % self.arguments.check_steps == 0:
                self.log({"check": self.check()})
            if time.monotonic() - saved_at > self.arguments.save_seconds:
                self.save()
                saved_at = time.monotonic()
        self.save()

    @torch.no_grad()
    def check(self) -> dict[str, float]:
        """Share of whole validation replies that greedy decoding would produce, teacher-forced, thinking off, by kind of task."""
        rng = random.Random("check")
        stage = sequences.stage_at(self.tokens)
        plain = sequences.Stage("check", 0, stage.n_tasks, 0.5, stage.share_short, stage.n_requests, 0.0, stage.is_bare, stage.is_step)
        all_functions = sequences.functions.catalogue("validation")
        result: dict[str, float] = {}
        for name in ("agent", "single"):
            n_right, n_all = 0, 0
            for _ in range(60 if plain.is_step else 12):
                if name == "single":
                    segments = sequences.single_segments(rng, all_functions, "validation", plain)
                else:
                    episode = sequences.conversations.Episode(rng, "validation", rng.randint(*plain.n_tasks), "", may_look=not plain.is_bare)
                    if plain.is_step:
                        segments = sequences.step_segments(rng, episode, 0.0)
                    else:
                        segments = sequences.agent_segments(rng, episode, rng.random() < plain.share_short, 0.0, plain.is_bare)
                ids, marks = self.encoder.sequence(segments)
                predicted = self.model(torch.from_numpy(ids)[None])[0].argmax(-1).numpy()
                wrong = marks[1:] & (predicted[:-1] != ids[1:])
                starts = [i for i in range(1, len(ids)) if marks[i] and not marks[i - 1]]
                for start in starts:
                    end = start
                    while end < len(ids) and marks[end]:
                        end += 1
                    n_right += not wrong[start - 1 : end - 1].any()
                    n_all += 1
            result[name] = round(n_right / n_all, 4)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=default_folder())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--intermediate", type=int, default=384)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--until", type=int, default=16_000_000, help="tokens to train in all")
    parser.add_argument("--decay-from", type=int, default=12_000_000, help="tokens after which the rate falls")
    parser.add_argument(
        "--quantise-from", type=int, default=12_000_000, help="tokens after which every other step computes on what NVFP4 keeps"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--log-steps", type=int, default=20)
    parser.add_argument("--check-steps", type=int, default=200)
    parser.add_argument("--save-seconds", type=float, default=180)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    held = lock(arguments.folder, "train")
    run = Run(arguments)

    def stop(_signal: int, _frame: object) -> None:
        run.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    run.train()
    held.close()


if __name__ == "__main__":
    main()
