"""A small transformer that writes letter by letter, and keeps keys and values of what it has seen.

It is plain PyTorch. `fit` is what `sambac compile examples/letters/model.py:fit --train` calls;
`decoder` makes a program of a trained one that reads one letter and a cache of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import sambac

BATCH, LENGTH, LETTERS = 16, 64, 128
_LAYERS, _HEADS, _SIZE = 2, 4, 128


@dataclass
class Seen:
    """Keys and values of one layer, float32 [batch, heads, letters so far, size of a head]."""

    keys: Tensor
    values: Tensor


class Block(nn.Module):
    """Attention to what came before, and a layer of twice the size, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(_SIZE), nn.LayerNorm(_SIZE)
        self.heads, self.back = nn.Linear(_SIZE, 3 * _SIZE), nn.Linear(_SIZE, _SIZE)
        self.wide, self.narrow = nn.Linear(_SIZE, 2 * _SIZE), nn.Linear(2 * _SIZE, _SIZE)

    def forward(self, x: Tensor, seen: Seen | None) -> tuple[Tensor, Seen]:
        """Return the result for `x`, float32 [batch, letters, size], and what is seen by then."""
        batch, new, size = x.shape
        parts = self.heads(self.first(x)).view(batch, new, 3, _HEADS, size // _HEADS)
        query, keys, values = parts.permute(2, 0, 3, 1, 4)
        if seen is not None:
            keys = torch.cat([seen.keys, keys], dim=2)
            values = torch.cat([seen.values, values], dim=2)
        places = torch.arange(keys.shape[2])
        mask = places <= places[keys.shape[2] - new :].unsqueeze(1)
        found = nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        x = x + self.back(found.transpose(1, 2).reshape(batch, new, size))
        x = x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))
        return x, Seen(keys, values)


class Writer(nn.Module):
    """Letters, int64 [batch, letters], and what came before them: scores of what comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, _SIZE), nn.Embedding(LENGTH, _SIZE)
        self.blocks = nn.ModuleList(Block() for _ in range(_LAYERS))
        self.norm, self.scores = nn.LayerNorm(_SIZE), nn.Linear(_SIZE, LETTERS, bias=False)

    def forward(self, letters: Tensor, seen: list[Seen] | None = None) -> dict[str, object]:
        """Return the scores, float32 [batch, letters, 128], and what is seen by then."""
        before = 0 if seen is None else seen[0].keys.shape[2]
        at = before + torch.arange(letters.shape[1])
        x = self.letters(letters) + self.places(at)
        kept = []
        for number, block in enumerate(self.blocks):
            x, one = block(x, None if seen is None else seen[number])
            kept.append(one)
        return {"scores": self.scores(self.norm(x)), "seen": kept}


class Fit(nn.Module):
    """The mean cross entropy of each next letter."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = Writer()

    def forward(self, letters: Tensor, following: Tensor) -> dict[str, object]:
        """Return the loss."""
        scores = self.writer(letters)["scores"]
        assert isinstance(scores, Tensor)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())}


def fit() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return what trains with its first weights, and example inputs: they set the sizes."""
    torch.manual_seed(0)
    letters = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    return Fit(), (letters, letters)


def decoder(weights: dict[str, Tensor]) -> sambac.Program:
    """Return a program for one letter of any number of texts, and what each has seen before."""
    model = Fit()
    model.load_state_dict(weights)
    batch, past = torch.export.Dim("batch", max=64), torch.export.Dim("past", max=LENGTH - 1)
    with torch.no_grad():
        seen = model.writer(torch.zeros(2, 3, dtype=torch.int64))["seen"]
    one = [{0: batch, 2: past}, {0: batch, 2: past}]
    return sambac.compile(
        model.writer,
        inputs={"letters": torch.zeros(2, 1, dtype=torch.int64), "seen": seen},
        dynamic_shapes={"letters": {0: batch}, "seen": [one] * _LAYERS},
    )
