"""Attention, in the forms that PyTorch has and ONNX has not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from derivative_steps import Taking, require_steps_of_torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_runs import Lambda, run_training, training_source

Results = dict[str, torch.Tensor]


def test_attention_with_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written out where the operator cannot drop, here with a dropout that keeps all."""
    from sambac.frontend.torch.translations import attention

    monkeypatch.setattr(attention, "dropped", lambda x, p: x)
    torch.manual_seed(0)
    query, key, few = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8)
    mask = torch.rand(5, 6) > 0.3
    mask[1] = False

    def results(drop: float, q: torch.Tensor, k: torch.Tensor, f: torch.Tensor) -> Results:
        def attend(*tensors: torch.Tensor, **settings: object) -> torch.Tensor:
            sdpa = functional.scaled_dot_product_attention
            return sdpa(*tensors, dropout_p=drop, **settings)  # type: ignore[arg-type]

        return {
            "plain": attend(q, k, k),
            "causal": attend(q, k, k, is_causal=True),
            "mask": attend(q, k, k, attn_mask=mask),
            "bias": attend(q, k, k, attn_mask=mask.to(q.dtype)),
            "scale": attend(q, k, k, scale=0.3),
            "groups": attend(q, f, f, enable_gqa=True),
            "three_axes": attend(q[0], k[0], k[0], attn_mask=mask),
        }

    inputs = (query, key, few)
    got = run_training(training_source(Lambda(lambda *x: results(0.5, *x)), *inputs), *inputs)
    for name, want in results(0.0, *exactly(inputs)).items():
        assert_near(got[name], want, what=name)


def test_attention_with_more_axes_or_batches_that_spread() -> None:
    torch.manual_seed(0)
    query, key, few = (
        torch.randn(2, 3, 4, 5, 8),
        torch.randn(2, 3, 4, 6, 8),
        torch.randn(4, 2, 5, 8),
    )
    mask = torch.rand(3, 4, 5, 6) > 0.3
    mask[1, 0, 2] = False

    def results(q: torch.Tensor, k: torch.Tensor, f: torch.Tensor) -> Results:
        attend = functional.scaled_dot_product_attention
        return {
            "five": attend(q, k, k, attn_mask=mask),
            "five, bias": attend(q, k, k, attn_mask=mask.to(q.dtype), scale=0.3),
            "five, causal": attend(q, q, q, is_causal=True),
            "five, groups": attend(q, k[:, :, :2], k[:, :, 2:], enable_gqa=True),
            "causal groups": attend(f.repeat(1, 2, 1, 1), f, f, is_causal=True, enable_gqa=True),
            "one query": attend(q[:1, 0], k[:, 0], k[:, 0]),
            "one key": attend(q[:, 0], k[:1, 0], k[:1, 0]),
            "one head": attend(q[0], k[0, :, :1], k[0, :, :1]),
            "fewer axes of query": attend(q[0, 0, 0], k[0], k[0]),
            "fewer axes of key": attend(q[0], k[0, 0, 0], k[0, 0, 0]),
            "scale below 0": attend(q[0], k[0], k[0], scale=-0.7),
            "scale 0": attend(q[0], k[0], k[0], scale=0.0),
        }

    inputs = (query, key, few)
    got = run_training(training_source(Lambda(results), *inputs), *inputs)
    for name, want in results(*exactly(inputs)).items():
        assert_near(got[name], want, what=name)


def test_a_mask_that_nobody_calls_causal() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1)
    x, padding = torch.randn(2, 3, 8), torch.tensor([[0.0, 0.0, -torch.inf]] * 2)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    source = training_source(encoder, x, {"mask": mask, "src_key_padding_mask": padding})
    wide = exactly({"mask": mask, "src_key_padding_mask": padding})
    want = exactly(encoder)(x.double(), **wide)
    assert_near(run_training(source, x, mask, padding)["output"], want)


def _hiding() -> torch.Tensor:
    """Return a mask that hides all from two queries, and some from others."""
    mask = torch.zeros(5, 6)
    mask[:2] = -torch.inf
    mask[2, 3:] = torch.finfo(torch.float32).min
    mask[3, :3] = -torch.inf
    return mask


def test_masks_that_hide_all_from_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operator, and written out."""
    from sambac.frontend.torch.translations import attention

    monkeypatch.setattr(attention, "dropped", lambda x, p: x)
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8)

    def results(drop: float, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Results:
        attend, bias = functional.scaled_dot_product_attention, _hiding().to(q.dtype)
        return {
            "operator": attend(q, k, v, attn_mask=bias),
            "dropout": attend(q, k, v, attn_mask=bias, dropout_p=drop),
            "one row": attend(q, k, v, attn_mask=bias[1:2], dropout_p=drop),
            "five axes": attend(q[None], k[None], v[None], attn_mask=bias),
        }

    inputs = (query, key, value)
    got = run_training(training_source(Lambda(lambda *x: results(0.5, *x)), *inputs), *inputs)
    for name, want in results(0.0, *exactly(inputs)).items():
        assert want.isfinite().all()
        assert_near(got[name], want, what=name)


def test_gradients_where_all_is_hidden(tmp_path: Path) -> None:
    """Of five axes, and of a mask that is computed."""

    def result(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        query, bias = (x @ weight)[None, None, None], weight[:3, 1:] @ weight[1:, :]
        keys, values = weight[None, None, None], weight.mT[None, None, None]
        mask = bias + _hiding()[1:4, 1:5].to(x.dtype)
        mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return mixed.square().sum()

    torch.manual_seed(0)
    with sdpa_kernel(SDPBackend.MATH):
        require_steps_of_torch(Taking(result), tmp_path / "m.pef")


def test_a_mask_of_the_lowest_half() -> None:
    """PyTorch sums up in float32, where scores are not lost beside it."""
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8)
    mask = torch.zeros(5, 6, dtype=torch.half)
    mask[1] = torch.finfo(torch.half).min

    def result(*tensors: torch.Tensor) -> torch.Tensor:
        halves = (tensor.half() for tensor in tensors)
        return functional.scaled_dot_product_attention(*halves, attn_mask=mask).float()

    inputs = (query, key, value)
    got = run_training(training_source(Lambda(result), *inputs), *inputs)
    assert_near(got["output"], result(*inputs).double(), 5e-3)


def test_gradients_of_a_bias_behind_the_lowest_number(tmp_path: Path) -> None:
    """The kernel of PyTorch takes each probability for 1 on its way back: by the formulas."""
    mask = torch.zeros(3, 4)
    mask[1] = torch.finfo(torch.float32).min

    def result(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        query, bias = (x @ weight)[None, None], weight[:3, 1:] @ weight[1:, :]
        mixed = functional.scaled_dot_product_attention(
            query, weight[None, None], weight.mT[None, None], attn_mask=bias + mask.to(x.dtype)
        )
        return mixed.square().sum()

    torch.manual_seed(0)
    with sdpa_kernel(SDPBackend.MATH):
        require_steps_of_torch(Taking(result), tmp_path / "m.pef")
