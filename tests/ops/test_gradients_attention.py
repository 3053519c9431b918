"""Gradients of attention and of rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences

torch = pytest.importorskip("torch")
rng = np.random.default_rng(11)

BATCH, HEADS, QUERIES, KEYS, SIZE, WIDTH = 2, 4, 3, 5, 6, 2


def normal(*shape: int) -> np.ndarray:
    return np.asarray(rng.normal(size=shape))


def heads_first(x, heads):
    if x.dim() == 4:
        return x
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def formula(attributes: dict[str, Any], outputs: Sequence[int]) -> Callable[..., Any]:
    """Attention written out, heads of keys repeated."""

    def run(q, k, v, mask=None, past_k=None, past_v=None):
        flat = q.dim() == 3
        q = heads_first(q, attributes.get("q_num_heads"))
        k, v = (heads_first(x, attributes.get("kv_num_heads")) for x in (k, v))
        if past_k is not None:
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        group = q.shape[1] // k.shape[1]
        wide_k, wide_v = (x.repeat_interleave(group, 1) for x in (k, v))
        scores = q @ wide_k.mT * attributes.get("scale", q.shape[-1] ** -0.5)
        cap = attributes.get("softcap", 0.0)
        capped = cap * torch.tanh(scores / cap) if cap else scores
        biased = capped
        if attributes.get("is_causal"):
            past = 0 if past_k is None else past_k.shape[2]
            allowed = torch.ones(q.shape[2], k.shape[2]).tril(past).bool()
            biased = biased.masked_fill(~allowed, -torch.inf)
        if mask is not None:
            bool_mask = mask.dtype == torch.bool
            biased = biased.masked_fill(~mask, -torch.inf) if bool_mask else biased + mask
        p = torch.nan_to_num(torch.softmax(biased, -1))
        y = p @ wide_v
        y = y.transpose(1, 2).flatten(2) if flat else y
        given = (scores, capped, biased, p)[attributes.get("qk_matmul_output_mode", 0)]
        made = (y, k, v, given)
        return tuple(made[index] for index in outputs)

    return run


def attention(
    label: str,
    *more: np.ndarray | None,
    heads: int = HEADS,
    queries: int = QUERIES,
    flat: bool = False,
    outputs: tuple[int, ...] = (0,),
    **attributes: Any,
) -> Case:
    shapes = [(HEADS, queries, SIZE), (heads, KEYS, SIZE), (heads, KEYS, WIDTH)]
    inputs = [normal(BATCH, *shape) for shape in shapes]
    if flat:
        inputs = [x.transpose(0, 2, 1, 3).reshape(BATCH, x.shape[2], -1) for x in inputs]
        attributes = {"q_num_heads": HEADS, "kv_num_heads": heads, **attributes}
    return Case(
        "Attention",
        (*inputs, *more),
        formula(attributes, outputs),
        attributes,
        outputs=max(outputs) + 1,
        read=outputs,
        label=label,
    )


ALLOWED = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
NOWHERE = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
CACHE = normal(BATCH, HEADS, 2, SIZE), normal(BATCH, HEADS, 2, WIDTH)
SHARED_CACHE = normal(BATCH, 2, 2, SIZE), normal(BATCH, 2, 2, WIDTH)

CASES = [
    attention("plain"),
    attention("flat", flat=True),
    attention("scale", scale=0.7),
    attention("causal", is_causal=1, queries=KEYS),
    attention("causal-oblong", is_causal=1),
    attention("shared-keys", heads=2),
    attention("shared-keys-flat", heads=2, flat=True, is_causal=1),
    attention("one-head-of-keys", heads=1),
    attention("allowed", ALLOWED),
    attention("row-without-keys", NOWHERE),
    attention("bias", normal(QUERIES, KEYS)),
    attention("bias-of-heads", normal(HEADS, QUERIES, KEYS), heads=2),
    attention("bias-of-batch", normal(BATCH, 1, QUERIES, KEYS), flat=True),
    attention("bias-causal", normal(BATCH, HEADS, QUERIES, KEYS), is_causal=1),
    attention("softcap", softcap=0.8),
    attention("softcap-bias", normal(QUERIES, KEYS), softcap=0.8, heads=2),
    attention("cache", None, *CACHE, outputs=(0, 1, 2)),
    attention(
        "cache-causal", None, *SHARED_CACHE, heads=2, flat=True, is_causal=1, outputs=(0, 1, 2)
    ),
    attention("cache-bias", normal(QUERIES, 2 + KEYS), *CACHE, outputs=(0, 1, 2)),
    attention("only-present", None, *CACHE, outputs=(1, 2)),
    attention("only-scores", outputs=(3,)),
    attention("scores", outputs=(0, 3)),
    attention("capped", outputs=(0, 3), qk_matmul_output_mode=1, softcap=0.8),
    attention("biased", normal(QUERIES, KEYS), outputs=(0, 3), qk_matmul_output_mode=2),
    attention("cache-scores", None, *CACHE, outputs=(0, 1, 2, 3)),
    attention("probabilities", outputs=(0, 3), qk_matmul_output_mode=3, heads=2),
]


POSITIONS, HALF = 7, 3


def rotated(attributes: dict[str, Any], order: Sequence[int]) -> Callable[..., Any]:
    """Rotary embeddings written out, from inputs in `order` x, cosines, sines, positions."""

    def run(*inputs):
        x, cosines, sines, positions = (inputs[i] if i < len(inputs) else None for i in order)
        shape = x.shape
        if x.dim() == 3:
            x = x.reshape(BATCH, QUERIES, HEADS, -1).transpose(1, 2)
        if positions is not None:
            first = positions.dim() == 1
            places = positions + torch.arange(QUERIES) if first else positions
            cosines, sines = cosines[places], sines[places]
            if first:
                cosines, sines = cosines[None], sines[None]
        half = cosines.shape[-1]
        turning, rest = x[..., : 2 * half], x[..., 2 * half :]
        pairs = (half, 2) if attributes.get("interleaved") else (2, half)
        axis = -1 if attributes.get("interleaved") else -2
        first, second = turning.unflatten(-1, pairs).unbind(axis)
        c, s = cosines[:, None], sines[:, None]
        turned = torch.stack([c * first - s * second, s * first + c * second], axis)
        y = torch.cat([turned.flatten(-2), rest], -1)
        return y if len(shape) == 4 else y.transpose(1, 2).reshape(shape)

    return run


def rotary(
    label: str, positions: np.ndarray | None = None, *, flat: bool = False, **attributes: Any
) -> Case:
    half = attributes.get("rotary_embedding_dim", 2 * HALF) // 2
    cache = (BATCH, QUERIES, half) if positions is None else (POSITIONS, half)
    x = normal(BATCH, HEADS, QUERIES, 2 * HALF)
    if flat:
        x = x.transpose(0, 2, 1, 3).reshape(BATCH, QUERIES, -1)
        attributes = {"num_heads": HEADS, **attributes}
    inputs = [x, normal(*cache), normal(*cache), *([] if positions is None else [positions])]
    return Case(
        "RotaryEmbedding",
        tuple(inputs),
        rotated(attributes, range(4)),
        attributes,
        label=label,
        without_finite_differences="it does not take float64",
    )


def microsoft_rotary(label: str, positions: np.ndarray, **attributes: Any) -> Case:
    x = normal(BATCH, HEADS, QUERIES, 2 * HALF)
    inputs = (x, positions, normal(POSITIONS, HALF), normal(POSITIONS, HALF))
    return Case(
        "RotaryEmbedding",
        inputs,
        rotated(attributes, (0, 2, 3, 1)),
        attributes,
        label=label,
        domain="com.microsoft",
        without_finite_differences="onnx has no reference for it",
    )


PLACES = np.array([[1, 0, 4], [4, 4, 6]])

ROTARY = [
    rotary("plain"),
    rotary("interleaved", interleaved=1),
    rotary("positions", PLACES),
    rotary("positions-interleaved", PLACES, interleaved=1),
    rotary("partial", PLACES, rotary_embedding_dim=4),
    rotary("flat", PLACES, flat=True),
    rotary("flat-partial", flat=True, rotary_embedding_dim=2, interleaved=1),
    microsoft_rotary("microsoft", PLACES),
    microsoft_rotary("microsoft-first", np.array([2]), interleaved=1),
]


@pytest.mark.parametrize("case", [*CASES, *ROTARY], ids=str)
def test_finite_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", [*CASES, *ROTARY], ids=str)
def test_torch(case: Case):
    check_against_torch(case)
