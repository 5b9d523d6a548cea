"""The hybrid text model (GatedDeltaNet and gated attention layers, 3:1) for training on CPUs, float32.

Same function as the engine: (1+w) norms, q and gate interleaved per head, causal depthwise convolution over q|k|v, l2-normalised keys,
gated delta rule. The recurrence runs in chunks: within a chunk a triangular solve, between chunks one state per head. Sequences of a
batch are padded on the right, which needs no mask because everything is causal.
Parameter names are those of a Hugging Face checkpoint below `model.`, so that conversion copies.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK = 64
EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    vocab_size: int
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rotary_dim: int = 16
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 2
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    rope_theta: float = 1e7
    is_tied: bool = True

    def is_attention(self, layer: int) -> bool:
        return layer % 4 == 3

    def as_dict(self) -> dict:
        return asdict(self)


class Norm(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * (1.0 + self.weight)


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E2M1_BOUNDS = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])


def as_nvfp4(x: Tensor) -> Tensor:
    """What NVFP4 keeps of x [..., K]: blocks of 16 with an E4M3 scale and E2M1 codes; the gradient passes unchanged."""
    with torch.no_grad():
        blocks = x.reshape(-1, 16)
        whole = blocks.abs().max() / (6 * 448) + 1e-30
        scale = (blocks.abs().amax(-1, keepdim=True) / (6 * whole)).to(torch.float8_e4m3fn).float() * whole
        codes = blocks / scale.clamp_min(1e-30)
        kept = (E2M1[torch.bucketize(codes.abs(), E2M1_BOUNDS)] * codes.sign() * scale).reshape(x.shape)
    return x + (kept - x).detach()


class QuantisableLinear(nn.Linear):
    """A product that computes on what NVFP4 keeps of weights and inputs while `is_quantised` is set (for all of them at once)."""

    is_quantised = False

    def forward(self, x: Tensor) -> Tensor:
        if QuantisableLinear.is_quantised:
            return F.linear(as_nvfp4(x), as_nvfp4(self.weight))
        return super().forward(x)


def linear(n_in: int, n_out: int, is_quantisable: bool = True) -> nn.Linear:
    module = (QuantisableLinear if is_quantisable else nn.Linear)(n_in, n_out, bias=False)
    nn.init.normal_(module.weight, std=1.0 / math.sqrt(n_in))
    return module


def silence(module: nn.Module) -> None:
    """Zeroes every projection into the residual stream: at first all layers see the tokens themselves, not each other's noise."""
    for name, value in module.named_parameters():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            nn.init.zeros_(value)
    for part in module.modules():
        if isinstance(part, Attention):
            part.pass_on()


class Mlp(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.n_heads, self.n_kv, self.dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.rotary, self.theta = shape.rotary_dim, shape.rope_theta
        self.q_proj = linear(shape.hidden_size, self.n_heads * 2 * self.dim)
        self.k_proj = linear(shape.hidden_size, self.n_kv * self.dim)
        self.v_proj = linear(shape.hidden_size, self.n_kv * self.dim)
        self.o_proj = linear(self.n_heads * self.dim, shape.hidden_size)
        self.q_norm = Norm(self.dim)
        self.k_norm = Norm(self.dim)

    def forward(self, x: Tensor) -> Tensor:
        n_batch, length, _ = x.shape
        q, gate = self.q_proj(x).view(n_batch, length, self.n_heads, 2, self.dim).unbind(3)
        k = self.k_proj(x).view(n_batch, length, self.n_kv, self.dim)
        v = self.v_proj(x).view(n_batch, length, self.n_kv, self.dim)
        q, k = self._rotate(self.q_norm(q)), self._rotate(self.k_norm(k))
        repeat = self.n_heads // self.n_kv
        q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj((out * torch.sigmoid(gate)).reshape(n_batch, length, -1))

    @torch.no_grad()
    def pass_on(self) -> None:
        """Makes the output projection undo the value projection: attention hands on what it looks at, so only where to look is left to learn.

        Without it no copying was learned in 2.4 M tokens, with it half of a repeating drill is right after 0.1 M. Source of the idea:
        Trockman and Kolter, "Mimetic initialization of self-attention layers" (2023).
        """
        n_hidden, n_values = self.v_proj.in_features, self.n_kv * self.dim
        basis = torch.linalg.qr(torch.randn(max(n_hidden, n_values), max(n_hidden, n_values)))[0][:n_values, :n_hidden]
        self.v_proj.weight.copy_(basis)
        heads = basis.view(self.n_kv, self.dim, n_hidden).repeat_interleave(self.n_heads // self.n_kv, 0)
        self.o_proj.weight.copy_(heads.reshape(-1, n_hidden).T)

    def _rotate(self, x: Tensor) -> Tensor:
        half = self.rotary // 2
        frequency = self.theta ** (-torch.arange(half, dtype=torch.float64) * 2 / self.rotary)
        angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), frequency.float())[:, None, :]
        cos, sin = angle.cos(), angle.sin()
        left, right, rest = x[..., :half], x[..., half : self.rotary], x[..., self.rotary :]
        return torch.cat([left * cos - right * sin, right * cos + left * sin, rest], -1)


