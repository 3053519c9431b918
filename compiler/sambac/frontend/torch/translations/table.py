"""Which operator is translated by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from .attention import attention
from .bags import embedding_bag
from .embedding import embedding
from .losses import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    log_sigmoid,
    multilabel_margin_loss,
)
from .normalization import batch_norm
from .operators import stop
from .pooling import average_pool
from .products import product
from .randomness import bernoulli
from .recurrent import lstm, rnn
from .scatter import masked_scatter, scatter_reduce

_aten = torch.ops.aten

_ALWAYS: Mapping[Callable[..., object], Callable[..., object]] = {
    _aten.avg_pool2d.default: average_pool(2),
    _aten.avg_pool3d.default: average_pool(3),
    _aten.binary_cross_entropy_with_logits.default: binary_cross_entropy_with_logits,
    _aten.cross_entropy_loss.default: cross_entropy,
    _aten.embedding_bag.padding_idx: embedding_bag,
    _aten.log_sigmoid.default: log_sigmoid,
    _aten.lstm.input: lstm,
    _aten.masked_scatter.default: masked_scatter,
    _aten.multilabel_margin_loss.default: multilabel_margin_loss,
    _aten.rnn_relu.input: rnn("Relu"),
    _aten.rnn_tanh.input: rnn("Tanh"),
    _aten.scaled_dot_product_attention.default: attention,
    _aten.scatter_reduce.two: scatter_reduce,
    _aten._native_batch_norm_legit_functional.default: batch_norm,
    torch.ops.prims.prod.default: product,
}


_FOR_TRAINING: Mapping[Callable[..., object], Callable[..., object]] = {
    _aten.bernoulli.p: bernoulli,
    _aten.detach.default: stop,
    _aten.embedding.default: embedding,
}


def translations(*, training: bool) -> dict[Callable[..., object], Callable[..., object]]:
    """Return what translates an operator better than the exporter does."""
    return {**_ALWAYS, **_FOR_TRAINING} if training else dict(_ALWAYS)
