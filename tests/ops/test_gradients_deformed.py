"""Gradients of convolutions whose taps read at offsets that are computed.

There are no finite differences: the reference evaluator places points in float32.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gradient_check import Case, check_against_torch
from torch.nn import functional

RNG = np.random.default_rng(11)
STEPPED = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2]}


def reads(image, points):
    """What points [N, K, 2, P] read of images [N, C, H, W], 0 outside: [N, C, K, P]."""
    high, wide = image.shape[2:]
    down, right = points[:, :, 0], points[:, :, 1]
    grid = torch.stack([right * 2 / (wide - 1), down * 2 / (high - 1)], -1) - 1
    return functional.grid_sample(image, grid, "bilinear", "zeros", align_corners=True)


def deformed(attributes, kernel):
    """PyTorch has no such operator of its own: `grid_sample`, and a product by group."""
    strides, dilations = (attributes.get(k, [1, 1]) for k in ("strides", "dilations"))
    pads, group = attributes.get("pads", [0] * 4), attributes.get("group", 1)
    shared = attributes.get("offset_group", 1)

    def run(x, weight, offset, bias=None, mask=None):
        (batch, channels, *_), (high, wide) = x.shape, offset.shape[2:]
        tap = torch.cartesian_prod(
            *(torch.arange(k) * d for k, d in zip(kernel, dilations, strict=True))
        )
        at = torch.cartesian_prod(
            *(torch.arange(n) * s for n, s in zip((high, wide), strides, strict=True))
        )
        starts = tap[:, :, None] + at.T[None] - torch.tensor(pads[:2])[None, :, None]
        moves = offset.reshape(batch * shared, len(tap), 2, high * wide)
        images = x.reshape(batch * shared, channels // shared, *x.shape[2:])
        read = reads(images, starts + moves)
        if mask is not None:
            read = read * mask.reshape(batch * shared, 1, len(tap), high * wide)
        columns = read.reshape(batch, group, -1, high * wide)
        filters = weight.reshape(group, len(weight) // group, -1)
        y = torch.einsum("goc,ngcp->ngop", filters, columns).reshape(batch, -1, high, wide)
        return y if bias is None else y + bias[:, None, None]

    return run


def sample(label, sizes, kernel=(3, 3), *, masked=False, biased=True, maps=4, **attributes):
    """A sample on images of `sizes` [N, C, H, W]; some points lie outside of them."""
    batch, channels, *image = sizes
    strides, dilations = (attributes.get(k, [1, 1]) for k in ("strides", "dilations"))
    pads, taps = attributes.get("pads", [0] * 4), kernel[0] * kernel[1]
    positions = [
        (image[i] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in (0, 1)
    ]
    shared = attributes.get("offset_group", 1)
    inputs = (
        RNG.normal(size=sizes),
        RNG.normal(size=(maps, channels // attributes.get("group", 1), *kernel)),
        RNG.normal(scale=0.7, size=(batch, shared * taps * 2, *positions)),
        RNG.normal(size=(maps,)) if biased else None,
        RNG.uniform(size=(batch, shared * taps, *positions)) if masked else None,
    )
    given = inputs[:5] if masked else inputs[:4] if biased else inputs[:3]
    return Case("DeformConv", given, deformed(attributes, kernel), attributes, label=label)


CASES = [
    sample("plain", (1, 2, 5, 4), biased=False),
    sample("bias", (2, 3, 4, 5), (2, 3), pads=[1, 1, 1, 1]),
    sample("mask", (2, 2, 4, 5), (2, 2), masked=True),
    sample("mask without bias", (1, 2, 4, 4), (2, 2), masked=True, biased=False),
    sample("groups", (2, 4, 4, 4), (2, 2), group=2, offset_group=2, masked=True),
    sample("offsets of more groups", (1, 4, 4, 3), (2, 2), offset_group=4),
    sample("steps", (1, 2, 6, 7), masked=True, **STEPPED),
    sample("one tap", (2, 2, 3, 4), (1, 1), masked=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


def test_without_offsets_slopes_are_those_ahead():
    """As layers of it begin: at an element of the image, its cell is the one that follows."""
    attributes = {"pads": [1, 1, 1, 1]}
    run = deformed(attributes, (3, 3))
    x, weight = RNG.normal(size=(2, 2, 4, 5)), RNG.normal(size=(3, 2, 3, 3))
    check_against_torch(
        Case(
            "DeformConv",
            (x, weight, np.zeros((2, 18, 4, 5))),
            lambda x, weight, offset: run(x, weight, offset + 1e-9),
            attributes,
        )
    )
