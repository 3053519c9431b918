"""Complex numbers, of which ONNX has none: operators on them, by real ones on both parts.

The exporter has a pair of real numbers for each, in one more axis, and forms of its own for about
forty operators on them. The others become operators on the parts here, and `torch.complex` of what
these give; between operators complex tensors stay what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from sambac.frontend.torch.states import is_complex

_Operator: TypeAlias = torch._ops.OpOverload
_Form: TypeAlias = Callable[..., object]
"""What computes an operator: from it, its arguments and its keywords."""

_aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def on_parts(found: set[object]) -> dict[Callable[..., object], Callable[..., object]]:
    """Return decompositions for a program that computes with complex numbers in `found` operators.

    They are those of the operators that the exporter has no form of.
    """
    # What writes is another operator there; what PyTorch composes of others stays where it is real.
    return {
        operator: _decomposed(operator)
        for operator in _FORMS
        if operator in found or not _is_composite(operator)
    }


def _is_composite(operator: _Operator) -> bool:
    """Tell whether PyTorch itself composes `operator` of others."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator._name, _COMPOSITE))


def _decomposed(operator: _Operator) -> Callable[..., object]:
    form = _FORMS[operator]

    def compute(*args: Any, **kwargs: Any) -> object:
        pairs = [*filter(is_complex, pytree.tree_leaves((args, kwargs)))]
        tensors = any(isinstance(item, torch.Tensor) for item in pairs)
        turned = is_complex(kwargs.get("alpha"))
        if pairs and (turned or not (tensors and operator in _ON_NUMBERS)):
            return form(operator, args, kwargs)
        if _is_composite(operator):
            return operator._op_dk(_COMPOSITE, *args, **kwargs)
        return NotImplemented

    return compute


