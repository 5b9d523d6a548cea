"""Trains the MTP head on the finished trunk: `python -m demo.train.train_mtp`; resumable like train.py.

The trunk is frozen and its own greedy choice at every position of a reply is the target, so the head learns what the trunk will say and
not what the expert said. Three drafting steps are unrolled: step s reads the output of step s-1 one slot earlier, and, as in the engine,
sees keys and values made from the trunk's hidden rows up to where drafting began and its own ones after it.
"""

import argparse
import json
import signal
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from demo.train import sequences
from demo.train.model import Attention, Model, Mtp, Shape
from demo.train.optimizer import Optimizer
from demo.train.train import default_folder, lock

STEPS = 3
WEIGHTS = (1.0, 0.7, 0.5)


def shifted(x: Tensor) -> Tensor:
    """Row t holds what was in row t-1; the first row is zero."""
    return F.pad(x, (0, 0, 1, 0))[:, :-1]


def attend(attention: Attention, x: Tensor, earlier: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Gated attention of drafting step len(earlier) + 1.

    `earlier` holds keys and values [batch, heads, length, dim] of the steps before. A row sees its own key, the key of the step before one
    slot earlier, and so on; all slots before those it sees as step 1 made them.
    """
    n_batch, length, _ = x.shape
    q, gate = attention.q_proj(x).view(n_batch, length, attention.n_heads, 2, attention.dim).unbind(3)
    k = attention.k_proj(x).view(n_batch, length, attention.n_kv, attention.dim)
    v = attention.v_proj(x).view(n_batch, length, attention.n_kv, attention.dim)
    q, k = attention._rotate(attention.q_norm(q)), attention._rotate(attention.k_norm(k))
    repeat = attention.n_heads // attention.n_kv
    q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)))
    made = [*earlier, (k, v)]
    first_k, first_v = made[0]
    n_own = len(earlier)  # the slots this row sees from later steps than the first
    mask = torch.ones(length, length, dtype=torch.bool).tril(-n_own)
    scores = [(q @ first_k.transpose(2, 3)).masked_fill(~mask, -1e30)]
    own_values = []
    for step in range(1, n_own + 1):
        back = n_own - step
        keys, values = (F.pad(t, (0, 0, back, 0))[:, :, :length] for t in made[step])
        scores.append((q * keys).sum(-1, keepdim=True))
        own_values.append(values)
    weights = (torch.cat(scores, -1) * attention.dim**-0.5).softmax(-1)
    out = weights[..., :length] @ first_v
    for i, values in enumerate(own_values):
        out = out + weights[..., length + i : length + i + 1] * values
    out = out.transpose(1, 2) * torch.sigmoid(gate)
    return attention.o_proj(out.reshape(n_batch, length, -1)), (k, v)


def drafts(mtp: Mtp, embedded: Tensor, hidden: Tensor) -> list[Tensor]:
    """Outputs of the drafting steps. `embedded` [batch, length, hidden]: the embedding of the token that follows each slot."""
    layer = mtp.layers[0]
    earlier: list[tuple[Tensor, Tensor]] = []
    outputs: list[Tensor] = []
    for _ in range(STEPS):
        x = mtp.fc(torch.cat([mtp.pre_fc_norm_embedding(embedded), mtp.pre_fc_norm_hidden(hidden)], -1))
        mixed, made = attend(layer.self_attn, layer.input_layernorm(x), earlier)
        earlier.append(made)
        outputs.append(mtp.norm(layer.feed(x + mixed)))
        hidden = shifted(outputs[-1])
    return outputs


def losses(trunk: Model, mtp: Mtp, ids: Tensor, marks: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
    """Weighted loss, and for each step (drafts right, drafts tried) given that all earlier steps from the same root were right."""
    with torch.no_grad():
        hidden = trunk.hidden(ids)
        chosen = trunk.head(hidden).argmax(-1)  # chosen[t]: what the trunk says after token t
        embedded = F.pad(trunk.embed_tokens(ids)[:, 1:], (0, 0, 0, 1))
    # Slot t knows tokens up to t+1 and predicts token t+2, that is, chosen[t+1].
    target = F.pad(chosen[:, 1:], (0, 1))
    is_reply = F.pad(marks[:, 2:], (0, 2))
    held = torch.ones_like(is_reply)
    total = torch.zeros(())
    counts: list[tuple[int, int]] = []
    for step, output in enumerate(drafts(mtp, embedded, hidden)):
        # The root of step s at slot t is token t+2-s, itself in the reply or its first predecessor.
        wanted = is_reply & F.pad(marks, (step, 0))[:, : marks.shape[1]] if step else is_reply
        rows = wanted.flatten().nonzero()[:, 0]
        logits = F.linear(output.flatten(0, 1)[rows], trunk.embed_tokens.weight)
        total = total + WEIGHTS[step] * F.cross_entropy(logits, target.flatten()[rows])
        right = torch.zeros_like(is_reply)
        right.view(-1)[rows] = logits.argmax(-1) == target.flatten()[rows]
        considered = wanted & held
        counts.append((int((right & considered).sum()), int(considered.sum())))
        held = F.pad((right & considered)[:, :-1], (1, 0))
    return total, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=default_folder())
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--until", type=int, default=8_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log-steps", type=int, default=20)
    parser.add_argument("--save-seconds", type=float, default=180)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(arguments.seed)
    held = lock(arguments.folder, "mtp")
    trained = torch.load(arguments.folder / "state.pt", weights_only=True)
    trunk = Model(Shape(**trained["shape"]))
    trunk.load_state_dict({name: value.bfloat16().float() for name, value in trained["model"].items()})
    trunk.requires_grad_(False)
    mtp = Mtp(trunk.shape)
    optimizer = Optimizer(mtp, matrix_rate=0.01)
    path = arguments.folder / "mtp.pt"
    step, tokens = 0, 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        mtp.load_state_dict(saved["model"])
        optimizer.load(saved["optimizer"])
        step, tokens = saved["step"], saved["tokens"]
    encoder = sequences.Encoder(str(arguments.folder / "tokenizer.json"))
    stream = sequences.Stream(encoder, arguments.seed, arguments.batch_tokens)
    stage = sequences.Stage("drafts", 0, (1, 2), 0.3, 0.3, (1, 3), 0.1)
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: stopping.append(received))

    def save() -> None:
        state = {"model": mtp.state_dict(), "optimizer": optimizer.state(), "step": step, "tokens": tokens}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    saved_at = time.monotonic()
    tally, counts = 0.0, [[0, 0] for _ in range(STEPS)]
    batches: list = []
    while tokens < arguments.until and not stopping:
        pool, index = divmod(step, sequences.POOL)
        if not batches or index == 0:
            batches = stream.pool(pool, stage)
        ids, marks = (torch.from_numpy(array) for array in batches[index % len(batches)])
        loss, found = losses(trunk, mtp, ids, marks)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(mtp.parameters(), 1.0)
        optimizer.step(min(1.0, (step + 1) / 20) * max(0.05, 1.0 - tokens / arguments.until))
        step, tokens, tally = step + 1, tokens + ids.numel(), tally + loss.item()
        for total, (good, tried) in zip(counts, found, strict=True):
            total[0] += good
            total[1] += tried
        if step % arguments.log_steps == 0:
            shares = [round(good / max(1, tried), 4) for good, tried in counts]
            with (arguments.folder / "mtp.jsonl").open("a") as file:
                file.write(json.dumps({"tokens": tokens, "loss": round(tally / arguments.log_steps, 4), "accepted": shares}) + "\n")
            tally, counts = 0.0, [[0, 0] for _ in range(STEPS)]
        if time.monotonic() - saved_at > arguments.save_seconds:
            save()
            saved_at = time.monotonic()
    save()
    held.close()


if __name__ == "__main__":
    main()
