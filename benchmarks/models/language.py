"""GPT-2 and Llama as plain PyTorch modules, at any size: what estimates of a device are made for.

Modules are made on the `meta` device, so that a model of any size has shapes and no weights. Each
maker returns a module and a batch of inputs, as `sambac.compile` takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Example = tuple[nn.Module, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Gpt2Shape:
    """The size of a GPT-2; `hidden` is divisible by `heads`."""

    hidden: int
    layers: int
    heads: int
    vocabulary: int = 50_257
    length: int = 1024


@dataclass(frozen=True)
class LlamaShape:
    """The size of a Llama, or of a model of its kind such as Mistral; head size is 128 in all."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int


LLAMA = {
    "Llama-2-7B": LlamaShape(4096, 32, 32, 32, 11_008, 32_000),
    "Mistral-7B": LlamaShape(4096, 32, 32, 8, 14_336, 32_000),
    "Llama-3-8B": LlamaShape(4096, 32, 32, 8, 14_336, 128_256),
    "Llama-3-70B": LlamaShape(8192, 80, 64, 8, 28_672, 128_256),
}


class _Gpt2Block(nn.Module):
    """Masked self-attention and a feed-forward part, each behind a LayerNorm."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        hidden, self.heads = shape.hidden, shape.heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.c_attn, self.c_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, hidden // self.heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(hidden, dim=2)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with the mean cross entropy of the next token as its result; the head is tied.

    As in the published module, logits are made of every token, and those of the last one, which has
    no next, are cut off.
    """

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        self.wte = nn.Embedding(shape.vocabulary, shape.hidden)
        self.wpe = nn.Embedding(shape.length, shape.hidden)
        self.h = nn.ModuleList(_Gpt2Block(shape) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.hidden)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of `ids` (batch x length) against `labels`, the same tokens."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


class _LlamaBlock(nn.Module):
    """Grouped attention with rotary positions, and a gated feed-forward part."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.size = shape.hidden // shape.heads
        kv = shape.kv_heads * self.size
        self.norm_1, self.norm_2 = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.key = nn.Linear(shape.hidden, kv, bias=False)
        self.value = nn.Linear(shape.hidden, kv, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.gate = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(
        self, x: Tensor, turns: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the new `x`, and the keys and values of its tokens."""
        normal = self.norm_1(x)
        query = _turned(self._split(self.query(normal), self.heads), turns)
        key = _turned(self._split(self.key(normal), self.kv_heads), turns)
        value = self._split(self.value(normal), self.kv_heads)
        keys, values = key, value
        if past is not None:
            keys, values = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        mixed = F.scaled_dot_product_attention(
            query, keys, values, is_causal=past is None, enable_gqa=self.heads != self.kv_heads
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        normal = self.norm_2(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal)), key, value

    def _split(self, x: Tensor, heads: int) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, heads, self.size).transpose(1, 2)


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each half of `x` against the other, by position."""
    low, high = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat((-high, low), dim=-1) * turns[1]


class Llama(nn.Module):
    """A Llama that reads tokens behind what its caches hold, which may be nothing.

    Takes ids (batch x tokens), the cosines and sines of positions (tokens x head size), and keys
    and values of each layer in turn (batch x heads x context x head size). Returns the logits of
    the last token, and the keys and values of the new tokens, which the caller appends: caches are
    read in every step and never copied.
    """

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(_LlamaBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(
        self, ids: Tensor, cosines: Tensor, sines: Tensor, *caches: Tensor
    ) -> tuple[Tensor, ...]:
        """Return logits, and the keys and values of the new tokens."""
        x = self.embed(ids)
        new: list[Tensor] = []
        for at, block in enumerate(self.layers):
            past = (caches[2 * at], caches[2 * at + 1]) if caches else None
            x, *made = block(x, (cosines, sines), past)
            new += made
        return (self.head(self.norm(x[:, -1])), *new)


class LlamaLoss(nn.Module):
    """A Llama with the mean cross entropy of the next token as its result."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.model = Llama(shape)

    def forward(self, ids: Tensor, labels: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Return the loss of `ids` (batch x length) against `labels`."""
        model = self.model
        x = model.embed(ids)
        for block in model.layers:
            x, *_ = block(x, (cosines, sines), None)
        logits = model.head(model.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def gpt2_step(shape: Gpt2Shape, batch: int, dtype: torch.dtype = torch.bfloat16) -> Example:
    """A training step over `batch` rows of the longest length."""
    ids = torch.zeros((batch, shape.length), dtype=torch.int64)
    return _made(Gpt2, shape, dtype), (ids, ids)


def llama_step(
    shape: LlamaShape, batch: int, length: int, dtype: torch.dtype = torch.bfloat16
) -> Example:
    """A training step over `batch` rows of `length` tokens."""
    ids = torch.zeros((batch, length), dtype=torch.int64)
    return _made(LlamaLoss, shape, dtype), (ids, ids, *_turns(shape, length, dtype))


def prefill(
    shape: LlamaShape, batch: int, length: int, dtype: torch.dtype = torch.bfloat16
) -> Example:
    """The first pass over prompts of `length` tokens."""
    ids = torch.zeros((batch, length), dtype=torch.int64)
    return _made(Llama, shape, dtype), (ids, *_turns(shape, length, dtype))


def decode(
    shape: LlamaShape, batch: int, context: int, dtype: torch.dtype = torch.bfloat16
) -> Example:
    """One more token for each of `batch` sequences, with `context` tokens in the caches."""
    size = (batch, shape.kv_heads, context, shape.hidden // shape.heads)
    with torch.device("meta"):
        caches = [torch.zeros(size, dtype=dtype) for _ in range(2 * shape.layers)]
    ids = torch.zeros((batch, 1), dtype=torch.int64)
    return _made(Llama, shape, dtype), (ids, *_turns(shape, 1, dtype), *caches)


def product(rows: int, inner: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Example:
    """One matrix product, `rows` x `inner` by `inner` x `columns`, both given."""

    class Product(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a @ b

    sizes: Sequence[tuple[int, int]] = ((rows, inner), (inner, columns))
    with torch.device("meta"):
        return Product(), tuple(torch.zeros(size, dtype=dtype) for size in sizes)


def _turns(shape: LlamaShape, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Room for the cosines and sines of positions."""
    turns = torch.zeros((length, shape.hidden // shape.heads), dtype=dtype)
    return turns, turns.clone()


def _made(kind: type[nn.Module], shape: Gpt2Shape | LlamaShape, dtype: torch.dtype) -> nn.Module:
    with torch.device("meta"):
        return kind(shape).to(dtype)