def _parts(item: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part of a tensor, of a number, or of each in a list."""
    if isinstance(item, (list, tuple)):
        both = [_parts(each) for each in item]
        return [real for real, _ in both], [imaginary for _, imaginary in both]
    if not isinstance(item, torch.Tensor):
        return (item.real, item.imag) if isinstance(item, complex) else (item, 0)
    if not item.is_complex():
        return item, torch.zeros_like(item)
    if item.is_conj():
        real, imaginary = _parts(item.conj())
        return real, -imaginary
    pairs = torch.view_as_real(item)
    return pairs.select(-1, 0), pairs.select(-1, 1)


def _both(real: Any, imaginary: Any) -> object:
    if isinstance(real, (list, tuple)):
        return [torch.complex(*parts) for parts in zip(real, imaginary, strict=True)]
    return torch.complex(real, imaginary)


def _real_types(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords in which types of complex numbers are those of their parts."""
    return {
        key: value.to_real() if isinstance(value, torch.dtype) else value
        for key, value in kwargs.items()
    }


def _each_part(*values: int) -> _Form:
    """Return the form of an operator that does with each part what it does with both.

    `values` are the positions of the arguments that have parts. Where real numbers are asked for,
    there is the real part alone.
    """

    def form(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        split = [_parts(item) if at in values else (item, item) for at, item in enumerate(args)]
        real, imaginary = zip(*split, strict=True)
        if isinstance(kwargs.get("dtype"), torch.dtype) and not is_complex(kwargs["dtype"]):
            return operator(*real, **kwargs)
        real_types = _real_types(kwargs)
        return _both(operator(*real, **real_types), operator(*imaginary, **real_types))

    return form


def _product(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Multiply the tensors among `args`, or in a list among them: i i = -1."""
    leaves, structure = pytree.tree_flatten(list(args))
    choices = [enumerate(_parts(leaf)) if is_complex(leaf) else ((0, leaf),) for leaf in leaves]
    terms: dict[int, Any] = {0: 0, 1: 0}
    for chosen in itertools.product(*choices):
        turns = sum(at for at, _ in chosen)
        term = operator(*pytree.tree_unflatten([part for _, part in chosen], structure), **kwargs)
        terms[turns % 2] = terms[turns % 2] + (-term if turns % 4 > 1 else term)
    return torch.complex(terms[0], terms[1])


def _sum(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Add or subtract `args[1]`, times `alpha`."""
    alpha = kwargs.get("alpha", 1)
    if is_complex(alpha):
        return operator(args[0], args[1] * alpha)
    return _each_part(0, 1)(operator, args, kwargs)


def _linear(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    product: Any = _product(operator, args[:2], kwargs)
    return product if len(args) < 3 or args[2] is None else product + args[2]


def _ones(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    ones: Any = operator(*args, **_real_types(kwargs))
    return torch.complex(ones, torch.zeros_like(ones))


def _of_parts(function: Callable[[Any, Any], tuple[Any, Any]]) -> _Form:
    """Return the form of a function of one number, whose parts `function` gives."""

    def form(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        return torch.complex(*function(*_parts(args[0])))

    return form


def _exp(real: Any, imaginary: Any) -> tuple[Any, Any]:
    size = real.exp()
    return size * imaginary.cos(), size * imaginary.sin()


def _log(real: Any, imaginary: Any) -> tuple[Any, Any]:
    return torch.hypot(real, imaginary).log(), torch.atan2(imaginary, real)


def _angle(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Return atan2 of the parts: the exporter's own has -pi for numbers below 0, and 0 for NaN."""
    real, imaginary = _parts(args[0])
    return torch.atan2(imaginary, real)


def _sqrt(real: Any, imaginary: Any) -> tuple[Any, Any]:
    size, angle = _log(real, imaginary)
    return _exp(size / 2, angle / 2)


_MOST_FACTORS = 8


def _pow(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    base, (exponent, turn) = args[0], _parts(args[1])
    if turn or not is_complex(base):
        return NotImplemented
    if exponent in range(1, _MOST_FACTORS + 1):
        result = base
        for _ in range(int(exponent) - 1):
            result = result * base
        return result
    if exponent == 0:
        return torch.ones_like(_parts(base)[0]) + torch.zeros_like(base)
    real, imaginary = _log(*_parts(base))
    return torch.complex(*_exp(real * exponent, imaginary * exponent))


_FORMS: Mapping[_Operator, _Form] = {
    **dict.fromkeys(
        (
            *(_aten.alias.default, _aten.cumsum.default, _aten.detach.default),
            _aten.diagonal.default,
            *(_aten.expand.default, _aten.gather.default, _aten.index.Tensor),
            *(_aten.index_select.default, _aten.new_zeros.default),
            *(_aten.repeat.default, _aten.select.int, _aten.split.Tensor),
            *(_aten.split_with_sizes.default, _aten.squeeze.default, _aten.squeeze.dims),
            *(_aten.tril.default, _aten.triu.default, _aten.unbind.int, _aten.unfold.default),
            *(_aten.unsqueeze.default, _aten.zeros_like.default),
        ),
        _each_part(0),
    ),
    _aten.add.Tensor: _sum,
    _aten.angle.default: _angle,
    _aten.bmm.default: _product,
    _aten.constant_pad_nd.default: _each_part(0, 2),
    _aten.copy.default: _each_part(0, 1),
    _aten.cos.default: _of_parts(lambda a, b: (a.cos() * b.cosh(), -a.sin() * b.sinh())),
    _aten.cosh.default: _of_parts(lambda a, b: (a.cosh() * b.cos(), a.sinh() * b.sin())),
    _aten.dot.default: _product,
    _aten.einsum.default: _product,
    _aten.exp.default: _of_parts(_exp),
    _aten.fill.Scalar: _each_part(0, 1),
    _aten.fill.Tensor: _each_part(0, 1),
    _aten.full.default: _each_part(1),
    _aten.full_like.default: _each_part(0, 1),
    _aten.index_put.default: _each_part(0, 2),
    _aten.linear.default: _linear,
    _aten.log.default: _of_parts(_log),
    _aten.masked_fill.Scalar: _each_part(0, 2),
    _aten.masked_fill.Tensor: _each_part(0, 2),
    _aten.mm.default: _product,
    _aten.mul.Tensor: _product,
    _aten.mv.default: _product,
    _aten.ones.default: _ones,
    _aten.pad.default: _each_part(0, 3),
    _aten.pow.Tensor_Scalar: _pow,
    _aten.rsub.Tensor: lambda operator, args, kwargs: _aten.sub.Tensor(args[1], args[0], **kwargs),
    _aten.select_scatter.default: _each_part(0, 1),
    _aten.sin.default: _of_parts(lambda a, b: (a.sin() * b.cosh(), a.cos() * b.sinh())),
    _aten.sinh.default: _of_parts(lambda a, b: (a.sinh() * b.cos(), a.cosh() * b.sin())),
    _aten.slice_scatter.default: _each_part(0, 1),
    _aten.sqrt.default: _of_parts(_sqrt),
    _aten.sub.Tensor: _sum,
    _aten.where.self: _each_part(1, 2),
    _aten.zeros.default: _each_part(),
}

_ON_NUMBERS = frozenset({_aten.add.Tensor, _aten.mul.Tensor, _aten.sub.Tensor})
"""Of these the exporter has forms for complex tensors, but none for numbers that are complex."""