class DeltaNet(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.n_key, self.n_value = shape.linear_num_key_heads, shape.linear_num_value_heads
        self.d_key, self.d_value = shape.linear_key_head_dim, shape.linear_value_head_dim
        key, value = self.n_key * self.d_key, self.n_value * self.d_value
        self.in_proj_qkv = linear(shape.hidden_size, 2 * key + value)
        self.in_proj_z = linear(shape.hidden_size, value)
        self.in_proj_a = linear(shape.hidden_size, self.n_value, is_quantisable=False)
        self.in_proj_b = linear(shape.hidden_size, self.n_value, is_quantisable=False)
        self.conv1d = nn.Conv1d(2 * key + value, 2 * key + value, 4, groups=2 * key + value, padding=3, bias=False)
        nn.init.normal_(self.conv1d.weight, std=0.3)
        self.A_log = nn.Parameter(torch.empty(self.n_value).uniform_(1, 8).log())
        step = torch.empty(self.n_value).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.d_value))
        self.out_proj = linear(value, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        n_batch, length, _ = x.shape
        qkv = F.silu(self._convolve(self.in_proj_qkv(x)))
        key = self.n_key * self.d_key
        q, k, v = qkv.split([key, key, self.n_value * self.d_value], -1)
        q, k = (_unit(t.view(n_batch, length, self.n_key, self.d_key)) for t in (q, k))
        repeat = self.n_value // self.n_key
        if repeat > 1:
            q, k = q.repeat_interleave(repeat, 2), k.repeat_interleave(repeat, 2)
        v = v.view(n_batch, length, self.n_value, self.d_value)
        beta = torch.sigmoid(self.in_proj_b(x))
        decay = -self.A_log.exp() * F.softplus(self.in_proj_a(x) + self.dt_bias)
        out = delta_rule(q * self.d_key**-0.5, k, v, decay, beta)
        out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + EPS) * self.norm.weight
        z = self.in_proj_z(x).view(n_batch, length, self.n_value, self.d_value)
        return self.out_proj((out * F.silu(z)).reshape(n_batch, length, -1))

    def _convolve(self, x: Tensor) -> Tensor:
        """Depthwise, four taps: as shifted sums, which is much faster on a CPU than a grouped convolution."""
        taps = self.conv1d.weight[:, 0, :]
        padded = F.pad(x, (0, 0, 3, 0))
        length = x.shape[1]
        return sum(padded[:, i : i + length] * taps[:, i] for i in range(4))


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Chunked gated delta rule; [batch, length, heads, dim], g (log decay) and beta [batch, length, heads]; result like v."""
    n_batch, length, n_heads, _ = q.shape
    pad = -length % CHUNK
    if pad:
        q, k, v = (F.pad(t, (0, 0, 0, 0, 0, pad)) for t in (q, k, v))
        g, beta = F.pad(g, (0, 0, 0, pad)), F.pad(beta, (0, 0, 0, pad))
    n_chunks = (length + pad) // CHUNK

    def chunked(t: Tensor) -> Tensor:
        return t.reshape(n_batch, n_chunks, CHUNK, n_heads, -1).permute(1, 0, 3, 2, 4).reshape(n_chunks, n_batch * n_heads, CHUNK, -1)

    q, k, v, g, beta = chunked(q), chunked(k), chunked(v), chunked(g), chunked(beta)
    total = g.cumsum(2)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    ratio = torch.exp((total - total.transpose(2, 3)).masked_fill(~lower, -math.inf))
    inner = (beta * ratio * (k @ k.transpose(2, 3))).tril(-1)
    grown = total.exp()
    right = torch.cat([v * beta, k * (beta * grown)], -1)
    solved = torch.linalg.solve_triangular(inner + torch.eye(CHUNK), right, upper=False, unitriangular=True)
    u, w = solved.split([v.shape[-1], k.shape[-1]], -1)
    seen = (q @ k.transpose(2, 3)) * ratio
    q = q * grown
    last = total[:, :, -1:, :]
    k = (k * (last - total).exp()).transpose(2, 3)
    fade = last.exp()

    state = q.new_zeros(n_batch * n_heads, k.shape[2], v.shape[-1])
    outputs = []
    for i in range(n_chunks):
        fresh = torch.baddbmm(u[i], w[i], state, alpha=-1)
        outputs.append(torch.baddbmm(q[i] @ state, seen[i], fresh))
        if i + 1 < n_chunks:
            state = torch.baddbmm(state * fade[i], k[i], fresh)
    out = torch.stack(outputs).view(n_chunks, n_batch, n_heads, CHUNK, -1).permute(1, 0, 3, 2, 4)
    return out.reshape(n_batch, n_chunks * CHUNK, n_heads, -1)[:, :length]


class Layer(nn.Module):
    def __init__(self, shape: Shape, is_attention: bool):
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size)
        self.post_attention_layernorm = Norm(shape.hidden_size)
        if is_attention:
            self.self_attn = Attention(shape)
        else:
            self.linear_attn = DeltaNet(shape)
        self.mlp = Mlp(shape)
        self.is_attention = is_attention

    def mix(self, x: Tensor) -> Tensor:
        mixer = self.self_attn if self.is_attention else self.linear_attn
        return x + mixer(self.input_layernorm(x))

    def feed(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.post_attention_layernorm(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.feed(self.mix(x))


class Mtp(nn.Module):
    """Multi-token prediction: (hidden of token p, embedding of token p+1) predicts token p+2; recursion feeds its own output."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.pre_fc_norm_embedding = Norm(shape.hidden_size)
        self.pre_fc_norm_hidden = Norm(shape.hidden_size)
        self.fc = linear(2 * shape.hidden_size, shape.hidden_size)
        self.layers = nn.ModuleList([Layer(shape, True)])
        self.norm = Norm(shape.hidden_size)
        silence(self)

    def forward(self, embedding: Tensor, hidden: Tensor) -> Tensor:
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)], -1))
        return self.norm(self.layers[0](x))


class Model(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.1)
        self.layers = nn.ModuleList([Layer(shape, shape.is_attention(i)) for i in range(shape.num_hidden_layers)])
        self.norm = Norm(shape.hidden_size)
        if not shape.is_tied:
            self.lm_head = linear(shape.hidden_size, shape.vocab_size)
        silence(self)

    def head(self, hidden: Tensor) -> Tensor:
        weight = self.embed_tokens.weight if self.shape.is_tied else self.lm_head.weight
        return F.linear(as_nvfp4(hidden), as_nvfp4(weight)) if QuantisableLinear.is_quantised else F.linear(hidden, weight)

    def hidden(self, ids: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Normed hidden rows: all [batch, length, hidden], or those of the flat positions `wanted` [n, hidden]."""
        x = self.embed_tokens(ids)
        for layer in self.layers[:-1]:
            x = layer(x)
        x = self.layers[-1].mix(x)
        if wanted is not None:
            x = x.flatten(0, 1)[wanted]
        return self.norm(self.layers[-1].feed(x))

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.hidden(ids))
