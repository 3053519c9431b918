"""Which operator is translated by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_addbmm,
    aten_addmv,
    aten_baddbmm,
    aten_div,
    aten_ge,
    aten_gt,
    aten_instance_norm,
    aten_layer_norm,
    aten_le,
    aten_lt,
    aten_mul,
    aten_sub,
)
from onnxscript.function_libs.torch_lib.ops.nn import aten_group_norm
from onnxscript.function_libs.torch_lib.ops.special import aten_special_erf as aten_erf

from . import (
    empties,
    extrema,
    indices,
    interpolation,
    limits,
    masks,
    norms,
    quantization,
    special,
    stacking,
)
from .attention import attention
from .bags import decomposed_bag, embedding, embedding_bag, looked_up
from .convolution import convolution
from .losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    log_sigmoid,
    mse_loss,
    multilabel_margin_loss,
    nll_loss,
    nll_loss_forward,
    smooth_l1_loss,
)
from .normalization import batch_norm, by_channel, by_element
from .norms import cdist, euclidean
from .operators import stop
from .padding import pad
from .pooling import adaptive_max_pool, average_pool
from .products import added, product
from .promotion import common, floating
from .randomness import bernoulli
from .recurrent import lstm, rnn
from .sampling import grid_sampler
from .scatter import masked_scatter, scatter, scatter_add, scatter_reduce

_aten = torch.ops.aten

_ALWAYS: Mapping[Callable[..., object], Callable[..., object]] = {
    _aten.avg_pool2d.default: average_pool(2),
    _aten.avg_pool3d.default: average_pool(3),
    _aten.binary_cross_entropy_with_logits.default: binary_cross_entropy_with_logits,
    _aten.convolution.default: convolution,
    _aten.cross_entropy_loss.default: cross_entropy,
    _aten.embedding.default: looked_up,
    _aten.embedding_bag.padding_idx: embedding_bag,
    _aten.log_sigmoid.default: log_sigmoid,
    _aten.lstm.input: lstm,
    _aten.masked_scatter.default: masked_scatter,
    _aten.mse_loss.default: common(mse_loss),
    _aten.multilabel_margin_loss.default: multilabel_margin_loss,
    _aten.rnn_relu.input: rnn("Relu"),
    _aten.rnn_tanh.input: rnn("Tanh"),
    _aten.scaled_dot_product_attention.default: attention,
    _aten.scatter_reduce.two: indices.at(2, scatter_reduce),
    _aten._native_batch_norm_legit_functional.default: batch_norm,
    _aten._embedding_bag.default: decomposed_bag,
    _aten._embedding_bag_forward_only.default: decomposed_bag,
    _aten._cdist_forward.default: cdist,
    _aten._euclidean_dist.default: euclidean,
    _aten._safe_softmax.default: norms.safe_softmax,
    _aten._upsample_bicubic2d_aa.default: interpolation.antialiased("bicubic"),
    _aten._upsample_bilinear2d_aa.default: interpolation.antialiased("bilinear"),
    _aten.addbmm.default: added(aten_addbmm),
    _aten.addmv.default: added(aten_addmv),
    _aten.amax.default: extrema.reduced("ReduceMax"),
    _aten.amin.default: extrema.reduced("ReduceMin"),
    _aten.aminmax.default: extrema.both,
    _aten.any.default: empties.any_true,
    _aten.any.dim: empties.any_dim,
    _aten.any.dims: empties.any_dims,
    _aten.argmax.default: extrema.place("ArgMax"),
    _aten.argmin.default: extrema.place("ArgMin"),
    _aten.atan2.default: special.atan2,
    _aten.bincount.default: indices.bincount,
    _aten.baddbmm.default: added(aten_baddbmm),
    _aten.cdist.default: cdist,
    _aten.clamp.Tensor: limits.clamp_tensor,
    _aten.clamp.default: limits.clamp,
    _aten.clamp_max.Tensor: limits.clamp_max_tensor,
    _aten.clamp_max.default: limits.clamp_max,
    _aten.clamp_min.Tensor: limits.clamp_min_tensor,
    _aten.clamp_min.default: limits.clamp_min,
    _aten.column_stack.default: stacking.column_stack,
    _aten.diagonal.default: stacking.diagonal,
    _aten.diagonal_copy.default: stacking.diagonal,
    _aten.dstack.default: stacking.dstack,
    _aten.div.Scalar_mode: special.divide_mode,
    _aten.div.Tensor_mode: special.divide_mode,
    _aten.divide.Scalar: floating(aten_div),
    _aten.divide.Tensor: floating(aten_div),
    _aten.expm1.default: special.expm1,
    _aten.floor_divide.default: special.floor_divide,
    _aten.fake_quantize_per_channel_affine.default: quantization.without_slope(
        quantization.per_channel
    ),
    _aten.fake_quantize_per_tensor_affine.default: quantization.without_slope(
        quantization.per_tensor
    ),
    _aten.fake_quantize_per_tensor_affine.tensor_qparams: quantization.without_slope(
        quantization.per_tensor_by_values
    ),
    _aten.gather.default: indices.gather,
    _aten.greater.Tensor: common(aten_gt),
    _aten.greater_equal.Tensor: common(aten_ge),
    _aten.grid_sampler.default: grid_sampler,
    _aten.group_norm.default: by_channel(aten_group_norm),
    _aten.hardtanh.default: limits.saturated,
    _aten.hstack.default: stacking.hstack,
    _aten.huber_loss.default: common(huber_loss),
    _aten.index_add.default: indices.index_add,
    _aten.index_copy.default: indices.index_copy,
    _aten.index_fill.int_Scalar: indices.index_fill,
    _aten.index_fill.int_Tensor: indices.index_fill,
    _aten.index_put.default: masks.index_put,
    _aten.index_select.default: indices.index_select,
    _aten.instance_norm.default: by_channel(aten_instance_norm),
    _aten.layer_norm.default: by_element(aten_layer_norm),
    _aten.leaky_relu.default: limits.leaky_relu,
    _aten.less.Tensor: common(aten_lt),
    _aten.less_equal.Tensor: common(aten_le),
    _aten.linalg_vector_norm.default: norms.vector_norm,
    _aten.log1p.default: special.log1p,
    _aten.logaddexp.default: special.logaddexp,
    _aten.logaddexp2.default: special.logaddexp2,
    _aten.logcumsumexp.default: special.logcumsumexp,
    _aten.logit.default: floating(special.logit),
    _aten.max.default: extrema.of_all("ReduceMax"),
    _aten.max.dim: extrema.along("ReduceMax"),
    _aten.max_unpool2d.default: indices.unpool,
    _aten.max_unpool3d.default: indices.unpool,
    _aten.mean.default: empties.mean,
    _aten.mean.dim: empties.mean_dim,
    _aten.min.default: extrema.of_all("ReduceMin"),
    _aten.min.dim: extrema.along("ReduceMin"),
    _aten.multiply.Tensor: common(aten_mul),
    _aten.nll_loss.default: nll_loss,
    _aten.nll_loss2d.default: nll_loss,
    _aten.nll_loss_forward.default: nll_loss_forward,
    _aten.nll_loss_nd.default: nll_loss,
    _aten.one_hot.default: indices.one_hot,
    _aten.pow.Tensor_Scalar: special.pow_scalar,
    _aten.pad.default: pad,
    _aten.prelu.default: limits.prelu,
    _aten.remainder.Scalar: special.remainder,
    _aten.remainder.Scalar_Tensor: special.remainder,
    _aten.remainder.Tensor: special.remainder,
    _aten.renorm.default: norms.renorm,
    _aten.scatter.src: indices.at(2, scatter),
    _aten.scatter.value: indices.scatter_value,
    _aten.scatter_add.default: indices.at(2, scatter_add),
    _aten.sgn.default: special.sign,
    _aten.sign.default: special.sign,
    _aten.signbit.default: special.signbit,
    _aten.sinc.default: special.sinc,
    _aten.smooth_l1_loss.default: common(smooth_l1_loss),
    _aten.sort.default: extrema.sort,
    _aten.sort.stable: extrema.sort_stable,
    _aten.split.Tensor: empties.split,
    _aten.special_erf.default: floating(aten_erf),
    _aten.special_entr.default: floating(special.entr),
    _aten.special_erfc.default: floating(special.erfc),
    _aten.special_erfcx.default: floating(special.erfcx),
    _aten.special_expm1.default: floating(special.expm1),
    _aten.special_log1p.default: floating(special.log1p),
    _aten.special_log_ndtr.default: floating(special.log_ndtr),
    _aten.special_logit.default: floating(special.logit),
    _aten.special_ndtr.default: floating(special.ndtr),
    _aten.special_sinc.default: floating(special.sinc),
    _aten.special_xlog1py.default: floating(special.xlog1py),
    _aten.special_xlog1py.other_scalar: floating(special.xlog1py),
    _aten.special_xlog1py.self_scalar: floating(special.xlog1py),
    _aten.special_xlogy.default: floating(special.xlogy),
    _aten.special_xlogy.other_scalar: floating(special.xlogy),
    _aten.special_xlogy.self_scalar: floating(special.xlogy),
    _aten.unsafe_split.Tensor: empties.split,
    _aten.std.correction: norms.std_correction,
    _aten.std.default: norms.std,
    _aten.std.dim: norms.std_dim,
    _aten.subtract.Tensor: common(aten_sub),
    _aten.topk.default: extrema.topk,
    _aten.trace.default: stacking.trace,
    _aten.var.correction: empties.var_correction,
    _aten.var.default: empties.var,
    _aten.var.dim: empties.var_dim,
    _aten.var_mean.correction: empties.var_mean_correction,
    _aten.var_mean.default: empties.var_mean,
    _aten.var_mean.dim: empties.var_mean_dim,
    _aten.vstack.default: stacking.vstack,
    _aten.xlogy.Scalar_Other: special.xlogy,
    _aten.xlogy.Scalar_Self: special.xlogy,
    _aten.xlogy.Tensor: special.xlogy,
    _aten.erfc.default: special.erfc,
    torch.ops.prims.prod.default: product,
    torch.ops.prims.signbit.default: special.signbit,
}


_FOR_TRAINING: Mapping[Callable[..., object], Callable[..., object]] = {
    _aten.adaptive_max_pool1d.default: adaptive_max_pool(1),
    _aten.adaptive_max_pool2d.default: adaptive_max_pool(2),
    _aten.adaptive_max_pool3d.default: adaptive_max_pool(3),
    _aten.bernoulli.p: bernoulli,
    _aten.detach.default: stop,
    _aten.binary_cross_entropy.default: binary_cross_entropy,
    _aten.embedding.default: embedding,
    _aten.fake_quantize_per_channel_affine.default: quantization.per_channel,
    _aten.fake_quantize_per_tensor_affine.default: quantization.per_tensor,
    _aten.fake_quantize_per_tensor_affine.tensor_qparams: quantization.per_tensor_by_values,
    _aten.hardtanh.default: limits.hardtanh,
    _aten.max.dim: extrema.first_along("ReduceMax"),
    _aten.min.dim: extrema.first_along("ReduceMin"),
    _aten.relu6.default: limits.relu6,
}


def translations(*, training: bool) -> dict[Callable[..., object], Callable[..., object]]:
    """Return what translates an operator better than the exporter does."""
    return {**_ALWAYS, **_FOR_TRAINING} if training else dict(_ALWAYS)
