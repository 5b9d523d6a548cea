"""Muon for matrices (momentum, orthogonalised by five Newton-Schulz steps), AdamW for everything else.

Source of the method and its constants: Keller Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024).
Matrices of one shape are orthogonalised together.
"""

import torch
from torch import Tensor, nn


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Near-orthogonal factors of [n, rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if is_tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if is_tall else x


class Optimizer:
    def __init__(self, model: nn.Module, matrix_rate: float = 0.02, other_rate: float = 0.003, decay: float = 0.01):
        named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        matrices = [(n, p) for n, p in named if p.ndim == 2 and min(p.shape) > 8 and "embed" not in n and "lm_head" not in n]
        taken = {name for name, _ in matrices}
        self._groups: dict[tuple[int, ...], list[Tensor]] = {}
        for _, value in matrices:
            self._groups.setdefault(tuple(value.shape), []).append(value)
        self._momentum = {shape: torch.zeros(len(group), *shape) for shape, group in self._groups.items()}
        self._matrix_rate, self._other_rate, self._decay = matrix_rate, other_rate, decay
        others = [value for name, value in named if name not in taken]
        self._adam = torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0, foreach=True)

    @torch.no_grad()
    def step(self, scale: float) -> None:
        for shape, group in self._groups.items():
            gradients = torch.stack([value.grad for value in group])
            momentum = self._momentum[shape]
            momentum.mul_(0.95).add_(gradients)
            update = orthogonal(gradients.add(momentum, alpha=0.95))
            rate = self._matrix_rate * scale * max(1.0, shape[0] / shape[1]) ** 0.5
            for value, change in zip(group, update, strict=True):
                value.mul_(1.0 - self._matrix_rate * scale * self._decay).add_(change, alpha=-rate)
                value.grad = None
        for group in self._adam.param_groups:
            group["lr"] = self._other_rate * scale
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def state(self) -> dict:
        return {"momentum": self._momentum, "adam": self._adam.state_dict()}

    def load(self, state: dict) -> None:
        self._momentum = state["momentum"]
        self._adam.load_state_dict(state["adam"])
